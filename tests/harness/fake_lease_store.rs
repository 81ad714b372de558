//! A lease table in memory, with real conditional writes and faults to order.
//!
//! The same contract suite runs against it and against the real adapter, so that it may stand in for that one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use shardmill_core::lease::{Checkpoint, Lease, LeaseToken, WorkerId};
use shardmill_core::ports::{
    BadRow, CheckpointWrite, Created, Deleted, LeaseListing, LeaseStore, PortFuture, Progress, SavedState,
    ShardEndWrite, StoreError, WriteResult, Written,
};
use shardmill_core::stream::LeaseKey;

use crate::faults::{Fault, Faults};

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
    table: Arc<Mutex<Table>>,
}

#[derive(Default)]
struct Table {
    rows: BTreeMap<LeaseKey, Lease>,
    states: BTreeMap<LeaseKey, SavedState>,
    bad_rows: Vec<BadRow>,
    foreign_rows: usize,
    history: Vec<AppliedWrite>,
    calls: Vec<StoreOp>,
}

impl FakeLeaseStore {
    /// An empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same table as one host sees it: with faults of its own.
    #[must_use]
    pub fn seen_apart(&self) -> Self {
        Self { faults: Faults::default(), table: Arc::clone(&self.table) }
    }

    /// All rows, by key.
    pub fn rows(&self) -> Vec<Lease> {
        self.table().rows.values().cloned().collect()
    }

    /// One row, without a call.
    pub fn row(&self, key: &LeaseKey) -> Option<Lease> {
        self.table().rows.get(key).cloned()
    }

    /// Writes a row unconditionally, as an operator might.
    pub fn put_row(&self, lease: Lease) {
        self.table().rows.insert(lease.key.clone(), lease);
    }

    /// Deletes a row, as an operator might.
    pub fn delete_row(&self, key: &LeaseKey) -> Option<Lease> {
        self.table().rows.remove(key)
    }

    /// The state of a shard, without a call.
    pub fn saved_state(&self, key: &LeaseKey) -> Option<SavedState> {
        self.table().states.get(key).cloned()
    }

    /// Adds a row that cannot be read.
    pub fn add_bad_row(&self, key: &str, problem: &str) {
        self.table().bad_rows.push(BadRow { key: key.to_owned(), problem: problem.to_owned() });
    }

    /// Says that there are so many rows that are not leases.
    pub fn set_foreign_rows(&self, count: usize) {
        self.table().foreign_rows = count;
    }

    /// Every applied write, in order.
    pub fn history(&self) -> Vec<AppliedWrite> {
        self.table().history.clone()
    }

