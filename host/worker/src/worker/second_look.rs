//! The second look, before a lease is taken from an owner that seems dead.

use std::collections::BTreeMap;

use shardmill_core::lease::{Lease, WorkerId};
use shardmill_core::seeded_bug::SeededBug;

use super::Worker;
use super::act::Chosen;

impl Worker {
    /// Leaves out leases of others whose owner's row, read consistently just now, shows more than
    /// this host has seen: a beat of one taken for dead, or the registration of one taken for a
    /// KCL's worker, which has none. Neither moves the lease's counter, so the take's own condition
    /// would not notice. What this host saw of the fleet may be older than what it saw of the
    /// lease, if a request took long.
    pub(super) async fn without_revived(&mut self, takes: Vec<Chosen>) -> Vec<Chosen> {
        let mut asked: BTreeMap<WorkerId, bool> = BTreeMap::new();
        let mut kept = Vec::new();
        for (seen, reason) in takes {
            let other = seen
                .owner
                .as_ref()
                .filter(|owner| **owner != self.options.worker);
            let other = other
                .filter(|_| !SeededBug::TakesWithoutSecondLook.is_on())
                .cloned();
            let may_take = match other.map(|owner| (asked.get(&owner).copied(), owner)) {
                None => true,
                Some((Some(is_dead), _)) => is_dead,
                Some((None, owner)) => {
                    let is_dead = self.is_still_dead(&owner, &seen).await;
                    asked.insert(owner, is_dead);
                    is_dead
                }
            };
            if may_take {
                kept.push((seen, reason));
            }
        }
        kept
    }

    /// What cannot be asked counts as a take that failed: nobody else would tell that leases of
    /// dead hosts stay where they are.
    async fn is_still_dead(&mut self, owner: &WorkerId, seen: &Lease) -> bool {
        let asked_at = self.ports.clock.now();
        match self.ports.coordinator.worker(owner).await {
            Ok(row) => {
                let row = row.as_ref().map(|row| (&row.incarnation, row.beat));
                let observer = &self.observed.observer;
                self.heeding
                    .is_as_seen(owner, row)
                    .unwrap_or_else(|| !observer.has_moved(owner, row))
            }
            Err(error) => {
                self.writes.note_take(asked_at, Some(&error));
                self.take_not_tried(seen, &error);
                false
            }
        }
    }
}
