//! Feeds dead letters back through a plugin, here and now: the same engine, limits and sinks as a
//! host, without a lease.
//!
//! What a replay must not do is lose a letter. So whatever is not processed, for whatever reason,
//! is in the file of what is left: letters that fail again, letters that the plugin held back,
//! damaged lines, and all that comes after a stop.

mod options;
mod session;

use std::sync::Arc;

use anyhow::Context;
use shardmill_core::plugin::PluginName;
use shardmill_core::ports::{DeadLetter, InstanceContext};
use shardmill_core::stream::{ShardId, StreamName};
use shardmill_sinks::letters::{InputError, Item, LetterInput};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub(super) use self::options::{ReplayOptions, ReplayPorts, Versions};
use self::session::{Run, Session};
use super::summary::ReplaySummary;

/// Letters read ahead. Few, because each may hold 10 MiB.
const READ_AHEAD: usize = 4;
/// Instances alive at once; the one that was used longest ago is closed for another. An instance
/// may take 64 MiB.
const SESSIONS_MAX: usize = 64;

impl ReplayOptions {
    /// Batches hold letters of one shard, in rising order, as those of a host do.
    fn may_join(&self, batch: &[DeadLetter], letter: &DeadLetter) -> bool {
        let Some(last) = batch.last() else {
            return true;
        };
        let bytes: usize = batch.iter().map(|letter| letter.record.cost_bytes()).sum();
        batch.len() < self.batches.records
            && bytes + letter.record.cost_bytes() <= self.batches.bytes
            && Source::of(last) == Source::of(letter)
            && last.record.position < letter.record.position
    }
}

/// A running replay.
pub(crate) struct Replay {
    options: ReplayOptions,
    ports: ReplayPorts,
    summary: ReplaySummary,
    /// The one used last is last.
    sessions: Vec<(Source, Session)>,
}

/// Whose letters go to one instance.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Source {
    plugin: PluginName,
    application: String,
    stream: StreamName,
    shard: ShardId,
}

impl Source {
    fn of(letter: &DeadLetter) -> Self {
        let DeadLetter {
            plugin,
            application,
            stream,
            shard,
            ..
        } = letter.clone();
        Self {
            plugin,
            application,
            stream,
            shard,
        }
    }
}

impl Replay {
    /// Reads and checks nothing yet.
    pub(crate) fn new(options: ReplayOptions, ports: ReplayPorts) -> Self {
        Self {
            options,
            ports,
            summary: ReplaySummary::default(),
            sessions: Vec::new(),
        }
    }

    /// Replays all of `input`, in its order; on `stop`, ends after the batch in hand. An error
    /// means that what is left could not be written down or the input not be read: then the input
    /// is what is left.
    pub(crate) async fn run(
        mut self,
        input: LetterInput,
        stop: &CancellationToken,
        progress: impl Fn(&ReplaySummary),
    ) -> anyhow::Result<ReplaySummary> {
        let (sender, mut items) = mpsc::channel(READ_AHEAD);
        let reader = tokio::task::spawn_blocking(move || read(input, &sender));
        let mut batch: Vec<DeadLetter> = Vec::new();
        while let Some(item) = items.recv().await {
            match item {
                Item::Damaged { problem, line } => {
                    tracing::warn!(problem, "kept as it is");
                    self.summary.damaged += 1;
                    self.ports.remainder.keep_line(&line)?;
                }
                Item::Letter(letter) => {
                    if self
                        .options
                        .only
                        .as_ref()
                        .is_some_and(|only| *only != letter.plugin)
                    {
                        self.summary.left_out += 1;
                        continue;
                    }
                    if !self.options.may_join(&batch, &letter) {
                        self.deliver(std::mem::take(&mut batch), stop).await?;
                        progress(&self.summary);
                    }
                    batch.push(*letter);
                }
            }
        }
        self.deliver(batch, stop).await?;
        while let Some((_, session)) = self.sessions.pop() {
            self.close(session, stop).await?;
        }
        let mut input = reader
            .await
            .context("the reader of the letters panicked")??;
        self.ports
            .remainder
            .keep_incomplete(&mut input, &mut self.summary)?;
        self.summary.remainder = self.ports.remainder.finish()?;
        Ok(self.summary)
    }

    async fn deliver(
        &mut self,
        batch: Vec<DeadLetter>,
        stop: &CancellationToken,
    ) -> anyhow::Result<()> {
        let Some(first) = batch.first() else {
            return Ok(());
        };
        if stop.is_cancelled() {
            self.summary
                .stopped
                .get_or_insert_with(|| "by a signal".to_owned());
        }
        if self.summary.stopped.is_some() {
            return self.part(stop).leave(&batch);
        }
        let source = Source::of(first);
        let mut session = match self.session(&source, stop).await? {
            Ok(session) => session,
            Err(problem) => {
                self.summary.stopped = Some(problem);
                return self.part(stop).leave(&batch);
            }
        };
        let result = session.deliver(batch, &mut self.part(stop)).await;
        self.sessions.push((source, session));
        result
    }

    fn part<'a>(&'a mut self, stop: &'a CancellationToken) -> Run<'a> {
        Run {
            options: &self.options,
            ports: &mut self.ports,
            summary: &mut self.summary,
            stop,
        }
    }

    /// The session of a source, taken out; a new one if there is none. The inner error ends the
    /// replay.
    async fn session(
        &mut self,
        source: &Source,
        stop: &CancellationToken,
    ) -> anyhow::Result<Result<Session, String>> {
        if let Some(at) = self.sessions.iter().position(|(other, _)| other == source) {
            return Ok(Ok(self.sessions.remove(at).1));
        }
        if self.sessions.len() >= SESSIONS_MAX {
            let (_, oldest) = self.sessions.remove(0);
            self.close(oldest, stop).await?;
        }
        let version = match self.ports.versions.version(&source.plugin).await {
            Ok(version) => version,
            Err(error) => return Ok(Err(format!("{error:#}"))),
        };
        let config = self
            .options
            .config
            .get(source.plugin.as_str())
            .cloned()
            .unwrap_or_default();
        let own_destinations = self.options.own_destinations.get(source.plugin.as_str());
        let context = InstanceContext {
            plugin: source.plugin.clone(),
            application: source.application.clone(),
            stream: source.stream.clone(),
            shard: source.shard.clone(),
            worker: self.options.worker.clone(),
            epoch: self.options.epoch,
            destinations: own_destinations
                .unwrap_or(&self.options.destinations)
                .clone(),
            limits: self.options.limits.get(source.plugin.as_str()).copied(),
            permissions: self
                .options
                .permissions
                .get(source.plugin.as_str())
                .cloned()
                .unwrap_or_default(),
            config,
        };
        Ok(Ok(Session::new(
            version,
            Arc::new(context),
            self.options.attempts,
        )))
    }

    async fn close(&mut self, session: Session, stop: &CancellationToken) -> anyhow::Result<()> {
        session.close(&mut self.part(stop)).await
    }
}

/// Gives the input back at its end, for what only then is known.
fn read(mut input: LetterInput, items: &mpsc::Sender<Item>) -> Result<LetterInput, InputError> {
    while let Some(item) = input.next_item()? {
        if items.blocking_send(item).is_err() {
            break;
        }
    }
    Ok(input)
}

#[cfg(test)]
mod tests;
