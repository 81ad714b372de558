//! A lease store with a bug.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use shardmill_core::control::Directives;
use shardmill_core::lease::{Checkpoint, Lease, LeaseToken, Sought, WorkerId};
use shardmill_core::ports::{
    CheckpointWrite, Created, Deleted, Directing, LeaseListing, LeaseStore, ObeyState, ObeyWrite,
    PortFuture, Progress, SavedState, ShardEndWrite, StoreError, Took, WriteResult, Written,
};
use shardmill_core::stream::{LeaseKey, SequenceNumber};
use tokio::time::Instant;

use super::PortBug;
use crate::world::lock;

/// How long a wrong listing is kept.
const LISTING_KEPT: Duration = Duration::from_secs(30);

/// The decorator.
pub struct WrongStore {
    store: Arc<dyn LeaseStore>,
    bug: PortBug,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    listing: Option<(Instant, LeaseListing)>,
    rows: BTreeMap<LeaseKey, Lease>,
    states: BTreeMap<LeaseKey, Option<SavedState>>,
    checkpoints: u64,
}

impl WrongStore {
    /// `store` with `bug`.
    pub fn new(store: Arc<dyn LeaseStore>, bug: PortBug) -> Self {
        Self {
            store,
            bug,
            kept: Mutex::default(),
        }
    }

    async fn listed(&self, is_consistent: bool) -> Result<LeaseListing, StoreError> {
        if self.bug == PortBug::ListsFromCache
            && let Some((_, listing)) = lock(&self.kept)
                .listing
                .as_ref()
                .filter(|(at, _)| at.elapsed() < LISTING_KEPT)
        {
            return Ok(listing.clone());
        }
        let listing = if is_consistent {
            self.store.list_consistently().await
        } else {
            self.store.list().await
        };
        let mut listing = listing?;
        match self.bug {
            PortBug::ListsWithoutLastRow => drop(listing.leases.pop()),
            PortBug::ForgetsParents => listing
                .leases
                .iter_mut()
                .for_each(|row| row.parents.clear()),
            PortBug::ListsFromCache => {
                lock(&self.kept).listing = Some((Instant::now(), listing.clone()));
            }
            _ => {}
        }
        Ok(listing)
    }

    async fn read(&self, key: &LeaseKey) -> Result<Option<Lease>, StoreError> {
        if self.bug == PortBug::ReadsRowFromCache
            && let Some(row) = lock(&self.kept).rows.get(key)
        {
            return Ok(Some(row.clone()));
        }
        let mut row = self.store.get(key).await?;
        match (self.bug, &mut row) {
            (PortBug::ForgetsParents, Some(row)) => row.parents.clear(),
            (PortBug::ReadsRowFromCache, Some(row)) => {
                drop(lock(&self.kept).rows.insert(key.clone(), row.clone()));
            }
            _ => {}
        }
        Ok(row)
    }

    /// A checkpoint, and then its state.
    async fn written_apart(&self, token: &LeaseToken, write: &CheckpointWrite) -> WriteResult {
        let without = CheckpointWrite {
            state: None,
            ..write.clone()
        };
        match self.store.checkpoint(token, &without).await {
            Ok(Written::Applied(then)) => self.store.checkpoint(&then, write).await,
            result => result,
        }
    }

    /// What the host hears of a write that was to leave `then`.
    async fn answered(&self, then: LeaseToken, write: PortFuture<'_, WriteResult>) -> WriteResult {
        match (self.bug, write.await) {
            (PortBug::UnknownToldAsApplied, Err(StoreError::Unknown { .. }))
            | (PortBug::ConflictToldAsApplied, Ok(Written::Conflict(_))) => {
                Ok(Written::Applied(then))
            }
            (_, result) => result,
        }
    }

    /// What a holder has done, as it goes out.
    fn changed_obey(&self, write: &ObeyWrite) -> ObeyWrite {
        let mut write = write.clone();
        match (self.bug, &mut write.to) {
            (PortBug::ObeyForgetsState, _) => write.state = ObeyState::Untouched,
            (PortBug::ObeyOneTooFar, Some(Checkpoint::Sought(Sought::Sequence(number)))) => {
                let next = number.as_str().parse::<u128>().map(|number| number + 1);
                let next = next.map(|next| SequenceNumber::parse(&next.to_string()));
                if let Ok(Ok(next)) = next {
                    *number = next;
                }
            }
            _ => {}
        }
        write
    }

    /// A write of a checkpoint as it goes out.
    fn changed(&self, write: &CheckpointWrite) -> CheckpointWrite {
        let mut write = write.clone();
        match self.bug {
            PortBug::ForgetsSubSequence => {
                if let Checkpoint::At(position) = &mut write.checkpoint {
                    position.sub_sequence = 0;
                }
            }
            PortBug::CheckpointWithoutState => write.state = None,
            PortBug::CheckpointOneTooFar => {
                let mut kept = lock(&self.kept);
                kept.checkpoints += 1;
                let next = write
                    .checkpoint
                    .text()
                    .parse::<u128>()
                    .map(|number| (number + 1).to_string());
                if let (0, Ok(Ok(next)), Checkpoint::At(position)) = (
                    kept.checkpoints % 2,
                    next.map(|next| SequenceNumber::parse(&next)),
                    &mut write.checkpoint,
                ) {
                    position.sequence = next;
                }
            }
            _ => {}
        }
        write
    }
}

