//! The instance that serves a shard: made when needed, dropped when dead.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use shardmill_core::kcl_metrics::Observation;
use shardmill_core::plugin::{InstanceFate, PluginDigest, ProcessorError};
use shardmill_core::ports::{
    CloseReason, InstanceContext, LastOutput, PortFuture, Processed, ProcessorFactory,
    RecordProcessor, StartPosition, TickTime, Ticked,
};
use shardmill_core::stream::Batch;

use super::history::{Delivered, History, Whose};
use super::shadowing::Shadowing;
use super::terms::Terms;
use crate::meters::Meter;
use crate::timer::Stopwatch;

/// The active version, and its instance if one is alive.
pub(super) struct Instance {
    version: Arc<dyn ProcessorFactory>,
    processor: Option<Box<dyn RecordProcessor>>,
    /// Whether this version has started here.
    has_started: bool,
    context: Arc<InstanceContext>,
    terms: Terms,
    /// What the live instance was given.
    history: History,
    /// Gives it to the version in the shadow as well.
    shadowing: Shadowing,
    meter: Meter,
}

impl Instance {
    pub(super) fn new(
        version: Arc<dyn ProcessorFactory>,
        context: Arc<InstanceContext>,
        terms: Terms,
        history: History,
        shadowing: Shadowing,
        meter: Meter,
    ) -> Self {
        Self {
            meter,
            version,
            processor: None,
            has_started: false,
            context,
            terms,
            history,
            shadowing,
        }
    }

    pub(super) fn digest(&self) -> &PluginDigest {
        self.version.digest()
    }

    /// The holding that it serves, which distinguishes the hosts that have had the shard.
    pub(super) fn epoch(&self) -> u64 {
        self.context.epoch.0
    }

    /// What the instance knows of its place in the world.
    pub(super) fn context(&self) -> &InstanceContext {
        &self.context
    }

    pub(super) fn is_alive(&self) -> bool {
        self.processor.is_some()
    }

    /// Whether the active version has started on this shard, though its instance may be dead by
    /// now.
    pub(super) fn has_started(&self) -> bool {
        self.has_started
    }

    /// Makes an instance of the active version, if there is none, that starts from `state`, and
    /// whose records begin at `start`.
    pub(super) async fn ensure(
        &mut self,
        state: Option<Bytes>,
        start: StartPosition,
    ) -> Result<(), ProcessorError> {
        if self.processor.is_none() {
            self.fits()?;
            self.context = Arc::new(InstanceContext {
                start,
                ..InstanceContext::clone(&self.context)
            });
            let context = Arc::clone(&self.context);
            let started = Stopwatch::start();
            let instance = self.version.instantiate(context, state.clone()).await;
            let took = started.elapsed();
            self.meter.note(&Observation::Initialized { took });
            let instance = instance?;
            self.processor = Some(instance);
            self.shadowing.made(state.as_ref());
            self.history.begin(state);
            self.has_started = true;
        }
        Ok(())
    }

    /// Whether the active version fits what it is allowed: to keep state, to get ticks.
    pub(super) fn fits(&self) -> Result<(), ProcessorError> {
        self.terms.check(self.version.as_ref())
    }

    /// Whether the active version wants to be called when time has passed.
    pub(super) fn ticks(&self) -> bool {
        self.version.ticks()
    }

    /// The same place in the world for another version; the one at work is not touched.
    pub(super) fn with_version(&self, version: Arc<dyn ProcessorFactory>) -> Self {
        Self::new(
            version,
            Arc::clone(&self.context),
            self.terms,
            self.history.of_another(),
            self.shadowing.of_another(),
            self.meter.clone(),
        )
    }

    /// Another place for an instance of the same version.
    pub(super) fn sibling(&self) -> Self {
        self.with_version(Arc::clone(&self.version))
    }

    /// Delivers to the live instance; a dead one is dropped, since a trapped component cannot be
    /// entered again.
    pub(super) async fn process(&mut self, batch: Batch) -> Result<Processed, ProcessorError> {
        let result = self.alive()?.process(batch).await;
        self.bury(result)
    }

    /// Calls the live instance because time has passed; a dead one is dropped, as by
    /// [`Instance::process`].
    pub(super) async fn tick(&mut self, time: TickTime) -> Result<Ticked, ProcessorError> {
        let result = self.alive()?.tick(time).await;
        let result = self.bury(result);
        let whose = Whose {
            context: &self.context,
            digest: self.version.digest(),
        };
        self.shadowing.ticked(whose, time, &result);
        if self.processor.is_none() {
            self.shadowing.end();
        }
        result
    }

