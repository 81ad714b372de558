//! Whether a list of shards can be true. What is made of a list that cannot (rows, deletions) would
//! be wrong for good.

use std::collections::{HashMap, HashSet};

use super::{HashKeyRange, Shard, ShardId, holes};

/// A list of shards that contradicts itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidListing {
    /// A stream has at least one shard: the reply is not from Kinesis.
    #[error("it lists no shards")]
    Empty,
    /// One id twice.
    #[error("shard {0} is listed twice")]
    ListedTwice(ShardId),
    /// Parents that lead back to their child.
    #[error("shard {0} is its own ancestor")]
    Cycle(ShardId),
    /// Two shards that would both take a record, and neither replaces the other.
    #[error("shards {0} and {1} are both open for the same hash keys")]
    Overlap(ShardId, ShardId),
}

/// Refuses a list that contradicts itself; the caller keeps the last good one. Holes are not a
/// contradiction: a listing may lag behind a reshard, and the audit of leases finds those that
/// last.
pub fn check_listing(shards: &[Shard]) -> Result<(), InvalidListing> {
    if shards.is_empty() {
        return Err(InvalidListing::Empty);
    }
    let mut seen = HashSet::with_capacity(shards.len());
    if let Some(twice) = shards.iter().find(|shard| !seen.insert(&shard.id)) {
        return Err(InvalidListing::ListedTwice(twice.id.clone()));
    }
    if let Some(shard) = find_cycle(shards) {
        return Err(InvalidListing::Cycle(shard.clone()));
    }
    match find_overlap(shards) {
        Some((a, b)) => Err(InvalidListing::Overlap(a.clone(), b.clone())),
        None => Ok(()),
    }
}

/// Removes shards whose parents are gone or removed (Kahn); what remains is a cycle or descends
/// from one.
fn find_cycle(shards: &[Shard]) -> Option<&ShardId> {
    let listed: HashSet<&ShardId> = shards.iter().map(|shard| &shard.id).collect();
    // By shard, its listed parents that are not removed.
    let mut waiting: HashMap<&ShardId, usize> = HashMap::new();
    let mut children: HashMap<&ShardId, Vec<&ShardId>> = HashMap::new();
    let mut ready: Vec<&ShardId> = Vec::new();
    for shard in shards {
        let parents = shard.parents.iter().filter(|id| listed.contains(id));
        let count = parents.clone().count();
        waiting.insert(&shard.id, count);
        if count == 0 {
            ready.push(&shard.id);
        }
        for parent in parents {
            children.entry(parent).or_default().push(&shard.id);
        }
    }
    while let Some(done) = ready.pop() {
        waiting.remove(done);
        for child in children.get(done).into_iter().flatten() {
            if let Some(count) = waiting.get_mut(child) {
                *count -= 1;
                if *count == 0 {
                    ready.push(child);
                }
            }
        }
    }
    waiting.into_keys().min()
}

/// Two open shards on the same hash keys. A parent may still look open beside its children, since
/// pages of a listing are of different moments.
fn find_overlap(shards: &[Shard]) -> Option<(&ShardId, &ShardId)> {
    let mut last = last_shards(shards);
    // Sorted by their start, ranges that meet at all have neighbours that meet.
    last.sort_unstable_by_key(|shard| shard.hash_range.start());
    let pair = last
        .windows(2)
        .find(|pair| pair[0].hash_range.overlaps(pair[1].hash_range))?;
    Some((&pair[0].id, &pair[1].id))
}

/// The open shards that no listed shard replaces.
fn last_shards(shards: &[Shard]) -> Vec<&Shard> {
    let replaced: HashSet<&ShardId> = shards.iter().flat_map(|shard| &shard.parents).collect();
    shards
        .iter()
        .filter(|shard| shard.is_open() && !replaced.contains(&shard.id))
        .collect()
}

