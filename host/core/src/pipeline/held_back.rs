//! How many records the plugin holds back.

use std::collections::VecDeque;

use crate::stream::Position;

/// Batches of which it is known how many records of them are held back. Of more, the first count as
/// held back until the next one is settled.
const BATCHES_MAX: usize = 256;

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

    /// The plugin holds nothing back any more.
    pub(super) fn clear(&mut self) {
        self.batches.clear();
    }

    /// How many records are held back.
    pub(super) fn records(&self) -> u64 {
        self.batches.iter().map(|(_, records)| records).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::SequenceNumber;

    fn at(number: u64) -> Position {
        Position::plain(SequenceNumber::parse(&number.to_string()).unwrap())
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
}
