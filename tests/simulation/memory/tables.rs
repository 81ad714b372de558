//! Lease and coordinator table in memory, with what their rows were some time ago for reads that
//! may be stale.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use shardmill_core::fleet::{ApplicationStart, FleetRows};
use shardmill_core::lease::{self, Lease, WorkerId};
use shardmill_core::plugin::PluginDigest;
use shardmill_core::ports::LeaseListing;
use shardmill_core::stream::{InitialPosition, LeaseKey};
use shardmill_fakes::coordinator_rows::CoordinatorRows;
use shardmill_fakes::lease_rows::LeaseRows;
use shardmill_invariants::history::{
    Checkpoint, Micros, Place, Row, Start, What, Write, WriteKind,
};

use super::commands;
use crate::bugs;
use crate::edits::Edit;
use crate::past;
use crate::tables::note_rare;
use crate::weather::Fault;
use crate::world::{World, lock};

/// Reads are never staler than this.
const KEPT: Micros = 10_000_000;

/// All tables.
#[derive(Default)]
pub struct MemoryTables {
    leases: Mutex<LeaseTable>,
    coordinator: Mutex<CoordinatorTable>,
}

#[derive(Default)]
struct LeaseTable {
    rows: LeaseRows,
    /// What each row was, oldest first; kept only where stale reads are drawn.
    past: BTreeMap<LeaseKey, Past<Option<Lease>>>,
}

#[derive(Default)]
struct CoordinatorTable {
    rows: CoordinatorRows,
    past: Past<FleetRows>,
    leader_since: Micros,
}

/// Versions of something, each from some time on, oldest first.
struct Past<T>(Vec<(Micros, Arc<T>)>);

/// A write that is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked<'a> {
    /// By which host; `None` for a person.
    pub(super) by: Option<&'a str>,
    pub(super) kind: WriteKind,
    pub(super) sent_at: Micros,
}

impl<T> Default for Past<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Past<T> {
    /// Adds a version; keeps the newest that is older than any stale read goes back, and all that
    /// are newer.
    fn push(&mut self, now: Micros, version: T) {
        let old = self
            .0
            .iter()
            .take_while(|(since, _)| since + KEPT < now)
            .count();
        self.0.drain(..old.saturating_sub(1));
        self.0.push((now, Arc::new(version)));
    }

    /// As it was at some time that is no longer ago than the weather allows.
    fn draw(&self, world: &World) -> Option<&T> {
        let oldest = u64::try_from(world.weather().staleness_max.as_micros()).unwrap_or(u64::MAX);
        let at = world.now().saturating_sub(world.dice().u64(..=oldest));
        let version = self.0.iter().rev().find(|(since, _)| *since <= at);
        version.map(|(_, version)| &**version)
    }
}

impl MemoryTables {
    /// The lease rows as they are.
    pub fn leases(&self) -> BTreeMap<String, Row> {
        let listing = lock(&self.leases).rows.list();
        listing
            .leases
            .iter()
            .map(|lease| (lease.key.as_str().to_owned(), row_of(lease)))
            .collect()
    }

    /// Who leads, and since when.
    pub fn leader(&self) -> Option<(String, Micros)> {
        let table = lock(&self.coordinator);
        let (holder, _) = table.rows.fleet.leader.as_ref()?.holder.as_ref()?;
        Some((holder.to_string(), table.leader_since))
    }

    /// Where the application begins, once that is written down.
    pub fn start(&self) -> Option<Start> {
        lock(&self.coordinator)
            .rows
            .fleet
            .start
            .as_ref()
            .map(start_of)
    }

    /// Whether a version was found bad by the fleet.
    pub fn has_quarantined(&self, digest: &PluginDigest) -> bool {
        let coordinator = lock(&self.coordinator);
        let mut quarantined = coordinator.rows.fleet.quarantined.iter();
        quarantined.any(|entry| entry.digest == *digest)
    }

    /// Reads the lease table as it is.
    pub(super) fn read_leases<T>(&self, read: impl FnOnce(&LeaseRows) -> T) -> T {
        read(&lock(&self.leases).rows)
    }

    /// A scan that need not be consistent.
    pub(super) fn scan(&self, world: &World) -> LeaseListing {
        let chance = world.weather().chance(Fault::StaleRead);
        let table = lock(&self.leases);
        if !world.happens(chance) {
            return table.rows.list();
        }
        world.count("fault: StaleRead");
        let rows = table
            .past
            .values()
            .filter_map(|past| past.draw(world)?.clone());
        LeaseListing {
            leases: rows.collect(),
            ..LeaseListing::default()
        }
    }

    /// Lets `act` change one row, and writes down what it did.
    pub(super) fn write_lease<T>(
        &self,
        world: &World,
        key: &LeaseKey,
        asked: Asked<'_>,
        act: impl FnOnce(&mut LeaseRows) -> T,
    ) -> T {
        let mut table = lock(&self.leases);
        let before = table.rows.get(key).cloned();
        let result = act(&mut table.rows);
        if let (Some(bug), Some(before), Some(after)) = (world.bug, &before, table.rows.get(key))
            && before != after
        {
            let row = bugs::spoilt(bug, asked.kind, before, after);
            table.rows.put(row);
        }
        let after = table.rows.get(key);
        if before.as_ref() == after {
            world.count("reached: condition failed");
            return result;
        }
        let (wanted_before, after) = (before, after.cloned());
        let before = wanted_before.as_ref().map(row_of);
        note_rare(
            world,
            asked.kind,
            before.as_ref(),
            asked.by.unwrap_or_default(),
        );
        world.note(What::Written(Write {
            key: key.as_str().to_owned(),
            by: asked.by.map(str::to_owned),
            kind: asked.kind,
            before,
            after: after.as_ref().map(row_of),
            sent_at: asked.sent_at,
        }));
        commands::note_wanted(world, key, wanted_before.as_ref(), after.as_ref());
        if world.weather().chance(Fault::StaleRead) > 0.0 {
            table
                .past
                .entry(key.clone())
                .or_default()
                .push(world.now(), after);
        }
        result
    }

