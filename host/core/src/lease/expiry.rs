//! Expiry without clocks in the table: a lease has expired when *this* host saw no counter movement for the lease
//! duration on its own monotonic clock (KCL `DynamoDBLeaseTaker`).

use std::collections::HashMap;
use std::time::Duration;

use super::{Lease, LeaseCounter, WorkerId};
use crate::stream::LeaseKey;
use crate::time::Moment;

/// What an observer may assume of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Nobody owns it.
    Free,
    /// Its owner was seen alive within the lease duration, or has not been watched long enough.
    Held,
    /// Its owner was not seen to write for longer than the lease duration.
    Expired,
}

/// One host's memory of when it last saw each lease's counter move.
#[derive(Debug, Default)]
pub struct LeaseObserver {
    seen: HashMap<LeaseKey, Sighting>,
}

#[derive(Debug)]
struct Sighting {
    owner: Option<WorkerId>,
    counter: LeaseCounter,
    moved_at: Moment,
}

impl LeaseObserver {
    /// Takes in one listing of the table, read at `read_at`, and forgets rows that are gone.
    ///
    /// A row seen for the first time counts as moved now: a new host waits a full lease duration before it judges
    /// anybody dead.
    pub fn observe(&mut self, leases: &[Lease], read_at: Moment) {
        let mut seen = HashMap::with_capacity(leases.len());
        for lease in leases {
            let earlier = self.seen.remove(&lease.key);
            let moved_at = match earlier {
                Some(earlier) if earlier.counter == lease.counter && earlier.owner == lease.owner => earlier.moved_at,
                Some(_) | None => read_at,
            };
            let sighting = Sighting { owner: lease.owner.clone(), counter: lease.counter, moved_at };
            seen.insert(lease.key.clone(), sighting);
        }
        self.seen = seen;
    }

    /// Judges `lease` at `now`. A lease never observed is held, if it has an owner.
    pub fn standing(&self, lease: &Lease, now: Moment, lease_duration: Duration) -> Standing {
        if lease.owner.is_none() {
            return Standing::Free;
        }
        match self.seen.get(&lease.key) {
            Some(sighting) if now.since(sighting.moved_at) > lease_duration => Standing::Expired,
            Some(_) | None => Standing::Held,
        }
    }
}
