//! When the records at hand came from Kinesis. Kept only if something is traced.

use std::collections::VecDeque;

use shardmill_core::stream::Position;

/// Replies that are known. Only the newest matter: a pipeline has a chunk or two in hand, and with
/// parallel keys some more.
const KEPT_MAX: usize = 64;

/// When a reply came, or what was pushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Received {
    /// When it was asked for; when it came, if it was pushed. In nanoseconds since the Unix epoch,
    /// by the clock of spans.
    pub(super) started_ns: u64,
    /// When it was there.
    pub(super) ended_ns: u64,
    /// How many records came.
    pub(super) records: usize,
}

/// See the module's description.
#[derive(Default)]
pub(super) struct Receptions {
    known: VecDeque<Reception>,
}

struct Reception {
    first: Position,
    last: Position,
    received: Received,
}

impl Receptions {
    /// Notes when the records from `first` to `last` came.
    pub(super) fn note(&mut self, first: Position, last: Position, received: Received) {
        if self.known.len() == KEPT_MAX {
            self.known.pop_front();
        }
        self.known.push_back(Reception {
            first,
            last,
            received,
        });
    }

    /// When the record at `position` came, the last time that it did.
    pub(super) fn of(&self, position: &Position) -> Option<Received> {
        let covers = |one: &&Reception| (&one.first..=&one.last).contains(&position);
        let newest = self.known.iter().rev().find(covers)?;
        Some(newest.received)
    }
}

#[cfg(test)]
mod tests {
    use shardmill_core::stream::SequenceNumber;

    use super::*;

    fn at(number: usize) -> Position {
        Position::plain(SequenceNumber::parse(&number.to_string()).unwrap())
    }

    fn received(ended_ns: u64) -> Received {
        Received {
            started_ns: 0,
            ended_ns,
            records: 10,
        }
    }

    #[test]
    fn a_record_came_with_the_newest_reply_that_holds_it_and_few_are_known() {
        let mut receptions = Receptions::default();
        receptions.note(at(10), at(19), received(1));
        receptions.note(at(20), at(29), received(2));
        receptions.note(at(15), at(24), received(3));
        let came = |position| receptions.of(&at(position)).map(|one| one.ended_ns);
        assert_eq!(
            [9, 10, 15, 24, 25, 30].map(came),
            [None, Some(1), Some(3), Some(3), Some(2), None]
        );
        for number in 0..KEPT_MAX {
            receptions.note(at(1_000 + number), at(1_000 + number), received(4));
        }
        assert_eq!(receptions.known.len(), KEPT_MAX);
        assert_eq!(receptions.of(&at(10)), None);
    }
}
