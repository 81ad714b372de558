//! What is true at a point of a history: the stream, the table, the tenures and the hosts.

mod seeking;
mod stream;
mod table;
mod tenure;

use std::collections::{BTreeMap, BTreeSet};

use crate::history::{
    Checkpoint, Delivery, Event, GivenUp, HostChange, Micros, Outcome, Output, Place, Wanted, What,
    Write, WriteKind,
};
use crate::limits::Limits;
use crate::policy::Policy;

pub(crate) use stream::{Shard, StateBase, Stream};
pub(crate) use table::{RowFacts, Table};
pub(crate) use tenure::{Tenure, TenureKey};

/// What is true at a point of a history.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) stream: Stream,
    pub(crate) table: Table,
    pub(crate) tenures: BTreeMap<TenureKey, Tenure>,
    /// Deliveries that have not ended.
    pub(crate) in_flight: BTreeMap<u64, Delivery>,
    pub(crate) hosts: BTreeMap<String, HostFacts>,
    /// What sinks have stored.
    pub(crate) dead_letters: BTreeSet<(String, Place)>,
    /// Whose each output is that is not stored.
    output_of: BTreeMap<u64, TenureKey>,
    /// Whatever was given up, by whomever.
    given_up: BTreeSet<(String, Place)>,
    policy: Policy,
    /// Limits of outcomes whose `DeliveryEnded` is still to come.
    held_back: BTreeMap<u64, Option<Place>>,
    /// When Kinesis told a host that a shard of a stream has ended. Its process may remember it for
    /// a later tenure, and what it writes then may arrive when it is gone.
    ends_heard: BTreeMap<(String, usize, String), Micros>,
    /// What operators want of each shard.
    pub(crate) wanted: BTreeMap<String, Wanted>,
    /// What such an outcome rejects.
    rejected: BTreeMap<u64, BTreeSet<Place>>,
}

/// What a host does.
#[derive(Debug, Clone, Default)]
pub(crate) struct HostFacts {
    pub(crate) started_at: Micros,
    pub(crate) is_running: bool,
    pub(crate) is_paused: bool,
    pub(crate) stopping_since: Option<Micros>,
}

impl HostFacts {
    /// Runs, and wants leases.
    pub(crate) fn is_live(&self) -> bool {
        self.is_running && !self.is_paused && self.stopping_since.is_none()
    }
}

