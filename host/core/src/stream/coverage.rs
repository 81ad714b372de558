//! Hash keys that no lease covers: the sign of a lost shard.
//!
//! The open shards of a stream cover the hash key space [0, 2^128) without a gap, and so must the
//! unfinished leases of an application: a record whose hash key falls into a gap would never be
//! read.

use super::HashKeyRange;

/// The parts of the hash key space that none of `ranges` covers, in order; ranges may overlap and
/// come in any order.
///
/// Neighbouring ranges leave no hole between them, and two results never touch.
pub fn holes(ranges: impl IntoIterator<Item = HashKeyRange>) -> Vec<HashKeyRange> {
    let mut ranges: Vec<HashKeyRange> = ranges.into_iter().collect();
    ranges.sort_unstable_by_key(|range| range.start());
    let mut holes = Vec::new();
    // The lowest key not yet known to be covered; `None` once the highest key of all is.
    let mut next = Some(0_u128);
    for range in ranges {
        let Some(from) = next else { return holes };
        // `start` is above `from`, so there is a key below it.
        holes.extend(
            range
                .start()
                .checked_sub(1)
                .and_then(|end| HashKeyRange::new(from, end)),
        );
        next = range.end().checked_add(1).map(|after| after.max(from));
    }
    holes.extend(next.and_then(|from| HashKeyRange::new(from, u128::MAX)));
    holes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u128, end: u128) -> HashKeyRange {
        HashKeyRange::new(start, end).unwrap()
    }

    #[test]
    fn holes_are_what_no_range_covers() {
        const MAX: u128 = u128::MAX;
        for (name, ranges, expected) in [
            ("nothing covers nothing", vec![], vec![(0, MAX)]),
            ("one shard", vec![(0, MAX)], vec![]),
            ("two neighbours", vec![(0, 9), (10, MAX)], vec![]),
            ("in any order", vec![(10, MAX), (0, 9)], vec![]),
            ("the middle", vec![(0, 9), (20, MAX)], vec![(10, 19)]),
            ("one key", vec![(0, 9), (11, MAX)], vec![(10, 10)]),
            ("the start", vec![(5, MAX)], vec![(0, 4)]),
            ("the end", vec![(0, MAX - 1)], vec![(MAX, MAX)]),
            (
                "both ends and the middle",
                vec![(5, 9), (20, 29)],
                vec![(0, 4), (10, 19), (30, MAX)],
            ),
            (
                "a parent beside its children",
                vec![(0, MAX), (0, 9), (10, MAX)],
                vec![],
            ),
            (
                "a range inside another",
                vec![(0, 99), (10, 20), (100, MAX)],
                vec![],
            ),
            (
                "a range inside another before a hole",
                vec![(0, 99), (10, 20), (200, MAX)],
                vec![(100, 199)],
            ),
            ("the same twice", vec![(0, 9), (0, 9), (10, MAX)], vec![]),
            ("the last key alone", vec![(MAX, MAX)], vec![(0, MAX - 1)]),
            ("the first key alone", vec![(0, 0)], vec![(1, MAX)]),
        ] {
            let found = holes(ranges.into_iter().map(|(start, end)| range(start, end)));
            let expected: Vec<_> = expected
                .into_iter()
                .map(|(start, end)| range(start, end))
                .collect();
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn ranges_and_their_holes_cover_everything_and_holes_meet_no_range() {
        // Every three ranges with bounds at either end of the space.
        let grid = [0, 1, 2, 7, u128::MAX - 2, u128::MAX - 1, u128::MAX];
        let all: Vec<_> = grid
            .iter()
            .flat_map(|start| {
                grid.iter()
                    .filter_map(|end| HashKeyRange::new(*start, *end))
            })
            .collect();
        for a in &all {
            for b in &all {
                for c in &all {
                    let ranges = [*a, *b, *c];
                    let found = holes(ranges);
                    let meets = |hole: &HashKeyRange| {
                        ranges
                            .iter()
                            .any(|range| range.start() <= hole.end() && hole.start() <= range.end())
                    };
                    assert!(!found.iter().any(meets), "{ranges:?} {found:?}");
                    assert!(
                        holes(ranges.into_iter().chain(found.iter().copied())).is_empty(),
                        "{ranges:?} {found:?}"
                    );
                    assert!(found.is_sorted_by(|a, b| {
                        a.end().checked_add(1).is_some_and(|next| next < b.start())
                    }));
                }
            }
        }
    }
}
