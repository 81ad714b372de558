//! Where a caller continues to read: our own iterator, looked up among the held replies when it is
//! used.

use crate::ports::ShardIterator;
use crate::stream::{Record, SequenceNumber, ShardId};

/// A place in a shard, named by what it follows and not by a handle, so that nothing is kept for a
/// caller that never comes back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChainPlace {
    /// Where a chain starts of which no record is known yet.
    Start(u64),
    /// This record and what follows.
    At(SequenceNumber),
    /// What follows this record.
    After(SequenceNumber),
}

impl ChainPlace {
    /// Whether a caller here is to get `record`, of a chain that covers the place.
    pub(super) fn wants(&self, record: &Record) -> bool {
        match self {
            Self::Start(_) => true,
            Self::At(sequence) => record.position.sequence >= *sequence,
            Self::After(sequence) => record.position.sequence > *sequence,
        }
    }
}

/// Shard ids have no colon.
const SEPARATOR: char = ':';

/// The iterator of `place` in `shard`.
pub fn encode(shard: &ShardId, place: &ChainPlace) -> ShardIterator {
    ShardIterator(match place {
        ChainPlace::Start(chain) => format!("{shard}:start:{chain}"),
        ChainPlace::At(sequence) => format!("{shard}:at:{sequence}"),
        ChainPlace::After(sequence) => format!("{shard}:after:{sequence}"),
    })
}

/// The shard and the place of `iterator`; `None` if it was not made by [`encode`].
pub fn decode(iterator: &ShardIterator) -> Option<(ShardId, ChainPlace)> {
    let mut parts = iterator.0.split(SEPARATOR);
    let (shard, kind, value) = (parts.next()?, parts.next()?, parts.next()?);
    let place = match kind {
        "start" => ChainPlace::Start(value.parse().ok()?),
        "at" => ChainPlace::At(SequenceNumber::parse(value).ok()?),
        "after" => ChainPlace::After(SequenceNumber::parse(value).ok()?),
        _ => return None,
    };
    Some((ShardId::new(shard).ok()?, place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_survives_a_round_trip_and_what_is_foreign_is_none() {
        let shard = ShardId::new("shardId-000000000003").unwrap();
        let sequence = SequenceNumber::parse("49640871423056104321897561").unwrap();
        for place in [
            ChainPlace::Start(7),
            ChainPlace::At(sequence.clone()),
            ChainPlace::After(sequence),
        ] {
            assert_eq!(
                decode(&encode(&shard, &place)),
                Some((shard.clone(), place))
            );
        }
        for foreign in [
            "",
            "AAAAAAAAAAE2",
            "shardId-1:after:x",
            "shardId-1:start:-1",
            "shardId-1:on:1",
        ] {
            assert_eq!(
                decode(&ShardIterator(foreign.to_owned())),
                None,
                "{foreign}"
            );
        }
    }
}
