use std::collections::BTreeSet;

use super::{Shard, ShardId};

/// The shards in an order in which each comes after those of its parents that are among them. Rows
/// and replies are anybody's: in a circle of parents, those that are left come in the order of
/// their ids.
pub fn parents_first(shards: &[Shard]) -> Vec<&Shard> {
    let mut order = Vec::new();
    let mut left: Vec<&Shard> = shards.iter().collect();
    left.sort_by(|a, b| a.id.cmp(&b.id));
    while !left.is_empty() {
        let waiting: BTreeSet<&ShardId> = left.iter().map(|shard| &shard.id).collect();
        let waits = |shard: &Shard| shard.parents.iter().any(|id| waiting.contains(id));
        let (later, ready): (Vec<&Shard>, Vec<&Shard>) =
            left.iter().copied().partition(|shard| waits(shard));
        let is_circle = ready.is_empty();
        order.extend(if is_circle { &later } else { &ready });
        left = if is_circle { Vec::new() } else { later };
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::HashKeyRange;

    fn shard(id: &str, parents: &[&str]) -> Shard {
        Shard {
            id: ShardId::new(id).unwrap(),
            parents: parents.iter().map(|id| ShardId::new(id).unwrap()).collect(),
            hash_range: HashKeyRange::FULL,
            ending_sequence: None,
        }
    }

    fn ordered(shards: &[Shard]) -> Vec<&str> {
        let ordered = parents_first(shards).into_iter();
        ordered.map(|shard| shard.id.as_str()).collect()
    }

    #[test]
    fn parents_come_before_their_children_whatever_their_ids_say() {
        let shards = [
            shard("a", &["c", "d"]),
            shard("b", &["a"]),
            shard("c", &["gone"]),
            shard("d", &[]),
        ];
        assert_eq!(ordered(&shards), ["c", "d", "a", "b"]);
    }

    #[test]
    fn shards_that_name_each_other_as_parents_come_once_all_the_same() {
        let shards = [shard("b", &["a"]), shard("a", &["b"]), shard("c", &[])];
        assert_eq!(ordered(&shards), ["c", "a", "b"]);
    }
}
