//! A coordinator table in memory, with real conditional writes and faults to order.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use shardmill_aws::dynamodb::row_size;
use shardmill_core::control::{Control, HistoryEntry};
use shardmill_core::fleet::{
    ApplicationStart, FleetRows, LeaderRow, Mail, Mailbox, StreamRow, WorkerRow,
};
use shardmill_core::lease::WorkerId;
use shardmill_core::plugin::PluginDigest;
use shardmill_core::ports::{CachedShards, Coordinator, PortFuture, Raced, StoreError};
use shardmill_core::rollout::Quarantined;

use crate::coordinator_rows::CoordinatorRows;
use crate::faults::{Faults, answer};
use crate::units::{Meter, Read};

/// An operation of the coordinator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CoordinatorOp {
    /// `ensure_table`
    EnsureTable,
    /// `fleet`
    Fleet,
    /// `board`
    Board,
    /// `mailbox`
    Mailbox,
    /// `leave_mail`
    LeaveMail,
    /// `nudge`
    Nudge,
    /// `write_control`
    WriteControl,
    /// `record`
    Record,
    /// `worker`
    Worker,
    /// `register`
    Register,
    /// `heartbeat`
    Heartbeat,
    /// `remove_worker`
    RemoveWorker,
    /// `write_leader`
    WriteLeader,
    /// `write_stream`
    WriteStream,
    /// `write_start`
    WriteStart,
    /// `quarantine`
    Quarantine,
    /// `release_version`
    ReleaseVersion,
    /// `announce`
    Announce,
    /// `shards`
    Shards,
    /// `write_shards`
    WriteShards,
}

/// The fake.
#[derive(Default)]
pub struct FakeCoordinator {
    /// What goes wrong.
    pub faults: Faults<CoordinatorOp>,
    /// What the calls cost.
    pub meter: Meter,
    table: Arc<Mutex<Table>>,
}

#[derive(Default)]
struct Table {
    rows: CoordinatorRows,
    calls: HashMap<CoordinatorOp, usize>,
    unlisted: Vec<WorkerId>,
}

impl FakeCoordinator {
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

    /// All small rows, without a call.
    pub fn rows(&self) -> FleetRows {
        self.table().rows.fleet.clone()
    }

    /// The shard list, without a call.
    pub fn cached(&self) -> Option<CachedShards> {
        self.table().rows.shards.clone()
    }

    /// What was done, without a call.
    pub fn history(&self) -> Vec<HistoryEntry> {
        self.table().rows.history.clone()
    }

    /// What was left for a worker, without a call.
    pub fn mail_of(&self, worker: &WorkerId) -> Option<Mail> {
        self.table().rows.mail.get(worker).cloned()
    }

    /// Changes rows unconditionally, as an operator might.
    pub fn change(&self, change: impl FnOnce(&mut FleetRows)) {
        change(&mut self.table().rows.fleet);
    }

    /// From now on `fleet` shows no row of `worker`, as an eventually consistent read may not;
    /// `worker` shows it.
    pub fn keep_unlisted(&self, worker: WorkerId) {
        self.table().unlisted.push(worker);
    }

    /// How often `op` was called, faults included.
    pub fn calls(&self, op: CoordinatorOp) -> usize {
        self.table().calls.get(&op).copied().unwrap_or(0)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn call<T>(
        &self,
        op: CoordinatorOp,
        act: impl FnOnce(&mut Table) -> T,
    ) -> Result<T, StoreError> {
        // As a network call would: other tasks get their turn.
        tokio::task::yield_now().await;
        *self.table().calls.entry(op).or_default() += 1;
        answer(self.faults.next(op), op, || act(&mut self.table())).await
    }
}

/// The partition key of workers and of the board.
const FLEET: &str = "fleet";
/// The bulletin and the stream's row, both far below the least that a unit covers.
const SMALL_ROW_BYTES: usize = 100;

fn mail_partition(worker: &WorkerId) -> String {
    format!("mail#{worker}")
}

/// Quarantined versions are not counted: a fleet has none but for a while.
fn board_bytes(rows: &FleetRows) -> usize {
    2 * SMALL_ROW_BYTES + rows.leader.as_ref().map_or(0, row_size::leader_row)
}

impl Coordinator for FakeCoordinator {
    fn ensure_table(&self) -> PortFuture<'_, Result<(), StoreError>> {
        Box::pin(self.call(CoordinatorOp::EnsureTable, |_| ()))
    }

