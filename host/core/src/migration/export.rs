//! The way back: our checkpoints as a library's rows, where it can hold them.

use std::collections::BTreeSet;
use std::fmt;

use super::Library;
use super::row_change::{RowChange, Target};
use super::schema;
use crate::lease::{Checkpoint, Lease};
use crate::stream::{Shard, ShardId};

/// The input for deciding an export.
#[derive(Debug, Clone, Copy)]
pub struct ExportRequest<'a> {
    /// The library whose rows are written.
    pub library: Library,
    /// The place that the rows are for.
    pub target: Target<'a>,
    /// The application's lease rows.
    pub leases: &'a [Lease],
    /// All shards of the stream, open and closed.
    pub shards: &'a [Shard],
    /// Shards whose checkpoint has user records of the same aggregate behind it.
    pub inside_aggregate: &'a BTreeSet<ShardId>,
}

/// What happens to one shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardExport {
    /// The shard that the row is for.
    pub shard: ShardId,
    /// The checkpoint in our row.
    pub checkpoint: Checkpoint,
    /// Whether the library can hold it.
    pub held: Result<(), CannotHold>,
}

/// Why a library's rows cannot express what our row contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CannotHold {
    /// It cannot express this start; the text says what it would do instead.
    Start(&'static str),
    /// It would continue after the whole aggregate, and skip the rest of it.
    InsideAggregate,
}

impl fmt::Display for CannotHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(instead) => f.write_str(instead),
            Self::InsideAggregate => f.write_str(
                "the checkpoint is inside an aggregate, and the library would skip the rest of \
                    it: start a host, let it go on, and stop it again",
            ),
        }
    }
}

/// The rows to write, and what happens to each shard, by id.
pub fn plan_export(request: &ExportRequest<'_>) -> (Vec<RowChange>, Vec<ShardExport>) {
    let mut changes = Vec::new();
    let mut shards = Vec::new();
    let mut leases: Vec<&Lease> = request.leases.iter().collect();
    leases.sort_by(|a, b| a.key.cmp(&b.key));
    for lease in leases {
        let id = lease.key.shard_id();
        // The library has no use for the row of a shard that is gone.
        let Some(shard) = request.shards.iter().find(|shard| shard.id == id) else {
            continue;
        };
        let held = row_of(request, shard, &lease.checkpoint);
        shards.push(ShardExport {
            shard: id,
            checkpoint: lease.checkpoint.clone(),
            held: held.map(|change| changes.extend(change)),
        });
    }
    let rows = schema::gather(request.library, &request.target, changes);
    (rows, shards)
}

fn row_of(
    request: &ExportRequest<'_>,
    shard: &Shard,
    checkpoint: &Checkpoint,
) -> Result<Option<RowChange>, CannotHold> {
    let is_inside = request.inside_aggregate.contains(&shard.id);
    if is_inside && !request.library.opens_aggregates() {
        return Err(CannotHold::InsideAggregate);
    }
    schema::write(request.library, &request.target, shard, checkpoint).map_err(CannotHold::Start)
}
