//! A plugin written in plain Rust, behind the same ports as a component: for the worker's tests,
//! and as the yardstick that the price of Wasm is measured against.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use shardmill_core::plugin::{PluginDigest, ProcessorError};
use shardmill_core::ports::{
    Charge, CloseReason, InstanceContext, LastOutput, PortFuture, Processed, ProcessorFactory,
    RecordProcessor, TickTime, Ticked,
};
use shardmill_core::stream::{Batch, Emitted, Position, ShardId};

/// What a native plugin does with a batch.
pub type Behaviour = dyn Fn(&ShardId, &Batch) -> Result<Processed, ProcessorError> + Send + Sync;

/// What a native plugin does at a tick.
pub type TickBehaviour = dyn Fn(&ShardId, TickTime) -> Result<Ticked, ProcessorError> + Send + Sync;

/// How long a native plugin takes for a batch.
pub type Takes = dyn Fn(&Batch) -> Duration + Send + Sync;

/// Something that happened to an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// It was made.
    Init,
    /// It got a batch.
    Delivered {
        /// The batch's records.
        positions: Vec<Position>,
        /// The delivery.
        attempt: u32,
        /// Whether it handled the batch.
        is_ok: bool,
    },
    /// It was called because time has passed.
    Ticked {
        /// The time that it was told.
        time: TickTime,
        /// Whether it worked.
        is_ok: bool,
    },
    /// It was closed.
    Closed(CloseReason),
}

/// Everything that happened, in order: shard, digest, event.
pub type History = Arc<Mutex<Vec<(ShardId, PluginDigest, Event)>>>;

/// One version of a native plugin.
#[allow(clippy::struct_excessive_bools, reason = "each is a trait of its own")]
pub struct NativePlugin {
    digest: PluginDigest,
    behaviour: Arc<Behaviour>,
    init_error: Option<ProcessorError>,
    /// How long a delivery takes, if it takes time.
    takes: Option<Arc<Takes>>,
    hangs: bool,
    hangs_in_close: bool,
    fails_at_end: bool,
    emits_last: bool,
    state: Option<StateRules>,
    tick: Option<Arc<TickBehaviour>>,
    room: Room,
    /// `None` notes nothing: for measurements.
    history: Option<History>,
}

#[allow(clippy::struct_excessive_bools, reason = "each is a fault of its own")]
struct NativeInstance {
    digest: PluginDigest,
    behaviour: Arc<Behaviour>,
    takes: Option<Arc<Takes>>,
    hangs: bool,
    hangs_in_close: bool,
    fails_at_end: bool,
    emits_last: bool,
    state: Option<StateRules>,
    tick: Option<Arc<TickBehaviour>>,
    /// The records it has handled, from the shard's beginning.
    counted: Vec<String>,
    makes_room: bool,
    place: Option<Place>,
    history: Option<History>,
    shard: ShardId,
}

/// How a version that keeps state goes about it. The state is the list of the records that it has
/// handled.
#[derive(Clone)]
struct StateRules {
    refuses: bool,
    /// Whether ticks change it.
    has_ticks: bool,
    /// Calls of `save` that still fail.
    failures: Arc<AtomicU32>,
    /// What they fail with.
    error: ProcessorError,
}

/// How a version goes about the memory of the host.
#[derive(Default)]
struct Room {
    /// Whether it is given to others after every batch.
    is_given: bool,
    /// Places for instances that are left, if there are not enough for all.
    places: Option<Arc<AtomicUsize>>,
}

/// A place that an instance has; left when dropped.
struct Place(Arc<AtomicUsize>);

impl NativePlugin {
    /// A version distinguished by `version`, with its own history.
    ///
    /// # Panics
    ///
    /// Never: sixteen hex digits, four times, are a digest.
    pub fn new(
        version: u64,
        behaviour: impl Fn(&ShardId, &Batch) -> Result<Processed, ProcessorError>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        let digest =
            PluginDigest::from_hex(&format!("{version:016x}").repeat(4)).expect("64 hex digits");
        Self {
            digest,
            behaviour: Arc::new(behaviour),
            init_error: None,
            takes: None,
            hangs: false,
            hangs_in_close: false,
            fails_at_end: false,
            emits_last: false,
            state: None,
            tick: None,
            room: Room::default(),
            history: Some(History::default()),
        }
    }

    /// Handles everything, emits nothing.
    pub fn no_op(version: u64) -> Self {
        Self::new(version, |_, _| Ok(Processed::default()))
    }

    /// Keeps the list of the records that it has handled as its state: one line for each position.
    #[must_use]
    pub fn keeping_state(self) -> Self {
        let error = ProcessorError::Reported {
            message: "not saved".to_owned(),
        };
        Self {
            state: Some(StateRules {
                refuses: false,
                has_ticks: true,
                failures: Arc::default(),
                error,
            }),
            ..self
        }
    }

    /// Keeps the list of records only, whatever happens at ticks.
    #[must_use]
    pub fn keeping_state_without_ticks(self) -> Self {
        let mut plugin = self.keeping_state();
        if let Some(state) = &mut plugin.state {
            state.has_ticks = false;
        }
        plugin
    }

