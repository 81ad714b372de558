//! Parallel keys: several calls at a time, one for each strand of the shard's records.
//!
//! The calls run as tasks. Whatever follows from one is done here, one after another, so that
//! all else works as with one call at a time: only a swap, a halt and the shard's end wait until
//! no call is under way.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use shardmill_core::plugin::ProcessorError;
use shardmill_core::ports::{CloseReason, LastOutput, PortFuture};
use shardmill_core::stream::Record;

use super::{Event, ShardPipeline, after};
use crate::holding::Stopped;
use crate::pipeline::call::{Calls, Ended, Returned};
use crate::signs::Stage;

impl ShardPipeline {
    /// Serves the shard with several instances until it ends.
    pub(super) async fn serve_strands(&mut self) -> Result<(), Stopped> {
        loop {
            let mut may_call = self.prepare_calls().await?;
            self.take_in_ready();
            self.fill_strands();
            self.pass_filtered();
            self.saving.show_unsettled(self.intake.first_arrival_ms());
            if let Some(halt) = self.deliveries.halted().cloned() {
                may_call = false;
                if self.calls.is_empty() {
                    self.stay_halted(halt).await?;
                    continue;
                }
            }
            may_call = may_call && self.begin_calls().await?;
            if self.is_finished() && self.calls.is_empty() {
                if self.finish_shard().await? {
                    return Ok(());
                }
            } else {
                self.wait_beside_calls(may_call).await?;
            }
        }
    }

    /// Does what is due between calls. False if what is due must wait until none is under way.
    async fn prepare_calls(&mut self) -> Result<bool, Stopped> {
        if self.must_obey() && !self.calls.is_empty() {
            return Ok(false);
        }
        if self.calls.is_empty() {
            self.obey().await?;
            self.take_up_version().await?;
        } else if !self.take_up_version_beside_calls().await? {
            return Ok(false);
        }
        let idle: Vec<usize> = self.deliveries.idle().collect();
        for at in idle {
            self.make_room(at).await?;
        }
        Ok(true)
    }

    /// Hands out what was read to the strands, as far as there is room.
    fn fill_strands(&mut self) {
        while self.deliveries.have_room() {
            let run = self.intake.take_batch();
            if run.is_empty() {
                return;
            }
            self.saving.hand_out_run(&run);
            self.deliveries.spread(run);
        }
    }

    /// Begins a call of each strand that has one due and none under way. False if an instance
    /// cannot be made beside the calls under way: then none may begin until they have ended.
    async fn begin_calls(&mut self) -> Result<bool, Stopped> {
        if let Some(at) = self.lacking_instance {
            if !self.calls.is_empty() {
                return Ok(false);
            }
            self.make_instance(at).await?;
            self.lacking_instance = None;
        }
        let beyond = self.deliveries.beyond(&self.intake);
        let idle: Vec<usize> = self.deliveries.idle().collect();
        for at in idle {
            let (limits, now) = (self.context.options().batches, self.context.now());
            let strand = self.deliveries.one_mut(at).strand_mut();
            if !strand.has_turn(beyond, &limits, now) {
                continue;
            }
            if !self.has_instance(at).await? {
                self.lacking_instance = Some(at);
                return Ok(false);
            }
            self.gate.pass().await?;
            let strand = self.deliveries.one_mut(at).strand_mut();
            if let Some(batch) = strand.next_batch(beyond, &limits, now)
                && let Some(batch) = self.skip_some(at, batch).await?
            {
                self.begin_call(at, batch);
            }
        }
        Ok(true)
    }

    /// Whether the strand has a live instance. If no call is under way, one is made, however long
    /// that takes, and else tried only once: what then must be done concerns all strands.
    async fn has_instance(&mut self, at: usize) -> Result<bool, Stopped> {
        if self.deliveries.one(at).instance().is_alive() {
            return Ok(true);
        }
        if self.calls.is_empty() {
            self.make_instance(at).await?;
            return Ok(true);
        }
        let start = self.saving.start_position();
        let instance = self.deliveries.one_mut(at).instance_mut();
        Ok(instance.ensure(None, start).await.is_ok())
    }

    fn begin_call(&mut self, at: usize, batch: Vec<Record>) {
        let behind = self.intake.millis_behind_latest();
        let traced = self.trace_call(at, &batch);
        let Some(call) = self.deliveries.one_mut(at).begin(batch, behind, traced) else {
            return;
        };
        let freezer = self.context.ports().freezer.clone();
        self.calls.begin(at, freezer.guard(call.run()));
    }

    /// Waits until a call ends, one may begin, or something else is due.
    async fn wait_beside_calls(&mut self, may_call: bool) -> Result<(), Stopped> {
        let is_reading = self.deliveries.have_room() && !self.intake.is_at_end();
        if is_reading {
            self.read_on();
        }
        let event = self.next_event_beside_calls(is_reading, may_call).await;
        self.apply(event).await?;
        if !is_reading {
            self.intake.reader_is_free();
        }
        Ok(())
    }

