//! What the failure policy gives up: dead letters, records skipped, shards halted.

use shardmill_core::pipeline::{Cause, Fate, GiveUp, Halt, Ruling, Verdict};
use shardmill_core::plugin::PluginDigest;
use shardmill_core::ports::DeadLetter;
use shardmill_core::stream::Record;
use shardmill_core::text::shortened;

use super::context::ShardContext;
use crate::metrics;

/// How much of it the row holds: a write of up to 1 KB costs one unit (AWS), and there is more in
/// it.
const NOTE_CHARS_MAX: usize = 300;

/// A record that is given up.
#[derive(Clone, Copy)]
pub(super) struct GivenUp<'a> {
    record: &'a Record,
    ruling: &'a Ruling,
    cause: Cause,
}

impl<'a> GivenUp<'a> {
    /// Those of `records` that are ruled so.
    pub(super) fn of(records: &'a [Record], verdict: &'a Verdict) -> Vec<Self> {
        let mut given_up = Vec::new();
        for ruling in &verdict.rulings {
            if let Fate::GivenUp(cause) = ruling.fate {
                given_up.push(Self {
                    record: &records[ruling.index],
                    ruling,
                    cause,
                });
            }
        }
        given_up
    }

    pub(super) fn record(&self) -> &'a Record {
        self.record
    }

    pub(super) fn letter(&self, context: &ShardContext, digest: &PluginDigest) -> DeadLetter {
        let options = context.options();
        DeadLetter {
            record: self.record.clone(),
            stream: options.stream.clone(),
            shard: context.shard().clone(),
            application: options.application.clone(),
            plugin: options.plugin.clone(),
            digest: digest.clone(),
            reason: self.ruling.reason(self.cause),
            attempts: self.ruling.tried.deliveries,
            failed_at_ms: context.at().wall_ms,
        }
    }

    /// Writes a line: a warning, or, beyond what the log may get of them, one at level debug.
    pub(super) fn log(&self, context: &ShardContext, epoch: u64, then: &GiveUp) {
        const MESSAGE: &str = "record given up";
        let (position, key_hash) = (&self.record.position, self.key_hash());
        let (plugin, shard) = (&context.options().plugin, context.shard());
        let decision = then.code();
        let (cause, deliveries) = (self.cause, self.ruling.tried.deliveries);
        let reason = &self.ruling.message;
        match context.ports().given_up_lines.take(context.now()) {
            Some(kept_back) => {
                let not_told = (kept_back > 0).then_some(kept_back);
                tracing::warn!(
                    %plugin,
                    %shard,
                    epoch,
                    %position,
                    key_hash,
                    decision,
                    %cause,
                    deliveries,
                    reason,
                    not_told,
                    code = "record-given-up", "{MESSAGE}"
                );
            }
            None => {
                tracing::debug!(
                    %plugin,
                    %shard,
                    epoch,
                    %position,
                    key_hash,
                    decision,
                    %cause,
                    deliveries,
                    reason,
                    "{MESSAGE}"
                );
            }
        }
    }

    /// Shows it, and gives back what the row is to say.
    pub(super) fn show(&self, context: &ShardContext, then: &GiveUp) -> String {
        self.count(context, then);
        let last = self.summary(then);
        let note = shortened(&last, NOTE_CHARS_MAX).into_owned();
        context.update_status(|status| {
            let count = match then {
                GiveUp::DeadLetter(_) => &mut status.given_up.dead_lettered,
                GiveUp::Skip | GiveUp::Halt => &mut status.given_up.skipped,
            };
            *count += 1;
            status.given_up.last = Some(last);
        });
        note
    }

    /// What was done with it and why, for people.
    pub(super) fn summary(&self, then: &GiveUp) -> String {
        format!(
            "{} of {}, {} after {} deliveries: {}",
            then.code(),
            self.record.position,
            self.cause,
            self.ruling.tried.deliveries,
            self.ruling.message
        )
    }

    /// Stops the shard at the record.
    pub(super) fn halt(&self, context: &ShardContext) -> Halt {
        self.count(context, &GiveUp::Halt);
        let (position, key_hash) = (&self.record.position, self.key_hash());
        let (cause, deliveries) = (self.cause, self.ruling.tried.deliveries);
        let reason = &self.ruling.message;
        tracing::warn!(
            shard = %context.shard(),
            %position,
            key_hash,
            decision = "halt",
            %cause,
            deliveries,
            reason,
            code = "shard-halted", "shard halted"
        );
        let why = format!(
            "halted at {position}, {cause} after {deliveries} deliveries; a new version of the \
                plugin or a restart continues with it: {reason}"
        );
        Halt { deliveries, why }
    }

    fn count(&self, context: &ShardContext, then: &GiveUp) {
        metrics::given_up(&context.options().plugin, then.code(), self.cause).increment(1);
    }

    fn key_hash(&self) -> String {
        format!("{:032x}", self.record.key_hash())
    }
}
