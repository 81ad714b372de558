//! Feeds dead letters back through a plugin, with the engine, the limits and the sinks of a host,
//! and without a lease.
//!
//! A replay must not lose a letter. So everything that is not processed, for any reason, is in the
//! file of what is left: letters that fail again, letters that the plugin held back, damaged lines,
//! and all that comes after a stop.

mod window;

use std::sync::Arc;

use anyhow::Context;
use shardmill_core::ports::DeadLetter;
use shardmill_sinks::letters::{InputError, Item, LetterInput};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::options::{ReplayOptions, ReplayPorts};
use super::session::{Run, Session};
use super::source::Source;
use crate::operate::replay::summary::ReplaySummary;

/// Letters read ahead. Few, because each may hold 10 MiB.
const READ_AHEAD: usize = 4;
/// Instances alive at once; the one that was used longest ago is closed for another. An instance
/// may take 64 MiB.
const SESSIONS_MAX: usize = 64;

/// A running replay.
pub(super) struct Replay {
    options: ReplayOptions,
    ports: ReplayPorts,
    summary: ReplaySummary,
    /// The session used last is last.
    sessions: Vec<(Source, Session)>,
}

impl Replay {
    /// A replay that has not read anything yet.
    pub(super) fn new(options: ReplayOptions, ports: ReplayPorts) -> Self {
        Self {
            options,
            ports,
            summary: ReplaySummary::default(),
            sessions: Vec::new(),
        }
    }

    /// Replays all of `input`, in its order; on `stop`, ends after the batch that is being
    /// delivered. An error means that the input could not be read, or what is left not be written:
    /// then the whole input counts as left.
    pub(super) async fn run(
        mut self,
        input: LetterInput,
        stop: &CancellationToken,
        progress: impl Fn(&ReplaySummary),
    ) -> anyhow::Result<ReplaySummary> {
        let (sender, items) = mpsc::channel(READ_AHEAD);
        let reader = tokio::task::spawn_blocking(move || read(input, &sender));
        self.deliver_all(items, stop, progress).await?;
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

    /// Delivers what is wanted of `items`, in batches.
    async fn deliver_all(
        &mut self,
        mut items: mpsc::Receiver<Item>,
        stop: &CancellationToken,
        progress: impl Fn(&ReplaySummary),
    ) -> anyhow::Result<()> {
        let mut batch: Vec<DeadLetter> = Vec::new();
        while let Some(item) = items.recv().await {
            let only = self.options.only.as_ref();
            let remainder = &mut self.ports.remainder;
            let Some(letter) = remainder.wanted(item, only, &mut self.summary)? else {
                continue;
            };
            if !self.options.may_join(&batch, &letter) {
                self.deliver(std::mem::take(&mut batch), stop).await?;
                progress(&self.summary);
            }
            batch.push(letter);
        }
        self.deliver(batch, stop).await
    }

    async fn deliver(
        &mut self,
        batch: Vec<DeadLetter>,
        stop: &CancellationToken,
    ) -> anyhow::Result<()> {
        let Some(first) = batch.first() else {
            return Ok(());
        };
        self.summary.stop_if(stop);
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

    /// Takes out the session of a source, or makes a new one. The inner error ends the replay.
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
        let context = Arc::new(self.options.context(source));
        Ok(Ok(Session::new(version, context, self.options.attempts)))
    }

    async fn close(&mut self, session: Session, stop: &CancellationToken) -> anyhow::Result<()> {
        session.close(&mut self.part(stop)).await
    }
}

/// Returns the input at its end, for what is known only then.
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
