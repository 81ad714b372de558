//! Remembers what was seen, in a few bytes each.

use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hash};

/// Things that were seen, as 128 bits each: two keyed hashes, so that no two things of any file are
/// ever confused.
#[derive(Default)]
pub(super) struct Seen {
    keys: (RandomState, RandomState),
    hashes: HashSet<(u64, u64)>,
}

impl Seen {
    /// Adds a thing; `false` if it was seen before.
    pub(super) fn insert(&mut self, thing: &impl Hash) -> bool {
        self.hashes.insert(self.hashes_of(thing))
    }

    pub(super) fn contains(&self, thing: &impl Hash) -> bool {
        self.hashes.contains(&self.hashes_of(thing))
    }

    pub(super) fn len(&self) -> usize {
        self.hashes.len()
    }

    fn hashes_of(&self, thing: &impl Hash) -> (u64, u64) {
        (self.keys.0.hash_one(thing), self.keys.1.hash_one(thing))
    }
}
