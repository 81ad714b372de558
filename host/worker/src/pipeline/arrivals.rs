//! When the records in delivery arrived, so that it can be said how old the last settled one is.

use std::collections::VecDeque;

use shardmill_core::stream::{Position, Record};

/// Batches before the current one that are remembered, while a plugin holds them back. Of more, the answer is that of an
/// earlier record: older than the truth, never younger.
const BATCHES_MAX: usize = 256;

/// Arrival times by position, in order: of each record of the last batch, and of the last record of those before it.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    earlier: VecDeque<(Position, u64)>,
    batch: Vec<(Position, u64)>,
}

impl Arrivals {
    /// A batch goes into delivery; what is settled by now need not be asked about again.
    pub(super) fn delivering(&mut self, batch: &[Record], settled: Option<&Position>) {
        // Another attempt at what is known adds nothing.
        let known = self.batch.last().or(self.earlier.back());
        if known.zip(batch.last()).is_some_and(|((known, _), last)| last.position <= *known) {
            return;
        }
        self.earlier.extend(self.batch.pop());
        // The last of those that are settled stays: it is the answer until something more is.
        while self.earlier.get(1).is_some_and(|(position, _)| settled.is_some_and(|settled| position <= settled)) {
            self.earlier.pop_front();
        }
        if self.earlier.len() > BATCHES_MAX {
            self.earlier.remove(1);
        }
        let known = batch.iter().filter(|record| record.arrival_ms > 0);
        self.batch = known.map(|record| (record.position.clone(), record.arrival_ms)).collect();
    }

    /// When the last record up to `settled` arrived, in milliseconds since the Unix epoch; `None` if that is not known.
    pub(super) fn up_to(&self, settled: &Position) -> Option<u64> {
        let known = self.earlier.iter().chain(&self.batch);
        known.take_while(|(position, _)| position <= settled).last().map(|(_, arrival_ms)| *arrival_ms)
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
            data: Vec::<u8>::new().into(),
            partition_key: String::new(),
            explicit_hash_key: None,
            position: at(number),
            arrival_ms: 1_000 + number,
        };
        numbers.map(record).collect()
    }

    #[test]
    fn the_last_settled_records_arrival_is_known_also_in_the_middle_of_a_batch_and_behind_one_held_back() {
        let mut arrivals = Arrivals::default();
        assert_eq!(arrivals.up_to(&at(5)), None);
        arrivals.delivering(&batch(1..11), None);
        assert_eq!((arrivals.up_to(&at(4)), arrivals.up_to(&at(10))), (Some(1_004), Some(1_010)));
        // Nothing of the first two batches is settled when the third one goes.
        arrivals.delivering(&batch(11..21), None);
        arrivals.delivering(&batch(21..31), Some(&at(3)));
        assert_eq!(arrivals.up_to(&at(10)), Some(1_010));
        assert_eq!(arrivals.up_to(&at(15)), Some(1_010), "older than the truth, never younger");
        assert_eq!(arrivals.up_to(&at(25)), Some(1_025));
        arrivals.delivering(&batch(31..41), Some(&at(30)));
        assert_eq!(arrivals.up_to(&at(30)), Some(1_030));
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