    /// How often `op` was called, faults included.
    pub fn calls(&self, op: StoreOp) -> usize {
        self.table().calls.iter().filter(|called| **called == op).count()
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs one call: draws its fault, and applies `act` unless the fault forbids it.
    async fn call<T>(&self, op: StoreOp, act: impl FnOnce(&mut Table) -> T) -> Result<T, StoreError> {
        // As a network call would: other tasks get their turn.
        tokio::task::yield_now().await;
        self.table().calls.push(op);
        let message = || format!("fault on {op:?}");
        match self.faults.next(op) {
            None => Ok(act(&mut self.table())),
            Some(Fault::Throttle) => Err(StoreError::Throttled { message: message() }),
            Some(Fault::UnknownApplied) => {
                act(&mut self.table());
                Err(StoreError::Unknown { message: message() })
            }
            Some(Fault::UnknownNotApplied | Fault::ExpiredIterator) => Err(StoreError::Unknown { message: message() }),
            Some(Fault::Refuse | Fault::KeyUnusable | Fault::NotFound) => {
                Err(StoreError::Refused { message: message() })
            }
            Some(Fault::Hang) => std::future::pending().await,
            Some(Fault::AnswersAfter(time)) => {
                let answer = act(&mut self.table());
                tokio::time::sleep(time).await;
                Ok(answer)
            }
        }
    }

    async fn held_write(&self, op: StoreOp, token: &LeaseToken, change: impl FnOnce(&mut Lease)) -> WriteResult {
        self.held_write_then(op, token, change, |_| ()).await
    }

    /// What `then` does is of the same transaction.
    async fn held_write_then(
        &self,
        op: StoreOp,
        token: &LeaseToken,
        change: impl FnOnce(&mut Lease),
        then: impl FnOnce(&mut Table),
    ) -> WriteResult {
        let holds = |row: &Lease| row.counter == token.counter && row.owner.as_ref() == Some(&token.owner);
        self.call(op, |table| {
            let written = table.write(op, &token.key, &token.owner, holds, change);
            if matches!(written, Written::Applied(_)) {
                then(table);
            }
            written
        })
        .await
    }
}

impl Table {
    fn write(
        &mut self,
        op: StoreOp,
        key: &LeaseKey,
        writer: &WorkerId,
        condition: impl FnOnce(&Lease) -> bool,
        change: impl FnOnce(&mut Lease),
    ) -> Written {
        let Some(row) = self.rows.get_mut(key) else { return Written::Conflict(None) };
        if !condition(row) {
            return Written::Conflict(Some(Box::new(row.clone())));
        }
        change(row);
        row.counter = row.counter.next();
        self.history.push(AppliedWrite { op, row: row.clone() });
        Written::Applied(row.token(writer.clone()))
    }
}

fn note(row: &mut Lease, progress: &Progress) {
    if let Some(digest) = &progress.plugin_digest {
        row.plugin_digest = Some(digest.clone());
    }
    if let Some(millis) = progress.millis_behind_latest {
        row.millis_behind_latest = Some(millis);
    }
    if let Some(millis) = progress.settled_arrival_ms {
        row.settled_arrival_ms = Some(millis);
    }
    if let Some(rate) = progress.bytes_per_second {
        row.bytes_per_second = Some(rate);
    }
    row.stuck.clone_from(&progress.stuck);
    if let Some(given_up) = &progress.given_up {
        row.given_up = Some(given_up.clone());
    }
}

impl LeaseStore for FakeLeaseStore {
    fn ensure_table(&self) -> PortFuture<'_, Result<(), StoreError>> {
        Box::pin(self.call(StoreOp::EnsureTable, |_| ()))
    }

