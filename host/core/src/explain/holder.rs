//! Which worker holds a lease, and which one asked for it.

use std::fmt;
use std::time::Duration;

use crate::fleet::Incarnation;
use crate::lease::{Pulse, WorkerId};

/// The owner of a lease, as far as the rows show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The worker that the lease's row names.
    pub worker: WorkerId,
    /// The run that registered; `None` if the worker is not registered: a KCL's, or one that died
    /// long ago.
    pub run: Option<Incarnation>,
    /// For how long neither its heart nor the row was seen to move.
    pub silent: Duration,
    /// Whether it is alive, judged by that silence.
    pub pulse: Pulse,
    /// Whether it is shutting down.
    pub is_leaving: bool,
    /// Why it cannot write lease rows, if it reports that.
    pub cannot_write: Option<String>,
}

/// A claim on a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The worker that asked.
    pub by: WorkerId,
    /// How long the claim has been in the row, as far as it was watched.
    pub waited: Duration,
    /// Whether the claim counts: the claimant is alive, and has not waited too long.
    pub is_fresh: bool,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.run {
            Some(run) => write!(f, "run {run}, ")?,
            None => f.write_str("not registered, ")?,
        }
        match self.pulse {
            Pulse::Beats if self.is_leaving => f.write_str("alive, shutting down"),
            pulse => pulse.fmt(f),
        }
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let validity = if self.is_fresh {
            "waiting for it"
        } else {
            "void"
        };
        write!(f, "{}, {validity}", self.by)
    }
}
