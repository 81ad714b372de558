//! One instance: it has its own Store and serves one shard. Guest code runs on blocking threads, of
//! which its plugin has a share, never on those that renew leases, and every call has a deadline.
//! After a trap or a deadline the Store is gone: a component that was interrupted cannot be entered
//! again.

pub(crate) mod bulk_export;
mod call;
mod contract;
mod entry;
mod failure;
mod handles;
pub(crate) mod host;
mod limiter;
mod running;
pub(crate) mod state;
pub(crate) mod state_exports;
pub(crate) mod ticker_export;
pub(crate) mod version;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use shardmill_core::deaths::Stage;
use shardmill_core::plugin::{GuestLimits, ProcessorError};
use shardmill_core::ports::{
    CloseReason, InstanceContext, LastOutput, PortFuture, Processed, RecordProcessor, TickTime,
    Ticked,
};
use shardmill_core::stream::Batch;
use tokio_util::sync::{CancellationToken, DropGuard};

use self::entry::Entry;
use self::running::{Returned, Running};
use self::state::Surroundings;
use self::version::Version;

/// How many times longer than it took to start an instance keeps its memory when memory is short:
/// at most a fifth of the time goes into starting instances again.
const TENURE_TIMES: u32 = 4;

/// One instance of a plugin.
pub(crate) struct Instance {
    version: Arc<Version>,
    limits: GuestLimits,
    ready_at: Instant,
    start_took: Duration,
    /// Ends what the guest waits for if a call is abandoned, since the answer would go nowhere.
    _life: DropGuard,
    /// Empty while a call runs, and for good once one was fatal.
    running: Option<Box<Running>>,
}

impl Instance {
    /// Instantiates, runs `init`, and `load` if there is a state, each within the deadline for
    /// `init`.
    pub(crate) async fn start(
        version: Arc<Version>,
        context: Arc<InstanceContext>,
        state: Option<Bytes>,
    ) -> Result<Self, ProcessorError> {
        let limits = context.limits.unwrap_or(*version.host.limits());
        let need = version.needs.of(&context);
        let share = version.shares.memory.admit(need).await?;
        let started_at = Instant::now();
        let life = CancellationToken::new();
        let guard = life.clone().drop_guard();
        let surroundings = Surroundings {
            host: Arc::clone(&version.host),
            output: Arc::clone(&version.output),
            is_shadow: version.name.shadowed().is_some(),
            share,
            instance_bytes: version.instance_bytes,
            life,
        };
        let shared = Arc::clone(&version);
        let start = move || {
            let _at_work = shared.newcomer.enter(Stage::Start)?;
            Running::start(&shared, context, &limits, surroundings, state.as_ref())
        };
        let running = version.shares.run(start).await;
        let running = running.inspect_err(|error| version.count_denial(error))?;
        Ok(Self {
            version,
            limits,
            ready_at: Instant::now(),
            start_took: started_at.elapsed(),
            _life: guard,
            running: Some(running),
        })
    }

    /// When it may be asked for its memory. Sooner, one that takes long to start would start more
    /// than it works.
    fn tenure_ends_at(&self) -> Instant {
        self.ready_at + self.start_took * TENURE_TIMES
    }

    fn entry(&self, call: &'static str, deadline: Duration) -> Entry {
        Entry::new(call, deadline, &self.limits, self.version.host.metering())
    }

    /// A call of `process` may pass as much to the host as its batch makes necessary.
    fn process_entry(&self, batch: &Batch) -> Entry {
        let sizes = batch.records.iter().map(|record| record.data.len());
        let largest = sizes.max().unwrap_or(0);
        Entry {
            hostcall_bytes: self
                .limits
                .hostcall_bytes_with(batch.records.len(), largest),
            ..self.entry("process", self.limits.process_deadline)
        }
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
            let entry = self.process_entry(&batch);
            let version = Arc::clone(&self.version);
            let work = move || {
                let at_work = version.newcomer.enter(Stage::Call)?;
                let returned = running.process(&batch, entry, &version.host);
                if let (Some(at_work), Err(error)) = (&at_work, &returned.result)
                    && is_denied_memory(error)
                {
                    at_work.denied_memory();
                }
                Ok(returned)
            };
            let Returned { running, result } = self.version.shares.run(work).await?;
            self.running = running;
            result.inspect_err(|error| self.version.count_denial(error))
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
            let Returned { running, result } = self.version.shares.run(work).await?;
            self.running = running;
            result
        })
    }

    fn tick(&mut self, time: TickTime) -> PortFuture<'_, Result<Ticked, ProcessorError>> {
        Box::pin(async move {
            let running = self.take_running()?;
            let entry = self.entry("tick", self.limits.process_deadline);
            let version = Arc::clone(&self.version);
            let work = move || {
                let at_work = version.newcomer.enter(Stage::Call)?;
                let returned = running.tick(time, entry);
                if let (Some(at_work), Err(error)) = (&at_work, &returned.result)
                    && is_denied_memory(error)
                {
                    at_work.denied_memory();
                }
                Ok(returned)
            };
            let Returned { running, result } = self.version.shares.run(work).await?;
            self.running = running;
            result.inspect_err(|error| self.version.count_denial(error))
        })
    }

    fn asked_for_room(&self) -> PortFuture<'static, ()> {
        let memory = self.version.shares.memory.clone();
        let tenure_ends_at = self.tenure_ends_at();
        Box::pin(async move {
            tokio::time::sleep_until(tenure_ends_at.into()).await;
            memory.is_short().await;
        })
    }

    fn gives_room(&mut self) -> bool {
        Instant::now() >= self.tenure_ends_at()
            && self
                .running
                .as_ref()
                .is_some_and(|running| running.promises_memory())
    }

    fn memory_bytes(&self) -> usize {
        self.running
            .as_ref()
            .map_or(0, |running| running.memory_bytes())
    }

    fn close(
        mut self: Box<Self>,
        reason: CloseReason,
    ) -> PortFuture<'static, Result<LastOutput, ProcessorError>> {
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

/// Whether a call took all that its instance may have, or all that there was.
fn is_denied_memory(error: &ProcessorError) -> bool {
    matches!(
        error,
        ProcessorError::HostMemory { .. } | ProcessorError::LimitExceeded { .. }
    )
}
