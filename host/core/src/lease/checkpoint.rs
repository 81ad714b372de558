//! Durable progress on one shard.

use std::fmt;

use crate::fleet::ApplicationStart;
use crate::seeded_bug::SeededBug;
use crate::stream::{InitialPosition, Position, ReadFrom, SequenceNumber, Utc};

/// How far a shard is settled. Variants are in the KCL's order, so that `>` means "further"
/// (KCL `ExtendedSequenceNumber`: `AT_TIMESTAMP` < `TRIM_HORIZON` < `LATEST` < numbers <
/// `SHARD_END`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Checkpoint {
    /// Nothing yet; start at the application's configured timestamp.
    AtTimestamp,
    /// Nothing since an operator sent the shard there. To the KCL, which knows no such thing, the
    /// row says `AT_TIMESTAMP`, or `TRIM_HORIZON`.
    Sought(Sought),
    /// Nothing yet; start at the oldest record.
    TrimHorizon,
    /// Nothing yet; start at what comes next.
    Latest,
    /// Everything up to and including this position is settled.
    At(Position),
    /// Everything is settled, and Kinesis reported the end of the shard.
    ShardEnd,
}

/// Where an operator sent a shard: the first record that is delivered.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sought {
    /// The oldest record still kept. Not the same as [`Checkpoint::TrimHorizon`]: the shard was
    /// read before, so its parents have ended, and are not read again because of it.
    Horizon,
    /// The first that arrived at or after this time, in milliseconds since the Unix epoch.
    Time(u64),
    /// The one with this number, or, if retention took it, the oldest one after it.
    Sequence(SequenceNumber),
}

impl Sought {
    /// As the row has it: the time in milliseconds, or the number.
    pub fn text(&self) -> String {
        match self {
            Self::Horizon => "horizon".to_owned(),
            Self::Time(ms) => format!("time {ms}"),
            Self::Sequence(number) => format!("sequence {number}"),
        }
    }

    /// Reads what [`Self::text`] gives; `None` if it is something else.
    pub fn parse(text: &str) -> Option<Self> {
        if text == "horizon" {
            return Some(Self::Horizon);
        }
        match text.split_once(' ')? {
            ("time", ms) => ms.parse().ok().map(Self::Time),
            ("sequence", number) => SequenceNumber::parse(number).ok().map(Self::Sequence),
            _ => None,
        }
    }
}

impl fmt::Display for Sought {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Horizon => f.write_str("from the oldest record"),
            Self::Time(ms) => write!(f, "from {}", Utc(*ms)),
            Self::Sequence(number) => write!(f, "from record {number}"),
        }
    }
}

impl Checkpoint {
    /// The sentinel that a fresh lease starts with.
    pub fn initial(position: InitialPosition) -> Self {
        match position {
            InitialPosition::TrimHorizon => Self::TrimHorizon,
            InitialPosition::Latest => Self::Latest,
            InitialPosition::AtTimestamp(_) => Self::AtTimestamp,
        }
    }

    /// Reads the two attributes of a lease row; `None` if they are invalid.
    pub fn parse(text: &str, sub_sequence: u64) -> Option<Self> {
        match text {
            "TRIM_HORIZON" => Some(Self::TrimHorizon),
            "LATEST" => Some(Self::Latest),
            "AT_TIMESTAMP" => Some(Self::AtTimestamp),
            "SHARD_END" => Some(Self::ShardEnd),
            number => {
                let sequence = SequenceNumber::parse(number).ok()?;
                Some(Self::At(Position {
                    sequence,
                    sub_sequence,
                }))
            }
        }
    }

    /// The text of the row's `checkpoint` attribute.
    pub fn text(&self) -> &str {
        match self {
            Self::TrimHorizon | Self::Sought(Sought::Horizon) => "TRIM_HORIZON",
            Self::AtTimestamp | Self::Sought(_) => "AT_TIMESTAMP",
            Self::Latest => "LATEST",
            Self::At(position) => position.sequence.as_str(),
            Self::ShardEnd => "SHARD_END",
        }
    }

    /// The row's `checkpointSubSequenceNumber`; 0 for sentinels.
    pub fn sub_sequence(&self) -> u64 {
        self.position().map_or(0, |position| position.sub_sequence)
    }

    /// The settled position, unless it is a sentinel.
    pub fn position(&self) -> Option<&Position> {
        match self {
            Self::At(position) => Some(position),
            Self::AtTimestamp
            | Self::Sought(_)
            | Self::TrimHorizon
            | Self::Latest
            | Self::ShardEnd => None,
        }
    }

    /// Where an operator sent the shard, if nothing was settled since.
    pub fn sought(&self) -> Option<&Sought> {
        match self {
            Self::Sought(sought) => Some(sought),
            Self::AtTimestamp | Self::TrimHorizon | Self::Latest | Self::At(_) | Self::ShardEnd => {
                None
            }
        }
    }

