//! Writes histories: each step takes a millisecond, and all clocks agree unless told otherwise.

use std::collections::BTreeMap;

use crate::history::{
    Call, CallResult, Checkpoint, Delivery, Event, Heartbeat, HostChange, Micros, Outcome, Place,
    Row, ShardInfo, Topology, What, Write, WriteKind,
};
use crate::{Invariant, Limits, check};

pub(super) const MS: Micros = 1_000;
pub(super) const SECOND: Micros = 1_000 * MS;
/// The lease duration of all stories.
pub(super) const LEASE: Micros = 10 * SECOND;

/// A history under construction, and the table as it left it.
#[derive(Clone)]
pub(super) struct Story {
    pub(super) events: Vec<Event>,
    pub(super) now: Micros,
    pub(super) limits: Limits,
    pub(super) rows: BTreeMap<String, Row>,
    epochs: BTreeMap<(String, String), u64>,
    ids: u64,
    /// The instance and the version that got the last delivery.
    instance: (u64, String),
}

pub(super) fn place(number: u64) -> Place {
    Place::plain(&number.to_string())
}

pub(super) fn at(number: u64) -> Checkpoint {
    Checkpoint::At(place(number))
}

fn set(ids: &[&str]) -> std::collections::BTreeSet<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

impl Story {
    /// Hosts `a` and `b` run; shard `p` covers all keys.
    pub(super) fn new() -> Self {
        let mut story = Self {
            events: Vec::new(),
            now: SECOND,
            limits: Limits::new(LEASE, 0),
            rows: BTreeMap::new(),
            epochs: BTreeMap::new(),
            ids: 0,
            instance: (0, String::new()),
        };
        story.created(1);
        story
            .host("a", HostChange::Started)
            .host("b", HostChange::Started)
    }

    /// `p` with records 1 to `count`, and a row.
    pub(super) fn with_records(count: u64) -> Self {
        Self::new().produced("p", 1..=count).create("p")
    }

    /// The invariants that the story breaks.
    #[track_caller]
    pub(super) fn breaks(mut self, expected: &[Invariant]) {
        self.limits.end = self.limits.end.max(self.now);
        let found = check(&self.events, &self.limits);
        let invariants: Vec<_> = found.iter().map(|violation| violation.invariant).collect();
        assert_eq!(invariants, expected, "{found:#?}");
    }

    #[track_caller]
    pub(super) fn passes(self) {
        self.breaks(&[]);
    }

    pub(super) fn healed(mut self) -> Self {
        self.limits.healed_at = Some(self.now);
        self
    }

    pub(super) fn wait(mut self, time: Micros) -> Self {
        self.now += time;
        self
    }

    pub(super) fn push(mut self, what: What) -> Self {
        self.now += MS;
        self.events.push(Event { at: self.now, what });
        self
    }

    fn created(&mut self, identity: u64) {
        let shards = vec![ShardInfo {
            id: "p".to_owned(),
            range: (0, u128::MAX),
        }];
        let what = What::Topology(Topology::Created { identity, shards });
        self.events.push(Event { at: self.now, what });
    }

    pub(super) fn recreated(mut self, identity: u64) -> Self {
        self = self.push(What::Topology(Topology::Deleted));
        self.created(identity);
        self
    }

    /// `p` splits into `l` and `r`.
    pub(super) fn split(self) -> Self {
        let half = u128::MAX / 2;
        let child = |id: &str, range| ShardInfo {
            id: id.to_owned(),
            range,
        };
        let children = vec![child("l", (0, half)), child("r", (half + 1, u128::MAX))];
        self.push(What::Topology(Topology::Split {
            parent: "p".to_owned(),
            children,
        }))
    }

    pub(super) fn trimmed(self, shard: &str, through: Option<u64>) -> Self {
        self.push(What::Topology(Topology::Trimmed {
            shard: shard.to_owned(),
            through: through.map(place),
        }))
    }

    pub(super) fn produced(mut self, shard: &str, numbers: impl IntoIterator<Item = u64>) -> Self {
        for number in numbers {
            let (shard, key) = (shard.to_owned(), "k".to_owned());
            let arrived_at = self.now;
            self = self.push(What::Produced {
                shard,
                at: place(number),
                key,
                arrived_at,
            });
        }
        self
    }

