use super::{PortFuture, StoreError};
use crate::control::{Control, HistoryEntry};
use crate::fleet::{
    ApplicationStart, FleetRows, Incarnation, LeaderRow, Mail, Mailbox, StreamIdentity, StreamRow,
    WorkerRow,
};
use crate::lease::WorkerId;
use crate::plugin::PluginDigest;
use crate::rollout::Quarantined;
use crate::stream::Shard;

/// The coordinator table of one application: everything that hosts share apart from leases, in a
/// separate table, since a KCL fleet may read the lease table and fails on rows that are not
/// leases.
///
/// Every write that matters is conditional on what the writer last saw. Implementations decide
/// nothing.
pub trait Coordinator: Send + Sync {
    /// Makes sure that the table exists, with the right key, and can be used.
    fn ensure_table(&self) -> PortFuture<'_, Result<(), StoreError>>;

    /// All small rows, in one request where they fit; eventually consistent.
    fn fleet(&self) -> PortFuture<'_, Result<FleetRows, StoreError>>;

    /// All small rows but the workers', so that the price does not grow with the fleet; eventually
    /// consistent.
    fn board(&self) -> PortFuture<'_, Result<FleetRows, StoreError>>;

    /// What was left for a worker, in one request, from rows that no other worker reads; eventually
    /// consistent.
    fn mailbox<'a>(&'a self, id: &'a WorkerId) -> PortFuture<'a, Result<Mailbox, StoreError>>;

    /// Leaves `mail` for a worker, in place of earlier mail. Unconditional: mail is a hint, and
    /// either of two leaders' will do. `None` leaves nothing.
    fn leave_mail<'a>(
        &'a self,
        id: &'a WorkerId,
        mail: Option<&'a Mail>,
    ) -> PortFuture<'a, Result<(), StoreError>>;

    /// Tells a worker that what operators want has changed. Unconditional, and a hint: a host that
    /// was not told reads the same rows, only later.
    fn nudge<'a>(&'a self, id: &'a WorkerId, number: u64)
    -> PortFuture<'a, Result<(), StoreError>>;

    /// Writes what operators want of all hosts, if the version in the table still is that of
    /// `seen`: 0 if there is no row.
    fn write_control<'a>(
        &'a self,
        seen: &'a Control,
        next: &'a Control,
    ) -> PortFuture<'a, Result<Raced, StoreError>>;

    /// Adds an entry to the history. Two entries of one moment are both kept.
    fn record<'a>(&'a self, entry: &'a HistoryEntry) -> PortFuture<'a, Result<(), StoreError>>;

    /// One worker's row, strongly consistent.
    fn worker<'a>(
        &'a self,
        id: &'a WorkerId,
    ) -> PortFuture<'a, Result<Option<WorkerRow>, StoreError>>;

    /// Writes a worker's row if the table shows the incarnation and beat of `seen`, or none if that
    /// is `None`.
    ///
    /// So a new run of a worker replaces the one before, and a late registration of an earlier run
    /// replaces nothing.
    fn register<'a>(
        &'a self,
        seen: Option<&'a WorkerRow>,
        row: &'a WorkerRow,
    ) -> PortFuture<'a, Result<Raced, StoreError>>;

    /// Writes a worker's row if the table shows the same incarnation of it.
    fn heartbeat<'a>(&'a self, row: &'a WorkerRow) -> PortFuture<'a, Result<Raced, StoreError>>;

    /// Removes a worker's row if the table shows the same incarnation and beat.
    fn remove_worker<'a>(&'a self, row: &'a WorkerRow)
    -> PortFuture<'a, Result<Raced, StoreError>>;

    /// Writes the leader's record if the table shows `seen`, or none if that is `None`.
    fn write_leader<'a>(
        &'a self,
        seen: Option<&'a LeaderRow>,
        next: &'a LeaderRow,
    ) -> PortFuture<'a, Result<Raced, StoreError>>;

    /// Writes down which stream the checkpoints belong to, if the table shows `seen`, or none if
    /// that is `None`.
    fn write_stream<'a>(
        &'a self,
        seen: Option<&'a StreamRow>,
        next: &'a StreamRow,
    ) -> PortFuture<'a, Result<Raced, StoreError>>;

    /// Writes down where the application began, unless that is done already. It never changes after
    /// that. It has its own row, so that hosts that do not know it leave it alone.
    fn write_start<'a>(
        &'a self,
        start: &'a ApplicationStart,
    ) -> PortFuture<'a, Result<Raced, StoreError>>;

    /// Writes down that a version is bad. Unconditional: any host's reason is as good as another's.
    fn quarantine<'a>(&'a self, entry: &'a Quarantined) -> PortFuture<'a, Result<(), StoreError>>;

    /// Removes the row that says that a version is bad, if there is one.
    fn release_version<'a>(
        &'a self,
        digest: &'a PluginDigest,
    ) -> PortFuture<'a, Result<(), StoreError>>;

    /// Raises the bulletin, so that others look at the leases soon.
    fn announce(&self) -> PortFuture<'_, Result<(), StoreError>>;

    /// The shard list as a leader last wrote it, if it is whole.
    fn shards(&self) -> PortFuture<'_, Result<Option<CachedShards>, StoreError>>;

    /// Writes the shard list. Unconditional: any complete list is as good as another, and readers
    /// treat it as a hint.
    fn write_shards<'a>(
        &'a self,
        shards: &'a CachedShards,
    ) -> PortFuture<'a, Result<(), StoreError>>;
}

/// The outcome of a conditional write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Raced {
    /// It was applied.
    Applied,
    /// Another writer was faster: the condition did not hold, and nothing changed.
    Lost,
}

/// A complete shard list, shared so that only the leader calls `ListShards`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachedShards {
    /// The stream that was listed.
    pub identity: StreamIdentity,
    /// All of its shards.
    pub shards: Vec<Shard>,
    /// Which run listed them, for people.
    pub listed_by: Incarnation,
}
