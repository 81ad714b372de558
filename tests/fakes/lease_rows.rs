//! The rows of a lease table, with the conditions of the real one; no waiting and no faults.

use std::collections::BTreeMap;

use shardmill_core::control::Directives;
use shardmill_core::lease::{Checkpoint, Lease, LeaseToken, WorkerId};
use shardmill_core::ports::{
    BadRow, CheckpointWrite, Created, Deleted, Directing, LeaseListing, ObeyState, ObeyWrite,
    Progress, SavedState, ShardEndWrite, Took, Written,
};
use shardmill_core::stream::LeaseKey;

/// A table.
#[derive(Debug, Default)]
pub struct LeaseRows {
    rows: BTreeMap<LeaseKey, Lease>,
    states: BTreeMap<LeaseKey, SavedState>,
    bad_rows: Vec<BadRow>,
    foreign_rows: usize,
}

impl LeaseRows {
    /// All rows, and what else is in the table.
    pub fn list(&self) -> LeaseListing {
        LeaseListing {
            leases: self.rows.values().cloned().collect(),
            bad_rows: self.bad_rows.clone(),
            foreign_rows: self.foreign_rows,
            bytes: 0,
        }
    }

    /// One row.
    pub fn get(&self, key: &LeaseKey) -> Option<&Lease> {
        self.rows.get(key)
    }

    /// The state of a shard.
    pub fn state(&self, key: &LeaseKey) -> Option<&SavedState> {
        self.states.get(key)
    }

    /// Leaves a state for a holder that is told to take it over.
    pub fn stage_state(&mut self, key: &LeaseKey, state: SavedState) {
        self.states.insert(key.clone(), state);
    }

    /// Writes a row unconditionally, as an operator might.
    pub fn put(&mut self, lease: Lease) {
        self.rows.insert(lease.key.clone(), lease);
    }

    /// Removes a row unconditionally, as an operator might.
    pub fn remove(&mut self, key: &LeaseKey) -> Option<Lease> {
        self.rows.remove(key)
    }

    /// Adds a row that cannot be read.
    pub fn add_bad(&mut self, row: BadRow) {
        self.bad_rows.push(row);
    }

    /// Says that there are so many rows that are not leases.
    pub fn set_foreign(&mut self, count: usize) {
        self.foreign_rows = count;
    }

    /// As [`LeaseStore::create`](shardmill_core::ports::LeaseStore::create).
    pub fn create(&mut self, lease: &Lease) -> Created {
        if self.rows.contains_key(&lease.key) {
            return Created::Existed;
        }
        self.put(lease.clone());
        Created::New
    }

    /// As [`LeaseStore::take`](shardmill_core::ports::LeaseStore::take).
    pub fn take(&mut self, seen: &Lease, by: &WorkerId, wall_ms: u64) -> Took {
        let is_as_seen = |row: &Lease| row.counter == seen.counter && row.owner == seen.owner;
        let written = self.write(&seen.key, by, is_as_seen, |row| {
            if row.owner.as_ref().is_some_and(|owner| owner != by) {
                row.owner_switches += 1;
            }
            row.owner = Some(by.clone());
            row.checkpoint_owner = None;
            row.claimant = None;
            row.held_since_ms = Some(wall_ms);
        });
        let row = self.rows.get(&seen.key);
        match written {
            Written::Applied(token) => Took::Applied {
                token,
                directives: Box::new(row.map(|row| row.directives.clone()).unwrap_or_default()),
            },
            Written::Conflict(row) => Took::Conflict(row),
        }
    }

    /// As [`LeaseStore::direct`](shardmill_core::ports::LeaseStore::direct).
    pub fn direct(&mut self, seen: &Lease, next: &Directives) -> Directing {
        match self.rows.get_mut(&seen.key) {
            Some(row)
                if row.directives.version == seen.directives.version
                    && (seen.is_finished() || !row.is_finished()) =>
            {
                row.directives = next.clone();
                Directing::Applied(Box::new(row.clone()))
            }
            Some(row) => Directing::Changed(Some(Box::new(row.clone()))),
            None => Directing::Changed(None),
        }
    }

    /// As [`LeaseStore::obey`](shardmill_core::ports::LeaseStore::obey).
    pub fn obey(&mut self, token: &LeaseToken, write: &ObeyWrite) -> Written {
        let is_mine = |row: &Lease| {
            row.counter == token.counter
                && row.owner.as_ref() == Some(&token.owner)
                && row.directives.version == write.seen_version
        };
        let written = self.write(&token.key, &token.owner, is_mine, |row| {
            row.directives = write.next.clone();
            if let Some(to) = &write.to {
                row.checkpoint = to.clone();
                row.owner_switches = 0;
                row.settled_arrival_ms = None;
            }
            let arrived = write
                .progress
                .settled_arrival_ms
                .filter(|_| write.to.is_none());
            let progress = Progress {
                settled_arrival_ms: arrived,
                ..write.progress.clone()
            };
            note(row, &progress);
        });
        if matches!(written, Written::Applied(_)) {
            match &write.state {
                ObeyState::Untouched => {}
                ObeyState::Moved(saved) => {
                    self.states.insert(token.key.clone(), saved.clone());
                }
                ObeyState::Removed => {
                    self.states.remove(&token.key);
                }
                ObeyState::Imported { state, staged } => {
                    self.states.insert(token.key.clone(), state.clone());
                    self.states.remove(staged);
                }
            }
        }
        written
    }

