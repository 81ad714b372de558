//! Which way a row would go that is replaced. Back, records are delivered once more; forward, what
//! lies between never is, and nobody sees it.

use crate::fleet::ApplicationStart;
use crate::lease::{Checkpoint, Lease, Sought};
use crate::stream::InitialPosition;

/// Whether records that follow the place of the row `seen` would be left out, or might be: places
/// of different kinds are compared by the arrival of records, which is not always known.
pub(super) fn goes_forward(start: &ApplicationStart, seen: &Lease, wanted: &Lease) -> bool {
    if seen.checkpoint == wanted.checkpoint || was_never_read(seen) {
        return false;
    }
    match (&seen.checkpoint, &wanted.checkpoint) {
        (Checkpoint::ShardEnd, _) => false,
        (_, Checkpoint::ShardEnd) => true,
        (Checkpoint::At(seen), Checkpoint::At(wanted)) => wanted > seen,
        (Checkpoint::Sought(Sought::Sequence(first)), Checkpoint::At(settled)) => {
            settled.sequence >= *first
        }
        (Checkpoint::At(settled), Checkpoint::Sought(Sought::Sequence(first))) => {
            *first > settled.sequence
        }
        _ => match (since(start, seen), since(start, wanted)) {
            (Some(seen), Some(wanted)) => wanted > seen,
            // At the oldest record there is nothing before it.
            (_, wanted) => wanted != Some((0, false)),
        },
    }
}

/// A row that was made for a shard, and that nobody began with: its place is nobody's.
fn was_never_read(row: &Lease) -> bool {
    let is_fresh = match row.checkpoint {
        Checkpoint::AtTimestamp | Checkpoint::TrimHorizon | Checkpoint::Latest => true,
        Checkpoint::At(_) | Checkpoint::Sought(_) | Checkpoint::ShardEnd => false,
    };
    is_fresh && !row.was_held()
}

/// When the records arrived that come next: at this time, or (if the record of that time is
/// settled) after it. `None` if that is not known.
fn since(start: &ApplicationStart, row: &Lease) -> Option<(u64, bool)> {
    match &row.checkpoint {
        Checkpoint::TrimHorizon | Checkpoint::Sought(Sought::Horizon) => Some((0, false)),
        Checkpoint::Sought(Sought::Time(ms)) => Some((*ms, false)),
        Checkpoint::At(_) => Some((row.settled_arrival_ms?, true)),
        Checkpoint::Latest => Some((start.looked_at_ms, false)),
        Checkpoint::AtTimestamp => match start.position {
            InitialPosition::AtTimestamp(ms) => Some((ms, false)),
            // As `Checkpoint::read_from` has it.
            InitialPosition::TrimHorizon | InitialPosition::Latest => Some((0, false)),
        },
        Checkpoint::Sought(Sought::Sequence(_)) | Checkpoint::ShardEnd => None,
    }
}
