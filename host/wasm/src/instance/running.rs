//! A Store with a component in it, between two calls. Everything here blocks while guest code runs.

use std::sync::Arc;

use bytes::Bytes;
use shardmill_core::plugin::{GuestLimits, InstanceFate, ProcessorError};
use shardmill_core::ports::{
    CloseReason, InstanceContext, LastOutput, Outcome, Processed, TickTime, Ticked,
};
use shardmill_core::stream::Batch;
use shardmill_core::trace::TraceContext;
use shardmill_layout as layout;
use wasmtime::Store;
use wasmtime::component::Instance as Component;

use super::bulk_export::BulkExport;
use super::call::entered;
use super::contract::{
    checked, frame_of, outcome_of_frame, outcome_of_lists, wit_batch, wit_context, wit_reason,
    wit_records,
};
use super::entry::Entry;
use super::host::InstanceHost;
use super::state::{InstanceState, Surroundings};
use super::state_exports::{StateExports, StateFunctions};
use super::ticker_export::TickerExport;
use super::version::Version;
use crate::bindings::Plugin as Exports;
use crate::output::UnknownDestination;

/// A component that can be called. Each call takes it, and returns it unless the call was fatal.
pub(super) struct Running {
    store: Store<InstanceState>,
    exports: Exports,
    component: Component,
    state: Option<StateFunctions>,
    bulk: Option<BulkExport>,
    ticker: Option<TickerExport>,
}

/// What is left after a call.
pub(super) struct Returned<T> {
    /// `None` if it cannot be called again.
    pub(super) running: Option<Box<Running>>,
    pub(super) result: Result<T, ProcessorError>,
}

impl Running {
    /// Instantiates, runs `init`, and `load` if there is a state. Each call has the deadline for
    /// `init`.
    pub(super) fn start(
        version: &Version,
        context: Arc<InstanceContext>,
        limits: &GuestLimits,
        surroundings: Surroundings,
        state: Option<&Bytes>,
    ) -> Result<Box<Self>, ProcessorError> {
        let mut store = InstanceState::new_store(context, limits, surroundings)?;
        let deadline = limits.init_deadline;
        let metering = version.host.metering();
        let init_entry = Entry::new("init", deadline, limits, metering);
        let (exports, component) = init(&mut store, version, init_entry)?;
        let state = match version.state {
            Some(exports) => {
                let entry = Entry::new("load", deadline, limits, metering);
                Some(load(&mut store, &component, exports, state, entry)?)
            }
            None => None,
        };
        let used_bytes = store.data().limiter.share().used_bytes();
        version.needs.started_with(used_bytes);
        Ok(Box::new(Self {
            store,
            exports,
            component,
            state,
            bulk: version.bulk,
            ticker: version.ticker,
        }))
    }

    pub(super) fn process(
        mut self: Box<Self>,
        batch: &Batch,
        entry: Entry,
        host: &InstanceHost,
    ) -> Returned<Processed> {
        self.store.data_mut().open_output();
        if batch.trace.is_some() {
            self.belong_to(batch.trace);
        }
        let outcome = match self.bulk {
            Some(export) if is_faster_in_a_frame(batch) => self.process_frame(export, batch, entry),
            Some(_) | None => self.process_lists(batch, entry),
        };
        if batch.trace.is_some() {
            self.belong_to(None);
        }
        let refused = self.unless_refused();
        let emitted = self.store.data_mut().emit.take();
        let outcome = outcome
            .and_then(|outcome| refused.map(|()| outcome))
            .and_then(|outcome| self.unless_short_of_memory(outcome))
            .map_err(|error| explained_by(self.store.data().emit.unknown_destination(), error));
        host.add_fuel_used(entry.metering.fuel_used(&self.store));
        self.after(outcome.map(|outcome| Processed { outcome, emitted }))
    }

    /// What the guest logs and sends belongs to this span.
    fn belong_to(&mut self, span: Option<TraceContext>) {
        let state = self.store.data_mut();
        state.log.belong_to(span);
        state.http.belong_to(span);
    }

    /// A plugin that goes on after a frame of output was refused would lose what was in it.
    fn unless_refused(&self) -> Result<(), ProcessorError> {
        match self.store.data().emit.refused() {
            None => Ok(()),
            Some(why) => Err(ProcessorError::InvalidOutcome {
                message: format!("it went on after put-all had failed: {why}"),
            }),
        }
    }

    fn process_lists(&mut self, batch: &Batch, entry: Entry) -> Result<Outcome, ProcessorError> {
        let exports = &self.exports;
        let records = wit_records(batch);
        let outcome = entered(&mut self.store, entry, async |store| {
            exports
                .shardmill_processor_processor()
                .call_process(store, wit_batch(batch, &records))
                .await
        })?;
        self.check(&outcome_of_lists(&outcome), batch)
    }

    fn process_frame(
        &mut self,
        export: BulkExport,
        batch: &Batch,
        entry: Entry,
    ) -> Result<Outcome, ProcessorError> {
        let component = self.component;
        let frame = frame_of(batch)?;
        let outcome = entered(&mut self.store, entry, async |store| {
            export.process(store, &component, &frame).await
        })?;
        self.check(&outcome_of_frame(&outcome, batch.records.len())?, batch)
    }

    fn check(
        &self,
        outcome: &layout::Outcome<'_>,
        batch: &Batch,
    ) -> Result<Outcome, ProcessorError> {
        let state = self.store.data();
        let unknown = state.emit.unknown_destination();
        let (records, redactor) = (batch.records.len(), state.log.redactor());
        checked(outcome, records, redactor, unknown.as_ref())
    }

