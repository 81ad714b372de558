//! The lease store as a host sees it: every call on a row goes into the history with its result and
//! the host's clock.

use std::sync::Arc;

use shardmill_core::control::{Control, Directives, HistoryEntry};
use shardmill_core::fleet::{
    ApplicationStart, FleetRows, LeaderRow, Mail, Mailbox, StreamRow, WorkerRow,
};
use shardmill_core::lease::{Lease, LeaseToken, WorkerId};
use shardmill_core::plugin::PluginDigest;
use shardmill_core::ports::{
    CachedShards, CheckpointWrite, Coordinator, Created, Deleted, Directing, LeaseListing,
    LeaseStore, ObeyWrite, PortFuture, Progress, Raced, SavedState, ShardEndWrite, StoreError,
    Took, WriteResult, Written,
};
use shardmill_core::rollout::Quarantined;
use shardmill_core::stream::LeaseKey;
use shardmill_invariants::history::{Call, CallResult, Heartbeat, Micros, What, WriteKind};

use crate::host::Machine;
use crate::world::World;

/// An adapter, watched.
pub struct ObservedStore {
    /// The one it watches.
    pub table: Arc<dyn LeaseStore>,
    /// Where it is written down.
    pub world: Arc<World>,
    /// Whose clock it is.
    pub machine: Arc<Machine>,
    /// The host's name.
    pub host: String,
}

/// A call without an answer so far; dropped, it says that the host gave up waiting.
struct Waiting<'a> {
    store: &'a ObservedStore,
    key: String,
    kind: Option<WriteKind>,
    sent_at: Micros,
    local_sent_at: Micros,
    result: CallResult,
}

impl ObservedStore {
    fn waiting(&self, key: &LeaseKey, kind: Option<WriteKind>) -> Waiting<'_> {
        Waiting {
            store: self,
            key: key.as_str().to_owned(),
            kind,
            sent_at: self.world.now(),
            local_sent_at: self.machine.local_micros(),
            result: CallResult::Unknown,
        }
    }

    async fn write(
        &self,
        key: &LeaseKey,
        kind: WriteKind,
        call: PortFuture<'_, WriteResult>,
    ) -> WriteResult {
        let mut waiting = self.waiting(key, Some(kind));
        let result = call.await;
        waiting.result = match &result {
            Ok(Written::Applied(_)) => CallResult::Ok,
            Ok(Written::Conflict(_)) => CallResult::Conflict,
            Err(error) => of_error(error),
        };
        result
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let (store, world) = (self.store, &self.store.world);
        // A process that is killed learns nothing.
        if !store.machine.is_running(&store.host) {
            return;
        }
        match (self.result, self.kind) {
            (CallResult::Unknown, Some(_)) => world.count("reached: write without an answer"),
            (CallResult::Conflict, Some(_)) => world.count("reached: conflict seen by a host"),
            _ => {}
        }
        world.note(What::Called(Call {
            host: store.host.clone(),
            key: std::mem::take(&mut self.key),
            kind: self.kind,
            result: self.result,
            sent_at: self.sent_at,
            local_sent_at: self.local_sent_at,
            local_at: store.machine.local_micros(),
        }));
    }
}

fn of_error(error: &StoreError) -> CallResult {
    match error {
        StoreError::Unknown { .. } => CallResult::Unknown,
        StoreError::Throttled { .. }
        | StoreError::Refused { .. }
        | StoreError::WrongTable { .. } => CallResult::NotApplied,
    }
}

/// A lease is given back without a reason; one that is given up has one.
pub(crate) fn release_kind(progress: &Progress) -> WriteKind {
    if progress.stuck.is_some() {
        WriteKind::GiveUp
    } else {
        WriteKind::Release
    }
}

fn of_raced(result: &Result<Raced, StoreError>) -> CallResult {
    match result {
        Ok(Raced::Applied) => CallResult::Ok,
        Ok(Raced::Lost) => CallResult::Conflict,
        Err(error) => of_error(error),
    }
}

