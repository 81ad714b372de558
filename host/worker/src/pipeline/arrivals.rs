//! When the records in delivery arrived, so that it can be said how old the last settled one is.

use std::collections::VecDeque;

use shardmill_core::stream::{Position, Record};

/// Batches before the current one that are remembered, while a plugin holds them back. Of more, the
/// answer is that of an earlier record: older than the truth, never younger.
const BATCHES_MAX: usize = 256;

/// Arrival times by position, in order: of each record of the last batch, and of the first and the
/// last record of those before it.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    earlier: VecDeque<Earlier>,
    batch: Vec<(Position, u64)>,
}

/// A batch before the last one.
#[derive(Debug)]
struct Earlier {
    last: Position,
    first_arrival_ms: u64,
    last_arrival_ms: u64,
}

/// How many records the plugin holds back.
#[derive(Debug, Default)]
pub(super) struct HeldBack {
    /// The last record of a batch, and how many of it are held back.
    batches: VecDeque<(Position, u64)>,
}

impl HeldBack {
    /// Of the batch that ends with `last` the plugin holds back so many records.
    pub(super) fn add(&mut self, last: Position, records: u64) {
        if records == 0 {
            return;
        }
        self.batches.push_back((last, records));
        if self.batches.len() > BATCHES_MAX
            && let Some((_, of_first)) = self.batches.pop_front()
            && let Some((_, of_next)) = self.batches.front_mut()
        {
            *of_next += of_first;
        }
    }

    /// Everything up to `position` is settled.
    pub(super) fn settled(&mut self, position: &Position) {
        let settled = self.batches.partition_point(|(last, _)| last <= position);
        self.batches.drain(..settled);
    }

    pub(super) fn clear(&mut self) {
        self.batches.clear();
    }

    pub(super) fn records(&self) -> u64 {
        self.batches.iter().map(|(_, records)| records).sum()
    }
}

impl Arrivals {
    /// A batch goes into delivery; what is settled by now need not be asked about again.
    pub(super) fn delivering(&mut self, batch: &[Record], settled: Option<&Position>) {
        // Another attempt at what is known adds nothing.
        let known = self
            .batch
            .last()
            .map(|(position, _)| position)
            .or(self.earlier.back().map(|batch| &batch.last));
        if known
            .zip(batch.last())
            .is_some_and(|(known, last)| last.position <= *known)
        {
            return;
        }
        let first_arrival_ms = self.batch.first().map(|(_, arrival_ms)| *arrival_ms);
        if let (Some(first_arrival_ms), Some((last, last_arrival_ms))) =
            (first_arrival_ms, self.batch.pop())
        {
            self.earlier.push_back(Earlier {
                last,
                first_arrival_ms,
                last_arrival_ms,
            });
        }
        // The last of those that are settled stays: it is the answer until something more is.
        while self
            .earlier
            .get(1)
            .is_some_and(|batch| settled.is_some_and(|settled| batch.last <= *settled))
        {
            self.earlier.pop_front();
        }
        if self.earlier.len() > BATCHES_MAX {
            self.earlier.remove(1);
        }
        let known = batch.iter().filter(|record| record.arrival_ms > 0);
        self.batch = known
            .map(|record| (record.position.clone(), record.arrival_ms))
            .collect();
    }

    /// When the last record up to `settled` arrived, in milliseconds since the Unix epoch; `None`
    /// if that is not known.
    pub(super) fn up_to(&self, settled: &Position) -> Option<u64> {
        let earlier = self
            .earlier
            .iter()
            .map(|batch| (&batch.last, batch.last_arrival_ms));
        let known = earlier.chain(
            self.batch
                .iter()
                .map(|(position, arrival_ms)| (position, *arrival_ms)),
        );
        known
            .take_while(|(position, _)| *position <= settled)
            .last()
            .map(|(_, arrival_ms)| arrival_ms)
    }