    /// A guest that survives a failed allocation may blame the record that it was at: nothing that
    /// it says about records counts then.
    fn unless_short_of_memory(&mut self, outcome: Outcome) -> Result<Outcome, ProcessorError> {
        let limiter = &mut self.store.data_mut().limiter;
        if limiter.share().is_denied() && !outcome.failures.is_empty() {
            return Err(limiter.share().denial());
        }
        limiter.share_mut().settle();
        Ok(outcome)
    }

    pub(super) fn tick(mut self: Box<Self>, time: TickTime, entry: Entry) -> Returned<Ticked> {
        let Some(ticker) = self.ticker else {
            let message = "this version exports no ticker".to_owned();
            return Returned {
                running: Some(self),
                result: Err(ProcessorError::InvalidOutcome { message }),
            };
        };
        self.store.data_mut().open_output();
        let component = self.component;
        let held_back = entered(&mut self.store, entry, async |store| {
            ticker.tick(store, &component, time).await
        });
        let refused = self.unless_refused();
        let emitted = self.store.data_mut().emit.take();
        let held_back = held_back
            .and_then(|held_back| refused.map(|()| held_back))
            .inspect(|_| self.store.data_mut().limiter.share_mut().settle())
            .map_err(|error| explained_by(self.store.data().emit.unknown_destination(), error));
        self.after(held_back.map(|held_back| Ticked {
            held_back: held_back.into(),
            emitted,
        }))
    }

    /// Refuses a state of more than `bytes_max`.
    pub(super) fn save(mut self: Box<Self>, entry: Entry, bytes_max: usize) -> Returned<Bytes> {
        let Some(functions) = self.state.clone() else {
            let message = "this version exports no save".to_owned();
            return Returned {
                running: Some(self),
                result: Err(ProcessorError::State { message }),
            };
        };
        let saved = entered(&mut self.store, entry, async |store| {
            functions.save(store).await
        });
        self.after(saved.and_then(|state| within(bytes_max, state)))
    }

    pub(super) fn close(
        mut self,
        reason: CloseReason,
        entry: Entry,
    ) -> Result<LastOutput, ProcessorError> {
        self.store.data_mut().open_output();
        let exports = &self.exports;
        let reason = wit_reason(reason);
        let closed = entered(&mut self.store, entry, async |store| {
            exports
                .shardmill_processor_processor()
                .call_close(store, reason)
                .await
        });
        let closed = closed.and_then(|()| self.unless_refused());
        let state = self.store.data_mut();
        match closed {
            Ok(()) => Ok(state.take_last_output()),
            Err(error) => Err(explained_by(state.emit.unknown_destination(), error)),
        }
    }

    fn after<T>(self: Box<Self>, result: Result<T, ProcessorError>) -> Returned<T> {
        let is_dead = result
            .as_ref()
            .is_err_and(|error| error.fate() == InstanceFate::Dead);
        Returned {
            running: (!is_dead).then_some(self),
            result,
        }
    }

    /// Linear memory held, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.store.data().limiter.memory_bytes()
    }

    /// Whether it is needed that the instance gives up its memory; it promises to, then.
    pub(super) fn promises_memory(&self) -> bool {
        self.store.data().limiter.share().promise()
    }
}

fn init(
    store: &mut Store<InstanceState>,
    version: &Version,
    entry: Entry,
) -> Result<(Exports, Component), ProcessorError> {
    entered(store, entry, async |store| {
        let pre = version.pre.instance_pre();
        let component = pre.instantiate_async(&mut *store).await?;
        let exports = Exports::new(&mut *store, &component)?;
        let context = Arc::clone(&store.data().identity);
        let answer = exports
            .shardmill_processor_processor()
            .call_init(store, wit_context(&context))
            .await?;
        Ok(answer.map(|()| (exports, component)))
    })
}

/// A frame saves a record four allocations in the guest, and costs it one more copy, which takes
/// longer than they do for records of more than some 4 KiB (`cargo bench --bench dispatch`).
fn is_faster_in_a_frame(batch: &Batch) -> bool {
    const RECORD_BYTES_MAX: usize = 4 << 10;
    let bytes: usize = batch.records.iter().map(|record| record.data.len()).sum();
    bytes <= batch.records.len() * RECORD_BYTES_MAX
}

/// Has a fresh instance take up `state`, if there is any.
fn load(
    store: &mut Store<InstanceState>,
    component: &Component,
    exports: StateExports,
    state: Option<&Bytes>,
    entry: Entry,
) -> Result<StateFunctions, ProcessorError> {
    let loaded = entered(store, entry, async |store| {
        if let Some(state) = state {
            let answer = exports.load(store, component, state).await?;
            if let Err(refusal) = answer {
                return Ok(Err(refusal));
            }
        }
        exports.functions(store, component).map(Ok)
    });
    loaded.map_err(|error| match error {
        ProcessorError::Reported { message } => ProcessorError::State {
            message: format!("this version refuses it: {message}"),
        },
        error => error,
    })
}

fn within(bytes_max: usize, state: Vec<u8>) -> Result<Bytes, ProcessorError> {
    let bytes = state.len();
    if bytes > bytes_max {
        return Err(ProcessorError::State {
            message: format!(
                "it has {bytes} bytes, more than the limit of {bytes_max}: keep less, or raise \
                    limits.state"
            ),
        });
    }
    Ok(Bytes::from(state))
}

/// Adds to a call's failure that it emitted to a destination that does not exist, if it did.
fn explained_by(unknown: Option<UnknownDestination>, error: ProcessorError) -> ProcessorError {
    match unknown {
        Some(unknown) => unknown.explains_error(error),
        None => error,
    }
}
