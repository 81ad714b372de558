//! A replay of the records of a window, instead of letters in files.

use anyhow::Context;
use shardmill_core::ports::DeadLetter;
use shardmill_core::stream::{Position, ShardId};
use tokio_util::sync::CancellationToken;

use super::Replay;
use crate::operate::replay::summary::ReplaySummary;
use crate::operate::replay::window::{Portion, Window};

impl Replay {
    /// Replays all of a window. If it ends before, on `stop` or in trouble, what is not processed
    /// is not left: the next run reads it again.
    pub(crate) async fn run_window(
        mut self,
        mut window: Window,
        stop: &CancellationToken,
        progress: impl Fn(&ReplaySummary, &Window),
    ) -> anyhow::Result<ReplaySummary> {
        self.options.leaves_rest = false;
        while self.summary.stopped.is_none()
            && let Some(portion) = window.next(stop).await?
        {
            self.replay_portion(portion, &mut window, stop).await?;
            progress(&self.summary, &window);
        }
        self.summary.stop_if(stop);
        while let Some((_, session)) = self.sessions.pop() {
            self.close(session, stop).await?;
        }
        self.summary.remainder = self.ports.remainder.finish()?;
        Ok(self.summary)
    }

    async fn replay_portion(
        &mut self,
        portion: Portion,
        window: &mut Window,
        stop: &CancellationToken,
    ) -> anyhow::Result<()> {
        let Portion {
            shard,
            letters,
            filtered,
            is_last,
        } = portion;
        self.summary.filtered += filtered;
        let mut settled = None;
        let mut batch: Vec<DeadLetter> = Vec::new();
        for letter in letters {
            if !self.options.may_join(&batch, &letter) {
                self.deliver_batch(std::mem::take(&mut batch), &mut settled, stop)
                    .await?;
            }
            batch.push(letter);
        }
        self.deliver_batch(batch, &mut settled, stop).await?;
        let is_whole = self.summary.stopped.is_none();
        if is_last && is_whole {
            self.end_shard(&shard, stop).await?;
        }
        // What failed is in its file before it counts as settled.
        self.ports.remainder.sync()?;
        if let Some(position) = settled {
            window.settled(&shard, position);
        }
        if is_last && is_whole && self.summary.stopped.is_none() {
            window.ended(&shard);
        }
        window.save().context("cannot keep the progress")
    }

    /// Notes the last record of the batch as settled, unless the replay stops in it, or the plugin
    /// holds some of it back.
    async fn deliver_batch(
        &mut self,
        batch: Vec<DeadLetter>,
        settled: &mut Option<Position>,
        stop: &CancellationToken,
    ) -> anyhow::Result<()> {
        let last = batch.last().map(|letter| letter.record.position.clone());
        if last.is_none() || self.summary.stopped.is_some() {
            return Ok(());
        }
        self.deliver(batch, stop).await?;
        let session = self.sessions.last().map(|(_, session)| session);
        let holds_back = session.is_some_and(super::Session::holds_back);
        if self.summary.stopped.is_none() && !holds_back {
            *settled = last;
        }
        Ok(())
    }

    /// What the plugin holds back at the end of a shard is left.
    async fn end_shard(&mut self, shard: &ShardId, stop: &CancellationToken) -> anyhow::Result<()> {
        let at = self
            .sessions
            .iter()
            .position(|(source, _)| source.shard == *shard);
        let Some(at) = at else { return Ok(()) };
        let (_, mut session) = self.sessions.remove(at);
        let mut part = self.part(stop);
        session.leave_held_back(&mut part)?;
        session.close(&mut part).await
    }
}