    /// A record that arrived at `arrived_at`, whenever it is told.
    pub(super) fn arrived(self, shard: &str, number: u64, arrived_at: Micros) -> Self {
        let (shard, key) = (shard.to_owned(), "k".to_owned());
        self.push(What::Produced {
            shard,
            at: place(number),
            key,
            arrived_at,
        })
    }

    pub(super) fn host(self, host: &str, change: HostChange) -> Self {
        self.push(What::Host {
            host: host.to_owned(),
            change,
        })
    }

    pub(super) fn offered(self, host: &str, digest: &str, is_good: bool) -> Self {
        self.push(What::Offered {
            host: host.to_owned(),
            digest: digest.to_owned(),
            is_good,
        })
    }

    pub(super) fn said_end(self, host: &str, shard: &str) -> Self {
        self.push(What::SaidEnd {
            host: host.to_owned(),
            shard: shard.to_owned(),
        })
    }

    pub(super) fn row(&self, key: &str) -> Row {
        self.rows[key].clone()
    }

    /// Applies a write without telling anybody.
    pub(super) fn applied(
        mut self,
        by: Option<&str>,
        key: &str,
        kind: WriteKind,
        after: Option<Row>,
    ) -> Self {
        let sent_at = self.now;
        let before = self.rows.get(key).cloned();
        match &after {
            Some(row) => drop(self.rows.insert(key.to_owned(), row.clone())),
            None => drop(self.rows.remove(key)),
        }
        if let (WriteKind::Take { .. }, Some(by), Some(row)) = (kind, by, &after) {
            self.epochs
                .insert((by.to_owned(), key.to_owned()), row.counter);
        }
        let by = by.map(str::to_owned);
        self.push(What::Written(Write {
            key: key.to_owned(),
            by,
            kind,
            before,
            after,
            sent_at,
        }))
    }

    /// Tells the host how a call went that was sent at `sent_at`.
    pub(super) fn called(
        self,
        host: &str,
        key: &str,
        kind: Option<WriteKind>,
        result: CallResult,
        sent_at: Micros,
    ) -> Self {
        let (host, key, local_at) = (host.to_owned(), key.to_owned(), self.now + MS);
        self.push(What::Called(Call {
            host,
            key,
            kind,
            result,
            sent_at,
            local_sent_at: sent_at,
            local_at,
        }))
    }

    /// A write by its holder that changes the row by `change`, and its answer.
    pub(super) fn write(
        self,
        host: &str,
        key: &str,
        kind: WriteKind,
        change: impl FnOnce(&mut Row),
    ) -> Self {
        let sent_at = self.now;
        let mut row = self.row(key);
        row.counter += 1;
        change(&mut row);
        self.applied(Some(host), key, kind, Some(row)).called(
            host,
            key,
            Some(kind),
            CallResult::Ok,
            sent_at,
        )
    }

    pub(super) fn create(self, key: &str) -> Self {
        let half = u128::MAX / 2;
        let (range, parents) = match key {
            "l" => ((0, half), set(&["p"])),
            "r" => ((half + 1, u128::MAX), set(&["p"])),
            _ => ((0, u128::MAX), set(&[])),
        };
        let row = Row {
            owner: None,
            counter: 0,
            checkpoint: Checkpoint::Initial,
            parents,
            children: set(&[]),
            range: Some(range),
            claimant: None,
        };
        self.applied(Some("a"), key, WriteKind::Create, Some(row))
    }

    pub(super) fn take(self, host: &str, key: &str) -> Self {
        let seen = self.rows[key].counter;
        self.write(host, key, WriteKind::Take { seen }, |row| {
            row.owner = Some(host.to_owned());
            row.claimant = None;
        })
    }

    pub(super) fn renew(self, host: &str, key: &str) -> Self {
        self.write(host, key, WriteKind::Renew, |_| {})
    }

    pub(super) fn checkpoint(self, host: &str, key: &str, to: u64) -> Self {
        self.write(host, key, WriteKind::Checkpoint, |row| {
            row.checkpoint = at(to);
        })
    }

