//! The shard list that the leader writes down for readers.

use std::sync::Arc;

use shardmill_core::fleet::StreamIdentity;
use shardmill_core::ports::CachedShards;
use shardmill_core::stream::Shard;
use tokio::task::JoinSet;

use super::run::Run;

/// Writes the list beside everything else: readers treat it as a hint, so neither a long list nor
/// a failing write may keep the leader from what others wait for.
pub(super) struct ShardList {
    run: Arc<Run>,
    /// The list as it was last written.
    written: Option<Vec<Shard>>,
    /// The write under way; it returns the list once that is written.
    writing: JoinSet<Option<Vec<Shard>>>,
}

impl ShardList {
    pub(super) fn new(run: Arc<Run>) -> Self {
        Self {
            run,
            written: None,
            writing: JoinSet::new(),
        }
    }

    /// Writes `shards` if they differ from the last list, unless a write is under way.
    pub(super) fn share(&mut self, shards: &[Shard], identity: StreamIdentity) {
        while let Some(ended) = self.writing.try_join_next() {
            if let Ok(Some(shards)) = ended {
                self.written = Some(shards);
            }
        }
        if self.written.as_deref() == Some(shards) || !self.writing.is_empty() {
            return;
        }
        let list = CachedShards {
            identity,
            shards: shards.to_vec(),
            listed_by: self.run.incarnation.clone(),
        };
        let write = write(Arc::clone(&self.run), list);
        self.writing.spawn(self.run.guard(write));
    }
}

async fn write(run: Arc<Run>, list: CachedShards) -> Option<Vec<Shard>> {
    match run.ports.coordinator.write_shards(&list).await {
        Ok(()) => Some(list.shards),
        Err(error) => {
            tracing::warn!(
                %error,
                code = "list-not-shared",
                "the shard list could not be shared, trying again at the next listing"
            );
            None
        }
    }
}
