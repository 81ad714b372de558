//! One instance: a Store of its own, serving one shard. Guest code runs on blocking threads, of
//! which its plugin has a share, never on those that renew leases, and every entry has a deadline.
//! After a trap or a deadline the Store is gone: a component that was interrupted cannot be entered
//! again.

mod delivery;
mod entry;
mod failure;
mod handles;
mod limiter;
mod outcome;
pub(crate) mod state;
pub(crate) mod state_exports;
pub(crate) mod version;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use shardmill_core::deaths::Stage;
use shardmill_core::plugin::{GuestLimits, InstanceFate, ProcessorError};
use shardmill_core::ports::{
    CloseReason, InstanceContext, Outcome, PortFuture, Processed, RecordProcessor,
};
use shardmill_core::stream::{Batch, Emitted};
use tokio::runtime::Handle;
use tokio_util::sync::{CancellationToken, DropGuard};
use wasmtime::Store;

use self::delivery::{wit_batch, wit_context, wit_reason, wit_records};
use self::entry::Entry;
use self::failure::{explain, reported};
use self::outcome::checked;
use self::state::{InstanceState, Surroundings};
use self::state_exports::{StateExports, StateFunctions};
use self::version::Version;
use crate::bindings::Plugin as Exports;
use crate::bindings::shardmill::processor::types as wit;
use crate::engine::EPOCH_TICK;
use crate::metrics;
use crate::output::UnknownDestination;

/// How much later than the epoch the outer timeout comes. It is for guests that wait inside a host
/// function, where epochs do not count; guest code itself must always be stopped by the epoch, so
/// that no running future is dropped.
const TIMEOUT_GRACE: Duration = Duration::from_millis(100);

/// How much longer than its making an instance is left in peace when memory is short: a fifth of
/// the time at most goes into making instances anew.
const TENURE_TIMES: u32 = 4;

/// One instance of a plugin.
pub(crate) struct Instance {
    /// Keeps the epoch moving.
    version: Arc<Version>,
    limits: GuestLimits,
    /// When it was ready, and how long that took.
    started: (Instant, Duration),
    /// Ends what the guest waits for, if a call is abandoned: nobody would hear of it.
    _life: DropGuard,
    /// Empty while a call runs, and for ever once one has failed for good.
    running: Option<Box<Running>>,
}

struct Running {
    store: Store<InstanceState>,
    exports: Exports,
    state: Option<StateFunctions>,
}

impl Instance {
    /// Instantiates, runs `init`, and `load` if there is a state, each within the deadline for
    /// `init`.
    pub(crate) async fn start(
        version: Arc<Version>,
        context: Arc<InstanceContext>,
        state: Option<Bytes>,
    ) -> Result<Self, ProcessorError> {
        let limits = context.limits.unwrap_or(*version.runtime.limits());
        let metering = version.runtime.metering();
        let entry = Entry::new("init", limits.init_deadline, &limits, metering);
        let shared = Arc::clone(&version);
        let share = version
            .shares
            .memory
            .admit(version.needs.of(&context))
            .await?;
        let before = Instant::now();
        let life = CancellationToken::new();
        let guard = life.clone().drop_guard();
        let task = version.shares.run(move || {
            let _at_work = shared.newcomer.enter(Stage::Start)?;
            let surroundings = Surroundings {
                output: Arc::clone(&shared.output),
                share,
                instance_bytes: shared.instance_bytes,
                life,
                metering,
            };
            Running::start(
                &shared,
                context,
                &limits,
                surroundings,
                entry,
                state.as_ref(),
            )
        });
        let running = task
            .await
            .inspect_err(|error| count_denial(&version, error))?;
        let started = (Instant::now(), before.elapsed());
        Ok(Self {
            version,
            limits,
            started,
            _life: guard,
            running: Some(running),
        })
    }

    /// How long it stays at least: or one that takes long to make would be made more than it works.
    fn tenure(&self) -> Duration {
        self.started.1 * TENURE_TIMES
    }

