//! What the failure policy gives up: dead letters, records skipped, shards halted.

use std::sync::Arc;

use shardmill_core::pipeline::{Cause, Fate, GiveUp, Halt, Ruling};
use shardmill_core::ports::DeadLetter;
use shardmill_core::seeded_bug::SeededBug;
use shardmill_core::stream::Record;

use super::consumer::Consumer;
use crate::holding::Stopped;
use crate::metrics;
use crate::signs::Stage;
use crate::status::{ShardState, Why};

/// How much of it the row holds: a write of up to 1 KB costs one unit (AWS), and there is more in
/// it.
const NOTE_CHARS_MAX: usize = 300;

impl Consumer {
    /// Gives up those of `records` that are ruled so: stored before they are settled, if they are
    /// to be stored.
    pub(super) async fn give_up_records(
        &mut self,
        records: &[Record],
        rulings: &[Ruling],
    ) -> Result<(), Stopped> {
        let given_up: Vec<(&Record, &Ruling, Cause)> = rulings
            .iter()
            .filter_map(|ruling| match ruling.fate {
                Fate::GivenUp(cause) => Some((&records[ruling.index], ruling, cause)),
                Fate::Again => None,
            })
            .collect();
        let options = Arc::clone(&self.options);
        let (Some(then), Some((first, ruling, cause))) = (&options.failure.then, given_up.first())
        else {
            return Ok(());
        };
        match then {
            GiveUp::DeadLetter(sink) => {
                let letters = given_up
                    .iter()
                    .map(|(record, ruling, cause)| self.letter(record, ruling, *cause));
                let letters = Arc::new(letters.collect());
                // Should it take long, the row says what is waited for.
                let waits = format!(
                    "{} record(s) are waiting to be stored as dead letters in sink {sink}",
                    given_up.len()
                );
                let earlier = self.stuck.replace(waits);
                self.keeper.note(self.progress());
                if !SeededBug::GivesUpUnstored.is_on() {
                    let Self {
                        output,
                        gate,
                        reading,
                        buffer,
                        ..
                    } = self;
                    reading
                        .unless_long(output.store(sink, letters, gate), buffer)
                        .await?;
                }
                self.stuck = earlier;
                self.keeper.note(self.progress());
            }
            GiveUp::Skip => {}
            GiveUp::Halt => {
                metrics::given_up(&self.options.plugin, then.code(), *cause).increment(1);
                self.halt(first, ruling, *cause);
                return Ok(());
            }
        }
        for (record, ruling, cause) in given_up {
            self.tell_given_up(record, ruling, cause);
            self.settle_given_up(record, ruling, cause, then);
        }
        self.settle();
        Ok(())
    }

    fn letter(&self, record: &Record, ruling: &Ruling, cause: Cause) -> DeadLetter {
        DeadLetter {
            record: record.clone(),
            stream: self.options.stream.clone(),
            shard: self.shard.clone(),
            application: self.options.application.clone(),
            plugin: self.options.plugin.clone(),
            digest: self.instance.digest().clone(),
            reason: ruling.reason(cause),
            attempts: ruling.tried.deliveries,
            failed_at_ms: self.ports.clock.wall_ms(),
        }
    }

    /// A line for each record: a warning, or, beyond what the log may get of them, one at level
    /// debug.
    fn tell_given_up(&self, record: &Record, ruling: &Ruling, cause: Cause) {
        const MESSAGE: &str = "record given up";
        let (position, key_hash) = (&record.position, format!("{:032x}", record.key_hash()));
        let (epoch, shard) = (self.instance.epoch(), &self.shard);
        let decision = self.options.failure.then.as_ref().map(GiveUp::code);
        let (plugin, deliveries) = (&self.options.plugin, ruling.tried.deliveries);
        let reason = &ruling.message;
        match self.ports.given_up_lines.take(self.ports.clock.now()) {
            Some(kept_back) => {
                let not_told = (kept_back > 0).then_some(kept_back);
                tracing::warn!(%plugin, %shard, epoch, %position, key_hash, decision, %cause, deliveries, reason, not_told, "{MESSAGE}");
            }
            None => {
                tracing::debug!(%plugin, %shard, epoch, %position, key_hash, decision, %cause, deliveries, reason, "{MESSAGE}");
            }
        }
    }

    /// The one place where a record leaves without having been handled.
    fn settle_given_up(&mut self, record: &Record, ruling: &Ruling, cause: Cause, then: &GiveUp) {
        let position = &record.position;
        let (decision, deliveries) = (then.code(), ruling.tried.deliveries);
        let reason = &ruling.message;
        metrics::given_up(&self.options.plugin, then.code(), cause).increment(1);
        self.headway.ledger.give_up(position);
        let now = self.ports.clock.now();
        self.headway.unwritten.add(1, record.data.len() as u64, now);
        self.reading.note_handled(now);
        self.retries.forget(position);
        self.buffer.settled(record.cost_bytes());
        let last =
            format!("{decision} of {position}, {cause} after {deliveries} deliveries: {reason}");
        self.last_given_up = Some(last.chars().take(NOTE_CHARS_MAX).collect());
        self.status.update_shard(&self.shard, |status| {
            let count = match then {
                GiveUp::DeadLetter(_) => &mut status.given_up.dead_lettered,
                GiveUp::Skip | GiveUp::Halt => &mut status.given_up.skipped,
            };
            *count += 1;
            status.given_up.last = Some(last);
        });
    }

    fn halt(&mut self, record: &Record, ruling: &Ruling, cause: Cause) {
        let (position, key_hash) = (&record.position, format!("{:032x}", record.key_hash()));
        let (deliveries, reason) = (ruling.tried.deliveries, &ruling.message);
        tracing::warn!(shard = %self.shard, %position, key_hash, decision = "halt", %cause, deliveries, reason, "shard halted");
        let why = format!(
            "halted at {position}, {cause} after {deliveries} deliveries; a new version of the \
                plugin or a restart continues with it: {reason}"
        );
        self.retries.halt(Halt { deliveries, why });
    }

    /// Delivers nothing until another version of the plugin is at work. The lease is kept all the
    /// while.
    pub(super) async fn stay_halted(&mut self, halt: Halt) -> Result<(), Stopped> {
        self.let_go();
        self.write_checkpoint().await?;
        let Halt { deliveries, why } = halt;
        self.stuck = Some(why.clone());
        self.keeper.note(self.progress());
        self.is_blocked = true;
        self.signs.gauge(metrics::HALTED, 1.0);
        self.signs.enter(Stage::Waiting);
        self.signs.report(Why::Halted, deliveries, &why);
        self.status
            .update_shard(&self.shard, |status| status.state = ShardState::Halted);
        while self.retries.halted().is_some() {
            tokio::select! {
                biased;
                stopped = self.gate.stopped() => return Err(stopped),
                () = self.ports.version_news() => {}
            }
            self.take_up_version().await?;
        }
        tracing::info!(shard = %self.shard, digest = %self.instance.digest(), "the halted shard continues");
        self.signs.gauge(metrics::HALTED, 0.0);
        self.status
            .update_shard(&self.shard, |status| status.state = ShardState::Processing);
        Ok(())
    }
}
