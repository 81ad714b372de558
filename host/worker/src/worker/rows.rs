//! Rows of the lease table that are created, deleted and read, several at once.

use std::sync::Arc;

use shardmill_core::lease::Lease;
use shardmill_core::plan::Reason;
use shardmill_core::ports::{Deleted, LeaseListing, StoreError};
use shardmill_core::seeded_bug::SeededBug;
use shardmill_core::stream::LeaseKey;
use shardmill_core::time::Moment;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use super::error::PassError;
use super::run::Run;
use crate::metrics;

/// Requests in flight at once in a pass: well below the DynamoDB client's connection pool.
pub(super) const REQUESTS_MAX: usize = 16;

/// A row as seen, and why something is done to it.
#[derive(Clone)]
pub(super) struct Chosen {
    pub(super) row: Box<Lease>,
    pub(super) reason: Reason,
}

/// A row as it was read; `None` if there is none.
pub(super) struct RowRead {
    pub(super) key: LeaseKey,
    pub(super) row: Option<Lease>,
}

/// Writes that are sent in waves of [`REQUESTS_MAX`]. No wave begins once this host is to stop.
pub(super) struct Waves<'a, Answer> {
    rows: std::vec::IntoIter<Chosen>,
    answers: JoinSet<Answer>,
    run: &'a Run,
    stop: &'a CancellationToken,
}

impl<'a, Answer: Send + 'static> Waves<'a, Answer> {
    pub(super) fn new(rows: Vec<Chosen>, run: &'a Run, stop: &'a CancellationToken) -> Self {
        Self {
            rows: rows.into_iter(),
            answers: JoinSet::new(),
            run,
            stop,
        }
    }

    /// The next answer, an error if the write panicked; `None` after the last one. Begins the next
    /// wave with `send` once all answers to the one before are in.
    pub(super) async fn next<Write>(
        &mut self,
        send: impl Fn(Chosen) -> Write,
    ) -> Option<Result<Answer, JoinError>>
    where
        Write: Future<Output = Answer> + Send + 'static,
    {
        if self.answers.is_empty() && !self.stop.is_cancelled() {
            for chosen in self.rows.by_ref().take(REQUESTS_MAX) {
                self.answers.spawn(self.run.guard(send(chosen)));
            }
        }
        self.answers.join_next().await
    }
}

/// Reads these rows, one by one in the table, so that each is consistent.
pub(super) async fn read_rows(run: &Run, keys: Vec<LeaseKey>) -> Result<Vec<RowRead>, StoreError> {
    let mut rows = Vec::with_capacity(keys.len());
    for wave in keys.chunks(REQUESTS_MAX) {
        let mut reads = JoinSet::new();
        for key in wave.iter().cloned() {
            let store = run.store();
            reads.spawn(run.guard(async move {
                let row = store.get(&key).await?;
                Ok(RowRead { key, row })
            }));
        }
        while let Some(read) = reads.join_next().await {
            rows.push(answer_of(read)?);
        }
    }
    Ok(rows)
}

/// Creates rows, parents first: a wave of creates ends before the next begins, and no wave holds a
/// shard and its parent. A child whose parent has no row would be taken for one whose parent is
/// long finished.
///
/// A host that is suspended before it sends a create does not send it afterwards: another host may
/// have led since, and removed the rows of shards that were read to their end. Created again, they
/// would be read again.
pub(super) async fn create_all(
    run: &Run,
    creates: &[Chosen],
    stop: &CancellationToken,
) -> Result<(), StoreError> {
    let mut left = creates;
    // When the wave before was sent: the host may stand still while it waits for the answers too.
    let mut sent_before = run.now();
    while !left.is_empty() && !stop.is_cancelled() {
        let (wave, rest) = left.split_at(wave_length(left));
        left = rest;
        let now = run.now();
        create_wave(run, wave, sent_before).await?;
        sent_before = now;
    }
    Ok(())
}

/// How many of `creates`, parents before children, may be written at once.
fn wave_length(creates: &[Chosen]) -> usize {
    let longest = creates.len().min(REQUESTS_MAX);
    for (index, child) in creates[..longest].iter().enumerate() {
        let mut before = creates[..index].iter();
        if before.any(|parent| child.row.parents.contains(&parent.row.key.shard_id())) {
            return index;
        }
    }
    longest
}