    fn list(&self) -> PortFuture<'_, Result<LeaseListing, StoreError>> {
        Box::pin(self.call(StoreOp::List, |table| LeaseListing {
            leases: table.rows.values().cloned().collect(),
            bad_rows: table.bad_rows.clone(),
            foreign_rows: table.foreign_rows,
        }))
    }

    fn list_consistently(&self) -> PortFuture<'_, Result<LeaseListing, StoreError>> {
        self.list()
    }

    fn get<'a>(&'a self, key: &'a LeaseKey) -> PortFuture<'a, Result<Option<Lease>, StoreError>> {
        Box::pin(self.call(StoreOp::Get, |table| table.rows.get(key).cloned()))
    }

    fn create<'a>(&'a self, lease: &'a Lease) -> PortFuture<'a, Result<Created, StoreError>> {
        Box::pin(self.call(StoreOp::Create, |table| {
            if table.rows.contains_key(&lease.key) {
                return Created::Existed;
            }
            table.rows.insert(lease.key.clone(), lease.clone());
            table.history.push(AppliedWrite { op: StoreOp::Create, row: lease.clone() });
            Created::New
        }))
    }

    fn take<'a>(&'a self, seen: &'a Lease, by: &'a WorkerId, wall_ms: u64) -> PortFuture<'a, WriteResult> {
        let unchanged = |row: &Lease| row.counter == seen.counter && row.owner == seen.owner;
        let change = move |row: &mut Lease| {
            if row.owner.as_ref().is_some_and(|owner| owner != by) {
                row.owner_switches += 1;
            }
            row.owner = Some(by.clone());
            row.checkpoint_owner = None;
            row.claimant = None;
            row.held_since_ms = Some(wall_ms);
        };
        Box::pin(self.call(StoreOp::Take, move |table| table.write(StoreOp::Take, &seen.key, by, unchanged, change)))
    }

    fn claim<'a>(&'a self, seen: &'a Lease, by: &'a WorkerId) -> PortFuture<'a, WriteResult> {
        Box::pin(self.call(StoreOp::Claim, move |table| {
            let Some(row) = table.rows.get_mut(&seen.key) else { return Written::Conflict(None) };
            if row.owner.is_none() || row.owner != seen.owner || row.claimant != seen.claimant {
                return Written::Conflict(Some(Box::new(row.clone())));
            }
            row.claimant = Some(by.clone());
            let row = row.clone();
            table.history.push(AppliedWrite { op: StoreOp::Claim, row: row.clone() });
            Written::Applied(row.token(row.owner.clone().unwrap_or_else(|| by.clone())))
        }))
    }

    fn delete<'a>(&'a self, seen: &'a Lease) -> PortFuture<'a, Result<Deleted, StoreError>> {
        Box::pin(self.call(StoreOp::Delete, move |table| match table.rows.get(&seen.key) {
            Some(row) if row.counter != seen.counter || row.owner != seen.owner => Deleted::Changed,
            Some(_) => {
                if let Some(row) = table.rows.remove(&seen.key) {
                    table.history.push(AppliedWrite { op: StoreOp::Delete, row });
                }
                Deleted::Gone
            }
            None => Deleted::Gone,
        }))
    }

    fn renew<'a>(&'a self, token: &'a LeaseToken, progress: &'a Progress) -> PortFuture<'a, WriteResult> {
        Box::pin(self.held_write(StoreOp::Renew, token, |row| note(row, progress)))
    }

    fn checkpoint<'a>(&'a self, token: &'a LeaseToken, write: &'a CheckpointWrite) -> PortFuture<'a, WriteResult> {
        let state = write.state.as_ref().map(|bytes| SavedState {
            bytes: bytes.clone(),
            checkpoint: write.checkpoint(),
            plugin_digest: write.progress.plugin_digest.clone(),
        });
        let change = |row: &mut Lease| {
            row.checkpoint = write.checkpoint();
            row.owner_switches = 0;
            note(row, &write.progress);
        };
        Box::pin(self.held_write_then(StoreOp::Checkpoint, token, change, move |table| {
            if let Some(state) = state {
                table.states.insert(token.key.clone(), state);
            }
        }))
    }

    fn end<'a>(&'a self, token: &'a LeaseToken, write: &'a ShardEndWrite) -> PortFuture<'a, WriteResult> {
        let change = |row: &mut Lease| {
            row.checkpoint = Checkpoint::ShardEnd;
            row.owner_switches = 0;
            row.children.clone_from(&write.children);
            row.children.sort();
            note(row, &write.progress);
        };
        Box::pin(self.held_write_then(StoreOp::End, token, change, |table| {
            if write.keeps_state {
                table.states.remove(&token.key);
            }
        }))
    }

    fn release<'a>(&'a self, token: &'a LeaseToken, progress: &'a Progress) -> PortFuture<'a, WriteResult> {
        Box::pin(self.held_write(StoreOp::Release, token, |row| {
            row.owner = None;
            note(row, progress);
        }))
    }

    fn ensure_state_table(&self) -> PortFuture<'_, Result<(), StoreError>> {
        Box::pin(self.call(StoreOp::EnsureStateTable, |_| ()))
    }

    fn state<'a>(&'a self, key: &'a LeaseKey) -> PortFuture<'a, Result<Option<SavedState>, StoreError>> {
        Box::pin(self.call(StoreOp::State, |table| table.states.get(key).cloned()))
    }
}
