//! The rows of a coordinator table, with the conditions of the real one; no waiting and no faults.

use std::collections::HashMap;

use shardmill_core::control::{Control, HistoryEntry};
use shardmill_core::fleet::{
    ApplicationStart, FleetRows, LeaderRow, Mail, Mailbox, StreamRow, WorkerRow,
};
use shardmill_core::lease::WorkerId;
use shardmill_core::plugin::PluginDigest;
use shardmill_core::ports::{CachedShards, Raced};
use shardmill_core::rollout::Quarantined;

/// A table.
#[derive(Debug, Default)]
pub struct CoordinatorRows {
    /// All small rows; to be changed as an operator might.
    pub fleet: FleetRows,
    /// The shard list.
    pub shards: Option<CachedShards>,
    /// What was left for each worker.
    pub mail: HashMap<WorkerId, Mail>,
    /// The last nudge of each worker.
    pub nudges: HashMap<WorkerId, u64>,
    /// What was done, in the order in which it was written down.
    pub history: Vec<HistoryEntry>,
}

impl CoordinatorRows {
    /// One worker's row.
    pub fn worker(&self, id: &WorkerId) -> Option<&WorkerRow> {
        self.fleet.workers.iter().find(|row| row.worker == *id)
    }

    /// As [`Coordinator::board`](shardmill_core::ports::Coordinator::board).
    pub fn board(&self) -> FleetRows {
        FleetRows {
            workers: Vec::new(),
            ..self.fleet.clone()
        }
    }

    /// As [`Coordinator::mailbox`](shardmill_core::ports::Coordinator::mailbox).
    pub fn mailbox(&self, id: &WorkerId) -> Mailbox {
        Mailbox {
            mail: self.mail.get(id).cloned(),
            nudge: self.nudges.get(id).copied(),
        }
    }

    /// As [`Coordinator::write_control`](shardmill_core::ports::Coordinator::write_control).
    pub fn write_control(&mut self, seen: &Control, next: &Control) -> Raced {
        let is_seen = self.fleet.control.version == seen.version;
        if is_seen {
            self.fleet.control = next.clone();
        }
        raced(is_seen)
    }

    /// As [`Coordinator::leave_mail`](shardmill_core::ports::Coordinator::leave_mail). Gives what
    /// was there.
    pub fn leave_mail(&mut self, id: &WorkerId, mail: Option<&Mail>) -> Option<Mail> {
        if let Some(mail) = mail {
            return self.mail.insert(id.clone(), mail.clone());
        }
        self.nudges.remove(id);
        self.mail.remove(id)
    }

    /// As [`Coordinator::register`](shardmill_core::ports::Coordinator::register).
    pub fn register(&mut self, seen: Option<&WorkerRow>, row: &WorkerRow) -> Raced {
        let run = |row: &WorkerRow| (row.incarnation.clone(), row.beat);
        if self.worker(&row.worker).map(run) != seen.map(run) {
            return Raced::Lost;
        }
        self.fleet.workers.retain(|kept| kept.worker != row.worker);
        self.fleet.workers.push(row.clone());
        Raced::Applied
    }

    /// As [`Coordinator::heartbeat`](shardmill_core::ports::Coordinator::heartbeat).
    pub fn heartbeat(&mut self, row: &WorkerRow) -> Raced {
        match self
            .fleet
            .workers
            .iter_mut()
            .find(|kept| kept.worker == row.worker)
        {
            Some(kept) if kept.incarnation == row.incarnation && kept.beat < row.beat => {
                *kept = row.clone();
                Raced::Applied
            }
            Some(_) | None => Raced::Lost,
        }
    }

    /// As [`Coordinator::remove_worker`](shardmill_core::ports::Coordinator::remove_worker).
    pub fn remove_worker(&mut self, row: &WorkerRow) -> Raced {
        let before = self.fleet.workers.len();
        self.fleet.workers.retain(|kept| {
            kept.worker != row.worker
                || kept.incarnation != row.incarnation
                || kept.beat != row.beat
        });
        raced(self.fleet.workers.len() < before)
    }

    /// As [`Coordinator::write_leader`](shardmill_core::ports::Coordinator::write_leader).
    pub fn write_leader(&mut self, seen: Option<&LeaderRow>, next: &LeaderRow) -> Raced {
        let is_seen =
            self.fleet.leader.as_ref().map(|row| row.version) == seen.map(|row| row.version);
        if is_seen {
            self.fleet.leader = Some(next.clone());
        }
        raced(is_seen)
    }

    /// As [`Coordinator::write_stream`](shardmill_core::ports::Coordinator::write_stream).
    pub fn write_stream(&mut self, seen: Option<&StreamRow>, next: &StreamRow) -> Raced {
        let identity = |row: &StreamRow| (row.name.clone(), row.identity);
        let is_seen = self.fleet.stream.as_ref().map(identity) == seen.map(identity);
        if is_seen {
            self.fleet.stream = Some(next.clone());
        }
        raced(is_seen)
    }

    /// As [`Coordinator::write_start`](shardmill_core::ports::Coordinator::write_start).
    pub fn write_start(&mut self, start: &ApplicationStart) -> Raced {
        let is_first = self.fleet.start.is_none();
        if is_first {
            self.fleet.start = Some(*start);
        }
        raced(is_first)
    }

    /// As [`Coordinator::quarantine`](shardmill_core::ports::Coordinator::quarantine).
    pub fn quarantine(&mut self, entry: &Quarantined) {
        self.release_version(&entry.digest);
        self.fleet.quarantined.push(entry.clone());
    }

    /// As [`Coordinator::release_version`](shardmill_core::ports::Coordinator::release_version).
    pub fn release_version(&mut self, digest: &PluginDigest) {
        self.fleet.quarantined.retain(|kept| kept.digest != *digest);
    }
}

fn raced(is_applied: bool) -> Raced {
    if is_applied {
        Raced::Applied
    } else {
        Raced::Lost
    }
}
