use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::lease::WorkerId;
use crate::rollout::VersionRow;
use crate::scaling::HostLoad;
use crate::text::one_line;

/// One run of one worker: a restart under the same worker id is another incarnation.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(Arc<str>);

impl Incarnation {
    /// `None` for an empty name.
    pub fn new(name: &str) -> Option<Self> {
        (!name.is_empty()).then(|| Self(name.into()))
    }

    /// From 64 random bits.
    pub fn from_random(bits: u64) -> Self {
        Self(format!("{bits:016x}").into())
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&one_line(&self.0))
    }
}

impl fmt::Debug for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A worker's registration and heartbeat. While its beat moves, the leases it owns are held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerRow {
    /// The worker's id, under which it owns leases.
    pub worker: WorkerId,
    /// The run of the worker; a heartbeat of another run fails.
    pub incarnation: Incarnation,
    /// Raised by one with every heartbeat.
    pub beat: u64,
    /// How long its heart may be silent before others take its leases: its own setting, so that
    /// hosts with different settings can share a table.
    pub lease_duration: Duration,
    /// Whether it is shutting down: it takes nothing more and is left out of fair shares.
    pub is_draining: bool,
    /// Most unfinished leases it will hold.
    pub max_leases: usize,
    /// The versions of the plugin that it has; the running one comes first. Empty if it does not
    /// report them.
    pub versions: Vec<VersionRow>,
    /// The artifact whose component it runs and whose manifest it follows, if it pulled one; as
    /// people see it, with its digest or its tag.
    pub artifact: Option<String>,
    /// Why it cannot write the row of a lease that it holds, if it cannot. While all hosts report
    /// this, none gives leases up in the hope that another one does better.
    pub cannot_write: Option<String>,
    /// Why it cannot look after leases, if it cannot: it keeps what it has, and takes and creates
    /// none. For people only.
    pub cannot_look: Option<String>,
    /// What it measured of the load; `None` if it does not measure it, or not yet.
    pub load: Option<HostLoad>,
}

#[cfg(test)]
impl WorkerRow {
    /// A host that beats, whose leases last 10 s, and that has no trouble.
    pub(crate) fn beating(name: &str) -> Self {
        Self {
            worker: WorkerId::new(name).unwrap(),
            incarnation: Incarnation::new("run").unwrap(),
            beat: 1,
            lease_duration: Duration::from_secs(10),
            is_draining: false,
            max_leases: usize::MAX,
            versions: Vec::new(),
            artifact: None,
            cannot_write: None,
            cannot_look: None,
            load: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_a_name_of_sixteen_digits_and_never_none() {
        assert_eq!(Incarnation::from_random(0xff).as_str(), "00000000000000ff");
        assert_eq!(
            Incarnation::from_random(0xff).to_string(),
            "00000000000000ff"
        );
        assert_eq!(Incarnation::new(""), None);
    }
}
