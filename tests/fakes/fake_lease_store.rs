//! A lease table in memory, with real conditional writes and faults to order.
//!
//! The same contract suite runs against it and against the real adapter, so that it may stand in
//! for that one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use shardmill_aws::dynamodb::row_size;
use shardmill_core::control::Directives;
use shardmill_core::lease::{Lease, LeaseToken, WorkerId};
use shardmill_core::ports::{
    BadRow, CheckpointWrite, Created, Deleted, Directing, LeaseListing, LeaseStore, ObeyWrite,
    PortFuture, Progress, SavedState, ShardEndWrite, StoreError, Took, WriteResult, Written,
};
use shardmill_core::stream::LeaseKey;

use crate::faults::{Faults, answer};
use crate::lease_rows::LeaseRows;
use crate::units::{Meter, Read};

/// An operation of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StoreOp {
    /// `ensure_table`
    EnsureTable,
    /// `list`
    List,
    /// `get`
    Get,
    /// `create`
    Create,
    /// `take`
    Take,
    /// `claim`
    Claim,
    /// `delete`
    Delete,
    /// `renew`
    Renew,
    /// `checkpoint`
    Checkpoint,
    /// `end`
    End,
    /// `release`
    Release,
    /// `ensure_state_table`
    EnsureStateTable,
    /// `state`
    State,
    /// `direct`
    Direct,
    /// `obey`
    Obey,
}

/// A write that was applied, for checks on history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppliedWrite {
    /// Which.
    pub op: StoreOp,
    /// The row after it.
    pub row: Lease,
}

/// The fake.
#[derive(Default)]
pub struct FakeLeaseStore {
    /// What goes wrong.
    pub faults: Faults<StoreOp>,
    /// What the calls cost. State is not counted.
    pub meter: Meter,
    table: Arc<Mutex<Table>>,
}

#[derive(Default)]
struct Table {
    rows: LeaseRows,
    history: Vec<AppliedWrite>,
    calls: HashMap<StoreOp, usize>,
    measured: Measured,
}

/// What all rows took when they were last listed.
#[derive(Default)]
struct Measured {
    rows: usize,
    bytes: usize,
    /// Listings until they are measured again.
    left: u32,
}

/// Listings after which rows are measured again though none came or went: their sizes hardly
/// change.
const MEASURED_FOR: u32 = 20;

impl FakeLeaseStore {
    /// An empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same table as one host sees it: with its own faults.
    #[must_use]
    pub fn seen_apart(&self) -> Self {
        Self {
            table: Arc::clone(&self.table),
            ..Self::default()
        }
    }

    /// All rows, by key.
    pub fn rows(&self) -> Vec<Lease> {
        self.table().rows.list().leases
    }

    /// One row, without a call.
    pub fn row(&self, key: &LeaseKey) -> Option<Lease> {
        self.table().rows.get(key).cloned()
    }

    /// Writes a row unconditionally, as an operator might.
    pub fn put_row(&self, lease: Lease) {
        self.table().rows.put(lease);
    }

    /// Deletes a row, as an operator might.
    pub fn delete_row(&self, key: &LeaseKey) -> Option<Lease> {
        self.table().rows.remove(key)
    }

    /// The state of a shard, without a call.
    pub fn saved_state(&self, key: &LeaseKey) -> Option<SavedState> {
        self.table().rows.state(key).cloned()
    }

    /// Leaves a state for a holder that is told to take it over, as a command does.
    pub fn stage_state(&self, key: &LeaseKey, state: SavedState) {
        self.table().rows.stage_state(key, state);
    }

    /// Adds a row that cannot be read.
    pub fn add_bad_row(&self, key: &str, problem: &str) {
        self.table().rows.add_bad(BadRow {
            key: key.to_owned(),
            problem: problem.to_owned(),
        });
    }

    /// Says that there are so many rows that are not leases.
    pub fn set_foreign_rows(&self, count: usize) {
        self.table().rows.set_foreign(count);
    }

