//! Opens the aggregates of a reply and filters its records, a few at a time: opened, small records
//! take several times the bytes they came in.

use std::sync::Arc;
use std::vec;

use shardmill_core::backoff::is_worth_a_line;
use shardmill_core::kpl::{Damage, Expansion, expand, may_be_aggregate};
use shardmill_core::seeded_bug::SeededBug;
use shardmill_core::stream::{Position, Record};
use shardmill_filter::Verdict;

use super::context::ShardContext;
use super::filtered::Filtered;
use crate::metrics;

/// What is opened of a reply goes on once it costs this much more than it came with, so that a
/// shard holds little that was not reserved. A KPL aggregate of 1 MiB of 100-byte records grows by
/// 1.5 MiB.
const GROWTH_MAX: usize = 1 << 20;
/// After so much other tasks of the thread have their turn: heartbeats must not wait for 10 MiB to
/// be opened and filtered, which takes a tenth of a second or more.
const TURN_BYTES: usize = 1 << 20;

/// Opens what one reader accepts.
pub(super) struct Opener {
    context: Arc<ShardContext>,
    /// User records up to and including this one are settled and are dropped.
    settled: Option<Position>,
    /// Aggregates in this run of the reader that could not be opened.
    damaged: u64,
    /// What was opened since other tasks had their turn.
    turn_bytes: usize,
}

/// Whole Kinesis records of a reply, opened.
#[derive(Default)]
pub(super) struct Opened {
    pub(super) records: Vec<Record>,
    /// What the Kinesis records cost before they were opened.
    pub(super) closed_bytes: usize,
    /// What the opened records cost.
    pub(super) bytes: usize,
    /// What of them the plugin's filter kept out of `records`.
    pub(super) filtered: Option<Filtered>,
    /// Records that were settled before, and dropped.
    repeats: u64,
}

impl Opened {
    fn keep(&mut self, record: Record) {
        self.bytes += record.cost_bytes();
        self.records.push(record);
    }

    fn filter_out(&mut self, record: &Record, verdict: Verdict) {
        let one = Filtered::of(record, verdict);
        self.filtered = Some(match self.filtered.take() {
            Some(earlier) => earlier.followed_by(one),
            None => one,
        });
    }

    /// Copies the data of the records if less was kept than was filtered out: each record keeps
    /// alive what it was cut from, of which the budget would no longer know.
    fn detach_few(&mut self) {
        let filtered_bytes = self.filtered.as_ref().map_or(0, |one| one.cost_bytes);
        if filtered_bytes > self.bytes {
            for record in &mut self.records {
                record.detach();
            }
        }
    }
}

impl Opener {
    pub(super) fn new(context: Arc<ShardContext>, settled: Option<Position>) -> Self {
        let settled = if SeededBug::DeliversSettledAgain.is_on() {
            None
        } else {
            settled
        };
        Self {
            context,
            settled,
            damaged: 0,
            turn_bytes: 0,
        }
    }

    /// Opens some of what is left of a reply: all of it, unless it grows too much.
    pub(super) async fn open_some(&mut self, closed: &mut vec::IntoIter<Record>) -> Opened {
        if self.context.options().filter.is_none()
            && !closed.as_slice().iter().any(may_be_aggregate)
        {
            return self.pass_on(closed).await;
        }
        let mut opened = Opened {
            records: Vec::with_capacity(closed.len()),
            ..Opened::default()
        };
        for record in closed.by_ref() {
            self.give_way_before(record.cost_bytes()).await;
            opened.closed_bytes += record.cost_bytes();
            self.open(record, &mut opened);
            if opened.bytes >= opened.closed_bytes + GROWTH_MAX {
                break;
            }
        }
        if opened.repeats > 0 {
            self.context.count(metrics::REPEATS, opened.repeats);
        }
        opened.detach_few();
        opened
    }

    fn open(&mut self, record: Record, opened: &mut Opened) {
        match expand(record) {
            // Most streams have no others: no list for one record.
            Expansion::Plain(record) => {
                debug_assert!(
                    !self.is_settled(&record.position),
                    "the cursor drops what is settled, unless it may be an aggregate"
                );
                self.keep_if_wanted(record, opened);
            }
            Expansion::Aggregate(records) => {
                self.note_opened(records.len());
                for record in records {
                    self.keep_if_new(record, opened);
                }
            }
            Expansion::Damaged(record, damage) => {
                self.note_damage(&record.position, damage);
                self.keep_if_new(record, opened);
            }
        }
    }

    /// Records that need no look at each: the list is handed on as it is, and none is moved.
    async fn pass_on(&mut self, closed: &mut vec::IntoIter<Record>) -> Opened {
        debug_assert!(
            !closed
                .as_slice()
                .iter()
                .any(|record| self.is_settled(&record.position)),
            "the cursor drops what is settled, unless it may be an aggregate"
        );
        let bytes = closed.as_slice().iter().map(Record::cost_bytes).sum();
        self.give_way_before(bytes).await;
        Opened {
            records: std::mem::take(closed).collect(),
            closed_bytes: bytes,
            bytes,
            ..Opened::default()
        }
    }

    async fn give_way_before(&mut self, bytes: usize) {
        self.turn_bytes += bytes;
        if self.turn_bytes > TURN_BYTES {
            self.turn_bytes = bytes;
            tokio::task::yield_now().await;
        }
    }

    /// The cursor dropped whole Kinesis records that are settled. It cannot look inside of what may
    /// be an aggregate, of which the first user records may be settled and the others not.
    fn keep_if_new(&self, record: Record, opened: &mut Opened) {
        if self.is_settled(&record.position) {
            opened.repeats += 1;
        } else {
            self.keep_if_wanted(record, opened);
        }
    }

    fn keep_if_wanted(&self, record: Record, opened: &mut Opened) {
        let Some(filter) = &self.context.options().filter else {
            opened.keep(record);
            return;
        };
        match filter.judge(&record.partition_key, &record.data) {
            Verdict::Passes => opened.keep(record),
            verdict => opened.filter_out(&record, verdict),
        }
    }

    fn is_settled(&self, position: &Position) -> bool {
        let Some(settled) = &self.settled else {
            return false;
        };
        let is_dropped_by_bug =
            SeededBug::DropsRestOfAggregate.is_on() && position.sequence == settled.sequence;
        position <= settled || is_dropped_by_bug
    }

    fn note_opened(&self, user_records: usize) {
        let outcome = if user_records == 0 { "empty" } else { "opened" };
        let plugin = self.context.plugin();
        ::metrics::counter!(metrics::AGGREGATES, "plugin" => plugin, "outcome" => outcome)
            .increment(1);
    }

    fn note_damage(&mut self, position: &Position, damage: Damage) {
        let (plugin, why) = (self.context.plugin(), damage.code());
        ::metrics::counter!(metrics::DAMAGED_AGGREGATES, "plugin" => plugin, "why" => why)
            .increment(1);
        self.damaged += 1;
        // Powers of two: a producer that goes wrong does so with every record.
        if is_worth_a_line(self.damaged) {
            let (shard, damaged) = (self.context.shard(), self.damaged);
            tracing::warn!(
                %shard,
                %position,
                %damage,
                damaged,
                code = "aggregate-damaged",
                "an aggregate cannot be opened, delivering it unopened"
            );
        }
    }
}
