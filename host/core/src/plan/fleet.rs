//! The world as the planner sees it.

use std::collections::BTreeSet;

use crate::lease::{Lease, Standing, WorkerId};
use crate::stream::{InitialPosition, Shard};

/// Everything a pass decides on; made afresh for each pass.
#[derive(Debug)]
pub struct FleetView<'a> {
    /// This host.
    pub me: &'a WorkerId,
    /// Every lease row.
    pub leases: &'a [ObservedLease],
    /// A complete shard list, if this pass has one.
    pub shards: Option<&'a [Shard]>,
    /// Whether this is the first pass after start.
    pub phase: Phase,
}

/// A row, and what this host may assume of it.
#[derive(Debug, Clone)]
pub struct ObservedLease {
    /// The row.
    pub lease: Lease,
    /// What the observer says of it.
    pub standing: Standing,
    /// Whether a pipeline of this process runs on it.
    pub is_mine: bool,
}

/// Where in its life a host is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The first pass: rows under this worker's id are left from an earlier run, and others may be starting too.
    Start,
    /// Later passes.
    Steady,
}

/// What bounds a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlanLimits {
    /// Where shards start that were never checkpointed.
    pub initial_position: InitialPosition,
    /// Most unfinished leases this host holds at once.
    pub max_leases: usize,
}

impl FleetView<'_> {
    /// Unfinished leases that this process holds.
    pub(super) fn held_count(&self) -> usize {
        self.leases.iter().filter(|observed| observed.is_mine && !observed.lease.is_finished()).count()
    }

    /// Unfinished leases.
    pub(super) fn unfinished_count(&self) -> usize {
        self.leases.iter().filter(|observed| !observed.lease.is_finished()).count()
    }

    /// Workers seen alive through a lease, and this one.
    pub(super) fn worker_count(&self) -> usize {
        let is_alive = |observed: &&ObservedLease| observed.standing == Standing::Held && !observed.lease.is_finished();
        let mut workers: BTreeSet<&WorkerId> =
            self.leases.iter().filter(is_alive).filter_map(|observed| observed.lease.owner.as_ref()).collect();
        workers.insert(self.me);
        workers.len()
    }
}