    /// Somebody edits a row by hand.
    pub fn edit(&self, world: &World, shard: &str, edit: &Edit) {
        let Ok(key) = LeaseKey::new(shard) else {
            return;
        };
        let asked = Asked {
            by: None,
            kind: WriteKind::Admin,
            sent_at: world.now(),
        };
        self.write_lease(world, &key, asked, |rows| edit.apply(rows, &key));
    }

    /// Reads the coordinator table as it is.
    pub(super) fn read_coordinator<T>(&self, read: impl FnOnce(&CoordinatorRows) -> T) -> T {
        read(&lock(&self.coordinator).rows)
    }

    /// A query that need not be consistent: each row as it was at its own time.
    pub(super) fn query(&self, world: &World) -> FleetRows {
        let chance = world.weather().chance(Fault::StaleQuery);
        let table = lock(&self.coordinator);
        if table.past.0.is_empty() || !world.happens(chance) {
            return table.rows.fleet.clone();
        }
        world.count("fault: StaleQuery");
        let version = || table.past.draw(world);
        let known = table
            .past
            .0
            .iter()
            .flat_map(|(_, rows)| &rows.workers)
            .map(|row| &row.worker);
        let known: BTreeSet<_> = known.collect();
        let row_at_some_time = |worker: &WorkerId| {
            version()?
                .workers
                .iter()
                .find(|row| row.worker == *worker)
                .cloned()
        };
        FleetRows {
            workers: known.into_iter().filter_map(row_at_some_time).collect(),
            leader: version().and_then(|rows| rows.leader.clone()),
            bulletin: version().map_or(0, |rows| rows.bulletin),
            stream: version().and_then(|rows| rows.stream.clone()),
            start: version().and_then(|rows| rows.start),
            quarantined: version()
                .map(|rows| rows.quarantined.clone())
                .unwrap_or_default(),
            control: version()
                .map(|rows| rows.control.clone())
                .unwrap_or_default(),
            standalone: Vec::new(),
            streams: Vec::new(),
        }
    }

    /// Somebody removes a worker's row by hand; whether there was one.
    pub fn remove_worker(&self, world: &World, worker: &str) -> bool {
        self.write_coordinator(world, |rows| {
            let before = rows.fleet.workers.len();
            rows.fleet
                .workers
                .retain(|row| row.worker.as_str() != worker);
            rows.fleet.workers.len() < before
        })
    }

    /// Lets `act` change rows of the coordinator table.
    pub(super) fn write_coordinator<T>(
        &self,
        world: &World,
        act: impl FnOnce(&mut CoordinatorRows) -> T,
    ) -> T {
        let mut table = lock(&self.coordinator);
        let version =
            |rows: &CoordinatorRows| rows.fleet.leader.as_ref().map(|leader| leader.version);
        let before = version(&table.rows);
        let start_before = table.rows.fleet.start;
        let wanted_before = table.rows.fleet.control.clone();
        let result = act(&mut table.rows);
        if version(&table.rows) != before {
            table.leader_since = world.now();
        }
        if let Some(start) = table.rows.fleet.start
            && start_before != Some(start)
        {
            world.note(What::StartChosen(start_of(&start)));
        }
        commands::note_fleet_wanted(world, &wanted_before, &table.rows.fleet.control);
        if world.weather().chance(Fault::StaleQuery) > 0.0 {
            let now = table.rows.fleet.clone();
            table.past.push(world.now(), now);
        }
        result
    }
}

/// Where an application begins, in the judge's words.
fn start_of(start: &ApplicationStart) -> Start {
    match start.position {
        InitialPosition::TrimHorizon => Start::Oldest,
        InitialPosition::Latest => Start::At(past::micros_of(start.looked_at_ms)),
        InitialPosition::AtTimestamp(ms) => Start::At(past::micros_of(ms)),
    }
}

/// How far a row is, in the judge's words. A shard that was sent to a record is settled up to what
/// comes before it.
pub(super) fn checkpoint_of(checkpoint: &lease::Checkpoint) -> Checkpoint {
    match checkpoint {
        lease::Checkpoint::ShardEnd => Checkpoint::End,
        lease::Checkpoint::At(at) => Checkpoint::At(Place {
            sub: at.sub_sequence,
            ..Place::plain(at.sequence.as_str())
        }),
        lease::Checkpoint::Sought(lease::Sought::Sequence(number)) => {
            Checkpoint::At(commands::before(number))
        }
        _ => Checkpoint::Initial,
    }
}

/// A row in the judge's words.
fn row_of(lease: &Lease) -> Row {
    let names = |shards: &[shardmill_core::stream::ShardId]| {
        shards.iter().map(ToString::to_string).collect()
    };
    Row {
        owner: lease.owner.as_ref().map(ToString::to_string),
        counter: lease.counter.0,
        checkpoint: checkpoint_of(&lease.checkpoint),
        parents: names(&lease.parents),
        children: names(&lease.children),
        range: lease.hash_range.map(|range| (range.start(), range.end())),
        claimant: lease.claimant.as_ref().map(ToString::to_string),
    }
}
