//! A native plugin that fails in every way a component can, and writes down what it was given.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use shardmill_core::plugin::{PluginDigest, ProcessorError};
use shardmill_core::ports::{
    CloseReason, Commit, FailureKind, InstanceContext, LastOutput, Outcome as Reported, PortFuture,
    Processed, ProcessorFactory, RecordFailure, RecordProcessor, TickTime, Ticked,
};
use shardmill_core::stream::{Batch, Emitted, Position};
use shardmill_invariants::history::{Delivery, Outcome, Output, Place, What};

use crate::host::Machine;
use crate::plugins::{Conduct, Failing};
use crate::poison::Poison;
use crate::sink::{self, EMITS, TICKS};
use crate::weather::Fault;
use crate::world::World;

/// A call longer than this is cut off, as the host cuts off a component.
const CALL_LIMIT: Duration = Duration::from_secs(30);

/// Versions from here on start well, and fail on whatever they get: `HOPELESS_VERSIONS` of them,
/// each in one of four ways.
pub const HOPELESS_FROM: u64 = 2_000_000;
/// How many of these there are.
pub const HOPELESS_VERSIONS: u64 = 64;

/// One version, as one host has it.
pub struct SimulatedPlugin {
    digest: PluginDigest,
    version: u64,
    can_start: bool,
    keeps_state: bool,
    ticks: bool,
    place: HostPlace,
}

/// Where a plugin runs.
#[derive(Clone)]
pub struct HostPlace {
    /// The run.
    pub world: Arc<World>,
    /// The machine, for its clock.
    pub machine: Arc<Machine>,
    /// The host's name.
    pub host: String,
}

struct Instance {
    /// Which of all instances of the run it is.
    number: u64,
    place: HostPlace,
    digest: String,
    version: u64,
    context: Arc<InstanceContext>,
    /// Its state, if it keeps any: all records that it and those before it have handled.
    counted: Option<Vec<String>>,
}

/// What the guest lets the host commit.
struct HeldBack {
    /// Up to and including; nothing if `None`.
    through: Option<Place>,
}

/// Says how a delivery ended, also if its future is dropped.
struct Running<'a> {
    instance: &'a Instance,
    id: u64,
    outcome: Outcome,
    failed: Vec<Place>,
    rejected: Vec<Place>,
    /// How far the outcome may be committed, if not all of it.
    held_back: Option<HeldBack>,
}

impl SimulatedPlugin {
    /// Version `version`.
    pub fn new(version: u64, can_start: bool, keeps_state: bool, place: HostPlace) -> Self {
        let config = &place.world.plan.options.config;
        Self {
            ticks: config.iter().any(|(key, _)| key == TICKS),
            digest: digest_of(version),
            version,
            can_start,
            keeps_state,
            place,
        }
    }
}

/// What distinguishes version `version`.
pub fn digest_of(version: u64) -> PluginDigest {
    PluginDigest::from_hex(&format!("{version:016x}").repeat(4)).expect("64 hex digits")
}

impl ProcessorFactory for SimulatedPlugin {
    fn digest(&self) -> &PluginDigest {
        &self.digest
    }

    fn saves_state(&self) -> bool {
        self.keeps_state
    }

    fn ticks(&self) -> bool {
        self.ticks
    }

    fn instantiate(
        &self,
        context: Arc<InstanceContext>,
        state: Option<Bytes>,
    ) -> PortFuture<'_, Result<Box<dyn RecordProcessor>, ProcessorError>> {
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(5)).await;
            if !self.can_start {
                return Err(ProcessorError::Reported {
                    message: "this version does not start".to_owned(),
                });
            }
            let (place, digest, version) = (
                self.place.clone(),
                self.digest.as_str().to_owned(),
                self.version,
            );
            let number = place.world.next_delivery();
            let state = String::from_utf8(state.unwrap_or_default().to_vec()).expect("as written");
            let counted = self
                .keeps_state
                .then(|| state.lines().map(str::to_owned).collect::<Vec<_>>());
            if let Some(lines) = &counted {
                let (host, shard, epoch) = (
                    place.host.clone(),
                    context.shard.to_string(),
                    context.epoch.0,
                );
                let named = |line: &String| place.world.named(line.parse().expect("as written"));
                let counted = lines.iter().map(named).collect();
                place.world.note(What::StateLoaded {
                    host,
                    shard,
                    epoch,
                    counted,
                });
            }
            let instance: Box<dyn RecordProcessor> = Box::new(Instance {
                number,
                place,
                digest,
                version,
                context,
                counted,
            });
            Ok(instance)
        })
    }
}

