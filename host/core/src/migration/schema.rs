//! The rows of each library: how they are read, and how they are written.

mod kcl_rb;
mod kinsumer;
mod lifion;
mod multi_stream;
mod redpanda;
mod ruststream;
mod vmware;

pub use multi_stream::of_multi_stream;

use super::Library;
use super::found::Found;
use super::row_change::{Held, RowChange, Target};
use super::value::Row;
use crate::lease::Checkpoint;
use crate::stream::Shard;

/// The rows of a library's tables.
#[derive(Debug, Clone, Default)]
pub struct Tables {
    /// Rows of its table of checkpoints.
    pub checkpoints: Vec<Row>,
    /// Rows of the table in which its workers register, if it has one.
    pub workers: Vec<Row>,
}

/// Reads the tables of `library`: one place for each application and stream in them. A lease table
/// of the KCL is read with [`of_multi_stream`].
pub fn read(library: Library, tables: &Tables) -> Vec<Found> {
    let rows = &tables.checkpoints;
    match library {
        Library::VmwareGoKcl => vec![vmware::read(rows)],
        Library::Kinsumer => vec![kinsumer::read(rows, &tables.workers)],
        Library::Lifion => rows.iter().map(lifion::read).collect(),
        Library::KclRb => vec![kcl_rb::read(rows)],
        Library::Ruststream => vec![ruststream::read(rows)],
        Library::Redpanda => redpanda::read(rows),
        Library::KclMultiStream => Vec::new(),
    }
}

/// The row that expresses `checkpoint` of `shard` in the format of `library`; `Ok(None)` if the
/// library expresses it by having no row.
///
/// # Errors
/// If the library cannot express it; the text says what it would do instead.
pub(super) fn write(
    library: Library,
    target: &Target<'_>,
    shard: &Shard,
    checkpoint: &Checkpoint,
) -> Result<Option<RowChange>, &'static str> {
    if checkpoint.sought().is_some() {
        return Err("it knows no place that an operator chose: let a host settle a record first");
    }
    let held = Held::of(checkpoint);
    match library {
        Library::VmwareGoKcl => vmware::write(shard, &held).map(Some),
        Library::Kinsumer => kinsumer::write(target, shard, &held).map(Some),
        Library::Lifion => lifion::write(shard, &held).map(Some),
        Library::KclRb => kcl_rb::write(shard, &held).map(Some),
        Library::Ruststream => ruststream::write(shard, &held).map(Some),
        Library::Redpanda => redpanda::write(target, shard, &held),
        Library::KclMultiStream => Ok(Some(multi_stream::write(target, shard, checkpoint))),
    }
}

/// Arranges the rows as the table holds them: lifion-kinesis keeps all shards in one item.
pub(super) fn gather(
    library: Library,
    target: &Target<'_>,
    changes: Vec<RowChange>,
) -> Vec<RowChange> {
    match library {
        Library::Lifion => vec![lifion::item(target, changes)],
        _ => changes,
    }
}