    fn entry(&self, call: &'static str, deadline: Duration) -> Entry {
        Entry::new(
            call,
            deadline,
            &self.limits,
            self.version.runtime.metering(),
        )
    }

    fn take_running(&mut self) -> Result<Box<Running>, ProcessorError> {
        let message = "the instance has failed or was abandoned during a call; make a new one";
        self.running.take().ok_or_else(|| ProcessorError::Host {
            message: message.to_owned(),
        })
    }
}

impl RecordProcessor for Instance {
    fn process(&mut self, batch: Batch) -> PortFuture<'_, Result<Processed, ProcessorError>> {
        Box::pin(async move {
            let running = self.take_running()?;
            let largest = batch
                .records
                .iter()
                .map(|record| record.data.len())
                .max()
                .unwrap_or(0);
            let hostcall_bytes = self
                .limits
                .hostcall_bytes_with(batch.records.len(), largest);
            let entry = Entry {
                hostcall_bytes,
                ..self.entry("process", self.limits.process_deadline)
            };
            let version = Arc::clone(&self.version);
            let work = move || {
                let at_work = version.newcomer.enter(Stage::Call)?;
                let (running, result, fuel) = running.process(&batch, entry);
                if let (Some(at_work), Err(error)) = (&at_work, &result)
                    && is_denied_memory(error)
                {
                    at_work.denied_memory();
                }
                version.runtime.add_fuel_used(fuel);
                Ok((running, result))
            };
            let (running, result) = self.version.shares.run(work).await?;
            self.running = running;
            result.inspect_err(|error| count_denial(&self.version, error))
        })
    }

    fn save(&mut self) -> PortFuture<'_, Result<Bytes, ProcessorError>> {
        Box::pin(async move {
            let running = self.take_running()?;
            let entry = self.entry("save", self.limits.init_deadline);
            let bytes_max = self.limits.state_bytes;
            let version = Arc::clone(&self.version);
            let work = move || {
                let _at_work = version.newcomer.enter(Stage::Start)?;
                Ok(running.save(entry, bytes_max))
            };
            let (running, result) = self.version.shares.run(work).await?;
            self.running = running;
            result
        })
    }

    fn asked_for_room(&self) -> PortFuture<'static, ()> {
        let (memory, due) = (
            self.version.shares.memory.clone(),
            self.started.0 + self.tenure(),
        );
        Box::pin(async move {
            tokio::time::sleep_until(due.into()).await;
            memory.is_short().await;
        })
    }

    fn gives_room(&mut self) -> bool {
        let is_due = self.started.0.elapsed() >= self.tenure();
        is_due
            && self
                .running
                .as_ref()
                .is_some_and(|running| running.store.data().limiter.share().promise())
    }

    fn memory_bytes(&self) -> usize {
        self.running
            .as_ref()
            .map_or(0, |running| running.store.data().limiter.memory_bytes())
    }

    fn close(
        mut self: Box<Self>,
        reason: CloseReason,
    ) -> PortFuture<'static, Result<Vec<Emitted>, ProcessorError>> {
        Box::pin(async move {
            let running = self.take_running()?;
            let entry = self.entry("close", self.limits.init_deadline);
            let version = Arc::clone(&self.version);
            let work = move || {
                let _at_work = version.newcomer.enter(Stage::Start)?;
                running.close(reason, entry)
            };
            self.version.shares.run(work).await
        })
    }
}