    pub(super) fn end(self, host: &str, key: &str) -> Self {
        let children = if key == "p" && self.rows.contains_key("l") {
            set(&["l", "r"])
        } else {
            set(&[])
        };
        self.write(host, key, WriteKind::End, |row| {
            row.checkpoint = Checkpoint::End;
            row.children = children;
        })
    }

    pub(super) fn release(self, host: &str, key: &str) -> Self {
        self.write(host, key, WriteKind::Release, |row| row.owner = None)
    }

    pub(super) fn give_up(self, host: &str, key: &str) -> Self {
        self.write(host, key, WriteKind::GiveUp, |row| row.owner = None)
    }

    pub(super) fn claim(self, host: &str, key: &str) -> Self {
        let mut row = self.row(key);
        row.claimant = Some(host.to_owned());
        self.applied(Some(host), key, WriteKind::Claim, Some(row))
    }

    pub(super) fn admin(self, key: &str, change: impl FnOnce(&mut Row)) -> Self {
        let mut row = self.row(key);
        change(&mut row);
        self.applied(None, key, WriteKind::Admin, Some(row))
    }

    pub(super) fn delete(self, host: &str, key: &str) -> Self {
        self.applied(Some(host), key, WriteKind::Delete, None)
    }

    pub(super) fn heartbeat(self, host: &str, result: CallResult) -> Self {
        self.beat(host, result, false)
    }

    pub(super) fn register(self, host: &str, result: CallResult) -> Self {
        self.beat(host, result, true)
    }

    fn beat(self, host: &str, result: CallResult, is_registration: bool) -> Self {
        let (sent_at, local_at) = (self.now, self.now + MS);
        self.push(What::Heartbeat(Heartbeat {
            host: host.to_owned(),
            is_registration,
            result,
            sent_at,
            local_sent_at: sent_at,
            local_at,
        }))
    }

    /// Starts a delivery, whose id is then [`Story::last_id`].
    pub(super) fn start(
        mut self,
        host: &str,
        shard: &str,
        numbers: &[u64],
        attempt: u32,
        digest: &str,
    ) -> Self {
        self.ids += 1;
        if self.instance.1 != digest {
            self = self.reborn();
            self.instance.1 = digest.to_owned();
        }
        let epoch = self
            .epochs
            .get(&(host.to_owned(), shard.to_owned()))
            .copied()
            .unwrap_or_default();
        let delivery = Delivery {
            id: self.ids,
            host: host.to_owned(),
            shard: shard.to_owned(),
            epoch,
            places: numbers.iter().copied().map(place).collect(),
            digest: digest.to_owned(),
            instance: self.instance.0,
            attempt,
            local_at: self.now + MS,
        };
        self.push(What::DeliveryStarted(delivery))
    }

    /// Which instance the next delivery goes to.
    pub(super) fn instance_number(&self) -> u64 {
        self.instance.0
    }

    /// The next delivery goes to another instance.
    pub(super) fn reborn(mut self) -> Self {
        self.instance.0 += 1;
        self
    }

    /// Ends the last delivery. An instance that trapped is replaced.
    pub(super) fn ended(mut self, outcome: Outcome, failed: &[u64]) -> Self {
        if outcome == Outcome::Trap {
            self = self.reborn();
        }
        let (id, failed) = (self.ids, failed.iter().copied().map(place).collect());
        self.push(What::DeliveryEnded {
            id,
            outcome,
            failed,
        })
    }

    /// Says how much of the last delivery may be committed.
    pub(super) fn held_back(self, through: Option<u64>) -> Self {
        let id = self.ids;
        self.push(What::HeldBack {
            id,
            through: through.map(place),
        })
    }

    /// A delivery that goes well.
    pub(super) fn deliver(self, host: &str, shard: &str, numbers: &[u64]) -> Self {
        self.start(host, shard, numbers, 1, "v1")
            .ended(Outcome::Ok, &[])
    }

    /// All of `p` with two records is settled by `a`, and its end was read.
    pub(super) fn read_to_end(self) -> Self {
        self.take("a", "p")
            .deliver("a", "p", &[1, 2])
            .split()
            .said_end("a", "p")
    }
}