    /// Keeps state, and takes up nobody's.
    #[must_use]
    pub fn refusing_state(self) -> Self {
        let mut plugin = self.keeping_state();
        if let Some(state) = &mut plugin.state {
            state.refuses = true;
        }
        plugin
    }

    /// Keeps state, and fails with `error` at the first `times` saves.
    #[must_use]
    pub fn failing_to_save(self, times: u32, error: ProcessorError) -> Self {
        let state = StateRules {
            refuses: false,
            has_ticks: true,
            failures: Arc::new(AtomicU32::new(times)),
            error,
        };
        Self {
            state: Some(state),
            ..self
        }
    }

    /// Wants to be called when time has passed. With state, each tick that works is a line of it:
    /// `tick` and the time.
    #[must_use]
    pub fn ticking(
        self,
        behaviour: impl Fn(&ShardId, TickTime) -> Result<Ticked, ProcessorError> + Send + Sync + 'static,
    ) -> Self {
        Self {
            tick: Some(Arc::new(behaviour)),
            ..self
        }
    }

    /// Never comes back from a delivery.
    pub fn hanging(version: u64) -> Self {
        Self {
            hangs: true,
            ..Self::no_op(version)
        }
    }

    /// Needs this long for each delivery.
    #[must_use]
    pub fn taking(self, takes: Duration) -> Self {
        self.taking_by(move |_| takes)
    }

    /// Needs as long for each delivery as `takes` says when it begins.
    #[must_use]
    pub fn taking_by(self, takes: impl Fn(&Batch) -> Duration + Send + Sync + 'static) -> Self {
        Self {
            takes: Some(Arc::new(takes)),
            ..self
        }
    }

    /// Emits each record's data to `out`.
    pub fn echo(version: u64) -> Self {
        Self::new(version, |shard, batch| {
            let emit = |record: &shardmill_core::stream::Record| Emitted {
                destination: "out".to_owned(),
                key: shard.to_string(),
                data: record.data.clone(),
            };
            Ok(Processed {
                emitted: batch.records.iter().map(emit).collect(),
                ..Processed::default()
            })
        })
    }

    /// Notes nothing that happens, which costs nothing.
    #[must_use]
    pub fn unwatched(self) -> Self {
        Self {
            history: None,
            ..self
        }
    }

    /// Makes `init` fail.
    #[must_use]
    pub fn failing_init(self) -> Self {
        self.failing_init_with(ProcessorError::Reported {
            message: "init fails".to_owned(),
        })
    }

    /// Makes `init` fail with `error`.
    #[must_use]
    pub fn failing_init_with(self, error: ProcessorError) -> Self {
        Self {
            init_error: Some(error),
            ..self
        }
    }

    /// Gives its memory to others after every batch.
    #[must_use]
    pub fn making_room(self) -> Self {
        Self {
            room: Room {
                is_given: true,
                ..self.room
            },
            ..self
        }
    }

    /// Makes an instance only while there is one of these places; otherwise the host lacks memory.
    #[must_use]
    pub fn with_places(self, places: &Arc<AtomicUsize>) -> Self {
        Self {
            room: Room {
                places: Some(Arc::clone(places)),
                ..self.room
            },
            ..self
        }
    }

    /// Makes `close` never come back.
    #[must_use]
    pub fn hanging_in_close(self) -> Self {
        Self {
            hangs_in_close: true,
            ..self
        }
    }

    /// Makes `close` fail whenever the shard has ended.
    #[must_use]
    pub fn failing_at_the_end(self) -> Self {
        Self {
            fails_at_end: true,
            ..self
        }
    }

    /// Emits `last` when it is closed. This takes the instance's place until it is stored.
    #[must_use]
    pub fn emitting_last(self) -> Self {
        Self {
            emits_last: true,
            ..self
        }
    }

    /// Writes into another version's history.
    #[must_use]
    pub fn sharing(self, history: &History) -> Self {
        Self {
            history: Some(Arc::clone(history)),
            ..self
        }
    }

    /// What happened.
    pub fn history(&self) -> History {
        self.history.clone().unwrap_or_default()
    }
}

fn note(
    history: Option<&History>,
    shard: &ShardId,
    digest: &PluginDigest,
    event: impl FnOnce() -> Event,
) {
    if let Some(history) = history {
        history
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push((shard.clone(), digest.clone(), event()));
    }
}

impl ProcessorFactory for NativePlugin {
    fn digest(&self) -> &PluginDigest {
        &self.digest
    }

    fn saves_state(&self) -> bool {
        self.state.is_some()
    }

    fn ticks(&self) -> bool {
        self.tick.is_some()
    }