pub(crate) fn place_of(position: &Position) -> Place {
    Place {
        sub: position.sub_sequence,
        ..Place::plain(position.sequence.as_str())
    }
}

impl Instance {
    fn start(&self, batch: &Batch) -> Running<'_> {
        let HostPlace {
            world,
            machine,
            host,
        } = &self.place;
        let id = world.next_delivery();
        world.note(What::DeliveryStarted(Delivery {
            id,
            host: host.clone(),
            shard: self.context.shard.to_string(),
            epoch: self.context.epoch.0,
            places: batch
                .records
                .iter()
                .map(|record| place_of(&record.position))
                .collect(),
            digest: self.digest.clone(),
            instance: self.number,
            attempt: batch.attempt,
            local_at: machine.local_micros(),
        }));
        Running {
            instance: self,
            id,
            outcome: Outcome::Cancelled,
            failed: Vec::new(),
            rejected: Vec::new(),
            held_back: None,
        }
    }

    fn draws(&self, fault: Fault) -> bool {
        self.place.world.conduct() != Conduct::Faultless && self.place.world.strikes(fault)
    }

    async fn handle(&self, batch: &Batch) -> Result<Reported, ProcessorError> {
        let usual = Duration::from_millis(self.place.world.dice().u64(1..40));
        tokio::time::sleep(usual).await;
        match self.place.world.conduct() {
            Conduct::Usual | Conduct::Faultless => {}
            Conduct::Fails(failing) => return fails(batch, failing),
            Conduct::Slow { least_ms } => self.takes_seconds(least_ms).await,
            Conduct::Stuck => return self.is_cut_off().await,
        }
        if self.draws(Fault::SlowPlugin) {
            let more = self.place.world.dice().u64(1..15);
            tokio::time::sleep(Duration::from_secs(more)).await;
        }
        if self.draws(Fault::StuckPlugin) {
            return self.is_cut_off().await;
        }
        if self.draws(Fault::Trap) {
            return Err(ProcessorError::Trapped {
                message: "unreachable".to_owned(),
            });
        }
        if self.draws(Fault::PluginError) {
            return Err(ProcessorError::Reported {
                message: "not now".to_owned(),
            });
        }
        if self.version >= HOPELESS_FROM {
            self.place.world.count("fault: hopeless version called");
            return fails(batch, Failing::of(self.version));
        }
        if !self.place.world.is_cured()
            && !self.place.world.plan.is_immune
            && batch
                .records
                .iter()
                .any(|it| Poison::of(&it.data) == Some(Poison::Slow))
        {
            let more = self.place.world.dice().u64(8_000..20_000);
            tokio::time::sleep(Duration::from_millis(more)).await;
        }
        let mut failures = self.poisoned(batch)?;
        if self.draws(Fault::PartialFailure) {
            let count = u32::try_from(batch.records.len()).unwrap_or(u32::MAX);
            let mut dice = self.place.world.dice();
            let fails = |index: &u32| *index == count - 1 || dice.u32(0..3) == 0;
            failures.extend(
                (0..count)
                    .filter(fails)
                    .map(|index| failure(index, FailureKind::Retry)),
            );
            // Stable: what poison does to a record comes before what the weather does to it.
            failures.sort_by_key(|failure| failure.index);
            failures.dedup_by_key(|failure| failure.index);
        }
        let mut commit = None;
        // One of several instances may not.
        let may_hold_back = !self.place.world.plan.options.parallelism.is_parallel();
        if failures.is_empty() && may_hold_back && self.draws(Fault::HoldBack) {
            let count = u32::try_from(batch.records.len()).unwrap_or(u32::MAX);
            commit = Some(match self.place.world.dice().u32(0..count) {
                0 => Commit::Nothing,
                through => Commit::Through(through - 1),
            });
        }
        Ok(Reported {
            failures,
            commit,
            ..Reported::default()
        })
    }

    /// An output for some of the records that were handled, if the plugin is configured to emit.
    fn emit(&self, batch: &Batch, failed: &[Place]) -> Vec<Emitted> {
        if !self.context.config.iter().any(|(key, _)| key == EMITS) {
            return Vec::new();
        }
        let HostPlace { world, host, .. } = &self.place;
        let mut outputs = Vec::new();
        for at in batch
            .records
            .iter()
            .map(|record| place_of(&record.position))
        {
            if !failed.contains(&at) && world.dice().u32(0..3) > 0 {
                outputs.push(Output {
                    id: world.next_output(),
                    of: at,
                });
            }
        }
        if outputs.is_empty() {
            return Vec::new();
        }
        let emitted = outputs
            .iter()
            .map(|output| sink::emitted(output.id))
            .collect();
        let (host, shard, epoch) = (
            host.clone(),
            self.context.shard.to_string(),
            self.context.epoch.0,
        );
        world.note(What::Emitted {
            host,
            shard,
            epoch,
            outputs,
        });
        emitted
    }

    /// An output of the last record that was handled: it must be stored before the state is saved
    /// again, which is written under a checkpoint that covers that record.
    fn emit_of_last(&self) -> Vec<Emitted> {
        let HostPlace { world, host, .. } = &self.place;
        let last = self.counted.as_ref().and_then(|counted| counted.last());
        let Some(last) = last.filter(|_| world.dice().bool()) else {
            return Vec::new();
        };
        let output = Output {
            id: world.next_output(),
            of: world.named(last.parse().expect("as written")),
        };
        let emitted = vec![sink::emitted(output.id)];
        world.note(What::Emitted {
            host: host.clone(),
            shard: self.context.shard.to_string(),
            epoch: self.context.epoch.0,
            outputs: vec![output],
        });
        emitted
    }

    async fn takes_seconds(&self, least_ms: u64) {
        let more = self.place.world.dice().u64(least_ms..least_ms + 10_000);
        tokio::time::sleep(Duration::from_millis(more)).await;
    }

    async fn is_cut_off(&self) -> Result<Reported, ProcessorError> {
        tokio::time::sleep(CALL_LIMIT).await;
        Err(ProcessorError::DeadlineExceeded {
            call: "process",
            limit: CALL_LIMIT,
        })
    }

    /// What the poison in a batch does; nothing at all in a healed world that halted shards have to
    /// get on in.
    fn poisoned(&self, batch: &Batch) -> Result<Vec<RecordFailure>, ProcessorError> {
        let world = &self.place.world;
        let (mut failures, mut whole) = (Vec::new(), None);
        for (index, record) in (0..).zip(batch.records.iter()) {
            let is_harmless = world.is_cured() || world.plan.is_immune;
            let Some(poison) = Poison::of(&record.data).filter(|_| !is_harmless) else {
                continue;
            };
            if poison.is_passing()
                && world.fails_again(self.context.shard.as_str(), &place_of(&record.position)) > 2
            {
                world.count("reached: poison that works in the end");
                continue;
            }
            world.count(&format!("fault: poison {poison:?}"));
            match poison {
                Poison::Trap => {
                    return Err(ProcessorError::Trapped {
                        message: "poison".to_owned(),
                    });
                }
                Poison::Error | Poison::ErrorTwice => {
                    whole = Some(ProcessorError::Reported {
                        message: "poison".to_owned(),
                    });
                }
                Poison::Retry | Poison::RetryTwice | Poison::Slow => {
                    failures.push(failure(index, FailureKind::Retry));
                }
                Poison::Reject => failures.push(failure(index, FailureKind::Reject)),
            }
        }
        whole.map_or(Ok(failures), Err)
    }
}