    /// Every applied write, in order.
    pub fn history(&self) -> Vec<AppliedWrite> {
        self.table().history.clone()
    }

    /// How often `op` was called, faults included.
    pub fn calls(&self, op: StoreOp) -> usize {
        self.table().calls.get(&op).copied().unwrap_or(0)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs one call: draws its fault, and applies `act` unless the fault forbids it.
    async fn call<T>(
        &self,
        op: StoreOp,
        act: impl FnOnce(&mut Table) -> T,
    ) -> Result<T, StoreError> {
        // As a network call would: other tasks get their turn.
        tokio::task::yield_now().await;
        *self.table().calls.entry(op).or_default() += 1;
        answer(self.faults.next(op), op, || act(&mut self.table())).await
    }

    /// One conditional write.
    async fn write(
        &self,
        op: StoreOp,
        key: &LeaseKey,
        act: impl FnOnce(&mut LeaseRows) -> Written,
    ) -> WriteResult {
        self.written(op, key, |table| {
            let written = act(&mut table.rows);
            if matches!(written, Written::Applied(_)) {
                table.remember(op, key);
            }
            written
        })
        .await
    }

    /// A write to a row, as large as it was before: a failed condition costs the same.
    async fn written<T>(
        &self,
        op: StoreOp,
        key: &LeaseKey,
        act: impl FnOnce(&mut Table) -> T,
    ) -> Result<T, StoreError> {
        self.call(op, |table| {
            let before = table.row_bytes(key);
            let done = act(table);
            self.meter
                .write(key.as_str(), before.max(table.row_bytes(key)));
            done
        })
        .await
    }

    async fn listed(&self, how: Read) -> Result<LeaseListing, StoreError> {
        self.call(StoreOp::List, |table| {
            let mut listing = table.rows.list();
            listing.bytes = table.bytes(&listing);
            self.meter.scan(listing.bytes, how);
            listing
        })
        .await
    }
}

impl Table {
    /// Adds an applied write to the history.
    fn remember(&mut self, op: StoreOp, key: &LeaseKey) {
        if let Some(row) = self.rows.get(key).cloned() {
            self.history.push(AppliedWrite { op, row });
        }
    }

    fn row_bytes(&self, key: &LeaseKey) -> usize {
        self.rows.get(key).map_or(0, row_size::lease_row)
    }

    fn bytes(&mut self, listing: &LeaseListing) -> usize {
        if self.measured.rows == listing.leases.len() && self.measured.left > 0 {
            self.measured.left -= 1;
        } else {
            let bytes = listing.leases.iter().map(row_size::lease_row).sum();
            self.measured = Measured {
                rows: listing.leases.len(),
                bytes,
                left: MEASURED_FOR,
            };
        }
        self.measured.bytes
    }
}

impl LeaseStore for FakeLeaseStore {
    fn ensure_table(&self) -> PortFuture<'_, Result<(), StoreError>> {
        Box::pin(self.call(StoreOp::EnsureTable, |_| ()))
    }