impl LeaseStore for ObservedStore {
    fn ensure_table(&self) -> PortFuture<'_, Result<(), StoreError>> {
        self.table.ensure_table()
    }

    fn list(&self) -> PortFuture<'_, Result<LeaseListing, StoreError>> {
        self.table.list()
    }

    fn list_consistently(&self) -> PortFuture<'_, Result<LeaseListing, StoreError>> {
        self.table.list_consistently()
    }

    fn get<'a>(&'a self, key: &'a LeaseKey) -> PortFuture<'a, Result<Option<Lease>, StoreError>> {
        Box::pin(async move {
            let mut waiting = self.waiting(key, None);
            let result = self.table.get(key).await;
            waiting.result = result.as_ref().map_or_else(of_error, |_| CallResult::Ok);
            result
        })
    }

    fn create<'a>(&'a self, lease: &'a Lease) -> PortFuture<'a, Result<Created, StoreError>> {
        Box::pin(async move {
            let mut waiting = self.waiting(&lease.key, Some(WriteKind::Create));
            let result = self.table.create(lease).await;
            waiting.result = match &result {
                Ok(Created::New) => CallResult::Ok,
                Ok(Created::Existed) => CallResult::Conflict,
                Err(error) => of_error(error),
            };
            result
        })
    }

    fn take<'a>(
        &'a self,
        seen: &'a Lease,
        by: &'a WorkerId,
        wall_ms: u64,
    ) -> PortFuture<'a, Result<Took, StoreError>> {
        let kind = WriteKind::Take {
            seen: seen.counter.0,
        };
        Box::pin(async move {
            let mut waiting = self.waiting(&seen.key, Some(kind));
            let result = self.table.take(seen, by, wall_ms).await;
            waiting.result = match &result {
                Ok(Took::Applied { .. }) => CallResult::Ok,
                Ok(Took::Conflict(_)) => CallResult::Conflict,
                Err(error) => of_error(error),
            };
            result
        })
    }

    /// No host does this.
    fn direct<'a>(
        &'a self,
        seen: &'a Lease,
        next: &'a Directives,
    ) -> PortFuture<'a, Result<Directing, StoreError>> {
        self.table.direct(seen, next)
    }

    fn obey<'a>(
        &'a self,
        token: &'a LeaseToken,
        write: &'a ObeyWrite,
    ) -> PortFuture<'a, WriteResult> {
        Box::pin(self.write(&token.key, WriteKind::Obey, self.table.obey(token, write)))
    }

    fn claim<'a>(&'a self, seen: &'a Lease, by: &'a WorkerId) -> PortFuture<'a, WriteResult> {
        Box::pin(self.write(&seen.key, WriteKind::Claim, self.table.claim(seen, by)))
    }

    fn delete<'a>(&'a self, seen: &'a Lease) -> PortFuture<'a, Result<Deleted, StoreError>> {
        Box::pin(async move {
            let mut waiting = self.waiting(&seen.key, Some(WriteKind::Delete));
            let result = self.table.delete(seen).await;
            waiting.result = match &result {
                Ok(Deleted::Gone) => CallResult::Ok,
                Ok(Deleted::Changed) => CallResult::Conflict,
                Err(error) => of_error(error),
            };
            result
        })
    }

    fn renew<'a>(
        &'a self,
        token: &'a LeaseToken,
        progress: &'a Progress,
    ) -> PortFuture<'a, WriteResult> {
        Box::pin(self.write(
            &token.key,
            WriteKind::Renew,
            self.table.renew(token, progress),
        ))
    }

    fn checkpoint<'a>(
        &'a self,
        token: &'a LeaseToken,
        write: &'a CheckpointWrite,
    ) -> PortFuture<'a, WriteResult> {
        Box::pin(self.write(
            &token.key,
            WriteKind::Checkpoint,
            self.table.checkpoint(token, write),
        ))
    }

    fn end<'a>(
        &'a self,
        token: &'a LeaseToken,
        write: &'a ShardEndWrite,
    ) -> PortFuture<'a, WriteResult> {
        Box::pin(self.write(&token.key, WriteKind::End, self.table.end(token, write)))
    }

    fn release<'a>(
        &'a self,
        token: &'a LeaseToken,
        progress: &'a Progress,
    ) -> PortFuture<'a, WriteResult> {
        Box::pin(self.write(
            &token.key,
            release_kind(progress),
            self.table.release(token, progress),
        ))
    }

    fn ensure_state_table(&self) -> PortFuture<'_, Result<(), StoreError>> {
        self.table.ensure_state_table()
    }

    fn state<'a>(
        &'a self,
        key: &'a LeaseKey,
    ) -> PortFuture<'a, Result<Option<SavedState>, StoreError>> {
        self.table.state(key)
    }
}

/// The coordinator as a host sees it: its heartbeats go into the history, since they hold its
/// leases.
pub struct ObservedCoordinator {
    /// The one it watches.
    pub table: Arc<dyn Coordinator>,
    /// Where it is written down.
    pub world: Arc<World>,
    /// Whose clock it is.
    pub machine: Arc<Machine>,
    /// The host's name.
    pub host: String,
}

/// A heartbeat without an answer so far.
struct Beating<'a> {
    store: &'a ObservedCoordinator,
    is_registration: bool,
    sent_at: Micros,
    local_sent_at: Micros,
    result: CallResult,
}

impl ObservedCoordinator {
    fn beating(&self, is_registration: bool) -> Beating<'_> {
        let (sent_at, local_sent_at) = (self.world.now(), self.machine.local_micros());
        Beating {
            store: self,
            is_registration,
            sent_at,
            local_sent_at,
            result: CallResult::Unknown,
        }
    }
}