    /// As [`LeaseStore::claim`](shardmill_core::ports::LeaseStore::claim).
    pub fn claim(&mut self, seen: &Lease, by: &WorkerId) -> Written {
        let Some(row) = self.rows.get_mut(&seen.key) else {
            return Written::Conflict(None);
        };
        match &row.owner {
            Some(owner) if row.owner == seen.owner && row.claimant == seen.claimant => {
                let owner = owner.clone();
                row.claimant = Some(by.clone());
                Written::Applied(row.token(owner))
            }
            Some(_) | None => Written::Conflict(Some(Box::new(row.clone()))),
        }
    }

    /// As [`LeaseStore::delete`](shardmill_core::ports::LeaseStore::delete).
    pub fn delete(&mut self, seen: &Lease) -> Deleted {
        match self.rows.get(&seen.key) {
            Some(row) if row.counter != seen.counter || row.owner != seen.owner => Deleted::Changed,
            Some(_) | None => {
                self.rows.remove(&seen.key);
                Deleted::Gone
            }
        }
    }

    /// As [`LeaseStore::renew`](shardmill_core::ports::LeaseStore::renew).
    pub fn renew(&mut self, token: &LeaseToken, progress: &Progress) -> Written {
        self.write_held(token, |row| note(row, progress))
    }

    /// As [`LeaseStore::checkpoint`](shardmill_core::ports::LeaseStore::checkpoint).
    pub fn checkpoint(&mut self, token: &LeaseToken, write: &CheckpointWrite) -> Written {
        let written = self.write_held(token, |row| {
            row.checkpoint.clone_from(&write.checkpoint);
            row.owner_switches = 0;
            note(row, &write.progress);
        });
        if let (Written::Applied(_), Some(bytes)) = (&written, &write.state) {
            let (checkpoint, plugin_digest) = (
                write.checkpoint.clone(),
                write.progress.plugin_digest.clone(),
            );
            let state = SavedState {
                bytes: bytes.clone(),
                checkpoint,
                plugin_digest,
            };
            self.states.insert(token.key.clone(), state);
        }
        written
    }

    /// As [`LeaseStore::end`](shardmill_core::ports::LeaseStore::end).
    pub fn end(&mut self, token: &LeaseToken, write: &ShardEndWrite) -> Written {
        let is_mine = |row: &Lease| {
            row.counter == token.counter
                && row.owner.as_ref() == Some(&token.owner)
                && row.directives.version == write.seen_version
        };
        let written = self.write(&token.key, &token.owner, is_mine, |row| {
            row.checkpoint = Checkpoint::ShardEnd;
            row.owner_switches = 0;
            row.children.clone_from(&write.children);
            row.children.sort();
            note(row, &write.progress);
        });
        if matches!(written, Written::Applied(_)) && write.keeps_state {
            self.states.remove(&token.key);
        }
        written
    }

    /// As [`LeaseStore::release`](shardmill_core::ports::LeaseStore::release).
    pub fn release(&mut self, token: &LeaseToken, progress: &Progress) -> Written {
        self.write_held(token, |row| {
            row.owner = None;
            note(row, progress);
        })
    }

    fn write_held(&mut self, token: &LeaseToken, change: impl FnOnce(&mut Lease)) -> Written {
        let is_held =
            |row: &Lease| row.counter == token.counter && row.owner.as_ref() == Some(&token.owner);
        self.write(&token.key, &token.owner, is_held, change)
    }

    fn write(
        &mut self,
        key: &LeaseKey,
        writer: &WorkerId,
        condition: impl FnOnce(&Lease) -> bool,
        change: impl FnOnce(&mut Lease),
    ) -> Written {
        let Some(row) = self.rows.get_mut(key) else {
            return Written::Conflict(None);
        };
        if !condition(row) {
            return Written::Conflict(Some(Box::new(row.clone())));
        }
        change(row);
        row.counter = row.counter.next();
        Written::Applied(row.token(writer.clone()))
    }
}

fn note(row: &mut Lease, progress: &Progress) {
    if let Some(digest) = &progress.plugin_digest {
        row.plugin_digest = Some(digest.clone());
    }
    if let Some(millis) = progress.millis_behind_latest {
        row.millis_behind_latest = Some(millis);
    }
    if let Some(millis) = progress.settled_arrival_ms {
        row.settled_arrival_ms = Some(millis);
    }
    if let Some(rate) = progress.bytes_per_second {
        row.bytes_per_second = Some(rate);
    }
    row.stuck.clone_from(&progress.stuck);
    if let Some(fill) = progress.state_fill {
        row.state_fill = Some(fill);
    }
    if let Some(given_up) = &progress.given_up {
        row.given_up = Some(given_up.clone());
    }
}
