//! Writes down a path of the model as a history, so that the model and
//! [`shardmill_invariants::check`] judge each other.

use std::collections::BTreeSet;

use shardmill_invariants::history::{
    Call, CallResult, Checkpoint, Delivery, Event, Heartbeat, HostChange, Micros, Outcome, Place,
    Row, ShardInfo, Topology, What, Write, WriteKind,
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
    /// When the heartbeat was sent that is waited for.
    pub(crate) beat_sent_at: Micros,
    /// The counter that the last take asked for.
    pub(crate) take_seen: u64,
    /// The row of a history with one shard, whose counter is never forgotten here.
    pub(crate) row_counter: u64,
    row_owner: Option<usize>,
    /// The epoch of the holder's tenure: of its last take that was applied.
    held_under: u64,
    delivered_under: u64,
    records: u64,
}

impl Recorder {
    pub(crate) fn off() -> Self {
        Self::default()
    }

    /// The stream, the hosts, and a row for the parent, which has split already.
    pub(crate) fn on(records: u8) -> Self {
        let mut recorder = Self {
            is_on: true,
            now: TICK,
            ..Self::default()
        };
        let half = u128::MAX / 2;
        let shard = |id: &str, range| ShardInfo {
            id: id.to_owned(),
            range,
        };
        let shards = vec![shard("p", (0, u128::MAX))];
        recorder.push(What::Topology(Topology::Created {
            identity: 1,
            shards,
        }));
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
        recorder.push(What::Topology(Topology::Split {
            parent: "p".to_owned(),
            children,
        }));
        recorder.push(produced("l", 100));
        recorder.push(produced("r", 100));
        for host in 0..2 {
            recorder.host(host, HostChange::Started);
        }
        recorder.created(0, 0);
        recorder
    }

