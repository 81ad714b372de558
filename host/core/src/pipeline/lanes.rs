//! With `order = "key"`: which records wait for each other, and how the shard's time is divided
//! between keys that are tried again and all others.

use std::time::Duration;

use crate::seeded_bug::SeededBug;
use crate::stream::{Position, Record};
use crate::time::Moment;

/// Records that wait for each other.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LaneKey {
    /// Those of a partition key.
    Key(String),
    /// A record without one (a member of an aggregate may have an empty key) waits for no other,
    /// and none for it.
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

/// What there is of keys that are not tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Others {
    /// A batch.
    Due,
    /// No batch yet, but records: some wait for more, or reading is behind the tip.
    Coming,
    /// Nothing that is known of.
    None,
}

/// Gives each side half of the shard's time while both have something: a failing key whose try took
/// a while is not tried again, nor any other, before as long has passed. So keys that fail slowly,
/// however many, at most halve the pace of the others, and records that keep coming do not put off
/// a failing key for longer than the last try took.
#[derive(Debug, Default)]
pub struct Turns {
    /// Until when others go first.
    lanes_rest_until: Moment,
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
    /// Which lane's turn it is; `None` if nothing is due, or if due records wait for others to
    /// arrive.
    pub fn next(&mut self, is_lane_due: bool, others: Others, now: Moment) -> Option<Turn> {
        let do_lanes_rest = now < self.lanes_rest_until && !SeededBug::FailingKeysFirst.is_on();
        self.turn = match (is_lane_due, others) {
            (false, Others::Due) => Some(Turn::Others),
            (true, Others::Due) if do_lanes_rest => Some(Turn::Others),
            (true, Others::Coming) if do_lanes_rest => None,
            (true, _) => Some(Turn::Lane),
            (false, Others::Coming | Others::None) => None,
        };
        self.turn
    }

    /// What had its turn last took so long, until `now`.
    pub fn took(&mut self, took: Duration, now: Moment) {
        if self.turn == Some(Turn::Lane) {
            self.lanes_rest_until = now + took;
        }
    }

    /// Until when a failing key that is due lets others go first, if there are any.
    pub(crate) fn lanes_rest_until(&self) -> Moment {
        self.lanes_rest_until
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
        assert_eq!(
            LaneKey::of(&record("a", "1")),
            LaneKey::of(&record("a", "2"))
        );
        assert_ne!(
            LaneKey::of(&record("a", "1")),
            LaneKey::of(&record("b", "1"))
        );
        assert_ne!(LaneKey::of(&record("", "1")), LaneKey::of(&record("", "2")));
    }

    fn at(ms: u64) -> Moment {
        Moment::from_origin(Duration::from_millis(ms))
    }

    #[test]
    fn what_is_due_alone_goes_at_once() {
        let mut turns = Turns::default();
        assert_eq!(turns.next(false, Others::None, at(0)), None);
        for try_number in 1..=3 {
            assert_eq!(
                turns.next(true, Others::None, at(5_000 * (try_number - 1))),
                Some(Turn::Lane)
            );
            turns.took(Duration::from_secs(5), at(5_000 * try_number));
        }
        assert_eq!(
            turns.next(false, Others::Due, at(15_000)),
            Some(Turn::Others)
        );
        assert_eq!(turns.next(false, Others::Coming, at(15_000)), None);
    }

    #[test]
    fn while_both_are_due_each_has_half_of_the_time() {
        let mut turns = Turns::default();
        let (mut now, mut lane, mut others) = (0, 0, 0);
        for _ in 0..1_000 {
            let (side, took) = match turns.next(true, Others::Due, at(now)).unwrap() {
                Turn::Lane => (&mut lane, 5_000),
                Turn::Others => (&mut others, 300),
            };
            *side += took;
            now += took;
            turns.took(Duration::from_millis(took), at(now));
        }
        let share =
            f64::from(u32::try_from(lane).unwrap()) / f64::from(u32::try_from(now).unwrap());
        assert!((0.45..0.55).contains(&share), "{share}, {others}");
    }

    #[test]
    fn a_failing_key_lets_records_that_are_still_to_be_read_go_first_for_as_long_as_its_last_try_took()
     {
        let mut turns = Turns::default();
        assert_eq!(turns.next(true, Others::Coming, at(0)), Some(Turn::Lane));
        turns.took(Duration::from_secs(12), at(12_000));
        assert_eq!(
            turns.next(true, Others::Coming, at(12_000)),
            None,
            "the next reply is on its way"
        );
        assert_eq!(
            turns.next(true, Others::Due, at(12_200)),
            Some(Turn::Others)
        );
        turns.took(Duration::from_millis(50), at(12_250));
        assert_eq!(turns.next(true, Others::Coming, at(23_999)), None);
        assert_eq!(
            turns.next(true, Others::None, at(23_999)),
            Some(Turn::Lane),
            "reading is at the tip"
        );
        assert_eq!(
            turns.next(true, Others::Coming, at(24_000)),
            Some(Turn::Lane)
        );
    }
}
