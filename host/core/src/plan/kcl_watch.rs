//! Whether a KCL shares the lease table: because the configuration says so, or because one was
//! seen.

use std::time::Duration;

use crate::time::Moment;

/// A KCL that was seen counts as gone once no lease of a foreign owner moved for this many
/// lease durations: five minutes by default, which is longer than a KCL's worker takes to start
/// again.
const FORGOTTEN_AFTER_LEASES: u32 = 30;

/// What one host knows of a KCL beside it. While there is one, rows are renewed, since it knows no
/// heartbeats.
#[derive(Debug, Clone, Copy)]
pub struct KclWatch {
    is_configured: bool,
    seen_at: Option<Moment>,
}

impl KclWatch {
    /// `is_configured`: the configuration says that a KCL shares the table.
    pub fn new(is_configured: bool) -> Self {
        Self {
            is_configured,
            seen_at: None,
        }
    }

    /// Notes that a lease moved under an owner that does not belong to the fleet.
    pub fn saw_foreign(&mut self, at: Moment) {
        self.seen_at = Some(at);
    }

    /// Whether rows must be renewed, because a KCL may look at them.
    pub fn is_shared(&self, now: Moment, lease_duration: Duration) -> bool {
        let is_recent = |at: Moment| now.since(at) <= lease_duration * FORGOTTEN_AFTER_LEASES;
        self.is_configured || self.seen_at.is_some_and(is_recent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kcl_that_was_found_out_is_forgotten_after_a_while_and_one_that_was_told_of_never() {
        let at = |seconds| Moment::from_origin(Duration::from_secs(seconds));
        let lease = Duration::from_secs(10);
        let mut watch = KclWatch::new(false);
        assert!(!watch.is_shared(at(1_000), lease));
        watch.saw_foreign(at(1_000));
        assert!(watch.is_shared(at(1_300), lease) && !watch.is_shared(at(1_301), lease));
        watch.saw_foreign(at(1_400));
        assert!(watch.is_shared(at(1_401), lease), "it came back");
        assert!(KclWatch::new(true).is_shared(at(9_999), lease));
    }
}