async fn create_wave(run: &Run, wave: &[Chosen], sent_before: Moment) -> Result<(), StoreError> {
    let mut writes = JoinSet::new();
    for Chosen { row, reason } in wave.iter().cloned() {
        match reason {
            Reason::RowMissing | Reason::LineageTrimmed => {
                tracing::warn!(lease = %row.key, %reason, code = "lease-created", "creating lease");
            }
            _ => tracing::info!(lease = %row.key, %reason, "creating lease"),
        }
        let (store, clock) = (run.store(), Arc::clone(&run.ports.clock));
        let lease_duration = run.lease_duration();
        writes.spawn(run.guard(async move {
            if clock.now().since(sent_before) >= lease_duration {
                return Err(StoreError::Unknown {
                    message: "this host stood still, and another may have led since".to_owned(),
                });
            }
            store.create(&row).await
        }));
    }
    while let Some(created) = writes.join_next().await {
        answer_of(created)?;
    }
    Ok(())
}

/// Refuses the table of a KCL in multi-stream mode: shards of two streams have the same ids.
pub(super) fn refuse_multi_stream(listing: &LeaseListing) -> Result<(), PassError> {
    let mut keys = listing.leases.iter().map(|lease| &lease.key);
    match keys.find(|key| key.stream_prefix().is_some()) {
        Some(key) => Err(PassError::MultiStream(key.clone())),
        None => Ok(()),
    }
}

/// The answer of a request that is a task; one that panicked has none.
pub(super) fn answer_of<T>(
    ended: Result<Result<T, StoreError>, JoinError>,
) -> Result<T, StoreError> {
    ended.unwrap_or_else(|error| {
        Err(StoreError::Unknown {
            message: error.to_string(),
        })
    })
}

/// Tries to delete each row, and returns the first error.
pub(super) async fn delete_all(
    run: &Run,
    deletes: Vec<Chosen>,
    stop: &CancellationToken,
) -> Result<(), StoreError> {
    let mut all = Ok(());
    for Chosen { row, reason } in deletes {
        if !stop.is_cancelled() {
            all = all.and(delete(run, &row, &reason).await);
        }
    }
    all
}

async fn delete(run: &Run, seen: &Lease, reason: &Reason) -> Result<(), StoreError> {
    let is_after_parents =
        *reason == Reason::ChildrenStarted && !SeededBug::DeletesBeforeParents.is_on();
    if is_after_parents && has_parent_row(run, seen).await? {
        return Ok(());
    }
    let deleted = delete_as_it_is(run, seen).await;
    let is_gone = match &deleted {
        Ok(deleted) => *deleted == Deleted::Gone,
        // If it was applied, no later listing shows the row, and nothing else reports the loss: one
        // report too many is better than none.
        Err(StoreError::Unknown { .. }) if is_loss(seen, reason) => !is_there(run, seen).await,
        Err(_) => false,
    };
    if is_gone {
        report_removed(run, seen, reason);
    }
    deleted.map(drop)
}

/// Whether the row is known to be there.
async fn is_there(run: &Run, seen: &Lease) -> bool {
    matches!(run.ports.store.get(&seen.key).await, Ok(Some(_)))
}

/// Whether the row is removed because Kinesis has removed records that were not read.
fn is_loss(seen: &Lease, reason: &Reason) -> bool {
    matches!(reason, Reason::ShardGone { .. }) && !seen.is_finished()
}

fn report_removed(run: &Run, seen: &Lease, reason: &Reason) {
    if is_loss(seen, reason) {
        run.counter(metrics::SHARDS_GONE).increment(1);
        tracing::error!(
            plugin = %run.plugin(),
            lease = %seen.key,
            %reason,
            code = "trimmed",
            "records were trimmed before they were read"
        );
    } else {
        tracing::info!(lease = %seen.key, %reason, "lease removed");
    }
}

/// Whether a parent of `child` has a row. The listing that shows none may be stale, and a parent
/// whose child's row is gone is never removed.
async fn has_parent_row(run: &Run, child: &Lease) -> Result<bool, StoreError> {
    for parent in &child.parents {
        let row = run.ports.store.get(&LeaseKey::of_shard(parent)).await?;
        if row.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A KCL renews the rows of finished shards that it holds, and any holder beside one the row of a
/// shard that retention took, sooner than they are listed: such a row has moved and says the same,
/// and is deleted as it is now.
async fn delete_as_it_is(run: &Run, seen: &Lease) -> Result<Deleted, StoreError> {
    let store = &run.ports.store;
    let deleted = store.delete(seen).await?;
    if deleted == Deleted::Gone {
        return Ok(deleted);
    }
    match store.get(&seen.key).await? {
        Some(now) if now.checkpoint == seen.checkpoint => store.delete(&now).await,
        Some(_) => Ok(deleted),
        None => Ok(Deleted::Gone),
    }
}
