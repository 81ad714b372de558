//! How long rows have been finished while this host was awake to see it.

use std::collections::BTreeMap;
use std::time::Duration;

use shardmill_core::lease::Lease;
use shardmill_core::stream::LeaseKey;

use crate::timer::Stopwatch;

/// The finished rows of the last listing, each with a stopwatch since it was first seen so.
///
/// A request to create such a row may still be on its way. While machines are suspended, it does
/// not arrive: it waits with them, and is not too old when they wake, however late it is by then.
#[derive(Debug, Default)]
pub(super) struct FinishedRows(BTreeMap<LeaseKey, Stopwatch>);

impl FinishedRows {
    /// Takes in one listing, and forgets rows that are gone, or that somebody set back.
    pub(super) fn observe(&mut self, rows: &[Lease]) {
        let finished = rows.iter().filter(|row| row.is_finished());
        self.0 = finished
            .map(|row| {
                let since = self.0.get(&row.key).copied();
                (row.key.clone(), since.unwrap_or_else(Stopwatch::start))
            })
            .collect();
    }

    /// For how long of the time since `key`'s row was first seen finished this host was awake; zero
    /// if it is not finished.
    pub(super) fn awake_for(&self, key: &LeaseKey) -> Duration {
        self.0
            .get(key)
            .map_or(Duration::ZERO, |since| since.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use shardmill_core::lease::Checkpoint;
    use shardmill_core::stream::{HashKeyRange, Shard, ShardId};

    use super::*;

    fn row(checkpoint: Checkpoint) -> Lease {
        let shard = Shard {
            id: ShardId::new("shardId-000000000000").unwrap(),
            parents: Vec::new(),
            hash_range: HashKeyRange::FULL,
            ending_sequence: None,
        };
        Lease::fresh(&shard, checkpoint)
    }

    #[tokio::test(start_paused = true)]
    async fn a_row_is_finished_since_it_was_first_listed_so_by_a_clock_that_suspensions_stop() {
        let (finished, set_back) = (row(Checkpoint::ShardEnd), row(Checkpoint::TrimHorizon));
        let key = finished.key.clone();
        let mut rows = FinishedRows::default();
        assert_eq!(rows.awake_for(&key), Duration::ZERO);
        for (listed, awake_for) in [
            (Some(&set_back), 0),
            (Some(&finished), 5),
            (Some(&finished), 10),
            (Some(&set_back), 0),
            (Some(&finished), 5),
            (None, 0),
        ] {
            rows.observe(listed.map(std::slice::from_ref).unwrap_or_default());
            tokio::time::sleep(Duration::from_secs(5)).await;
            assert_eq!(rows.awake_for(&key).as_secs(), awake_for);
        }
    }
}