    fn instantiate(
        &self,
        context: Arc<InstanceContext>,
        state: Option<Bytes>,
    ) -> PortFuture<'_, Result<Box<dyn RecordProcessor>, ProcessorError>> {
        Box::pin(async move {
            if let Some(error) = &self.init_error {
                return Err(error.clone());
            }
            if state.is_some() && self.state.as_ref().is_some_and(|state| state.refuses) {
                return Err(ProcessorError::State {
                    message: "not mine".to_owned(),
                });
            }
            let place = self.room.places.as_ref().map(Place::take).transpose()?;
            note(self.history.as_ref(), &context.shard, &self.digest, || {
                Event::Init
            });
            let text = String::from_utf8(state.unwrap_or_default().to_vec()).unwrap_or_default();
            let instance: Box<dyn RecordProcessor> = Box::new(NativeInstance {
                digest: self.digest.clone(),
                behaviour: Arc::clone(&self.behaviour),
                takes: self.takes.clone(),
                hangs: self.hangs,
                hangs_in_close: self.hangs_in_close,
                fails_at_end: self.fails_at_end,
                emits_last: self.emits_last,
                state: self.state.clone(),
                tick: self.tick.clone(),
                counted: text.lines().map(str::to_owned).collect(),
                makes_room: self.room.is_given,
                place,
                history: self.history.clone(),
                shard: context.shard.clone(),
            });
            Ok(instance)
        })
    }
}

impl Place {
    fn take(places: &Arc<AtomicUsize>) -> Result<Self, ProcessorError> {
        let taken = places.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
            left.checked_sub(1)
        });
        taken
            .map(|_| Self(Arc::clone(places)))
            .map_err(|_| ProcessorError::HostMemory { limit: 1 })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl RecordProcessor for NativeInstance {
    fn gives_room(&mut self) -> bool {
        self.makes_room
    }

    fn process(&mut self, batch: Batch) -> PortFuture<'_, Result<Processed, ProcessorError>> {
        Box::pin(async move {
            if self.hangs {
                std::future::pending::<()>().await;
            }
            if let Some(takes) = &self.takes {
                tokio::time::sleep(takes(&batch)).await;
            }
            let result = (self.behaviour)(&self.shard, &batch);
            if let Err(ProcessorError::DeadlineExceeded { limit, .. }) = &result {
                // It hangs, and is cut off as a component is.
                tokio::time::sleep(*limit).await;
            }
            note(self.history.as_ref(), &self.shard, &self.digest, || {
                Event::Delivered {
                    positions: batch
                        .records
                        .iter()
                        .map(|record| record.position.clone())
                        .collect(),
                    attempt: batch.attempt,
                    is_ok: result.is_ok(),
                }
            });
            if let (Ok(processed), Some(_)) = (&result, &self.state) {
                let failed: Vec<usize> = processed
                    .outcome
                    .failures
                    .iter()
                    .map(|one| one.index as usize)
                    .collect();
                let handled = batch
                    .records
                    .iter()
                    .enumerate()
                    .filter(|(index, _)| !failed.contains(index));
                self.counted
                    .extend(handled.map(|(_, record)| record.position.to_string()));
            }
            let processed = result?;
            processed.outcome.check(batch.records.len())?;
            Ok(processed)
        })
    }

    fn tick(&mut self, time: TickTime) -> PortFuture<'_, Result<Ticked, ProcessorError>> {
        let missing = || ProcessorError::Host {
            message: "takes no ticks".to_owned(),
        };
        let behaviour = self.tick.clone().ok_or_else(missing);
        let result = behaviour.and_then(|behaviour| behaviour(&self.shard, time));
        let is_ok = result.is_ok();
        note(self.history.as_ref(), &self.shard, &self.digest, || {
            Event::Ticked { time, is_ok }
        });
        if is_ok && self.state.as_ref().is_some_and(|state| state.has_ticks) {
            self.counted.push(format!("tick {}", time.now_ms));
        }
        Box::pin(std::future::ready(result))
    }

    fn save(&mut self) -> PortFuture<'_, Result<Bytes, ProcessorError>> {
        let answer = match &self.state {
            Some(state) if state.failures.load(Ordering::Relaxed) > 0 => {
                state.failures.fetch_sub(1, Ordering::Relaxed);
                Err(state.error.clone())
            }
            _ => Ok(Bytes::from(self.counted.join("\n"))),
        };
        Box::pin(std::future::ready(answer))
    }

    fn close(
        self: Box<Self>,
        reason: CloseReason,
    ) -> PortFuture<'static, Result<LastOutput, ProcessorError>> {
        note(self.history.as_ref(), &self.shard, &self.digest, || {
            Event::Closed(reason)
        });
        Box::pin(async move {
            if self.hangs_in_close {
                std::future::pending::<()>().await;
            }
            if self.fails_at_end && reason == CloseReason::ShardEnded {
                return Err(ProcessorError::Trapped {
                    message: "close traps".to_owned(),
                });
            }
            if !self.emits_last {
                return Ok(LastOutput::default());
            }
            let place = self.place.map(|place| Box::new(place) as Charge);
            Ok(LastOutput {
                emitted: vec![Emitted {
                    destination: "out".to_owned(),
                    key: self.shard.to_string(),
                    data: Bytes::from_static(b"last"),
                }],
                charges: place.into_iter().collect(),
            })
        })
    }
}
