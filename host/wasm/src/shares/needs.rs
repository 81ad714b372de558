//! What instances of a version need, by shard: a replacement asks for it before it starts.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use shardmill_core::ports::InstanceContext;
use shardmill_core::stream::ShardId;

use crate::shares::memory_budget::Need;

/// Shards remembered before those without an instance are forgotten, which costs the next one a
/// second try at most.
const SHARDS_MAX: usize = 4_096;

/// The needs of a version's instances.
#[derive(Default)]
pub(crate) struct Needs {
    // Locked briefly when an instance is made.
    of_shards: Mutex<HashMap<(String, ShardId), Need>>,
    /// Bytes that an instance had after `init`.
    at_first: AtomicUsize,
}

impl Needs {
    /// What the next instance for this shard will need.
    pub(crate) fn of(&self, context: &InstanceContext) -> Need {
        let mut of_shards = self
            .of_shards
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if of_shards.len() >= SHARDS_MAX {
            of_shards.retain(|_, need| Arc::strong_count(need) > 1);
        }
        let key = (context.application.clone(), context.shard.clone());
        let first = || Arc::new(AtomicUsize::new(self.at_first.load(Ordering::Relaxed)));
        Arc::clone(of_shards.entry(key).or_insert_with(first))
    }

    /// Notes how much an instance had after `init`.
    pub(crate) fn started_with(&self, bytes: usize) {
        self.at_first.store(bytes, Ordering::Relaxed);
    }
}