    async fn next_event_beside_calls(&mut self, is_reading: bool, may_call: bool) -> Event {
        let (retry_in, batch_in) = if may_call {
            (self.retry_of_strands_in(), self.batch_of_strands_due_in())
        } else {
            (None, None)
        };
        let checkpoint_in = self.saving.checkpoint_due_in();
        let stalled_in = self.intake.stalled_in();
        let asked_for_room = self.deliveries.asked_for_room();
        let is_called = !self.calls.is_empty();
        self.show_stage(retry_in.is_some());
        tokio::select! {
            biased;
            stopped = self.gate.stopped() => Event::Stopped(stopped),
            returned = self.calls.next(), if is_called => Event::Returned(returned),
            () = self.directions.news() => Event::Due,
            () = self.versions.news(), if may_call => Event::Due,
            chunk = self.intake.next_chunk(), if is_reading => Event::Chunk(chunk),
            () = after(retry_in) => Event::Due,
            () = after(batch_in) => Event::Due,
            () = after(checkpoint_in) => Event::CheckpointDue,
            () = any(asked_for_room), if may_call => Event::Due,
            () = self.trouble.reading_changed() => Event::ReadTrouble,
            () = tokio::time::sleep(stalled_in), if is_reading => Event::ReadStalled,
        }
    }

    fn show_stage(&self, is_retry_due: bool) {
        if let Some(since) = self.deliveries.oldest_call() {
            self.context.signs().is_in_plugin(since);
        } else if is_retry_due && self.deliveries.have_nothing_new() {
            self.context.enter(Stage::Waiting);
        } else {
            self.context.enter(Stage::Reading);
        }
    }

    /// How long until a strand without a call tries something again.
    fn retry_of_strands_in(&self) -> Option<Duration> {
        let beyond = self.deliveries.beyond(&self.intake);
        let (limits, now) = (&self.context.options().batches, self.context.now());
        let idle = self.deliveries.idle();
        let retry_at = idle.filter_map(|at| {
            let strand = self.deliveries.one(at).strand();
            strand.next_retry(beyond, limits, now)
        });
        Some(retry_at.min()?.since(now))
    }

    /// How long until the window alone makes a batch due of a strand without a call.
    fn batch_of_strands_due_in(&self) -> Option<Duration> {
        let (limits, now) = (&self.context.options().batches, self.context.now());
        let idle = self.deliveries.idle();
        let due_in = idle.filter_map(|at| {
            let strand = self.deliveries.one(at).strand();
            strand.batch_due_in(limits, now)
        });
        due_in.min()
    }

    /// Does what follows from a call that has ended.
    pub(super) async fn returned(&mut self, returned: Returned) -> Result<(), Stopped> {
        let Returned { at, landed } = returned;
        let delivery = self.deliveries.one_mut(at);
        let since = delivery.called_since();
        let Some(Ended {
            records,
            called,
            traced,
        }) = delivery.end(landed)?
        else {
            return Ok(());
        };
        self.delivered(at, &records, called, traced).await?;
        if let Some(since) = since {
            self.deliveries.one_mut(at).took(since.elapsed());
        }
        self.write_if_due().await?;
        self.intake.was_left_alone();
        Ok(())
    }

    // The end of the holding.

    /// Waits for the calls under way, and does what follows from them.
    pub(super) async fn finish_calls(&mut self) -> Result<(), Stopped> {
        while !self.calls.is_empty() {
            let returned = self.calls.next().await;
            self.returned(returned).await?;
        }
        Ok(())
    }

    /// Waits for the calls under way; nothing of them counts.
    pub(super) async fn calls_back(&mut self) {
        while !self.calls.is_empty() {
            let Returned { at, landed } = self.calls.next().await;
            let _ = self.deliveries.one_mut(at).end(landed);
        }
    }

    /// Drops all instances, in the middle of their calls.
    pub(super) fn drop_instances(&mut self) {
        self.calls = Calls::default();
        self.lacking_instance = None;
        for delivery in self.deliveries.each_mut() {
            delivery.instance_mut().kill();
        }
    }

    /// Closes every live instance, all at a time. What they emitted last, and the first error.
    pub(super) async fn close_all(&mut self, reason: CloseReason) -> Closed {
        let each = self.deliveries.each_mut();
        let closing = each.map(|delivery| delivery.instance_mut().closing(reason));
        let mut all = Closed::default();
        for closed in every(closing.collect()).await {
            match closed {
                Ok(output) => all.output.add(output),
                Err(error) => all.error = all.error.or(Some(error)),
            }
        }
        all
    }
}

/// What came of closing instances.
#[derive(Default)]
pub(super) struct Closed {
    pub(super) output: LastOutput,
    /// What one of them failed with.
    pub(super) error: Option<ProcessorError>,
}

/// Returns once one of `futures` is ready; never if there are none.
pub(super) async fn any(mut futures: Vec<PortFuture<'static, ()>>) {
    poll_fn(|context| {
        let is_ready =
            |future: &mut PortFuture<'static, ()>| future.as_mut().poll(context).is_ready();
        if futures.iter_mut().any(is_ready) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

/// The results of all `futures`, which run at a time.
async fn every<T>(mut futures: Vec<PortFuture<'static, T>>) -> Vec<T> {
    let mut results: Vec<Option<T>> = futures.iter().map(|_| None).collect();
    poll_fn(|context| {
        for (future, result) in futures.iter_mut().zip(&mut results) {
            if result.is_none()
                && let Poll::Ready(ready) = future.as_mut().poll(context)
            {
                *result = Some(ready);
            }
        }
        if results.iter().all(Option::is_some) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
    results.into_iter().flatten().collect()
}
