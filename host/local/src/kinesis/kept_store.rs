//! The emulator's store together with the journal that keeps it, and the order of its users: one
//! request at a time changes the store, and many read what the journal holds.

use std::path::Path;

use ferrokinesis::store::{Store, StoreOptions};
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::keeper::Keeper;
use super::restore;
use crate::address::{LOCAL_ACCOUNT, LOCAL_REGION};
use crate::error::StartError;

/// Long enough that other clients see the intermediate states, too short to wait for.
const TRANSITION_MS: u64 = 5;
/// Open shards in all streams together; the emulator's own limit is 10.
const SHARDS_MAX: u32 = 1_000;

/// The store and its keeper.
pub(super) struct KeptStore {
    store: Store,
    keeper: RwLock<Keeper>,
}

impl KeptStore {
    /// A store with what the journal in `data_dir` holds. Without a directory, it is empty and not
    /// kept.
    pub(super) async fn restore(data_dir: Option<&Path>) -> Result<Self, StartError> {
        let store = Store::new(StoreOptions {
            create_stream_ms: TRANSITION_MS,
            delete_stream_ms: TRANSITION_MS,
            update_stream_ms: TRANSITION_MS,
            shard_limit: SHARDS_MAX,
            aws_account_id: LOCAL_ACCOUNT.to_owned(),
            aws_region: LOCAL_REGION.to_owned(),
            ..StoreOptions::default()
        });
        let keeper = restore::restore(&store, data_dir).await?;
        Ok(Self {
            store,
            keeper: RwLock::new(keeper),
        })
    }

    pub(super) fn store(&self) -> &Store {
        &self.store
    }

    /// Shares the store with other readers, once the journal holds all of it.
    pub(super) async fn share(&self) -> RwLockReadGuard<'_, Keeper> {
        let shared = self.keeper.read().await;
        if !shared.is_behind() {
            return shared;
        }
        drop(shared);
        let mut keeper = self.keeper.write().await;
        if let Err(error) = keeper.catch_up(&self.store).await {
            // Reading goes on: only puts promise anything about the journal.
            tracing::error!(
                %error,
                code = "local-journal-failed",
                "cannot write the embedded kinesis' journal"
            );
        }
        keeper.downgrade()
    }

    /// Keeps all others out, for a change.
    pub(super) async fn lock(&self) -> RwLockWriteGuard<'_, Keeper> {
        self.keeper.write().await
    }

    /// Journals what is left, waits for the disk, and accepts no more changes.
    pub(super) async fn close(&self) {
        let mut keeper = self.keeper.write().await;
        if let Err(error) = keeper.close(&self.store).await {
            tracing::error!(
                %error,
                code = "local-journal-unfinished",
                "cannot finish the embedded kinesis' journal"
            );
        }
    }
}