impl Drop for Beating<'_> {
    fn drop(&mut self) {
        let store = self.store;
        if store.machine.is_running(&store.host) {
            store.world.note(What::Heartbeat(Heartbeat {
                host: store.host.clone(),
                is_registration: self.is_registration,
                result: self.result,
                sent_at: self.sent_at,
                local_sent_at: self.local_sent_at,
                local_at: store.machine.local_micros(),
            }));
        }
    }
}

impl Coordinator for ObservedCoordinator {
    fn ensure_table(&self) -> PortFuture<'_, Result<(), StoreError>> {
        self.table.ensure_table()
    }

    fn fleet(&self) -> PortFuture<'_, Result<FleetRows, StoreError>> {
        self.table.fleet()
    }

    fn board(&self) -> PortFuture<'_, Result<FleetRows, StoreError>> {
        self.table.board()
    }

    fn mailbox<'a>(&'a self, id: &'a WorkerId) -> PortFuture<'a, Result<Mailbox, StoreError>> {
        self.table.mailbox(id)
    }

    fn nudge<'a>(
        &'a self,
        id: &'a WorkerId,
        number: u64,
    ) -> PortFuture<'a, Result<(), StoreError>> {
        self.table.nudge(id, number)
    }

    fn write_control<'a>(
        &'a self,
        seen: &'a Control,
        next: &'a Control,
    ) -> PortFuture<'a, Result<Raced, StoreError>> {
        self.table.write_control(seen, next)
    }

    fn record<'a>(&'a self, entry: &'a HistoryEntry) -> PortFuture<'a, Result<(), StoreError>> {
        self.table.record(entry)
    }

    fn leave_mail<'a>(
        &'a self,
        id: &'a WorkerId,
        mail: Option<&'a Mail>,
    ) -> PortFuture<'a, Result<(), StoreError>> {
        self.world.count("reached: mail left");
        self.table.leave_mail(id, mail)
    }

    fn worker<'a>(
        &'a self,
        id: &'a WorkerId,
    ) -> PortFuture<'a, Result<Option<WorkerRow>, StoreError>> {
        self.table.worker(id)
    }

    fn register<'a>(
        &'a self,
        seen: Option<&'a WorkerRow>,
        row: &'a WorkerRow,
    ) -> PortFuture<'a, Result<Raced, StoreError>> {
        Box::pin(async move {
            let mut beating = self.beating(true);
            let result = self.table.register(seen, row).await;
            beating.result = of_raced(&result);
            result
        })
    }

    fn heartbeat<'a>(&'a self, row: &'a WorkerRow) -> PortFuture<'a, Result<Raced, StoreError>> {
        Box::pin(async move {
            let mut beating = self.beating(false);
            let result = self.table.heartbeat(row).await;
            beating.result = of_raced(&result);
            result
        })
    }

    fn remove_worker<'a>(
        &'a self,
        row: &'a WorkerRow,
    ) -> PortFuture<'a, Result<Raced, StoreError>> {
        self.table.remove_worker(row)
    }

    fn write_leader<'a>(
        &'a self,
        seen: Option<&'a LeaderRow>,
        next: &'a LeaderRow,
    ) -> PortFuture<'a, Result<Raced, StoreError>> {
        self.world.count(if seen.is_some() {
            "reached: leader written"
        } else {
            "reached: first leader"
        });
        self.table.write_leader(seen, next)
    }

    fn write_stream<'a>(
        &'a self,
        seen: Option<&'a StreamRow>,
        next: &'a StreamRow,
    ) -> PortFuture<'a, Result<Raced, StoreError>> {
        self.table.write_stream(seen, next)
    }

    fn write_start<'a>(
        &'a self,
        start: &'a ApplicationStart,
    ) -> PortFuture<'a, Result<Raced, StoreError>> {
        self.table.write_start(start)
    }

    fn quarantine<'a>(&'a self, entry: &'a Quarantined) -> PortFuture<'a, Result<(), StoreError>> {
        self.table.quarantine(entry)
    }

    fn release_version<'a>(
        &'a self,
        digest: &'a PluginDigest,
    ) -> PortFuture<'a, Result<(), StoreError>> {
        self.table.release_version(digest)
    }

    fn announce(&self) -> PortFuture<'_, Result<(), StoreError>> {
        self.table.announce()
    }

    fn shards(&self) -> PortFuture<'_, Result<Option<CachedShards>, StoreError>> {
        self.table.shards()
    }

    fn write_shards<'a>(
        &'a self,
        shards: &'a CachedShards,
    ) -> PortFuture<'a, Result<(), StoreError>> {
        self.table.write_shards(shards)
    }
}
