//! Writes down a path of the model as a history, so that the model and [`shardmill_invariants::check`] judge each other.

use std::collections::BTreeSet;

use shardmill_invariants::history::{
    Call, CallResult, Checkpoint, Delivery, Event, HostChange, Micros, Outcome, Row, ShardInfo, Topology, What, Write,
    WriteKind,
};

use super::state::{HOSTS, SHARDS, TICK, checkpoint, place};

/// A step of the protocol takes this long.
const STEP: Micros = 100;

/// Takes down events; or does nothing, in the exhaustive search.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    pub(crate) events: Vec<Event>,
    pub(crate) now: Micros,
    is_on: bool,
    /// When each host sent the call it waits for, and the one it gave up.
    pub(crate) call_sent_at: [Micros; 2],
    pub(crate) ghost_sent_at: [Micros; 2],
    ids: u64,
}

impl Recorder {
    pub(crate) fn off() -> Self {
        Self::default()
    }

    /// The stream, the hosts, and a row for the parent, which has split already.
    pub(crate) fn on(records: u8) -> Self {
        let mut recorder = Self { is_on: true, now: TICK, ..Self::default() };
        let half = u128::MAX / 2;
        let shard = |id: &str, range| ShardInfo { id: id.to_owned(), range };
        let shards = vec![shard("p", (0, u128::MAX))];
        recorder.push(What::Topology(Topology::Created { identity: 1, shards }));
        let produced = |shard: &str, number| What::Produced {
            shard: shard.to_owned(),
            at: place(number),
            key: String::new(),
            arrived_at: TICK,
        };
        for record in 1..=records {
            recorder.push(produced("p", record));
        }
        let children = vec![shard("l", (0, half)), shard("r", (half + 1, u128::MAX))];
        recorder.push(What::Topology(Topology::Split { parent: "p".to_owned(), children }));
        recorder.push(produced("l", 100));
        recorder.push(produced("r", 100));
        for host in 0..2 {
            recorder.host(host, HostChange::Started);
        }
        recorder.created(0, 0);
        recorder
    }

    pub(crate) fn push(&mut self, what: What) {
        if self.is_on {
            self.now += STEP;
            self.events.push(Event { at: self.now, what });
        }
    }

    pub(crate) fn tick(&mut self) {
        self.now += TICK;
    }

    pub(crate) fn host(&mut self, host: usize, change: HostChange) {
        if self.is_on {
            self.push(What::Host { host: HOSTS[host].to_owned(), change });
        }
    }

    pub(crate) fn created(&mut self, by: usize, shard: usize) {
        if !self.is_on {
            return;
        }
        let row = fresh(shard);
        let (sent_at, key, by) = (self.now, SHARDS[shard].to_owned(), Some(HOSTS[by].to_owned()));
        let kind = WriteKind::Create;
        self.push(What::Written(Write { key, by, kind, before: None, after: Some(row), sent_at }));
    }

    pub(crate) fn called(&mut self, host: usize, kind: Option<WriteKind>, result: CallResult, sent_at: Micros) {
        if !self.is_on {
            return;
        }
        let (host, key) = (HOSTS[host].to_owned(), "p".to_owned());
        let (local_sent_at, local_at) = (sent_at, self.now + STEP);
        self.push(What::Called(Call { host, key, kind, result, sent_at, local_sent_at, local_at }));
    }

    pub(crate) fn said_end(&mut self, host: usize) {
        if self.is_on {
            self.push(What::SaidEnd { host: HOSTS[host].to_owned(), shard: "p".to_owned() });
        }
    }

    pub(crate) fn delivered(&mut self, host: usize, shard: usize, epoch: u8, record: u8) {
        if !self.is_on {
            return;
        }
        self.ids += 1;
        let id = self.ids;
        self.push(What::DeliveryStarted(Delivery {
            id,
            host: HOSTS[host].to_owned(),
            shard: SHARDS[shard].to_owned(),
            epoch: epoch.into(),
            places: vec![place(record)],
            digest: "v1".to_owned(),
            instance: 1,
            attempt: 1,
            local_at: self.now + STEP,
        }));
        self.push(What::DeliveryEnded { id, outcome: Outcome::Ok, failed: Vec::new() });
    }

    /// A take of a child and its only record, in one step.
    pub(crate) fn child_served(&mut self, host: usize, shard: usize) {
        if !self.is_on {
            return;
        }
        let (before, sent_at) = (fresh(shard), self.now);
        let by = Some(HOSTS[host].to_owned());
        let after = Row { owner: by.clone(), counter: 1, ..before.clone() };
        let (kind, key) = (WriteKind::Take { seen: 0 }, SHARDS[shard].to_owned());
        let write = Write { key: key.clone(), by, kind, before: Some(before), after: Some(after), sent_at };
        self.push(What::Written(write));
        let (host_name, local_at) = (HOSTS[host].to_owned(), self.now + STEP);
        let (kind, result) = (Some(kind), CallResult::Ok);
        let call = Call { host: host_name, key, kind, result, sent_at, local_sent_at: sent_at, local_at };
        self.push(What::Called(call));
        self.delivered(host, shard, 1, 100);
    }
}

fn fresh(shard: usize) -> Row {
    let half = u128::MAX / 2;
    let range = [(0, u128::MAX), (0, half), (half + 1, u128::MAX)][shard];
    let parents: BTreeSet<String> = if shard == 0 { BTreeSet::new() } else { BTreeSet::from(["p".to_owned()]) };
    let initial: Checkpoint = checkpoint(0);
    let (owner, counter, children, claimant) = (None, 0, BTreeSet::new(), None);
    Row { owner, counter, checkpoint: initial, parents, children, range: Some(range), claimant }
}
