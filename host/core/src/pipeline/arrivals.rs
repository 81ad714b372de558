//! When the records in delivery arrived, to know how old the last settled one is.

use std::collections::VecDeque;

use crate::stream::{Position, Record};

/// Batches before the current one that are remembered, while a plugin holds them back. With more,
/// the answer is the time of an earlier record: too old, never too young.
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

impl Earlier {
    /// The arrivals kept for a batch; `None` if none in it is known.
    fn of(batch: &[(Position, u64)]) -> Option<Self> {
        let (_, first_arrival_ms) = batch.first()?;
        let (last, last_arrival_ms) = batch.last()?;
        Some(Self {
            last: last.clone(),
            first_arrival_ms: *first_arrival_ms,
            last_arrival_ms: *last_arrival_ms,
        })
    }
}

impl Arrivals {
    /// A batch goes into delivery; times of records that are settled by now are not needed any
    /// more.
    pub(super) fn delivering(&mut self, batch: &[Record], settled: Option<&Position>) {
        // Another attempt at known records adds nothing.
        if let (Some(known), Some(last)) = (self.last_known(), batch.last())
            && last.position <= *known
        {
            return;
        }
        let arrivals = batch
            .iter()
            .filter(|record| record.arrival_ms > 0)
            .map(|record| (record.position.clone(), record.arrival_ms));
        self.follow(arrivals.collect(), settled);
    }

    /// Records up to `position` are passed that are not delivered.
    pub(super) fn passed(
        &mut self,
        position: &Position,
        arrival_ms: u64,
        settled: Option<&Position>,
    ) {
        let is_news = self.last_known().is_none_or(|known| position > known);
        if is_news && arrival_ms > 0 {
            self.follow(vec![(position.clone(), arrival_ms)], settled);
        }
    }

    fn follow(&mut self, batch: Vec<(Position, u64)>, settled: Option<&Position>) {
        self.earlier.extend(Earlier::of(&self.batch));
        self.forget_settled(settled);
        if self.earlier.len() > BATCHES_MAX {
            self.earlier.remove(1);
        }
        self.batch = batch;
    }

    fn last_known(&self) -> Option<&Position> {
        match self.batch.last() {
            Some((position, _)) => Some(position),
            None => self.earlier.back().map(|batch| &batch.last),
        }
    }

    /// Forgets settled batches except the last one, which is the answer until more is settled.
    fn forget_settled(&mut self, settled: Option<&Position>) {
        while let (Some(second), Some(settled)) = (self.earlier.get(1), settled)
            && second.last <= *settled
        {
            self.earlier.pop_front();
        }
    }

    /// When the last record up to `settled` arrived, in milliseconds since the Unix epoch; `None`
    /// if unknown.
    pub(super) fn up_to(&self, settled: &Position) -> Option<u64> {
        let in_batch = self.batch.iter().rev().find(|(at, _)| at <= settled);
        if let Some((_, arrival_ms)) = in_batch {
            return Some(*arrival_ms);
        }
        let mut earlier = self.earlier.iter().rev();
        let last = earlier.find(|batch| batch.last <= *settled)?;
        Some(last.last_arrival_ms)
    }

    /// When the oldest record after `settled` arrived, or an earlier one of its batch; `None` if
    /// everything is settled, or if it is unknown. May be too old, never too young.
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
    use super::*;
    use crate::stream::SequenceNumber;

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
        // Nothing of the first two batches is settled when the third one starts.
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
