use bytes::Bytes;

use super::PortFuture;
use crate::control::Directives;
use crate::lease::{Checkpoint, Lease, LeaseToken, WorkerId};
use crate::plugin::{PluginDigest, StateFill};
use crate::stream::{LeaseKey, ShardId};

/// The lease table of one application.
///
/// **Every write is conditional** on what the writer last saw, and raises the counter by one (but
/// for a claim); a lost race comes back as [`Written::Conflict`] with the current row, never as an
/// error. Implementations decide nothing.
pub trait LeaseStore: Send + Sync {
    /// Makes sure that the table exists, with the right key, and can be used.
    fn ensure_table(&self) -> PortFuture<'_, Result<(), StoreError>>;

    /// All rows; eventually consistent, all pages.
    fn list(&self) -> PortFuture<'_, Result<LeaseListing, StoreError>>;

    /// All rows; each as it was at some moment after the call, but not all at the same moment.
    fn list_consistently(&self) -> PortFuture<'_, Result<LeaseListing, StoreError>>;

    /// One row, strongly consistent.
    fn get<'a>(&'a self, key: &'a LeaseKey) -> PortFuture<'a, Result<Option<Lease>, StoreError>>;

    /// Writes a fresh row, if there is none.
    fn create<'a>(&'a self, lease: &'a Lease) -> PortFuture<'a, Result<Created, StoreError>>;

    /// Makes `by` the owner, if owner and counter still are what `seen` shows. Always clears the
    /// claim, and `checkpointOwner` (KCL 3.x). `wall_ms` is noted for people.
    fn take<'a>(
        &'a self,
        seen: &'a Lease,
        by: &'a WorkerId,
        wall_ms: u64,
    ) -> PortFuture<'a, Result<Took, StoreError>>;

    /// Asks the owner for the lease: notes `by` as the claimant, if owner and claimant still are
    /// what `seen` shows. The only write that does not raise the counter, since the counter is the
    /// owner's until it gives the lease up.
    fn claim<'a>(&'a self, seen: &'a Lease, by: &'a WorkerId) -> PortFuture<'a, WriteResult>;

    /// Removes the row, if owner and counter still are what `seen` shows. A row that is gone
    /// already is not a conflict.
    fn delete<'a>(&'a self, seen: &'a Lease) -> PortFuture<'a, Result<Deleted, StoreError>>;

    /// Raises the counter, so that observers see the lease live.
    fn renew<'a>(
        &'a self,
        token: &'a LeaseToken,
        progress: &'a Progress,
    ) -> PortFuture<'a, WriteResult>;

    /// Moves the checkpoint; counts as a renewal. With a state, both are written in one
    /// transaction, or neither is.
    fn checkpoint<'a>(
        &'a self,
        token: &'a LeaseToken,
        write: &'a CheckpointWrite,
    ) -> PortFuture<'a, WriteResult>;

    /// Marks the shard as finished, with its children, if operators want nothing newer of it than
    /// the holder has read; removes its state in the same transaction, if it keeps one.
    fn end<'a>(
        &'a self,
        token: &'a LeaseToken,
        write: &'a ShardEndWrite,
    ) -> PortFuture<'a, WriteResult>;

    /// Gives the lease up: removes the owner; a claim stays.
    fn release<'a>(
        &'a self,
        token: &'a LeaseToken,
        progress: &'a Progress,
    ) -> PortFuture<'a, WriteResult>;

    /// Replaces what operators want of a shard, whoever holds it, if the version of it still is
    /// what `seen` shows, and the shard has not ended since. Leaves the counter alone, as a claim
    /// does.
    fn direct<'a>(
        &'a self,
        seen: &'a Lease,
        next: &'a Directives,
    ) -> PortFuture<'a, Result<Directing, StoreError>>;

    /// The holder has done what operators wanted: replaces it, if its version still is the one that
    /// the holder read, and moves the checkpoint if that was wanted. Counts as a renewal.
    fn obey<'a>(
        &'a self,
        token: &'a LeaseToken,
        write: &'a ObeyWrite,
    ) -> PortFuture<'a, WriteResult>;

    /// Makes sure that there is a table for the plugin's state.
    fn ensure_state_table(&self) -> PortFuture<'_, Result<(), StoreError>>;

    /// What the keys of the stream's rows begin with, if the table holds the leases of several
    /// streams and that is known: `ACCOUNT:STREAM:CREATED`.
    fn stream_prefix(&self) -> Option<String> {
        None
    }

    /// The state saved with the last checkpoint of a shard, strongly consistent; `None` if none was
    /// ever saved.
    fn state<'a>(
        &'a self,
        key: &'a LeaseKey,
    ) -> PortFuture<'a, Result<Option<SavedState>, StoreError>>;
}

/// The state that a plugin saved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedState {
    /// As the plugin made it, opaque.
    pub bytes: Bytes,
    /// The checkpoint it was written with: the plugin had handled everything up to and including
    /// it, and nothing more.
    pub checkpoint: Checkpoint,
    /// The version that saved it.
    pub plugin_digest: Option<PluginDigest>,
}

/// The answer to a conditional write.
pub type WriteResult = Result<Written, StoreError>;

/// A conditional write that reached the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Written {
    /// Applied; the row as written where the store returns it, else what the writer may rely on.
    Applied(LeaseToken),
    /// Not applied: the row did not meet the condition. `None` if there is no row.
    Conflict(Option<Box<Lease>>),
}