    /// The hosts, and a shard with a free row, whose records come as they are delivered.
    pub(crate) fn one_shard() -> Self {
        let mut recorder = Self {
            is_on: true,
            now: TICK,
            ..Self::default()
        };
        let shards = vec![ShardInfo {
            id: "p".to_owned(),
            range: (0, u128::MAX),
        }];
        recorder.push(What::Topology(Topology::Created {
            identity: 1,
            shards,
        }));
        for host in 0..2 {
            recorder.host(host, HostChange::Started);
        }
        recorder.created(0, 0);
        recorder.beat_sent_at = recorder.now;
        recorder.heartbeat(0, true, CallResult::Ok);
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
            self.push(What::Host {
                host: HOSTS[host].to_owned(),
                change,
            });
        }
    }

    pub(crate) fn created(&mut self, by: usize, shard: usize) {
        if !self.is_on {
            return;
        }
        let row = fresh(shard);
        let (sent_at, key, by) = (
            self.now,
            SHARDS[shard].to_owned(),
            Some(HOSTS[by].to_owned()),
        );
        let kind = WriteKind::Create;
        self.push(What::Written(Write {
            key,
            by,
            kind,
            before: None,
            after: Some(row),
            sent_at,
        }));
    }

    pub(crate) fn called(
        &mut self,
        host: usize,
        kind: Option<WriteKind>,
        result: CallResult,
        sent_at: Micros,
    ) {
        if !self.is_on {
            return;
        }
        let (host, key) = (HOSTS[host].to_owned(), "p".to_owned());
        let (local_sent_at, local_at) = (sent_at, self.now + STEP);
        self.push(What::Called(Call {
            host,
            key,
            kind,
            result,
            sent_at,
            local_sent_at,
            local_at,
        }));
    }

    pub(crate) fn heartbeat(&mut self, host: usize, is_registration: bool, result: CallResult) {
        if !self.is_on {
            return;
        }
        let (host, sent_at, local_at) =
            (HOSTS[host].to_owned(), self.beat_sent_at, self.now + STEP);
        self.push(What::Heartbeat(Heartbeat {
            host,
            is_registration,
            result,
            sent_at,
            local_sent_at: sent_at,
            local_at,
        }));
    }

    /// A write to the one shard's row, which was applied.
    pub(crate) fn row_written(&mut self, by: usize, kind: WriteKind, sent_at: Micros) {
        if !self.is_on {
            return;
        }
        let name = |host: usize| HOSTS[host].to_owned();
        let before = Row {
            owner: self.row_owner.map(name),
            counter: self.row_counter,
            ..fresh(0)
        };
        self.row_owner = Some(by);
        self.row_counter += 1;
        if matches!(kind, WriteKind::Take { .. }) && by == 0 {
            self.held_under = self.row_counter;
        }
        let after = Row {
            owner: Some(name(by)),
            counter: self.row_counter,
            ..before.clone()
        };
        let (before, after) = (Some(before), Some(after));
        self.push(What::Written(Write {
            key: "p".to_owned(),
            by: Some(name(by)),
            kind,
            before,
            after,
            sent_at,
        }));
    }

    /// One more record, and its delivery under the last tenure.
    pub(crate) fn next_delivered(&mut self, host: usize) {
        if !self.is_on {
            return;
        }
        self.records += 1;
        let at = Place::plain(&self.records.to_string());
        let (shard, key, arrived_at) = ("p".to_owned(), String::new(), self.now);
        self.push(What::Produced {
            shard,
            at,
            key,
            arrived_at,
        });
        // A new tenure begins where the row says, which was never moved.
        let is_first =
            std::mem::replace(&mut self.delivered_under, self.held_under) != self.held_under;
        let from = if is_first { 1 } else { self.records };
        let places = (from..=self.records).map(|record| Place::plain(&record.to_string()));
        self.delivery(host, 0, self.held_under, places.collect());
    }

    pub(crate) fn said_end(&mut self, host: usize) {
        if self.is_on {
            self.push(What::SaidEnd {
                host: HOSTS[host].to_owned(),
                shard: "p".to_owned(),
            });
        }
    }

    pub(crate) fn delivered(&mut self, host: usize, shard: usize, epoch: u8, record: u8) {
        self.delivery(host, shard, epoch.into(), vec![place(record)]);
    }

    fn delivery(&mut self, host: usize, shard: usize, epoch: u64, places: Vec<Place>) {
        if !self.is_on {
            return;
        }
        self.ids += 1;
        let id = self.ids;
        self.push(What::DeliveryStarted(Delivery {
            id,
            host: HOSTS[host].to_owned(),
            shard: SHARDS[shard].to_owned(),
            epoch,
            places,
            digest: "v1".to_owned(),
            instance: 1,
            attempt: 1,
            local_at: self.now + STEP,
        }));
        self.push(What::DeliveryEnded {
            id,
            outcome: Outcome::Ok,
            failed: Vec::new(),
        });
    }

    /// A take of a child and its only record, in one step.
    pub(crate) fn child_served(&mut self, host: usize, shard: usize) {
        if !self.is_on {
            return;
        }
        let (before, sent_at) = (fresh(shard), self.now);
        let by = Some(HOSTS[host].to_owned());
        let after = Row {
            owner: by.clone(),
            counter: 1,
            ..before.clone()
        };
        let (kind, key) = (WriteKind::Take { seen: 0 }, SHARDS[shard].to_owned());
        let write = Write {
            key: key.clone(),
            by,
            kind,
            before: Some(before),
            after: Some(after),
            sent_at,
        };
        self.push(What::Written(write));
        let (host_name, local_at) = (HOSTS[host].to_owned(), self.now + STEP);
        let (kind, result) = (Some(kind), CallResult::Ok);
        let call = Call {
            host: host_name,
            key,
            kind,
            result,
            sent_at,
            local_sent_at: sent_at,
            local_at,
        };
        self.push(What::Called(call));
        self.delivered(host, shard, 1, 100);
    }
}

fn fresh(shard: usize) -> Row {
    let half = u128::MAX / 2;
    let range = [(0, u128::MAX), (0, half), (half + 1, u128::MAX)][shard];
    let parents: BTreeSet<String> = if shard == 0 {
        BTreeSet::new()
    } else {
        BTreeSet::from(["p".to_owned()])
    };
    let initial: Checkpoint = checkpoint(0);
    let (owner, counter, children, claimant) = (None, 0, BTreeSet::new(), None);
    Row {
        owner,
        counter,
        checkpoint: initial,
        parents,
        children,
        range: Some(range),
        claimant,
    }
}