fn failure(index: u32, kind: FailureKind) -> RecordFailure {
    RecordFailure {
        index,
        kind,
        message: "not this one".to_owned(),
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let failed = std::mem::take(&mut self.failed);
        if let Some(HeldBack { through }) = self.held_back.take() {
            self.instance.place.world.note(What::HeldBack {
                id: self.id,
                through,
            });
        }
        if !self.rejected.is_empty() {
            let places = std::mem::take(&mut self.rejected);
            self.instance.place.world.note(What::Rejected {
                id: self.id,
                places,
            });
        }
        self.instance.place.world.note(What::DeliveryEnded {
            id: self.id,
            outcome: self.outcome,
            failed,
        });
    }
}

impl RecordProcessor for Instance {
    fn process(&mut self, batch: Batch) -> PortFuture<'_, Result<Processed, ProcessorError>> {
        Box::pin(async move {
            let mut running = self.start(&batch);
            let result = self.handle(&batch).await;
            running.outcome = match &result {
                Ok(_) => Outcome::Ok,
                Err(ProcessorError::Reported { .. } | ProcessorError::InvalidOutcome { .. }) => {
                    Outcome::Error
                }
                Err(_) => Outcome::Trap,
            };
            let outcome = result?;
            let failed = outcome
                .failures
                .iter()
                .map(|failure| &batch.records[failure.index as usize].position);
            running.failed = failed.map(place_of).collect();
            let rejected = outcome
                .failures
                .iter()
                .filter(|failure| failure.kind == FailureKind::Reject);
            running.rejected = rejected
                .map(|failure| place_of(&batch.records[failure.index as usize].position))
                .collect();
            running.held_back = outcome.commit.map(|commit| HeldBack {
                through: match commit {
                    Commit::Nothing => None,
                    Commit::Through(index) => {
                        Some(place_of(&batch.records[index as usize].position))
                    }
                },
            });
            if self.counted.is_some() {
                // What it handled is settled with its state, and not before.
                running.held_back.get_or_insert(HeldBack { through: None });
            }
            let failed = running.failed.clone();
            let emitted = self.emit(&batch, &failed);
            drop(running);
            if let Some(counted) = &mut self.counted {
                let handled = batch.records.iter().map(|record| &record.position);
                let places = handled
                    .map(place_of)
                    .filter(|place| !failed.contains(place));
                counted.extend(places.map(|place| self.place.world.name(&place).to_string()));
            }
            Ok(Processed { outcome, emitted })
        })
    }

    fn tick(&mut self, _: TickTime) -> PortFuture<'_, Result<Ticked, ProcessorError>> {
        Box::pin(async move {
            self.place.world.note(What::Ticks {
                host: self.place.host.clone(),
                shard: self.context.shard.to_string(),
                epoch: self.context.epoch.0,
            });
            let usual = Duration::from_millis(self.place.world.dice().u64(1..40));
            tokio::time::sleep(usual).await;
            if self.draws(Fault::Trap) {
                return Err(ProcessorError::Trapped {
                    message: "unreachable".to_owned(),
                });
            }
            if self.draws(Fault::PluginError) {
                return Err(ProcessorError::Reported {
                    message: "not now".to_owned(),
                });
            }
            self.place.world.count("reached: tick");
            Ok(Ticked {
                emitted: self.emit_of_last(),
                ..Ticked::default()
            })
        })
    }

    fn save(&mut self) -> PortFuture<'_, Result<Bytes, ProcessorError>> {
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            if self.draws(Fault::SaveFails) {
                return Err(if self.place.world.dice().bool() {
                    ProcessorError::State {
                        message: "too large".to_owned(),
                    }
                } else {
                    ProcessorError::Trapped {
                        message: "unreachable".to_owned(),
                    }
                });
            }
            let (host, shard, epoch) = (
                self.place.host.clone(),
                self.context.shard.to_string(),
                self.context.epoch.0,
            );
            self.place.world.note(What::StateSaved {
                host,
                shard,
                epoch,
                instance: self.number,
            });
            Ok(Bytes::from(
                self.counted.as_deref().unwrap_or_default().join("\n"),
            ))
        })
    }

    fn close(
        self: Box<Self>,
        _: CloseReason,
    ) -> PortFuture<'static, Result<LastOutput, ProcessorError>> {
        Box::pin(async { Ok(LastOutput::default()) })
    }
}

/// Fails on the whole batch, or on each record of it.
fn fails(batch: &Batch, failing: Failing) -> Result<Reported, ProcessorError> {
    let message = "hopeless".to_owned();
    let kind = match failing {
        Failing::Trap => return Err(ProcessorError::Trapped { message }),
        Failing::Error => return Err(ProcessorError::Reported { message }),
        Failing::Retry => FailureKind::Retry,
        Failing::Reject => FailureKind::Reject,
    };
    let count = u32::try_from(batch.records.len()).unwrap_or(u32::MAX);
    Ok(Reported {
        failures: (0..count).map(|index| failure(index, kind)).collect(),
        ..Reported::default()
    })
}