/// The answer of [`LeaseStore::take`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Took {
    /// The lease is the taker's.
    Applied {
        /// The right to write to the row.
        token: LeaseToken,
        /// What operators want, as the row has it now: it may have changed since it was listed.
        directives: Box<Directives>,
    },
    /// Not applied: the row did not meet the condition. `None` if there is no row.
    Conflict(Option<Box<Lease>>),
}

impl Took {
    /// The same as of any other write.
    pub fn written(self) -> Written {
        match self {
            Self::Applied { token, .. } => Written::Applied(token),
            Self::Conflict(row) => Written::Conflict(row),
        }
    }
}

/// The answer of [`LeaseStore::direct`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Directing {
    /// Applied: the row as it is now, whose owner is to be told.
    Applied(Box<Lease>),
    /// Somebody changed the directives since they were read: the row as it is. `None` if there is
    /// no row.
    Changed(Option<Box<Lease>>),
}

/// The answer of [`LeaseStore::create`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Created {
    /// The row is new.
    New,
    /// There was one already; it was left alone.
    Existed,
}

/// The answer of [`LeaseStore::delete`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deleted {
    /// The row is gone.
    Gone,
    /// It changed since it was seen, and was left alone.
    Changed,
}

/// All rows of the table that could be read, and those that could not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeaseListing {
    /// The rows that could be read, in no order.
    pub leases: Vec<Lease>,
    /// Rows that look like leases but cannot be read; reported, never touched.
    pub bad_rows: Vec<BadRow>,
    /// Rows that are not leases at all (KCL 3.5 keeps some in the same table); skipped.
    pub foreign_rows: usize,
    /// Bytes of all rows, including those of other writers: DynamoDB charges a scan by them. 0 if
    /// unknown.
    pub bytes: usize,
}

/// A row that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRow {
    /// Its key, if it has one.
    pub key: String,
    /// What is wrong with it.
    pub problem: String,
}

/// Facts about a held shard that are written along, for people.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    /// The plugin version at work.
    pub plugin_digest: Option<PluginDigest>,
    /// How far behind the tip the last reply was, in milliseconds.
    pub millis_behind_latest: Option<u64>,
    /// When the last settled record arrived, in milliseconds since the Unix epoch.
    pub settled_arrival_ms: Option<u64>,
    /// Bytes of record data a second, a moving average.
    pub bytes_per_second: Option<u64>,
    /// Why the shard makes no progress; `None` clears the earlier note.
    pub stuck: Option<String>,
    /// The last record that the failure policy gave up, and why; `None` leaves what was noted
    /// before.
    pub given_up: Option<String>,
    /// How much of its limit the plugin's state takes; `None` leaves what was noted before.
    pub state_fill: Option<StateFill>,
}

/// A checkpoint to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointWrite {
    /// How far everything is settled. The same as before if only the state is new: time may change
    /// a plugin's state on a shard without records, even before the first of them.
    pub checkpoint: Checkpoint,
    /// Facts to write along, such as the plugin's version and the lag.
    pub progress: Progress,
    /// The plugin's state at `checkpoint`, if it keeps one.
    pub state: Option<Bytes>,
}

/// What a holder did that operators wanted, to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObeyWrite {
    /// The version of the directives that it read.
    pub seen_version: u64,
    /// What is wanted from now on.
    pub next: Directives,
    /// Where the shard goes; `None` leaves the checkpoint alone.
    pub to: Option<Checkpoint>,
    /// What becomes of the plugin's state.
    pub state: ObeyState,
    /// Facts to write along.
    pub progress: Progress,
}

/// What becomes of a plugin's state when a holder obeys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObeyState {
    /// There is none, or the shard goes nowhere.
    Untouched,
    /// It belongs to the new place from now on.
    Moved(SavedState),
    /// It is removed.
    Removed,
    /// One that a command left in the row of that key takes its place; that row is removed.
    Imported {
        /// The state, with the place that it belongs to from now on.
        state: SavedState,
        /// The row.
        staged: LeaseKey,
    },
}

/// The end of a shard, to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardEndWrite {
    /// The shards that follow; their rows exist already.
    pub children: Vec<ShardId>,
    /// Facts to write along, such as the plugin's version.
    pub progress: Progress,
    /// Whether the plugin keeps state, which ends with the shard.
    pub keeps_state: bool,
    /// The version of what operators want that the holder has read: the shard does not end over
    /// anything newer.
    pub seen_version: u64,
}

/// Why the table did not answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Too many requests; nothing was applied.
    #[error("throttled: {message}")]
    Throttled {
        /// DynamoDB's message.
        message: String,
    },
    /// The request may or may not have been applied: a timeout, a cut connection, a 5xx.
    #[error("no answer: {message}")]
    Unknown {
        /// What happened.
        message: String,
    },
    /// The table exists but cannot be used, for instance because its key is another.
    #[error("table {table} cannot be used: {problem}")]
    WrongTable {
        /// Its name.
        table: String,
        /// What is wrong and how to fix it.
        problem: String,
    },
    /// Refused for a reason that a retry will not change soon (rights, validation).
    #[error("refused: {message}")]
    Refused {
        /// DynamoDB's message.
        message: String,
    },
}