/// Hash keys that a listed shard had, and that none of the last shards has now: a page of the
/// listing is older than another, and a shard is missing that replaced one of them. `None` if
/// nothing is missing.
pub fn missing_from_listing(shards: &[Shard]) -> Option<HashKeyRange> {
    let never_listed = holes(shards.iter().map(|shard| shard.hash_range));
    holes(last_shards(shards).iter().map(|shard| shard.hash_range))
        .into_iter()
        .find(|hole| !never_listed.contains(hole))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::{HashKeyRange, SequenceNumber};

    fn id(id: &str) -> ShardId {
        ShardId::new(id).unwrap()
    }

    fn open(name: &str, parents: &[&str], (start, end): (u128, u128)) -> Shard {
        let parents = parents.iter().map(|parent| id(parent)).collect();
        let hash_range = HashKeyRange::new(start, end).unwrap();
        Shard {
            id: id(name),
            parents,
            hash_range,
            ending_sequence: None,
        }
    }

    fn closed(name: &str, parents: &[&str], range: (u128, u128)) -> Shard {
        Shard {
            ending_sequence: Some(SequenceNumber::parse("9").unwrap()),
            ..open(name, parents, range)
        }
    }

    #[test]
    fn a_lineage_with_trimmed_ancestors_is_accepted() {
        let shards = [
            closed("c", &["a", "b"], (0, 9)),
            closed("b", &["gone"], (5, 9)),
            closed("a", &[], (0, 4)),
            open("d", &["c"], (0, 9)),
        ];
        assert_eq!(check_listing(&shards), Ok(()));
    }

    #[test]
    fn a_shard_listed_twice_is_refused() {
        let shards = [
            open("a", &[], (0, 4)),
            open("b", &[], (5, 9)),
            open("a", &[], (0, 4)),
        ];
        assert_eq!(
            check_listing(&shards),
            Err(InvalidListing::ListedTwice(id("a")))
        );
    }

    #[test]
    fn a_list_of_no_shards_is_refused() {
        assert_eq!(check_listing(&[]), Err(InvalidListing::Empty));
    }

    #[test]
    fn a_cycle_of_parents_is_refused() {
        let shards = [
            closed("a", &["b"], (0, 9)),
            closed("b", &["a"], (0, 9)),
            open("c", &[], (0, 9)),
        ];
        assert_eq!(check_listing(&shards), Err(InvalidListing::Cycle(id("a"))));
        assert_eq!(
            check_listing(&[open("a", &["a"], (0, 9))]),
            Err(InvalidListing::Cycle(id("a")))
        );
    }

    #[test]
    fn two_open_shards_for_the_same_hash_keys_are_refused_unless_one_replaces_the_other() {
        let strangers = [open("a", &[], (0, 5)), open("b", &[], (5, 9))];
        assert_eq!(
            check_listing(&strangers),
            Err(InvalidListing::Overlap(id("a"), id("b")))
        );
        let siblings = [
            open("p", &[], (0, 9)),
            open("a", &["p"], (0, 6)),
            open("b", &["p"], (5, 9)),
        ];
        assert_eq!(
            check_listing(&siblings),
            Err(InvalidListing::Overlap(id("a"), id("b")))
        );
        let inside = [
            open("a", &[], (0, 99)),
            open("b", &[], (10, 20)),
            open("c", &[], (100, 199)),
        ];
        assert_eq!(
            check_listing(&inside),
            Err(InvalidListing::Overlap(id("a"), id("b")))
        );
        // A first page from before two reshards, a last one from after them.
        let pages = [
            open("p", &[], (0, 9)),
            open("q", &[], (10, 19)),
            closed("a", &["p"], (0, 4)),
            closed("b", &["p"], (5, 9)),
            open("ab", &["a", "b"], (0, 9)),
            open("c", &["q"], (10, 14)),
            open("d", &["q"], (15, 19)),
        ];
        assert_eq!(check_listing(&pages), Ok(()));
    }

    #[test]
    fn of_all_small_listings_those_pass_whose_lineages_end_and_whose_last_shards_are_apart() {
        const NAMES: [&str; 3] = ["a", "b", "c"];
        let parents = |set: usize| -> Vec<&str> {
            NAMES
                .iter()
                .enumerate()
                .filter(|(bit, _)| set >> bit & 1 == 1)
                .map(|(_, name)| *name)
                .collect()
        };
        let shards_of = |name: &str| -> Vec<Shard> {
            let ranges = [(0, 4), (3, 9), (5, 9)];
            let of = |set, range| {
                [
                    open(name, &parents(set), range),
                    closed(name, &parents(set), range),
                ]
            };
            (0..8)
                .flat_map(|set| ranges.into_iter().flat_map(move |range| of(set, range)))
                .collect()
        };
        let [a, b, c] = NAMES.map(shards_of);
        let mut passed = 0;
        let pairs = || a.iter().flat_map(|a| b.iter().map(move |b| (a, b)));
        for ((a, b), c) in pairs().flat_map(|pair| c.iter().map(move |c| (pair, c))) {
            let listing = [a.clone(), b.clone(), c.clone()];
            let of = |name: &ShardId| listing.iter().find(|shard| shard.id == *name).unwrap();
            // Three steps up a lineage of three shards lead back only in a cycle.
            let up = |from: Vec<ShardId>| -> Vec<ShardId> {
                from.iter()
                    .flat_map(|name| of(name).parents.clone())
                    .collect()
            };
            let ends = listing
                .iter()
                .all(|shard| up(up(up(vec![shard.id.clone()]))).is_empty());
            let is_parent = |shard: &Shard| {
                listing
                    .iter()
                    .any(|child| child.parents.contains(&shard.id))
            };
            let last: Vec<_> = listing
                .iter()
                .filter(|shard| shard.is_open() && !is_parent(shard))
                .collect();
            let meet = |x: &Shard, y: &Shard| x.id < y.id && x.hash_range.overlaps(y.hash_range);
            let are_apart = !last.iter().any(|x| last.iter().any(|y| meet(x, y)));
            assert_eq!(
                check_listing(&listing).is_ok(),
                ends && are_apart,
                "{listing:?}"
            );
            passed += u32::from(ends && are_apart);
        }
        assert!(passed > 1_000, "{passed}");
    }

    #[test]
    fn a_listing_that_has_one_child_of_a_split_and_not_the_other_lacks_the_hash_keys_of_the_other()
    {
        let torn = [closed("p", &[], (0, 9)), open("a", &["p"], (0, 4))];
        let lacks = |shards: &[Shard]| {
            missing_from_listing(shards).map(|range| (range.start(), range.end().min(99)))
        };
        assert_eq!(lacks(&torn), Some((5, 99)));
        let [p, a] = torn;
        let whole = [p.clone(), a, open("b", &["p"], (5, 9))];
        assert_eq!(lacks(&whole), None);
        assert_eq!(lacks(&[p]), Some((0, 99)));
        // It still looks open, and its children are not listed yet.
        assert_eq!(lacks(&[open("p", &[], (0, 9))]), None);
    }

    #[test]
    fn a_hole_is_left_to_the_audit() {
        assert_eq!(
            check_listing(&[open("a", &[], (0, 4)), open("c", &[], (7, 9))]),
            Ok(())
        );
    }
}
