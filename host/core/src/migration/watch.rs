//! Which workers of an old fleet are alive, judged by what changes between looks.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Found;
use crate::lease::{Pulse, Watched};
use crate::time::Moment;

/// What the looks so far have shown about a fleet's workers.
#[derive(Debug, Clone, Default)]
pub struct FleetWatch {
    workers: BTreeMap<String, Sighting>,
    first_look: Option<Moment>,
    /// When a worker last came, left or was seen to write.
    moved_at: Option<Moment>,
}

#[derive(Debug, Clone)]
struct Sighting {
    sign: String,
    moved_at: Moment,
    has_moved: bool,
    shards: usize,
}

/// One worker of the old fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerLife {
    /// Its name in the library's tables.
    pub worker: String,
    /// Unfinished shards that it owns.
    pub shards: usize,
    /// Whether it is alive.
    pub pulse: Pulse,
}

impl FleetWatch {
    /// Takes in one look. A worker that is no longer in the tables has left: it released its
    /// shards, or its peers took them.
    pub fn observe(&mut self, found: &Found, now: Moment) {
        let is_first = self.first_look.is_none();
        self.first_look.get_or_insert(now);
        let earlier = std::mem::take(&mut self.workers);
        let left = earlier
            .keys()
            .any(|worker| !found.signs.contains_key(worker));
        let mut is_moving = is_first || left;
        for (worker, sign) in &found.signs {
            let known = earlier.get(worker);
            let moves = known.map_or(!is_first, |known| known.sign != *sign);
            is_moving |= moves;
            let sighting = Sighting {
                sign: sign.clone(),
                moved_at: match known {
                    Some(known) if !moves => known.moved_at,
                    Some(_) | None => now,
                },
                has_moved: moves || known.is_some_and(|known| known.has_moved),
                shards: found.shards_of(worker),
            };
            self.workers.insert(worker.clone(), sighting);
        }
        self.moved_at = if is_moving { Some(now) } else { self.moved_at };
    }

    /// What the looks up to `now` show about each worker, if its peers wait for `failover_time`.
    pub fn lives(&self, now: Moment, failover_time: Duration) -> Vec<WorkerLife> {
        let mut lives = Vec::with_capacity(self.workers.len());
        for (worker, seen) in &self.workers {
            lives.push(WorkerLife {
                worker: worker.clone(),
                shards: seen.shards,
                pulse: Pulse::of(&Watched {
                    lease_duration: failover_time,
                    silent: now.since(seen.moved_at),
                    has_written: seen.has_moved,
                }),
            });
        }
        lives
    }

    /// How long ago a worker last came, left or wrote.
    pub fn quiet_for(&self, now: Moment) -> Duration {
        self.moved_at
            .map_or(Duration::ZERO, |moved| now.since(moved))
    }

    /// How long the fleet has been watched.
    pub fn watched_for(&self, now: Moment) -> Duration {
        self.first_look
            .map_or(Duration::ZERO, |first| now.since(first))
    }
}