impl Running {
    /// Instantiates, runs `init`, and `load`, under a deadline each.
    fn start(
        version: &Version,
        context: Arc<InstanceContext>,
        limits: &GuestLimits,
        surroundings: Surroundings,
        entry: Entry,
        state: Option<&Bytes>,
    ) -> Result<Box<Self>, ProcessorError> {
        let runtime = &version.runtime;
        let (engine, clients) = (runtime.engine(), runtime.http_clients());
        let mut store = InstanceState::new_store(engine, context, limits, surroundings, clients)?;
        let (exports, instance) = entered(&mut store, entry, async |store| {
            let pre = version.pre.instance_pre();
            let instance = pre.instantiate_async(&mut *store).await?;
            let exports = Exports::new(&mut *store, &instance)?;
            let context = Arc::clone(&store.data().identity);
            let answer = exports
                .shardmill_processor_processor()
                .call_init(store, wit_context(&context))
                .await?;
            Ok(answer.map(|()| (exports, instance)))
        })?;
        let entry = Entry {
            call: "load",
            ..entry
        };
        let state = load(&mut store, &instance, version.state, state, entry)?;
        version
            .needs
            .started_with(store.data().limiter.share().used_bytes());
        Ok(Box::new(Self {
            store,
            exports,
            state,
        }))
    }

    /// Gives itself back if it can be called again, and tells the fuel that the call took.
    fn process(
        mut self: Box<Self>,
        batch: &Batch,
        entry: Entry,
    ) -> (Option<Box<Self>>, Result<Processed, ProcessorError>, u64) {
        self.store.data_mut().open_output();
        let exports = &self.exports;
        let records = wit_records(batch);
        let result = entered(&mut self.store, entry, async |store| {
            exports
                .shardmill_processor_processor()
                .call_process(store, wit_batch(batch, &records))
                .await
        });
        let emitted = self.store.data_mut().emit.take();
        let unknown = self.store.data().emit.unknown_destination();
        let result = result
            .and_then(|outcome| {
                checked(
                    &outcome,
                    batch.records.len(),
                    self.store.data().log.redactor(),
                    unknown.as_ref(),
                )
            })
            .and_then(|outcome| self.unless_short_of_memory(outcome))
            .map(|outcome| Processed { outcome, emitted })
            .map_err(|error| in_the_light_of(unknown, error));
        let fuel = entry.metering.fuel_used(&self.store);
        let (running, result) = self.alive_after(result);
        (running, result, fuel)
    }

    /// Gives itself back if it can be called again.
    fn save(
        mut self: Box<Self>,
        entry: Entry,
        bytes_max: usize,
    ) -> (Option<Box<Self>>, Result<Bytes, ProcessorError>) {
        let Some(functions) = self.state.clone() else {
            let message = "this version exports no save".to_owned();
            return (Some(self), Err(ProcessorError::State { message }));
        };
        let result = entered(&mut self.store, entry, async |store| {
            functions.save(store).await
        });
        let result = result.and_then(|state| match state.len() {
            bytes if bytes > bytes_max => Err(ProcessorError::State {
                message: format!(
                    "it has {bytes} bytes, more than the limit of {bytes_max}: keep less, or \
                        raise limits.state"
                ),
            }),
            _ => Ok(Bytes::from(state)),
        });
        self.alive_after(result)
    }

    fn alive_after<T>(
        self: Box<Self>,
        result: Result<T, ProcessorError>,
    ) -> (Option<Box<Self>>, Result<T, ProcessorError>) {
        let is_dead = result
            .as_ref()
            .is_err_and(|error| error.fate() == InstanceFate::Dead);
        ((!is_dead).then_some(self), result)
    }

    /// A guest that lives with a failed allocation may blame the record that it was at: nothing
    /// that it says of records counts then.
    fn unless_short_of_memory(&mut self, outcome: Outcome) -> Result<Outcome, ProcessorError> {
        let limiter = &mut self.store.data_mut().limiter;
        if limiter.share().is_denied() && !outcome.failures.is_empty() {
            return Err(limiter.share().denial());
        }
        limiter.share_mut().settle();
        Ok(outcome)
    }

    fn close(mut self, reason: CloseReason, entry: Entry) -> Result<Vec<Emitted>, ProcessorError> {
        self.store.data_mut().open_output();
        let exports = &self.exports;
        let reason = wit_reason(reason);
        let result = entered(&mut self.store, entry, async |store| {
            exports
                .shardmill_processor_processor()
                .call_close(store, reason)
                .await
        });
        let data = self.store.data_mut();
        let unknown = data.emit.unknown_destination();
        result
            .map(|()| data.emit.take())
            .map_err(|error| in_the_light_of(unknown, error))
    }
}

