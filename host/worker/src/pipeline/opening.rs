//! Opens the aggregates of a reply, a few at a time: opened, small records take several times the
//! bytes they came in.

use std::vec;

use shardmill_core::kpl::{Damage, Expansion, expand};
use shardmill_core::seeded_bug::SeededBug;
use shardmill_core::stream::{Position, Record, ShardId};

use crate::metrics;

/// What is opened of a reply goes on once it costs this much more than it came with, so that a
/// shard holds little that was not reserved. A KPL aggregate of 1 MiB of 100-byte records grows by
/// 1.5 MiB.
const GROWTH_MAX: usize = 1 << 20;

/// Opens what one reader accepts.
pub(super) struct Opener {
    plugin: String,
    shard: ShardId,
    /// User records up to and including this one are settled and are dropped.
    settled: Option<Position>,
    /// Aggregates in this run of the reader that could not be opened.
    damaged: u64,
}

/// Whole Kinesis records of a reply, opened.
pub(super) struct Opened {
    pub(super) records: Vec<Record>,
    /// What the Kinesis records cost before they were opened.
    pub(super) closed_bytes: usize,
}

impl Opener {
    pub(super) fn new(plugin: String, shard: ShardId, settled: Option<Position>) -> Self {
        let settled = settled.filter(|_| !SeededBug::DeliversSettledAgain.is_on());
        Self {
            plugin,
            shard,
            settled,
            damaged: 0,
        }
    }

    /// Opens some of what is left of a reply: all of it, unless it grows too much.
    pub(super) fn open_some(&mut self, closed: &mut vec::IntoIter<Record>) -> Opened {
        let mut opened = Opened {
            records: Vec::with_capacity(closed.len()),
            closed_bytes: 0,
        };
        let (mut cost, mut repeats) = (0, 0_u64);
        for record in closed.by_ref() {
            opened.closed_bytes += record.cost_bytes();
            let mut keep = |record: Record, settled: Option<&Position>| {
                let is_settled = |settled: &Position| {
                    let drops_rest = SeededBug::DropsRestOfAggregate.is_on();
                    record.position <= *settled
                        || (drops_rest && record.position.sequence == settled.sequence)
                };
                if settled.is_some_and(is_settled) {
                    repeats += 1;
                } else {
                    cost += record.cost_bytes();
                    opened.records.push(record);
                }
            };
            match expand(record) {
                // Most streams have no others: no list for one record.
                Expansion::Plain(record) => keep(record, self.settled.as_ref()),
                Expansion::Aggregate(records) => {
                    self.note_opened(records.len());
                    for record in records {
                        keep(record, self.settled.as_ref());
                    }
                }
                Expansion::Damaged(record, damage) => {
                    self.note_damage(&record.position, damage);
                    keep(record, self.settled.as_ref());
                }
            }
            if cost >= opened.closed_bytes + GROWTH_MAX {
                break;
            }
        }
        if repeats > 0 {
            ::metrics::counter!(metrics::REPEATS, "plugin" => self.plugin.clone())
                .increment(repeats);
        }
        opened
    }

    fn note_opened(&self, user_records: usize) {
        let outcome = if user_records == 0 { "empty" } else { "opened" };
        ::metrics::counter!(metrics::AGGREGATES, "plugin" => self.plugin.clone(), "outcome" => outcome).increment(1);
    }

    fn note_damage(&mut self, position: &Position, damage: Damage) {
        let (plugin, why) = (self.plugin.clone(), damage.code());
        ::metrics::counter!(metrics::DAMAGED_AGGREGATES, "plugin" => plugin, "why" => why)
            .increment(1);
        self.damaged += 1;
        // Powers of two: a producer that goes wrong does so with every record.
        if self.damaged.is_power_of_two() {
            let (shard, damaged) = (&self.shard, self.damaged);
            tracing::warn!(%shard, %position, %damage, damaged, "an aggregate cannot be opened, \
                delivering it unopened");
        }
    }
}