    fn fleet(&self) -> PortFuture<'_, Result<FleetRows, StoreError>> {
        Box::pin(self.call(CoordinatorOp::Fleet, |table| {
            let mut rows = table.rows.fleet.clone();
            rows.workers
                .retain(|row| !table.unlisted.contains(&row.worker));
            let workers: usize = rows.workers.iter().map(row_size::worker_row).sum();
            self.meter
                .read(FLEET, workers + board_bytes(&rows), Read::Eventual);
            rows
        }))
    }

    fn board(&self) -> PortFuture<'_, Result<FleetRows, StoreError>> {
        Box::pin(self.call(CoordinatorOp::Board, |table| {
            self.meter
                .read(FLEET, board_bytes(&table.rows.fleet), Read::Eventual);
            table.rows.board()
        }))
    }

    fn mailbox<'a>(&'a self, id: &'a WorkerId) -> PortFuture<'a, Result<Mailbox, StoreError>> {
        Box::pin(self.call(CoordinatorOp::Mailbox, |table| {
            let mailbox = table.rows.mailbox(id);
            let mail = mailbox.mail.as_ref();
            let bytes = mail.map_or(0, |mail| row_size::mail_row(id, mail));
            self.meter.read(&mail_partition(id), bytes, Read::Eventual);
            mailbox
        }))
    }

    fn nudge<'a>(
        &'a self,
        id: &'a WorkerId,
        number: u64,
    ) -> PortFuture<'a, Result<(), StoreError>> {
        Box::pin(self.call(CoordinatorOp::Nudge, move |table| {
            self.meter.write(&mail_partition(id), SMALL_ROW_BYTES);
            table.rows.nudges.insert(id.clone(), number);
        }))
    }

    fn write_control<'a>(
        &'a self,
        seen: &'a Control,
        next: &'a Control,
    ) -> PortFuture<'a, Result<Raced, StoreError>> {
        Box::pin(self.call(CoordinatorOp::WriteControl, move |table| {
            table.rows.write_control(seen, next)
        }))
    }

    fn record<'a>(&'a self, entry: &'a HistoryEntry) -> PortFuture<'a, Result<(), StoreError>> {
        Box::pin(self.call(CoordinatorOp::Record, |table| {
            table.rows.history.push(entry.clone());
        }))
    }

    fn leave_mail<'a>(
        &'a self,
        id: &'a WorkerId,
        mail: Option<&'a Mail>,
    ) -> PortFuture<'a, Result<(), StoreError>> {
        Box::pin(self.call(CoordinatorOp::LeaveMail, move |table| {
            let before = table.rows.leave_mail(id, mail);
            let bytes = |mail: &Mail| row_size::mail_row(id, mail);
            let largest = before.iter().chain(mail).map(bytes).max().unwrap_or(0);
            self.meter.write(&mail_partition(id), largest);
        }))
    }

    fn worker<'a>(
        &'a self,
        id: &'a WorkerId,
    ) -> PortFuture<'a, Result<Option<WorkerRow>, StoreError>> {
        Box::pin(self.call(CoordinatorOp::Worker, |table| {
            let row = table.rows.worker(id).cloned();
            self.meter.read(
                FLEET,
                row.as_ref().map_or(0, row_size::worker_row),
                Read::Consistent,
            );
            row
        }))
    }

    fn register<'a>(
        &'a self,
        seen: Option<&'a WorkerRow>,
        row: &'a WorkerRow,
    ) -> PortFuture<'a, Result<Raced, StoreError>> {
        Box::pin(self.call(CoordinatorOp::Register, move |table| {
            self.meter.write(FLEET, row_size::worker_row(row));
            table.rows.register(seen, row)
        }))
    }

    fn heartbeat<'a>(&'a self, row: &'a WorkerRow) -> PortFuture<'a, Result<Raced, StoreError>> {
        Box::pin(self.call(CoordinatorOp::Heartbeat, |table| {
            self.meter.write(FLEET, row_size::worker_row(row));
            table.rows.heartbeat(row)
        }))
    }

    fn remove_worker<'a>(
        &'a self,
        row: &'a WorkerRow,
    ) -> PortFuture<'a, Result<Raced, StoreError>> {
        Box::pin(self.call(CoordinatorOp::RemoveWorker, |table| {
            self.meter.write(FLEET, row_size::worker_row(row));
            table.rows.remove_worker(row)
        }))
    }

    fn write_leader<'a>(
        &'a self,
        seen: Option<&'a LeaderRow>,
        next: &'a LeaderRow,
    ) -> PortFuture<'a, Result<Raced, StoreError>> {
        Box::pin(self.call(CoordinatorOp::WriteLeader, move |table| {
            self.meter.write(FLEET, row_size::leader_row(next));
            table.rows.write_leader(seen, next)
        }))
    }

    fn write_stream<'a>(
        &'a self,
        seen: Option<&'a StreamRow>,
        next: &'a StreamRow,
    ) -> PortFuture<'a, Result<Raced, StoreError>> {
        Box::pin(self.call(CoordinatorOp::WriteStream, move |table| {
            table.rows.write_stream(seen, next)
        }))
    }

    fn write_start<'a>(
        &'a self,
        start: &'a ApplicationStart,
    ) -> PortFuture<'a, Result<Raced, StoreError>> {
        Box::pin(self.call(CoordinatorOp::WriteStart, |table| {
            table.rows.write_start(start)
        }))
    }

    fn quarantine<'a>(&'a self, entry: &'a Quarantined) -> PortFuture<'a, Result<(), StoreError>> {
        Box::pin(self.call(CoordinatorOp::Quarantine, |table| {
            table.rows.quarantine(entry);
        }))
    }

    fn release_version<'a>(
        &'a self,
        digest: &'a PluginDigest,
    ) -> PortFuture<'a, Result<(), StoreError>> {
        Box::pin(self.call(CoordinatorOp::ReleaseVersion, |table| {
            table.rows.release_version(digest);
        }))
    }

    fn announce(&self) -> PortFuture<'_, Result<(), StoreError>> {
        Box::pin(self.call(CoordinatorOp::Announce, |table| {
            self.meter.write(FLEET, SMALL_ROW_BYTES);
            table.rows.fleet.bulletin += 1;
        }))
    }

    fn shards(&self) -> PortFuture<'_, Result<Option<CachedShards>, StoreError>> {
        Box::pin(self.call(CoordinatorOp::Shards, |table| table.rows.shards.clone()))
    }

    fn write_shards<'a>(
        &'a self,
        shards: &'a CachedShards,
    ) -> PortFuture<'a, Result<(), StoreError>> {
        Box::pin(self.call(CoordinatorOp::WriteShards, |table| {
            table.rows.shards = Some(shards.clone());
        }))
    }
}