impl World {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            stream: Stream::new(limits.known_start()),
            table: Table::default(),
            tenures: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            hosts: BTreeMap::new(),
            dead_letters: BTreeSet::new(),
            output_of: BTreeMap::new(),
            given_up: BTreeSet::new(),
            policy: limits.policy.clone(),
            held_back: BTreeMap::new(),
            ends_heard: BTreeMap::new(),
            wanted: BTreeMap::new(),
            rejected: BTreeMap::new(),
        }
    }

    /// The tenure under which a record was given up: the holder's, if several have the epoch, as
    /// where a row was removed and made again.
    pub(crate) fn tenure_of_given_up(&self, given_up: &GivenUp) -> Option<&Tenure> {
        let owner = self
            .table
            .row(&given_up.shard)
            .and_then(|row| row.owner.as_ref());
        let is_owners = |tenure: &&Tenure| Some(&tenure.key.host) == owner;
        self.tenures_of(&given_up.shard, given_up.epoch)
            .max_by_key(is_owners)
    }

    /// Whether `place` was handled and committed by whoever held `shard` under `epoch`.
    pub(crate) fn was_committed(&self, shard: &str, epoch: u64, place: &Place) -> bool {
        self.tenures_of(shard, epoch)
            .any(|tenure| tenure.handled.get(place).is_some_and(Option::is_some))
    }

    fn tenures_of<'a, 'b>(
        &'a self,
        shard: &'b str,
        epoch: u64,
    ) -> impl Iterator<Item = &'a Tenure> + use<'a, 'b> {
        self.tenures
            .values()
            .filter(move |tenure| tenure.key.shard == shard && tenure.key.epoch == epoch)
    }

    /// Whether somebody gave it up once.
    pub(crate) fn was_given_up(&self, shard: &str, place: &Place) -> bool {
        self.given_up.contains(&(shard.to_owned(), place.clone()))
    }

    /// The tenure that a delivery claims to belong to.
    pub(crate) fn tenure_of(&self, delivery: &Delivery) -> Option<&Tenure> {
        self.tenures.get(&TenureKey::of(delivery))
    }

    /// The tenure under which `write` was sent, if the writer holds the row.
    pub(crate) fn tenure_of_write(&self, write: &Write) -> Option<&Tenure> {
        let by = write.by.as_ref()?;
        let facts = self.table.rows.get(&write.key)?;
        let key = TenureKey {
            host: by.clone(),
            shard: write.key.clone(),
            epoch: facts.epoch?,
        };
        (facts.row.owner.as_ref() == Some(by)).then(|| self.tenures.get(&key))?
    }

    /// Whether the lease is the writer's by name only: an earlier run of it took it.
    pub(crate) fn is_by_name(&self, write: &Write) -> bool {
        let started_at = write
            .by
            .as_ref()
            .and_then(|by| self.hosts.get(by))
            .map(|host| host.started_at);
        let taken_at = self.table.rows.get(&write.key).map(|facts| facts.taken_at);
        started_at
            .zip(taken_at)
            .is_some_and(|(started_at, taken_at)| taken_at < started_at)
    }

    /// Whether the table says that `delivery`'s host holds its lease under its epoch.
    pub(crate) fn is_held(&self, delivery: &Delivery) -> bool {
        self.holds(&TenureKey::of(delivery))
    }

    /// Whether the tenure has the lease, as the table has it.
    pub(crate) fn holds(&self, key: &TenureKey) -> bool {
        self.table.rows.get(&key.shard).is_some_and(|facts| {
            facts.row.owner.as_ref() == Some(&key.host) && facts.epoch == Some(key.epoch)
        })
    }

    /// When the host of `tenure` was told that its shard has ended, under any tenure.
    pub(crate) fn heard_end(&self, tenure: &Tenure) -> Option<Micros> {
        let TenureKey { host, shard, .. } = &tenure.key;
        self.ends_heard
            .get(&(host.clone(), tenure.generation, shard.clone()))
            .copied()
    }

    /// The records of the stream that a tenure is, or was, about.
    pub(crate) fn shard_of(&self, tenure: &Tenure) -> Option<&Shard> {
        self.stream
            .shards
            .get(&(tenure.generation, tenure.key.shard.clone()))
    }

    /// Before anything is judged: what `event` says of the time before it.
    pub(crate) fn meet(&mut self, event: &Event) {
        if let What::DeliveryStarted(delivery) = &event.what
            && let Some(tenure) = self.tenures.get_mut(&TenureKey::of(delivery))
        {
            let shards = &self.stream.shards;
            let shard = shards.get(&(tenure.generation, tenure.key.shard.clone()));
            tenure.meets(delivery, shard);
        }
    }

    pub(crate) fn apply(&mut self, event: &Event) {
        match &event.what {
            What::Produced {
                shard,
                at,
                key,
                arrived_at,
            } => {
                self.stream.produced(shard, at, key, *arrived_at, event.at);
            }
            What::StartChosen(start) => self.stream.start_chosen(*start),
            What::Topology(change) => self.stream.changed(change),
            What::Written(write) => self.written(write, event.at),
            What::SaidEnd { host, shard } => {
                let of = (host.clone(), self.stream.generation, shard.clone());
                self.ends_heard.entry(of).or_insert(event.at);
            }
            What::DeliveryStarted(delivery) => self.started(delivery, event.at),
            What::HeldBack { id, through } => {
                self.held_back.insert(*id, through.clone());
            }
            What::Rejected { id, places } => {
                drop(self.rejected.insert(*id, places.iter().cloned().collect()));
            }
            What::DeadLettered { shard, at } => {
                self.dead_letters.insert((shard.clone(), at.clone()));
            }
            What::GivenUp(given_up) => self.given_up(given_up, event.at),
            What::DeliveryEnded {
                id,
                outcome,
                failed,
            } => self.ended(*id, *outcome, failed, event.at),
            What::Host { host, change } => self.host_changed(host, *change, event.at),
            What::StateSaved {
                host,
                shard,
                epoch,
                instance,
            } => {
                let key = TenureKey {
                    host: host.clone(),
                    shard: shard.clone(),
                    epoch: *epoch,
                };
                self.saved(&key, *instance, event.at);
            }
            What::StateLoaded {
                host, shard, epoch, ..
            } => {
                let key = TenureKey {
                    host: host.clone(),
                    shard: shard.clone(),
                    epoch: *epoch,
                };
                if let Some(tenure) = self.tenures.get_mut(&key) {
                    tenure.saved.get_or_insert_default();
                }
            }
            What::Emitted {
                host,
                shard,
                epoch,
                outputs,
            } => {
                let key = TenureKey {
                    host: host.clone(),
                    shard: shard.clone(),
                    epoch: *epoch,
                };
                self.emitted(&key, outputs);
            }
            What::Stored { output } => {
                if let Some(tenure) = self
                    .output_of
                    .remove(output)
                    .and_then(|key| self.tenures.get_mut(&key))
                {
                    tenure.stored(*output);
                }
            }
            What::Wanted { shard, wanted } => {
                self.tries_again(shard, wanted);
                self.wanted.insert(shard.clone(), wanted.clone());
            }
            What::FleetWanted(_)
            | What::Ticks { .. }
            | What::Stands { .. }
            | What::Drained { .. }
            | What::Heartbeat(_)
            | What::Called(_)
            | What::Offered { .. }
            | What::GapTold { .. }
            | What::Shown { .. }
            | What::Calm(_) => {}
        }
    }

    fn emitted(&mut self, key: &TenureKey, outputs: &[Output]) {
        let Some(tenure) = self.tenures.get_mut(key) else {
            return;
        };
        let mut open = tenure.open().filter_map(|id| self.in_flight.get(&id));
        let is_of = |delivery: &&Delivery| {
            let first = outputs.first();
            first.is_some_and(|output| delivery.places.contains(&output.of))
        };
        let batch = open
            .find(is_of)
            .and_then(|delivery| delivery.places.first());
        drop(open);
        tenure.emitted(outputs, batch);
        self.output_of
            .extend(outputs.iter().map(|output| (output.id, key.clone())));
    }

    fn saved(&mut self, key: &TenureKey, instance: u64, at: Micros) {
        let Some(tenure) = self.tenures.get_mut(key) else {
            return;
        };
        if let Some(shard) = self
            .stream
            .shards
            .get(&(tenure.generation, key.shard.clone()))
        {
            tenure.saved(shard, instance, at);
        }
    }

    fn given_up(&mut self, given_up: &GivenUp, at: Micros) {
        self.given_up
            .insert((given_up.shard.clone(), given_up.at.clone()));
        let key = self
            .tenure_of_given_up(given_up)
            .map(|tenure| tenure.key.clone());
        let Some(tenure) = key.and_then(|key| self.tenures.get_mut(&key)) else {
            return;
        };
        tenure.given_up(&given_up.at, at);
        let Some(shard) = self
            .stream
            .shards
            .get_mut(&(tenure.generation, given_up.shard.clone()))
        else {
            return;
        };
        tenure.advance(shard);
        shard.settled(std::iter::once(&given_up.at), given_up.epoch, at);
    }

    /// Nothing is promised of what was settled under a lease that its host had lost when it gave
    /// the row back.
    pub(crate) fn given_back_by_name(&mut self, key: &str) {
        if let Some(shard) = self
            .stream
            .shards
            .get_mut(&(self.stream.generation, key.to_owned()))
        {
            shard.given_back = None;
        }
    }

    fn written(&mut self, write: &Write, at: Micros) {
        let generation = self.stream.generation;
        match write.kind {
            WriteKind::Take { .. } => {
                if let (Some(by), Some(after)) = (&write.by, &write.after) {
                    let key = TenureKey {
                        host: by.clone(),
                        shard: write.key.clone(),
                        epoch: after.counter,
                    };
                    let start_generation = self
                        .table
                        .rows
                        .get(&write.key)
                        .map(|facts| facts.checkpoint_generation);
                    let start_generation = start_generation.unwrap_or(generation);
                    let tenure = Tenure::new(
                        key.clone(),
                        after.checkpoint.clone(),
                        generation,
                        start_generation,
                    );
                    let tenure = tenure.by_key(self.policy.by_key);
                    self.tenures.insert(key, tenure);
                }
            }
            // Of what an earlier run of the host took, this one knows only the name in the row.
            WriteKind::Release if !self.is_by_name(write) => {
                let owed = self.tenure_of_write(write).and_then(|tenure| {
                    let through = tenure.owed(self.shard_of(tenure)?)?.clone();
                    Some((tenure.generation, through))
                });
                if let Some((generation, through)) = owed
                    && let Some(epoch) = self
                        .table
                        .rows
                        .get(&write.key)
                        .and_then(|facts| facts.epoch)
                    && let Some(shard) =
                        self.stream.shards.get_mut(&(generation, write.key.clone()))
                {
                    shard.given_back = Some((epoch, through));
                }
            }
            WriteKind::Admin | WriteKind::Create | WriteKind::Delete => {
                self.stream.interfered(write);
                self.forget_ends_above(write);
                let facts = self.table.rows.get(&write.key);
                let holder = facts.and_then(|facts| Some((facts.row.owner.clone()?, facts.epoch?)));
                let key = holder.map(|(host, epoch)| TenureKey {
                    host,
                    shard: write.key.clone(),
                    epoch,
                });
                if let Some(tenure) = key.and_then(|key| self.tenures.get_mut(&key)) {
                    tenure.is_interfered = true;
                }
            }
            // Of a lease given up, what was settled and could not be checkpointed comes again.
            WriteKind::GiveUp
            | WriteKind::Release
            | WriteKind::Checkpoint
            | WriteKind::End
            | WriteKind::Renew
            | WriteKind::Claim
            | WriteKind::Direct => {}
            WriteKind::Obey => self.obeyed(write),
        }
        let written_generation = self
            .tenure_of_write(write)
            .map_or(generation, |tenure| tenure.generation);
        let key = self.tenure_of_write(write).map(|tenure| tenure.key.clone());
        if let (Some(tenure), Some(after)) =
            (key.and_then(|key| self.tenures.get_mut(&key)), &write.after)
            && write.kind == WriteKind::Checkpoint
        {
            tenure.written = tenure.written.clone().max(after.checkpoint.clone());
            self.leaves_sought_place(write);
        }
        self.table.written(write, at, written_generation);
    }

    fn started(&mut self, delivery: &Delivery, at: Micros) {
        self.in_flight.insert(delivery.id, delivery.clone());
        let Some(tenure) = self.tenures.get_mut(&TenureKey::of(delivery)) else {
            return;
        };
        let generation = self.stream.generation;
        if tenure.generation != generation && self.stream.is_of_current(delivery, tenure.generation)
        {
            tenure.move_to(generation);
        }
        tenure.started(delivery, &self.policy, at);
    }

    fn ended(&mut self, id: u64, outcome: Outcome, failed: &[Place], at: Micros) {
        let held_back = self.held_back.remove(&id);
        let rejected = self.rejected.remove(&id).unwrap_or_default();
        let Some(delivery) = self.in_flight.remove(&id) else {
            return;
        };
        // What a host handled after it lost its lease is dropped by it: it settles nothing.
        let counts = self.is_held(&delivery);
        let Some(tenure) = self.tenures.get_mut(&TenureKey::of(&delivery)) else {
            return;
        };
        let failed: BTreeSet<Place> = failed.iter().cloned().collect();
        let through = held_back.unwrap_or_else(|| delivery.places.last().cloned());
        tenure.ended(&delivery, outcome, &failed, through.as_ref(), at);
        let Some(shard) = self
            .stream
            .shards
            .get_mut(&(tenure.generation, delivery.shard.clone()))
        else {
            return;
        };
        let key = |place: &Place| shard.keys.get(place).cloned();
        tenure
            .failures
            .ended(&delivery, outcome, (&failed, &rejected), &self.policy, key);
        tenure.advance(shard);
        if outcome == Outcome::Ok && counts {
            shard.settled(
                delivery
                    .places
                    .iter()
                    .filter(|place| !failed.contains(*place)),
                delivery.epoch,
                at,
            );
        }
    }

    fn host_changed(&mut self, host: &str, change: HostChange, at: Micros) {
        let facts = self.hosts.entry(host.to_owned()).or_default();
        match change {
            HostChange::Started => {
                *facts = HostFacts {
                    started_at: at,
                    is_running: true,
                    ..HostFacts::default()
                }
            }
            HostChange::Stopping => facts.stopping_since = Some(at),
            HostChange::Stopped | HostChange::Crashed => facts.is_running = false,
            HostChange::SignedOff => {}
            HostChange::Paused => facts.is_paused = true,
            HostChange::Resumed => facts.is_paused = false,
        }
        if matches!(
            change,
            HostChange::Started | HostChange::Stopped | HostChange::Crashed
        ) {
            // Its calls died with it.
            self.in_flight.retain(|_, delivery| delivery.host != host);
        }
    }
}

/// Whether a row with this checkpoint needs a reader.
pub(crate) fn is_unfinished(checkpoint: &Checkpoint) -> bool {
    *checkpoint != Checkpoint::End
}
