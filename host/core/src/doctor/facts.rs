//! The facts that were read. Reading changes nothing and decides nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::fleet::{FleetRows, StreamIdentity};
use crate::lease::Lease;
use crate::migration::{Found, Library, WorkerLife};
use crate::ports::BadRow;
use crate::stream::{Shard, StreamName};

/// Everything read about one application.
#[derive(Debug, Clone)]
pub struct Facts {
    /// The application's name, which is also its lease table's.
    pub application: String,
    /// The application's lease table.
    pub table: TableFacts,
    /// Which tables of the same application lie beside it.
    pub companions: Companions,
    /// The stream, if one was named.
    pub stream: Option<StreamFacts>,
    /// The data that another library keeps under this name, if there are any.
    pub predecessor: Option<PredecessorFacts>,
    /// The KCL's failover time, if the caller knows it. No row shows it, and without it no worker
    /// of a KCL counts as dead.
    pub failover_time: Option<Duration>,
}

/// The data that another library keeps under the application's name.
#[derive(Debug, Clone)]
pub struct PredecessorFacts {
    /// The library whose tables or keys these are.
    pub library: Library,
    /// Its checkpoints, as last seen: one entry for each application and stream.
    pub places: Vec<Found>,
    /// Its workers for each of these entries, as far as they were watched.
    pub workers: Vec<Vec<WorkerLife>>,
}

/// What exists under the application's name.
#[derive(Debug, Clone)]
pub enum TableFacts {
    /// No table.
    Missing,
    /// A table that cannot hold leases.
    OtherKey {
        /// The reason, and how to fix it.
        problem: String,
    },
    /// A table with a lease table's key.
    Leases(Box<LeaseTableFacts>),
}

/// A table with a lease table's key.
#[derive(Debug, Clone, Default)]
pub struct LeaseTableFacts {
    /// DynamoDB's status: `ACTIVE`, `CREATING`, `UPDATING`, `DELETING` and others.
    pub status: String,
    /// Whether it has the index `LeaseOwnerToLeaseKeyIndex`, which only KCL 3.x creates.
    pub has_owner_index: bool,
    /// The leases of the table, finished ones included.
    pub leases: Vec<LeaseFacts>,
    /// Rows that look like leases but cannot be read.
    pub bad_rows: Vec<BadRow>,
    /// How many rows of each other kind there are, by `entityType` (KCL 3.5).
    pub other_rows: BTreeMap<String, usize>,
    /// `cv` of the row `Migration3.0`, here or in the coordinator state table: which KCL's rules
    /// the fleet follows.
    pub client_version: Option<String>,
    /// `tm` of the row `TableMigration3.5`: how far KCL 3.5 is with moving its other tables into
    /// this one.
    pub table_migration: Option<String>,
    /// The registered hosts of shardmill, and the stream that they recorded; empty without a
    /// coordinator table.
    pub fleet: FleetRows,
    /// The leases some time later, if there was a second look.
    pub second_look: Option<SecondLook>,
}

/// A lease, and what its row shows about its writer.
#[derive(Debug, Clone)]
pub struct LeaseFacts {
    /// The lease, read from its row.
    pub lease: Lease,
    /// Whether a two-phase checkpoint of the KCL is prepared in it.
    pub has_pending_checkpoint: bool,
    /// Whether it has `entityType`, which only KCL 3.5 writes.
    pub has_entity_type: bool,
}

/// The leases some time later: a live worker has moved a counter.
#[derive(Debug, Clone)]
pub struct SecondLook {
    /// How long after the first look.
    pub after: Duration,
    /// The leases as the second look found them.
    pub leases: Vec<Lease>,
    /// The registered hosts then.
    pub fleet: FleetRows,
}

/// Which of the tables that go with a lease table exist.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Companions {
    /// `APPLICATION-WorkerMetricStats`, of KCL 3.0 to 3.4.
    pub worker_metrics: bool,
    /// `APPLICATION-CoordinatorState`, of KCL 3.0 to 3.4.
    pub coordinator_state: bool,
    /// Whether `APPLICATION-coordinator` is there, shardmill's own table.
    pub own_coordinator: bool,
}

/// The stream that the application reads.
#[derive(Debug, Clone)]
pub struct StreamFacts {
    /// The stream's name, without region and account.
    pub name: StreamName,
    /// Kinesis' status: `ACTIVE`, `CREATING`, `UPDATING` or `DELETING`; `None` if the stream does
    /// not exist.
    pub status: Option<String>,
    /// What distinguishes it from an earlier stream of the same name, if Kinesis reports it.
    pub identity: Option<StreamIdentity>,
    /// All its shards, open and closed.
    pub shards: Vec<Shard>,
}