/// Why a call failed, if it emitted to a destination that does not exist.
fn in_the_light_of(unknown: Option<UnknownDestination>, error: ProcessorError) -> ProcessorError {
    match unknown {
        Some(unknown) => unknown.explains_error(error),
        None => error,
    }
}

/// Has a fresh instance take up `state`, if there is any.
fn load(
    store: &mut Store<InstanceState>,
    instance: &wasmtime::component::Instance,
    exports: Option<StateExports>,
    state: Option<&Bytes>,
    entry: Entry,
) -> Result<Option<StateFunctions>, ProcessorError> {
    let Some(exports) = exports else {
        return Ok(None);
    };
    let functions = entered(store, entry, async |store| {
        if let Some(state) = state {
            let answer = exports.load(store, instance, state).await?;
            if let Err(refusal) = answer {
                return Ok(Err(refusal));
            }
        }
        exports.functions(store, instance).map(Ok)
    });
    let refused = |message: String| ProcessorError::State {
        message: format!("this version refuses it: {message}"),
    };
    functions.map(Some).map_err(|error| match error {
        ProcessorError::Reported { message } => refused(message),
        error => error,
    })
}

/// The one door into guest code: sets the deadline, runs the call to its end, and names what went
/// wrong.
fn entered<T>(
    store: &mut Store<InstanceState>,
    entry: Entry,
    call: impl AsyncFnOnce(&mut Store<InstanceState>) -> wasmtime::Result<Result<T, wit::Error>>,
) -> Result<T, ProcessorError> {
    let Entry {
        call: name,
        deadline,
        metering,
        hostcall_bytes,
    } = entry;
    store.set_hostcall_fuel(hostcall_bytes);
    store.data_mut().limiter.forget_denial();
    store.data_mut().http.open(deadline);
    let host = |error: wasmtime::Error| ProcessorError::Host {
        message: format!("{error:#}"),
    };
    metering.refill(store, epochs(deadline)).map_err(host)?;
    let answer =
        Handle::current().block_on(tokio::time::timeout(deadline + TIMEOUT_GRACE, call(store)));
    store.data().http.close();
    store.data().end_lines();
    store.data_mut().settle_handles();
    let share = store.data().limiter.share();
    match answer {
        // Of a guest that lives with it, output would be missing.
        _ if store.data().limiter.is_output_denied() => Err(share.denial()),
        Ok(Ok(Ok(answer))) => Ok(answer),
        // Whatever the guest made of it: it was not given what it may have.
        _ if share.is_denied() => Err(share.denial()),
        Err(_elapsed) => Err(ProcessorError::DeadlineExceeded {
            call: name,
            limit: deadline,
        }),
        Ok(Err(error)) => Err(explain(&error, store.data(), entry)),
        Ok(Ok(Err(error))) => Err(reported(&error, store.data().log.redactor())),
    }
}

fn count_denial(version: &Version, error: &ProcessorError) {
    if matches!(error, ProcessorError::HostMemory { .. }) {
        ::metrics::counter!(metrics::MEMORY_DENIED, "plugin" => version.name().to_string())
            .increment(1);
    }
}

/// Whether a call took all that its instance may have, or all that there was.
fn is_denied_memory(error: &ProcessorError) -> bool {
    matches!(
        error,
        ProcessorError::HostMemory { .. } | ProcessorError::LimitExceeded { .. }
    )
}

/// A deadline in epochs. One more, because the current one is already running out.
fn epochs(deadline: Duration) -> u64 {
    u64::try_from(deadline.as_millis() / EPOCH_TICK.as_millis())
        .unwrap_or(u64::MAX - 1)
        .saturating_add(1)
}
