//! What is left of a batch that could not be stored whole, so that the next try continues where the
//! last one ended. Without this, a target that takes only a part of a large batch at each try would
//! never get all of it.
//!
//! The caller of a sink owns the retries and passes the same `Arc` again, by which a retry is
//! recognised. Nothing is kept of a batch that its owner has dropped, such as one of a lost lease:
//! its output must not come out later.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// What is left (`L`) of batches of `T`, at most one for each source (`K`): a shard has one batch
/// in hand.
pub(super) struct Unfinished<K, T, L> {
    // Locked for a look-up, never across an await.
    by_source: Mutex<HashMap<K, Entry<T, L>>>,
}

struct Entry<T, L> {
    batch: Weak<Vec<T>>,
    left: L,
}

impl<K, T, L> Default for Unfinished<K, T, L> {
    fn default() -> Self {
        Self {
            by_source: Mutex::default(),
        }
    }
}

impl<K: Eq + Hash, T, L> Unfinished<K, T, L> {
    /// What an earlier try left of this very batch; `None` if this is the first try.
    pub(super) fn take(&self, source: &K, batch: &Arc<Vec<T>>) -> Option<L> {
        let entry = self
            .by_source
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(source)?;
        Weak::ptr_eq(&entry.batch, &Arc::downgrade(batch)).then_some(entry.left)
    }

    /// Keeps what a failed try left, and forgets batches that will not be tried again.
    pub(super) fn keep(&self, source: K, batch: &Arc<Vec<T>>, left: L) {
        let mut by_source = self
            .by_source
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        by_source.retain(|_, entry| entry.batch.strong_count() > 0);
        by_source.insert(
            source,
            Entry {
                batch: Arc::downgrade(batch),
                left,
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_batch_goes_on_where_it_ended() {
        let unfinished: Unfinished<&str, u8, u8> = Unfinished::default();
        let (first, second) = (Arc::new(vec![1]), Arc::new(vec![1]));
        unfinished.keep("shard", &first, 7);
        assert_eq!(
            unfinished.take(&"shard", &second),
            None,
            "an equal batch is another batch"
        );
        unfinished.keep("shard", &first, 7);
        assert_eq!(unfinished.take(&"shard", &first), Some(7));
        assert_eq!(unfinished.take(&"shard", &first), None);
    }

    #[test]
    fn what_its_owner_dropped_is_forgotten() {
        let unfinished: Unfinished<&str, u8, Arc<()>> = Unfinished::default();
        let (batch, left) = (Arc::new(vec![1]), Arc::new(()));
        unfinished.keep("lost", &batch, Arc::clone(&left));
        drop(batch);
        unfinished.keep("other", &Arc::new(vec![2]), Arc::default());
        assert_eq!(Arc::strong_count(&left), 1);
    }
}