    fn list(&self) -> PortFuture<'_, Result<LeaseListing, StoreError>> {
        Box::pin(self.listed(Read::Eventual))
    }

    fn list_consistently(&self) -> PortFuture<'_, Result<LeaseListing, StoreError>> {
        Box::pin(self.listed(Read::Consistent))
    }

    fn get<'a>(&'a self, key: &'a LeaseKey) -> PortFuture<'a, Result<Option<Lease>, StoreError>> {
        Box::pin(self.call(StoreOp::Get, |table| {
            self.meter
                .read(key.as_str(), table.row_bytes(key), Read::Consistent);
            table.rows.get(key).cloned()
        }))
    }

    fn create<'a>(&'a self, lease: &'a Lease) -> PortFuture<'a, Result<Created, StoreError>> {
        Box::pin(self.written(StoreOp::Create, &lease.key, |table| {
            let created = table.rows.create(lease);
            if created == Created::New {
                table.history.push(AppliedWrite {
                    op: StoreOp::Create,
                    row: lease.clone(),
                });
            }
            created
        }))
    }

    fn take<'a>(
        &'a self,
        seen: &'a Lease,
        by: &'a WorkerId,
        wall_ms: u64,
    ) -> PortFuture<'a, Result<Took, StoreError>> {
        Box::pin(self.written(StoreOp::Take, &seen.key, move |table| {
            let took = table.rows.take(seen, by, wall_ms);
            if matches!(took, Took::Applied { .. }) {
                table.remember(StoreOp::Take, &seen.key);
            }
            took
        }))
    }

    fn claim<'a>(&'a self, seen: &'a Lease, by: &'a WorkerId) -> PortFuture<'a, WriteResult> {
        Box::pin(self.write(StoreOp::Claim, &seen.key, |rows| rows.claim(seen, by)))
    }

    fn delete<'a>(&'a self, seen: &'a Lease) -> PortFuture<'a, Result<Deleted, StoreError>> {
        Box::pin(self.written(StoreOp::Delete, &seen.key, move |table| {
            let before = table.rows.get(&seen.key).cloned();
            let deleted = table.rows.delete(seen);
            if let (Deleted::Gone, Some(row)) = (deleted, before) {
                table.history.push(AppliedWrite {
                    op: StoreOp::Delete,
                    row,
                });
            }
            deleted
        }))
    }

    fn renew<'a>(
        &'a self,
        token: &'a LeaseToken,
        progress: &'a Progress,
    ) -> PortFuture<'a, WriteResult> {
        Box::pin(self.write(StoreOp::Renew, &token.key, |rows| {
            rows.renew(token, progress)
        }))
    }

    fn checkpoint<'a>(
        &'a self,
        token: &'a LeaseToken,
        write: &'a CheckpointWrite,
    ) -> PortFuture<'a, WriteResult> {
        Box::pin(self.write(StoreOp::Checkpoint, &token.key, |rows| {
            rows.checkpoint(token, write)
        }))
    }

    fn end<'a>(
        &'a self,
        token: &'a LeaseToken,
        write: &'a ShardEndWrite,
    ) -> PortFuture<'a, WriteResult> {
        Box::pin(self.write(StoreOp::End, &token.key, |rows| rows.end(token, write)))
    }

    fn release<'a>(
        &'a self,
        token: &'a LeaseToken,
        progress: &'a Progress,
    ) -> PortFuture<'a, WriteResult> {
        Box::pin(self.write(StoreOp::Release, &token.key, |rows| {
            rows.release(token, progress)
        }))
    }

    fn direct<'a>(
        &'a self,
        seen: &'a Lease,
        next: &'a Directives,
    ) -> PortFuture<'a, Result<Directing, StoreError>> {
        Box::pin(self.written(StoreOp::Direct, &seen.key, move |table| {
            let directing = table.rows.direct(seen, next);
            if matches!(directing, Directing::Applied(_)) {
                table.remember(StoreOp::Direct, &seen.key);
            }
            directing
        }))
    }

    fn obey<'a>(
        &'a self,
        token: &'a LeaseToken,
        write: &'a ObeyWrite,
    ) -> PortFuture<'a, WriteResult> {
        Box::pin(self.write(StoreOp::Obey, &token.key, |rows| rows.obey(token, write)))
    }

    fn ensure_state_table(&self) -> PortFuture<'_, Result<(), StoreError>> {
        Box::pin(self.call(StoreOp::EnsureStateTable, |_| ()))
    }

    fn state<'a>(
        &'a self,
        key: &'a LeaseKey,
    ) -> PortFuture<'a, Result<Option<SavedState>, StoreError>> {
        Box::pin(self.call(StoreOp::State, |table| table.rows.state(key).cloned()))
    }
}