    /// When the oldest record after `settled` arrived, or one of its batch before it; `None` if all
    /// is settled, or that is not known. Older than the truth, never younger.
    pub(super) fn oldest_after(&self, settled: Option<&Position>) -> Option<u64> {
        let is_open = |position: &Position| settled.is_none_or(|settled| position > settled);
        let earlier = self
            .earlier
            .iter()
            .find(|batch| is_open(&batch.last))
            .map(|batch| batch.first_arrival_ms);
        earlier.or_else(|| {
            self.batch
                .iter()
                .find(|(position, _)| is_open(position))
                .map(|(_, arrival_ms)| *arrival_ms)
        })
    }
}

#[cfg(test)]
mod tests {
    use shardmill_core::stream::SequenceNumber;

    use super::*;

    fn at(number: u64) -> Position {
        Position::plain(SequenceNumber::parse(&number.to_string()).unwrap())
    }

    fn batch(numbers: std::ops::Range<u64>) -> Vec<Record> {
        let record = |number| Record {
            data: "".into(),
            partition_key: String::new(),
            explicit_hash_key: None,
            position: at(number),
            arrival_ms: 1_000 + number,
        };
        numbers.map(record).collect()
    }

    #[test]
    fn the_last_settled_records_arrival_is_known_also_in_the_middle_of_a_batch_and_behind_one_held_back()
     {
        let mut arrivals = Arrivals::default();
        assert_eq!(arrivals.up_to(&at(5)), None);
        arrivals.delivering(&batch(1..11), None);
        assert_eq!(
            (arrivals.up_to(&at(4)), arrivals.up_to(&at(10))),
            (Some(1_004), Some(1_010))
        );
        // Nothing of the first two batches is settled when the third one goes.
        arrivals.delivering(&batch(11..21), None);
        arrivals.delivering(&batch(21..31), Some(&at(3)));
        assert_eq!(arrivals.up_to(&at(10)), Some(1_010));
        assert_eq!(
            arrivals.up_to(&at(15)),
            Some(1_010),
            "older than the truth, never younger"
        );
        assert_eq!(arrivals.up_to(&at(25)), Some(1_025));
        arrivals.delivering(&batch(31..41), Some(&at(30)));
        assert_eq!(arrivals.up_to(&at(30)), Some(1_030));
    }

    #[test]
    fn the_oldest_record_that_is_not_settled_is_known_however_much_was_delivered_after_it() {
        let mut arrivals = Arrivals::default();
        assert_eq!(arrivals.oldest_after(None), None);
        arrivals.delivering(&batch(1..11), None);
        assert_eq!(arrivals.oldest_after(None), Some(1_001));
        assert_eq!(
            (
                arrivals.oldest_after(Some(&at(4))),
                arrivals.oldest_after(Some(&at(10)))
            ),
            (Some(1_005), None)
        );
        arrivals.delivering(&batch(11..21), Some(&at(3)));
        assert_eq!(
            arrivals.oldest_after(Some(&at(3))),
            Some(1_001),
            "older than the truth, never younger"
        );
        assert_eq!(arrivals.oldest_after(Some(&at(10))), Some(1_011));
        assert_eq!(arrivals.oldest_after(Some(&at(20))), None);
    }

    #[test]
    fn records_held_back_are_counted_until_they_are_settled() {
        let mut held_back = HeldBack::default();
        held_back.add(at(10), 10);
        held_back.add(at(20), 0);
        held_back.add(at(30), 5);
        held_back.settled(&at(9));
        assert_eq!(held_back.records(), 15);
        held_back.settled(&at(10));
        assert_eq!(held_back.records(), 5);
        for number in 31..1_000 {
            held_back.add(at(number), 1);
        }
        assert_eq!(
            (held_back.records(), held_back.batches.len()),
            (5 + 969, BATCHES_MAX)
        );
    }

    #[test]
    fn what_is_remembered_is_bounded_however_long_a_plugin_holds_back() {
        let mut arrivals = Arrivals::default();
        for number in 0..10_000 {
            arrivals.delivering(&batch(number..number + 1), None);
        }
        assert!(arrivals.earlier.len() <= BATCHES_MAX);
        assert_eq!(arrivals.up_to(&at(9_999)), Some(10_999));
        assert_eq!(arrivals.up_to(&at(5_000)), Some(1_000));
    }
}
