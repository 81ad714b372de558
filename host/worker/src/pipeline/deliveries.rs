//! All deliveries of a shard: the only one, or with parallel keys one for each strand.

use std::sync::Arc;

use shardmill_core::pipeline::{Beyond, Halt, Parallelism, Retries, Spread};
use shardmill_core::plugin::PluginDigest;
use shardmill_core::ports::{PortFuture, ProcessorFactory};
use shardmill_core::stream::{Position, Record};

use super::context::ShardContext;
use super::delivery::Delivery;
use super::instance::Instance;
use super::intake::Intake;
use super::saving::Saving;
use crate::status::Parking;
use crate::timer::Stopwatch;

/// See the module's description. All of them run the same version.
pub(super) struct Deliveries {
    context: Arc<ShardContext>,
    /// At least one.
    all: Vec<Delivery>,
    spread: Spread,
}

impl Deliveries {
    /// `instance` is that of the first one.
    pub(super) fn new(context: Arc<ShardContext>, instance: Instance) -> Self {
        let parallelism = context.options().parallelism;
        let more = (1..parallelism.get()).map(|_| instance.sibling());
        let more: Vec<Instance> = more.collect();
        let all = std::iter::once(instance).chain(more);
        Self {
            all: all
                .map(|instance| Delivery::new(Arc::clone(&context), instance))
                .collect(),
            spread: Spread::new(parallelism),
            context,
        }
    }

    /// How many there are.
    pub(super) fn parallelism(&self) -> Parallelism {
        self.context.options().parallelism
    }

    pub(super) fn first(&self) -> &Delivery {
        &self.all[0]
    }

    pub(super) fn first_mut(&mut self) -> &mut Delivery {
        &mut self.all[0]
    }

    /// The one of strand `at`.
    pub(super) fn one(&self, at: usize) -> &Delivery {
        &self.all[at]
    }

    /// The one of strand `at`.
    pub(super) fn one_mut(&mut self, at: usize) -> &mut Delivery {
        &mut self.all[at]
    }

    pub(super) fn each_mut(&mut self) -> impl Iterator<Item = &mut Delivery> {
        self.all.iter_mut()
    }

    /// The version at work.
    pub(super) fn digest(&self) -> &PluginDigest {
        self.first().digest()
    }

    /// Switches all to another version, of which none has an instance yet.
    pub(super) fn set_version(&mut self, version: &Arc<dyn ProcessorFactory>) {
        for one in &mut self.all {
            one.instance_mut().set_version(Arc::clone(version));
        }
    }

    /// Whether the version at work has started on this shard.
    pub(super) fn have_started(&self) -> bool {
        self.all.iter().any(|one| one.instance().has_started())
    }

    /// Whether an instance other than that of strand `at` is alive and not in a call.
    pub(super) fn is_another_alive(&self, at: usize) -> bool {
        let mut others = self
            .all
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != at);
        others.any(|(_, one)| one.instance().is_alive())
    }

    // What was handed out.

    /// Divides records, which were handed out, among the strands.
    pub(super) fn spread(&mut self, records: Vec<Record>) {
        let now = self.context.now();
        for record in records {
            let at = self.spread.strand_of(&record);
            self.all[at].strand_mut().add(record, now);
        }
    }

    /// Whether more records may be handed out to the strands.
    pub(super) fn have_room(&self) -> bool {
        Spread::has_room(self.all.iter().map(Delivery::strand))
    }

    /// Takes over how far everything is settled.
    pub(super) fn settle(&mut self, intake: &mut Intake, saving: &mut Saving) {
        if let Some(position) = saving.settle() {
            self.settled(&position);
            intake.note_handled();
        }
    }

    fn settled(&mut self, position: &Position) {
        for one in &mut self.all {
            one.settled(position);
        }
    }

    /// Whether records that the plugin held back are lost, because its instance is.
    pub(super) fn have_lost(&self, saving: &Saving) -> bool {
        !self.first().instance().is_alive() && saving.holds_back()
    }

    /// The shard goes on at another place: nothing of what was handed out counts any more.
    pub(super) fn forget_all(&mut self) {
        for one in &mut self.all {
            one.forget_all();
        }
    }

    /// Reading starts again: what was handed out and waits is forgotten.
    pub(super) fn rewind(&mut self) {
        for one in &mut self.all {
            one.rewind();
        }
    }

    // What waits to be tried again.

    pub(super) fn retries(&self) -> impl Iterator<Item = &Retries> + Clone {
        self.all.iter().map(Delivery::retries)
    }

    /// Why nothing is delivered any more, if the policy says so.
    pub(super) fn halted(&self) -> Option<&Halt> {
        self.all.iter().find_map(Delivery::halted)
    }

    /// Whether no record that was handed out waits to be tried again.
    pub(super) fn are_clear(&self) -> bool {
        self.all.iter().all(Delivery::is_clear)
    }

    /// Whether nothing that was handed out waits, for its first delivery or another.
    pub(super) fn have_nothing_waiting(&self) -> bool {
        self.all.iter().all(Delivery::has_nothing_waiting)
    }

    /// Whether no record waits that is not parked.
    pub(super) fn have_nothing_new(&self) -> bool {
        self.all.iter().all(|one| one.strand().has_nothing_new())
    }

    /// What is parked.
    pub(super) fn parked(&self) -> Parking {
        let mut all = Parking::default();
        for parked in self.all.iter().map(Delivery::parked) {
            all.keys += parked.keys;
            all.records += parked.records;
            all.bytes += parked.bytes;
        }
        all
    }

    /// Another version of the plugin is at work for good: what failed gets all its attempts.
    pub(super) fn start_over(&mut self) {
        for one in &mut self.all {
            one.start_over();
        }
    }

    /// Another version of the plugin is at work: what failed goes to it at once.
    pub(super) fn try_at_once(&mut self) {
        for one in &mut self.all {
            one.try_at_once();
        }
    }

    // Calls beside each other.

    /// The strands that have no call under way.
    pub(super) fn idle(&self) -> impl Iterator<Item = usize> {
        let all = self.all.iter().enumerate();
        let idle = all.filter(|(_, one)| one.called_since().is_none());
        idle.map(|(at, _)| at)
    }

    /// Since when the oldest call is under way, if one is.
    pub(super) fn oldest_call(&self) -> Option<Stopwatch> {
        self.all.iter().filter_map(Delivery::called_since).min()
    }

    /// A call was held against the version: those under way say nothing more of it.
    pub(super) fn overtake(&mut self) {
        for one in &mut self.all {
            one.overtake();
        }
    }

    /// What of the shard comes after the records of the strands.
    pub(super) fn beyond(&self, intake: &Intake) -> Beyond {
        if intake.is_finished() {
            Beyond::End
        } else if self.context.is_at_tip() && !intake.has_something() {
            Beyond::Nothing
        } else {
            Beyond::More
        }
    }

    /// The asking of each live instance that is not in a call: ready when the host needs its
    /// memory.
    pub(super) fn asked_for_room(&self) -> Vec<PortFuture<'static, ()>> {
        let instances = self.all.iter().map(Delivery::instance);
        let alive = instances.filter(|instance| instance.is_alive());
        alive.map(Instance::asked_for_room).collect()
    }
}
