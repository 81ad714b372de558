//! With `order = "key"`: which records wait for each other, and how the shard's time is divided between keys that are tried again
//! and all others.

use std::time::Duration;

use crate::seeded_bug::SeededBug;
use crate::stream::{Position, Record};

/// Records that wait for each other.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LaneKey {
    /// Those of a partition key.
    Key(String),
    /// A record without one (a member of an aggregate may have an empty key) waits for no other, and none for it.
    Alone(Position),
}

/// What is delivered next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// A key that is tried again.
    Lane,
    /// Records of keys that are not.
    Others,
}

/// Gives each side half of the shard's time while both have something due: after a try of a failing key that took a
/// while, other records have as long. So keys that fail slowly, however many, at most halve the pace of the others, and
/// records that keep coming do not put off a failing key for longer than its last try took.
#[derive(Debug, Default)]
pub struct Turns {
    /// Time that others have before a failing key is tried again.
    owed: Duration,
    turn: Option<Turn>,
}

impl LaneKey {
    /// Where `record` waits, or is waited for.
    pub fn of(record: &Record) -> Self {
        if record.partition_key.is_empty() {
            return Self::Alone(record.position.clone());
        }
        Self::Key(record.partition_key.clone())
    }
}

impl Turns {
    /// Whose turn it is; `None` if nothing is due.
    pub fn next(&mut self, is_lane_due: bool, are_others_due: bool) -> Option<Turn> {
        self.turn = match (is_lane_due, are_others_due) {
            (false, false) => None,
            (true, false) => Some(Turn::Lane),
            (false, true) => Some(Turn::Others),
            (true, true) if SeededBug::FailingKeysFirst.is_on() => Some(Turn::Lane),
            (true, true) => Some(if self.owed.is_zero() { Turn::Lane } else { Turn::Others }),
        };
        self.turn
    }

    /// What had its turn last took so long.
    pub fn took(&mut self, took: Duration) {
        self.owed = match self.turn {
            // Not added up: while there are no others, nobody is owed anything.
            Some(Turn::Lane) => took,
            Some(Turn::Others) => self.owed.saturating_sub(took),
            None => self.owed,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::SequenceNumber;

    fn record(key: &str, sequence: &str) -> Record {
        Record {
            data: bytes::Bytes::new(),
            partition_key: key.to_owned(),
            explicit_hash_key: None,
            position: Position::plain(SequenceNumber::parse(sequence).unwrap()),
            arrival_ms: 0,
        }
    }

    #[test]
    fn records_wait_for_those_of_their_key_and_records_without_a_key_for_none() {
        assert_eq!(LaneKey::of(&record("a", "1")), LaneKey::of(&record("a", "2")));
        assert_ne!(LaneKey::of(&record("a", "1")), LaneKey::of(&record("b", "1")));
        assert_ne!(LaneKey::of(&record("", "1")), LaneKey::of(&record("", "2")));
    }

    #[test]
    fn what_is_due_alone_goes_at_once() {
        let mut turns = Turns::default();
        assert_eq!(turns.next(false, false), None);
        for _ in 0..3 {
            assert_eq!(turns.next(true, false), Some(Turn::Lane));
            turns.took(Duration::from_secs(5));
        }
        assert_eq!(turns.next(false, true), Some(Turn::Others));
    }

    #[test]
    fn while_both_are_due_each_has_half_of_the_time() {
        let mut turns = Turns::default();
        let (mut lane, mut others) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..1_000 {
            match turns.next(true, true).unwrap() {
                Turn::Lane => {
                    lane += Duration::from_secs(5);
                    turns.took(Duration::from_secs(5));
                }
                Turn::Others => {
                    others += Duration::from_millis(300);
                    turns.took(Duration::from_millis(300));
                }
            }
        }
        let share = lane.as_secs_f64() / (lane + others).as_secs_f64();
        assert!((0.45..0.55).contains(&share), "{share}");
    }

    #[test]
    fn an_hour_without_other_records_is_not_held_against_failing_keys() {
        let mut turns = Turns::default();
        for _ in 0..720 {
            assert_eq!(turns.next(true, false), Some(Turn::Lane));
            turns.took(Duration::from_secs(5));
        }
        for _ in 0..5 {
            assert_eq!(turns.next(true, true), Some(Turn::Others));
            turns.took(Duration::from_secs(1));
        }
        assert_eq!(turns.next(true, true), Some(Turn::Lane));
    }
}
