//! A lease table in memory, with real conditional writes and faults to order.
//!
//! The same contract suite runs against it and against the real adapter, so that it may stand in for that one.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use shardmill_aws::dynamodb::row_size;
use shardmill_core::lease::{Checkpoint, Lease, LeaseToken, WorkerId};
use shardmill_core::ports::{
    BadRow, CheckpointWrite, Created, Deleted, LeaseListing, LeaseStore, PortFuture, Progress, SavedState,
    ShardEndWrite, StoreError, WriteResult, Written,
};
use shardmill_core::stream::LeaseKey;

use crate::faults::{Fault, Faults};
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
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    rows: BTreeMap<LeaseKey, Lease>,
    states: BTreeMap<LeaseKey, SavedState>,
    bad_rows: Vec<BadRow>,
    foreign_rows: usize,
    history: Vec<AppliedWrite>,
    calls: HashMap<StoreOp, usize>,
    /// Bytes of all rows when they were last listed, and how many rows there were: rows are measured again when that
    /// changes, and else once in a while, since their sizes hardly change.
    measured: Option<(usize, usize, u32)>,
}

/// Listings after which rows are measured again.
const MEASURED_FOR: u32 = 20;

impl FakeLeaseStore {
    /// An empty table.
    pub fn new() -> Self {
        Self::default()
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
        self.table().calls.get(&op).copied().unwrap_or(0)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A write to a row, as large as it was before: a failed condition costs the same.
    async fn written<T>(
        &self,
        op: StoreOp,
        key: &LeaseKey,
        act: impl FnOnce(&mut Table) -> T,
    ) -> Result<T, StoreError> {
        self.call(op, |table| {
            let before = table.rows.get(key).map_or(0, row_size::lease_row);
            let done = act(table);
            let after = table.rows.get(key).map_or(0, row_size::lease_row);
            self.meter.write(key.as_str(), before.max(after));
            done
        })
        .await
    }

    /// Runs one call: draws its fault, and applies `act` unless the fault forbids it.
    async fn call<T>(&self, op: StoreOp, act: impl FnOnce(&mut Table) -> T) -> Result<T, StoreError> {
        // As a network call would: other tasks get their turn.
        tokio::task::yield_now().await;
        *self.table().calls.entry(op).or_default() += 1;
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
        }
    }

    async fn listed(&self, how: Read) -> Result<LeaseListing, StoreError> {
        self.call(StoreOp::List, |table| {
            self.meter.scan(table.bytes(), how);
            LeaseListing {
                leases: table.rows.values().cloned().collect(),
                bad_rows: table.bad_rows.clone(),
                foreign_rows: table.foreign_rows,
            }
        })
        .await
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
        self.written(op, &token.key, |table| {
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
    fn bytes(&mut self) -> usize {
        match &mut self.measured {
            Some((rows, bytes, left)) if *rows == self.rows.len() && *left > 0 => {
                *left -= 1;
                *bytes
            }
            _ => {
                let bytes = self.rows.values().map(row_size::lease_row).sum();
                self.measured = Some((self.rows.len(), bytes, MEASURED_FOR));
                bytes
            }
        }
    }

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
        Box::pin(self.listed(Read::Eventual))
    }

    fn list_consistently(&self) -> PortFuture<'_, Result<LeaseListing, StoreError>> {
        Box::pin(self.listed(Read::Consistent))
    }

    fn get<'a>(&'a self, key: &'a LeaseKey) -> PortFuture<'a, Result<Option<Lease>, StoreError>> {
        Box::pin(self.call(StoreOp::Get, |table| {
            let row = table.rows.get(key).cloned();
            self.meter.read(key.as_str(), row.as_ref().map_or(0, row_size::lease_row), Read::Consistent);
            row
        }))
    }

    fn create<'a>(&'a self, lease: &'a Lease) -> PortFuture<'a, Result<Created, StoreError>> {
        Box::pin(self.written(StoreOp::Create, &lease.key, |table| {
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
        Box::pin(self.written(StoreOp::Take, &seen.key, move |table| {
            table.write(StoreOp::Take, &seen.key, by, unchanged, change)
        }))
    }

    fn claim<'a>(&'a self, seen: &'a Lease, by: &'a WorkerId) -> PortFuture<'a, WriteResult> {
        Box::pin(self.written(StoreOp::Claim, &seen.key, move |table| {
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
        Box::pin(self.written(StoreOp::Delete, &seen.key, move |table| match table.rows.get(&seen.key) {
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