    /// Where a reader starts after this checkpoint; `None` at `SHARD_END`.
    ///
    /// The time of [`Checkpoint::Latest`] and [`Checkpoint::AtTimestamp`] is not kept in the row
    /// (KCL rule) but in `start`, so that every reader starts at the same record, at any time. If
    /// the application did not begin at a timestamp, as with rows of others,
    /// [`Checkpoint::AtTimestamp`] means the oldest record: records may be repeated but not lost.
    pub fn read_from(&self, start: &ApplicationStart) -> Option<ReadFrom> {
        Some(match self {
            Self::TrimHorizon | Self::Sought(Sought::Horizon) => ReadFrom::TrimHorizon,
            Self::Latest
                if SeededBug::ChildFromLatest.is_on() || SeededBug::LatestIsNow.is_on() =>
            {
                ReadFrom::Latest
            }
            Self::Latest => ReadFrom::AtTimestamp(start.looked_at_ms),
            Self::AtTimestamp => match start.position {
                InitialPosition::AtTimestamp(ms) => ReadFrom::AtTimestamp(ms),
                InitialPosition::TrimHorizon | InitialPosition::Latest => ReadFrom::TrimHorizon,
            },
            Self::Sought(Sought::Time(ms)) => ReadFrom::AtTimestamp(*ms),
            Self::Sought(Sought::Sequence(number)) => {
                if SeededBug::SeekSkipsFirstRecord.is_on() {
                    return Some(ReadFrom::AfterSequenceNumber(number.clone()));
                }
                ReadFrom::AtSequenceNumber(number.clone())
            }
            Self::At(position) => ReadFrom::AtSequenceNumber(position.sequence.clone()),
            Self::ShardEnd => return None,
        })
    }
}

impl fmt::Display for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(position) => write!(f, "{position}"),
            Self::Sought(sought) => write!(f, "{sought}"),
            sentinel => f.write_str(sentinel.text()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoints_are_ordered_as_the_kcl_orders_them() {
        let texts = [
            "AT_TIMESTAMP",
            "TRIM_HORIZON",
            "LATEST",
            "9",
            "10",
            "SHARD_END",
        ];
        let parsed: Vec<_> = texts
            .iter()
            .map(|text| Checkpoint::parse(text, 0).unwrap())
            .collect();
        assert!(parsed.is_sorted());
        assert!(Checkpoint::parse("10", 1) > Checkpoint::parse("10", 0));
    }

    #[test]
    fn text_and_sub_sequence_survive_a_round_trip() {
        for (text, sub) in [
            ("TRIM_HORIZON", 0),
            ("LATEST", 0),
            ("AT_TIMESTAMP", 0),
            ("SHARD_END", 0),
            ("495", 7),
        ] {
            let checkpoint = Checkpoint::parse(text, sub).unwrap();
            assert_eq!((checkpoint.text(), checkpoint.sub_sequence()), (text, sub));
        }
        assert_eq!(Checkpoint::parse("nonsense", 0), None);
    }

    #[test]
    fn a_checkpoint_reads_as_its_row_does_and_shows_the_place_in_an_aggregate() {
        for (text, sub, shown) in [
            ("LATEST", 0, "LATEST"),
            ("SHARD_END", 0, "SHARD_END"),
            ("495", 7, "495/7"),
        ] {
            assert_eq!(Checkpoint::parse(text, sub).unwrap().to_string(), shown);
        }
    }

    #[test]
    fn a_place_that_was_sought_survives_a_round_trip_and_comes_before_all_that_is_settled() {
        let number = SequenceNumber::parse("495").unwrap();
        for sought in [Sought::Time(7), Sought::Sequence(number.clone())] {
            assert_eq!(Sought::parse(&sought.text()), Some(sought.clone()));
            let checkpoint = Checkpoint::Sought(sought);
            assert_eq!(
                (checkpoint.text(), checkpoint.position()),
                ("AT_TIMESTAMP", None)
            );
            assert!(checkpoint < Checkpoint::parse("1", 0).unwrap());
        }
        let horizon = Checkpoint::Sought(Sought::Horizon);
        assert_eq!(Sought::parse("horizon"), Some(Sought::Horizon));
        assert_eq!(horizon.text(), "TRIM_HORIZON");
        assert!(horizon < Checkpoint::parse("1", 0).unwrap());
        for text in ["time", "time x", "sequence -1", "place 5", ""] {
            assert_eq!(Sought::parse(text), None, "{text}");
        }
        let start = ApplicationStart {
            position: InitialPosition::Latest,
            looked_at_ms: 7,
            found_leases: false,
        };
        assert_eq!(
            Checkpoint::Sought(Sought::Sequence(number.clone())).read_from(&start),
            Some(ReadFrom::AtSequenceNumber(number))
        );
    }

    #[test]
    fn a_start_is_the_same_moment_for_whoever_reads_and_whenever() {
        let start = |position| ApplicationStart {
            position,
            looked_at_ms: 7,
            found_leases: false,
        };
        let latest = start(InitialPosition::Latest);
        assert_eq!(
            Checkpoint::Latest.read_from(&latest),
            Some(ReadFrom::AtTimestamp(7))
        );
        assert_eq!(
            Checkpoint::TrimHorizon.read_from(&latest),
            Some(ReadFrom::TrimHorizon)
        );
        let at_a_time = start(InitialPosition::AtTimestamp(3));
        assert_eq!(
            Checkpoint::AtTimestamp.read_from(&at_a_time),
            Some(ReadFrom::AtTimestamp(3))
        );
    }

    #[test]
    fn a_timestamp_of_others_that_nobody_knows_repeats_rather_than_loses() {
        let start = ApplicationStart {
            position: InitialPosition::Latest,
            looked_at_ms: 7,
            found_leases: true,
        };
        assert_eq!(
            Checkpoint::AtTimestamp.read_from(&start),
            Some(ReadFrom::TrimHorizon)
        );
    }
}
