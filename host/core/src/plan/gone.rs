//! When a shard that has a row counts as gone from its stream: one rule, for the leader and for the
//! commands that ask what it would do.
//!
//! Three kinds of evidence, in this order: the shard is missing in complete listings in a row;
//! Kinesis does not know it when asked; and the stream that was asked is still the one that the
//! checkpoints belong to. A listing alone proves nothing: it may lag behind the reply that named a
//! child.

use std::collections::{BTreeMap, BTreeSet};

use crate::seeded_bug::SeededBug;
use crate::stream::{Shard, ShardId};

/// A shard must be missing in this many complete listings in a row before its row may be removed.
const MISSING_LISTINGS: u32 = 2;
/// Shards asked about after one listing, each with one call: a whole stream's worth would use up
/// the account's rate.
const QUESTIONS_MAX: usize = 16;

/// One host's memory of the shards that have rows and that its listings do not show.
#[derive(Debug, Clone, Default)]
pub struct MissingShards {
    /// In how many listings in a row each was missing.
    listings: BTreeMap<ShardId, u32>,
}

/// Shards that have rows and that Kinesis does not know, by how certain that is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GoneShards {
    /// All of the evidence is there: their rows may be removed.
    pub confirmed: BTreeSet<ShardId>,
    /// Kinesis does not know them, but they were missing in too few listings: the next one decides.
    pub doubtful: BTreeSet<ShardId>,
}

impl MissingShards {
    /// Counts a complete listing. `rows` are the shards that have rows.
    pub fn listed(&mut self, rows: impl Iterator<Item = ShardId>, shards: &[Shard]) {
        let listed: BTreeSet<&ShardId> = shards.iter().map(|shard| &shard.id).collect();
        let earlier = std::mem::take(&mut self.listings);
        for id in rows.filter(|id| !listed.contains(id)) {
            let times = earlier.get(&id).map_or(1, |times| times.saturating_add(1));
            self.listings.insert(id, times);
        }
    }

    /// The shards that Kinesis must be asked about now: only its answer can still save their rows.
    pub fn to_ask(&self) -> Vec<ShardId> {
        self.missing_in(MISSING_LISTINGS)
    }

    /// The same, and the shards that would be asked about if the next listing did not show them
    /// either: for a look ahead.
    pub fn to_ask_ahead(&self) -> Vec<ShardId> {
        self.missing_in(MISSING_LISTINGS - 1)
    }

    fn missing_in(&self, listings: u32) -> Vec<ShardId> {
        let suspects = self
            .listings
            .iter()
            .filter(|(_, times)| **times >= listings);
        suspects
            .map(|(id, _)| id.clone())
            .take(QUESTIONS_MAX)
            .collect()
    }

    /// Judges by the answers: `unknown` are the shards that Kinesis said it does not know. A stream
    /// that is gone, or another one of the same name, knows none of them either, and that says
    /// nothing about them: hence `is_same_stream`.
    pub fn judge(&self, unknown: &BTreeSet<ShardId>, is_same_stream: bool) -> GoneShards {
        let mut gone = GoneShards::default();
        if !is_same_stream {
            return gone;
        }
        for (id, times) in &self.listings {
            let is_confirmed = *times >= MISSING_LISTINGS && unknown.contains(id);
            if is_confirmed || SeededBug::DeletesUnlistedShards.is_on() {
                gone.confirmed.insert(id.clone());
            } else if unknown.contains(id) {
                gone.doubtful.insert(id.clone());
            }
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::HashKeyRange;

    fn id(n: u32) -> ShardId {
        ShardId::new(format!("shardId-{n:012}")).unwrap()
    }

    fn ids(numbers: impl IntoIterator<Item = u32>) -> BTreeSet<ShardId> {
        numbers.into_iter().map(id).collect()
    }

    fn shards(numbers: &[u32]) -> Vec<Shard> {
        let shard = |n: &u32| Shard {
            id: id(*n),
            parents: Vec::new(),
            hash_range: HashKeyRange::FULL,
            ending_sequence: None,
        };
        numbers.iter().map(shard).collect()
    }

    #[test]
    fn a_shard_is_gone_after_two_listings_in_a_row_and_kinesis_own_word() {
        let rows = || ids([0, 1]).into_iter();
        let mut missing = MissingShards::default();
        missing.listed(rows(), &shards(&[0]));
        assert_eq!(
            (missing.to_ask(), missing.to_ask_ahead()),
            (vec![], vec![id(1)])
        );
        let first_look = missing.judge(&ids([1]), true);
        assert_eq!(
            first_look,
            GoneShards {
                doubtful: ids([1]),
                ..GoneShards::default()
            }
        );
        missing.listed(rows(), &shards(&[0]));
        assert_eq!(missing.to_ask(), [id(1)]);
        assert_eq!(
            missing.judge(&ids([]), true),
            GoneShards::default(),
            "Kinesis knows it all the same"
        );
        let both = missing.judge(&ids([1]), true);
        assert_eq!(
            both,
            GoneShards {
                confirmed: ids([1]),
                ..GoneShards::default()
            }
        );
        assert_eq!(
            missing.judge(&ids([1]), false),
            GoneShards::default(),
            "another stream of that name"
        );
    }

    #[test]
    fn a_listing_that_shows_the_shard_or_a_row_that_goes_starts_the_count_over() {
        let mut missing = MissingShards::default();
        for (rows, listed) in [
            (vec![0, 1], vec![0]),
            (vec![0, 1], vec![0, 1]),
            (vec![0, 1], vec![0]),
        ] {
            missing.listed(ids(rows).into_iter(), &shards(&listed));
        }
        assert_eq!(missing.to_ask(), []);
        missing.listed(ids([0]).into_iter(), &shards(&[0]));
        missing.listed(ids([0, 1]).into_iter(), &shards(&[0]));
        assert_eq!(missing.to_ask(), []);
    }

    #[test]
    fn a_listing_that_shows_nothing_leads_to_a_few_questions_only() {
        let mut missing = MissingShards::default();
        for _ in 0..2 {
            missing.listed(ids(0..100).into_iter(), &[]);
        }
        assert_eq!(missing.to_ask().len(), QUESTIONS_MAX);
    }
}
