//! Durable progress on one shard.

use std::fmt;

use crate::stream::{InitialPosition, Position, ReadFrom, SequenceNumber};

/// How far a shard is settled. Variants are in the KCL's order, so that `>` means "further"
/// (KCL `ExtendedSequenceNumber`: `AT_TIMESTAMP` < `TRIM_HORIZON` < `LATEST` < numbers < `SHARD_END`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Checkpoint {
    /// Nothing yet; start at the application's configured timestamp.
    AtTimestamp,
    /// Nothing yet; start at the oldest record.
    TrimHorizon,
    /// Nothing yet; start at what comes next.
    Latest,
    /// Everything up to and including this position is settled.
    At(Position),
    /// Everything is settled and Kinesis said that no more will come.
    ShardEnd,
}

impl Checkpoint {
    /// The sentinel a fresh lease starts with.
    pub fn initial(position: InitialPosition) -> Self {
        match position {
            InitialPosition::TrimHorizon => Self::TrimHorizon,
            InitialPosition::Latest => Self::Latest,
            InitialPosition::AtTimestamp(_) => Self::AtTimestamp,
        }
    }

    /// Reads the two attributes of a lease row; `None` if they make no sense.
    pub fn parse(text: &str, sub_sequence: u64) -> Option<Self> {
        match text {
            "TRIM_HORIZON" => Some(Self::TrimHorizon),
            "LATEST" => Some(Self::Latest),
            "AT_TIMESTAMP" => Some(Self::AtTimestamp),
            "SHARD_END" => Some(Self::ShardEnd),
            number => {
                let sequence = SequenceNumber::parse(number).ok()?;
                Some(Self::At(Position { sequence, sub_sequence }))
            }
        }
    }

    /// The text of the row's `checkpoint` attribute.
    pub fn text(&self) -> &str {
        match self {
            Self::AtTimestamp => "AT_TIMESTAMP",
            Self::TrimHorizon => "TRIM_HORIZON",
            Self::Latest => "LATEST",
            Self::At(position) => position.sequence.as_str(),
            Self::ShardEnd => "SHARD_END",
        }
    }

    /// The row's `checkpointSubSequenceNumber`; 0 for sentinels.
    pub fn sub_sequence(&self) -> u64 {
        self.position().map_or(0, |position| position.sub_sequence)
    }

    /// The settled position, if it is one.
    pub fn position(&self) -> Option<&Position> {
        match self {
            Self::At(position) => Some(position),
            Self::AtTimestamp | Self::TrimHorizon | Self::Latest | Self::ShardEnd => None,
        }
    }

    /// Where a reader starts after this checkpoint; `None` at `SHARD_END`.
    ///
    /// `configured` matters only for [`Checkpoint::AtTimestamp`], whose time is not kept in the row (KCL rule). If the
    /// application is no longer configured with a timestamp, reading starts at the oldest record: repeating is allowed,
    /// losing is not.
    pub fn read_from(&self, configured: InitialPosition) -> Option<ReadFrom> {
        Some(match self {
            Self::TrimHorizon => ReadFrom::TrimHorizon,
            Self::Latest => ReadFrom::Latest,
            Self::AtTimestamp => match configured {
                InitialPosition::AtTimestamp(ms) => ReadFrom::AtTimestamp(ms),
                InitialPosition::TrimHorizon | InitialPosition::Latest => ReadFrom::TrimHorizon,
            },
            Self::At(position) => ReadFrom::AtSequenceNumber(position.sequence.clone()),
            Self::ShardEnd => return None,
        })
    }
}

impl fmt::Display for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(position) => write!(f, "{position}"),
            sentinel => f.write_str(sentinel.text()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoints_are_ordered_as_the_kcl_orders_them() {
        let texts = ["AT_TIMESTAMP", "TRIM_HORIZON", "LATEST", "9", "10", "SHARD_END"];
        let parsed: Vec<_> = texts.iter().map(|text| Checkpoint::parse(text, 0).unwrap()).collect();
        assert!(parsed.is_sorted());
        assert!(Checkpoint::parse("10", 1) > Checkpoint::parse("10", 0));
    }

    #[test]
    fn text_and_sub_sequence_survive_a_round_trip() {
        for (text, sub) in [("TRIM_HORIZON", 0), ("LATEST", 0), ("AT_TIMESTAMP", 0), ("SHARD_END", 0), ("495", 7)] {
            let checkpoint = Checkpoint::parse(text, sub).unwrap();
            assert_eq!((checkpoint.text(), checkpoint.sub_sequence()), (text, sub));
        }
        assert_eq!(Checkpoint::parse("nonsense", 0), None);
    }

    #[test]
    fn a_checkpoint_reads_as_its_row_does_and_tells_the_place_in_an_aggregate() {
        for (text, sub, shown) in [("LATEST", 0, "LATEST"), ("SHARD_END", 0, "SHARD_END"), ("495", 7, "495/7")] {
            assert_eq!(Checkpoint::parse(text, sub).unwrap().to_string(), shown);
        }
    }

    #[test]
    fn a_lost_timestamp_setting_repeats_rather_than_loses() {
        let from = Checkpoint::AtTimestamp.read_from(InitialPosition::Latest);
        assert_eq!(from, Some(ReadFrom::TrimHorizon));
    }
}
