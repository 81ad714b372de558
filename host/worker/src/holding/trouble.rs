//! Shows that a row cannot be written, to people and to the worker, which decides what follows.

use shardmill_core::backoff::is_worth_a_line;
use shardmill_core::lease::WriteTrouble;
use shardmill_core::ports::StoreError;
use shardmill_core::stream::ShardId;
use shardmill_core::time::Moment;
use tokio::sync::watch;

use crate::signs::Signs;
use crate::status::Why;

/// A keeper's troubles with its row.
pub(crate) struct Troubles {
    published: watch::Sender<Option<WriteTrouble>>,
    signs: Signs,
    shard: ShardId,
}

impl Troubles {
    /// For a keeper that has none yet.
    pub(crate) fn new(signs: Signs, shard: ShardId) -> Self {
        Self {
            published: watch::channel(None).0,
            signs,
            shard,
        }
    }

    /// The signs of the shard.
    pub(super) fn signs(&self) -> &Signs {
        &self.signs
    }

    /// The trouble there is from now on.
    pub(super) fn watch(&self) -> watch::Receiver<Option<WriteTrouble>> {
        self.published.subscribe()
    }

    /// A write that was first sent at `since` failed, the `attempts`th time.
    pub(super) fn failed(&self, since: Moment, attempts: u32, error: &StoreError) {
        let reason = format!("its row in the lease table cannot be written: {error}");
        let trouble = WriteTrouble {
            since,
            attempts,
            reason: reason.clone(),
        };
        if trouble.is_shown() {
            self.signs.failed(Why::Row, attempts, reason);
        }
        if is_worth_a_line(attempts) {
            tracing::warn!(
                shard = %self.shard,
                attempts,
                %error,
                code = "lease-write-failed", "lease write failed, trying again"
            );
        }
        self.published.send_replace(Some(trouble));
    }

    /// The row was written.
    pub(super) fn over(&self) {
        let Some(trouble) = self.published.send_replace(None) else {
            return;
        };
        if trouble.is_shown() {
            tracing::info!(
                shard = %self.shard,
                attempts = trouble.attempts,
                "the lease's row can be written again"
            );
            self.signs.clear(Why::Row);
        }
    }
}