impl LeaseStore for WrongStore {
    fn ensure_table(&self) -> PortFuture<'_, Result<(), StoreError>> {
        self.store.ensure_table()
    }

    fn list(&self) -> PortFuture<'_, Result<LeaseListing, StoreError>> {
        Box::pin(self.listed(false))
    }

    fn list_consistently(&self) -> PortFuture<'_, Result<LeaseListing, StoreError>> {
        Box::pin(self.listed(true))
    }

    fn get<'a>(&'a self, key: &'a LeaseKey) -> PortFuture<'a, Result<Option<Lease>, StoreError>> {
        Box::pin(self.read(key))
    }

    fn create<'a>(&'a self, lease: &'a Lease) -> PortFuture<'a, Result<Created, StoreError>> {
        Box::pin(async move {
            let created = self.store.create(lease).await?;
            if self.bug == PortBug::CreateReplaces
                && created == Created::Existed
                && let Some(there) = self.store.get(&lease.key).await?
            {
                self.store.delete(&there).await?;
                return self.store.create(lease).await;
            }
            Ok(created)
        })
    }

    fn take<'a>(
        &'a self,
        seen: &'a Lease,
        by: &'a WorkerId,
        wall_ms: u64,
    ) -> PortFuture<'a, Result<Took, StoreError>> {
        Box::pin(async move {
            let took = self.store.take(seen, by, wall_ms).await;
            match (self.bug, took) {
                (PortBug::UnknownToldAsApplied, Err(StoreError::Unknown { .. }))
                | (PortBug::ConflictToldAsApplied, Ok(Took::Conflict(_))) => Ok(Took::Applied {
                    token: seen.token(by.clone()).advanced(),
                    directives: Box::default(),
                }),
                (PortBug::TakeTellsNothing, Ok(Took::Applied { token, .. })) => Ok(Took::Applied {
                    token,
                    directives: Box::default(),
                }),
                (_, took) => took,
            }
        })
    }

    fn direct<'a>(
        &'a self,
        seen: &'a Lease,
        next: &'a Directives,
    ) -> PortFuture<'a, Result<Directing, StoreError>> {
        self.store.direct(seen, next)
    }

    fn obey<'a>(
        &'a self,
        token: &'a LeaseToken,
        write: &'a ObeyWrite,
    ) -> PortFuture<'a, WriteResult> {
        Box::pin(async move {
            let write = self.changed_obey(write);
            self.answered(token.advanced(), self.store.obey(token, &write))
                .await
        })
    }

    fn claim<'a>(&'a self, seen: &'a Lease, by: &'a WorkerId) -> PortFuture<'a, WriteResult> {
        Box::pin(self.answered(seen.token(by.clone()), self.store.claim(seen, by)))
    }

    fn delete<'a>(&'a self, seen: &'a Lease) -> PortFuture<'a, Result<Deleted, StoreError>> {
        self.store.delete(seen)
    }

    fn renew<'a>(
        &'a self,
        token: &'a LeaseToken,
        progress: &'a Progress,
    ) -> PortFuture<'a, WriteResult> {
        Box::pin(self.answered(token.advanced(), self.store.renew(token, progress)))
    }

    fn checkpoint<'a>(
        &'a self,
        token: &'a LeaseToken,
        write: &'a CheckpointWrite,
    ) -> PortFuture<'a, WriteResult> {
        Box::pin(async move {
            match self.bug {
                PortBug::CheckpointIsNotSent => self.store.renew(token, &write.progress).await,
                PortBug::StateWrittenApart if write.state.is_some() => {
                    self.written_apart(token, write).await
                }
                _ => {
                    self.answered(
                        token.advanced(),
                        self.store.checkpoint(token, &self.changed(write)),
                    )
                    .await
                }
            }
        })
    }

    fn end<'a>(
        &'a self,
        token: &'a LeaseToken,
        write: &'a ShardEndWrite,
    ) -> PortFuture<'a, WriteResult> {
        Box::pin(async move {
            let mut write = write.clone();
            if self.bug == PortBug::EndForgetsChildren {
                write.children.clear();
            }
            self.answered(token.advanced(), self.store.end(token, &write))
                .await
        })
    }

    fn release<'a>(
        &'a self,
        token: &'a LeaseToken,
        progress: &'a Progress,
    ) -> PortFuture<'a, WriteResult> {
        match self.bug {
            PortBug::ReleaseOnlyRenews => self.store.renew(token, progress),
            PortBug::ReleaseIsNotSent => {
                Box::pin(std::future::ready(Ok(Written::Applied(token.advanced()))))
            }
            _ => Box::pin(self.answered(token.advanced(), self.store.release(token, progress))),
        }
    }

    fn ensure_state_table(&self) -> PortFuture<'_, Result<(), StoreError>> {
        self.store.ensure_state_table()
    }

    fn state<'a>(
        &'a self,
        key: &'a LeaseKey,
    ) -> PortFuture<'a, Result<Option<SavedState>, StoreError>> {
        Box::pin(async move {
            if self.bug == PortBug::StateIsNotFound {
                return Ok(None);
            }
            if self.bug == PortBug::LoadsStateFromCache
                && let Some(state) = lock(&self.kept).states.get(key)
            {
                return Ok(state.clone());
            }
            let state = self.store.state(key).await?;
            if state
                .as_ref()
                .is_some_and(|state| state.checkpoint != Checkpoint::TrimHorizon)
            {
                lock(&self.kept).states.insert(key.clone(), state.clone());
            }
            Ok(state)
        })
    }
}