    /// Gives the version in the shadow what the live instance was given, with what came of it.
    pub(super) fn shadow(
        &mut self,
        batch: &Batch,
        result: &Result<Processed, ProcessorError>,
        took: Duration,
    ) {
        let whose = Whose {
            context: &self.context,
            digest: self.version.digest(),
        };
        self.shadowing.called(whose, batch, result, took);
        if self.processor.is_none() {
            self.shadowing.end();
        }
    }

    /// Takes note of a call that has ended, whatever came of it. Recorded if it failed.
    pub(super) fn note(&mut self, call: Delivered<'_>) {
        let whose = Whose {
            context: &self.context,
            digest: self.version.digest(),
        };
        self.history.delivered(call, &whose);
        if self.processor.is_none() {
            self.history.end();
        }
    }

    /// Lends the live instance for one call, which may run beside calls of other instances. It
    /// counts as dead until [`Instance::take_back`].
    pub(super) fn lend(&mut self) -> Option<Box<dyn RecordProcessor>> {
        self.processor.take()
    }

    /// Takes back what was lent, unless the call cost it its life.
    pub(super) fn take_back<T>(
        &mut self,
        processor: Option<Box<dyn RecordProcessor>>,
        result: Result<T, ProcessorError>,
    ) -> Result<T, ProcessorError> {
        self.processor = processor;
        self.bury(result)
    }

    /// Asks the live instance for its state, for at most as long as `close` may take.
    pub(super) async fn save(&mut self) -> Result<Bytes, ProcessorError> {
        let deadline = self.terms.deadline;
        let processor = self.alive()?;
        let result = tokio::time::timeout(deadline, processor.save())
            .await
            .unwrap_or_else(|_| {
                Err(ProcessorError::Host {
                    message: format!("save did not return within {deadline:?}"),
                })
            });
        if let Ok(state) = &result {
            self.shadowing.saved(state);
            self.history.begin(Some(state.clone()));
        }
        self.bury(result)
    }

    fn alive(&mut self) -> Result<&mut Box<dyn RecordProcessor>, ProcessorError> {
        self.processor.as_mut().ok_or_else(|| ProcessorError::Host {
            message: "no instance".to_owned(),
        })
    }

    fn bury<T>(&mut self, result: Result<T, ProcessorError>) -> Result<T, ProcessorError> {
        if result
            .as_ref()
            .is_err_and(|error| error.fate() == InstanceFate::Dead)
        {
            self.processor = None;
        }
        result
    }

    /// Ready when the host needs the memory of this instance.
    pub(super) fn asked_for_room(&self) -> PortFuture<'static, ()> {
        match &self.processor {
            Some(processor) => processor.asked_for_room(),
            None => Box::pin(std::future::pending()),
        }
    }

    /// Whether the live instance is to be closed, since others need its memory.
    pub(super) fn gives_room(&mut self) -> bool {
        self.processor
            .as_mut()
            .is_some_and(|processor| processor.gives_room())
    }

    /// What the live instance holds of memory, if that is known.
    pub(super) fn memory_bytes(&self) -> Option<u64> {
        let bytes = self.processor.as_ref()?.memory_bytes();
        (bytes > 0).then_some(bytes as u64)
    }

    /// Drops the live instance in the middle of a call that does not come back.
    pub(super) fn kill(&mut self) {
        self.processor = None;
        self.shadowing.end();
        self.history.end();
    }

    /// Closes the live instance, if there is one; returns what it emitted last.
    pub(super) async fn close(
        &mut self,
        reason: CloseReason,
    ) -> Result<LastOutput, ProcessorError> {
        self.closing(reason).await
    }

    /// The same, beside others.
    pub(super) fn closing(
        &mut self,
        reason: CloseReason,
    ) -> PortFuture<'static, Result<LastOutput, ProcessorError>> {
        let (processor, deadline) = (self.processor.take(), self.terms.deadline);
        self.shadowing.end();
        self.history.end();
        let meter = self.meter.clone();
        Box::pin(async move {
            let Some(processor) = processor else {
                return Ok(LastOutput::default());
            };
            let started = Stopwatch::start();
            let closed = tokio::time::timeout(deadline, processor.close(reason)).await;
            let took = started.elapsed();
            meter.note(&Observation::Closed { took });
            closed.unwrap_or_else(|_| {
                Err(ProcessorError::Host {
                    message: format!("close did not return within {deadline:?}"),
                })
            })
        })
    }

    /// Switches to another version without an instance; only when none is alive.
    pub(super) fn set_version(&mut self, version: Arc<dyn ProcessorFactory>) {
        self.version = version;
        self.kill();
        self.has_started = false;
    }
}
