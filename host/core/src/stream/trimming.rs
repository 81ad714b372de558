//! How the loss of records to retention is detected: Kinesis never reports it, but continues at the
//! oldest record that is left.
//!
//! An iterator *at* a record's number, and not after it, begins with that record unless the record
//! was trimmed.

use std::fmt;
use std::time::Duration;

use super::{Position, Record, SequenceNumber};

/// Kinesis keeps every record for at least this long (AWS limit).
const RETENTION_MIN: Duration = Duration::from_hours(24);
/// So far behind, the oldest record may be trimmed while the reader goes on. An hour less, for
/// clocks and replies.
const NEAR_TRIMMING: Duration = Duration::from_hours(23);

/// Records may be missing between one that was read and the next one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    /// The last record before it, which is trimmed.
    pub after: SequenceNumber,
    /// Where reading goes on; `None` if the shard ended instead.
    pub next: Option<Position>,
    /// When that record arrived, in milliseconds since the Unix epoch; 0 if not known.
    pub next_arrival_ms: u64,
}

/// What a reply says about a record that it was to begin with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Anchor {
    /// It is there: nothing behind it was trimmed.
    Holds,
    /// It is gone, and with it maybe what followed.
    Lost(Gap),
    /// The reply has no record that shows it.
    Unknown,
}

impl Gap {
    /// The shard ended without the record `after`, which was read before: what followed it is gone
    /// too, if anything did.
    pub fn at_end(after: SequenceNumber) -> Self {
        Self {
            after,
            next: None,
            next_arrival_ms: 0,
        }
    }
}

/// Whether what follows the last record read may be trimmed, unread: it may, unless all was read
/// less than a day ago.
pub(crate) fn may_be_trimmed(was_at_tip: bool, silent_for: Duration) -> bool {
    !was_at_tip || silent_for >= RETENTION_MIN
}

/// Whether a reader that is so far behind must watch out for every reply.
pub(crate) fn is_near_trimming(millis_behind_latest: u64) -> bool {
    Duration::from_millis(millis_behind_latest) >= NEAR_TRIMMING
}

/// Looks for the record `anchor` in a reply, in order, that was asked to start at it.
pub(crate) fn look_for(anchor: &SequenceNumber, reply: &[Record]) -> Anchor {
    match reply
        .iter()
        .find(|record| record.position.sequence >= *anchor)
    {
        None => Anchor::Unknown,
        Some(record) if record.position.sequence == *anchor => Anchor::Holds,
        Some(next) => {
            let position = Some(next.position.clone());
            Anchor::Lost(Gap {
                after: anchor.clone(),
                next: position,
                next_arrival_ms: next.arrival_ms,
            })
        }
    }
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            after,
            next,
            next_arrival_ms,
        } = self;
        write!(f, "{after} was trimmed, and perhaps records after it; ")?;
        match next {
            Some(next) => write!(f, "continues at {next}")?,
            None => f.write_str("the shard has ended")?,
        }
        if *next_arrival_ms > 0 {
            write!(f, ", which arrived at {next_arrival_ms} ms")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn number(text: &str) -> SequenceNumber {
        SequenceNumber::parse(text).unwrap()
    }

    fn reply(sequences: &[&str]) -> Vec<Record> {
        let record = |text: &&str| Record {
            data: Bytes::new(),
            partition_key: String::new(),
            explicit_hash_key: None,
            position: Position::plain(number(text)),
            arrival_ms: 7,
        };
        sequences.iter().map(record).collect()
    }

    #[test]
    fn a_reply_that_begins_with_the_record_asked_for_proves_that_nothing_is_missing() {
        assert_eq!(look_for(&number("9"), &reply(&["9", "10"])), Anchor::Holds);
        assert_eq!(
            look_for(&number("9"), &reply(&["8", "9"])),
            Anchor::Holds,
            "what comes again comes before it"
        );
    }

    #[test]
    fn a_reply_that_begins_later_is_a_gap_and_an_empty_one_shows_nothing() {
        let Anchor::Lost(gap) = look_for(&number("9"), &reply(&["10", "11"])) else {
            panic!("no gap")
        };
        assert_eq!(
            (&gap.after, &gap.next, gap.next_arrival_ms),
            (&number("9"), &Some(Position::plain(number("10"))), 7)
        );
        assert!(
            gap.to_string().starts_with("9 was trimmed") && gap.to_string().contains("at 10"),
            "{gap}"
        );
        assert!(
            gap.to_string().ends_with(", which arrived at 7 ms"),
            "{gap}"
        );
        let undated = Gap {
            next_arrival_ms: 0,
            ..gap
        };
        assert!(!undated.to_string().contains("arrived"), "{undated}");
        assert!(
            Gap::at_end(number("9"))
                .to_string()
                .ends_with("the shard has ended")
        );
        assert_eq!(look_for(&number("9"), &[]), Anchor::Unknown);
        assert_eq!(look_for(&number("9"), &reply(&["8"])), Anchor::Unknown);
    }

    #[test]
    fn what_was_read_to_the_tip_within_a_day_cannot_have_been_trimmed_unread() {
        assert!(!may_be_trimmed(true, Duration::from_hours(23)));
        assert!(may_be_trimmed(true, Duration::from_hours(24)));
        assert!(may_be_trimmed(false, Duration::ZERO));
    }

    #[test]
    fn a_reader_that_is_nearly_a_day_behind_watches_every_reply() {
        assert!(!is_near_trimming(22 * 3_600_000));
        assert!(is_near_trimming(23 * 3_600_000));
        assert!(is_near_trimming(u64::MAX));
    }
}
