//! When the record arrived that a shard was at: all that is left of its place on another stream.

use std::time::Duration;

use super::content::{BackedUpShard, Backup};
use crate::lease::{Checkpoint, Lease, Sought};
use crate::stream::{InitialPosition, LeaseKey, ReadFrom};

/// So much before a record's arrival another stream is read from, if nobody says otherwise: the
/// same record may have arrived there earlier, if the producer had to try this stream again. The
/// KPL gives a record up after 30 s; clocks of two regions differ by less than a second.
pub const MARGIN_DEFAULT: Duration = Duration::from_mins(1);

/// From when on another stream is read. In order: what comes first is read from earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Since {
    /// From its oldest record: the place of the shard is not known as a time.
    Oldest,
    /// From what arrived at this time or later, in milliseconds since the Unix epoch.
    Time(u64),
}

impl Since {
    /// A little earlier.
    pub(super) fn less(self, margin: Duration) -> Self {
        let margin = u64::try_from(margin.as_millis()).unwrap_or(u64::MAX);
        match self {
            Self::Oldest => Self::Oldest,
            Self::Time(ms) => Self::Time(ms.saturating_sub(margin)),
        }
    }

    /// What the row of a shard says that is read from there.
    pub(super) fn checkpoint(self) -> Checkpoint {
        Checkpoint::Sought(match self {
            Self::Oldest => Sought::Horizon,
            Self::Time(ms) => Sought::Time(ms),
        })
    }

    /// The same as the beginning of an application.
    pub(super) fn position(self) -> InitialPosition {
        match self {
            Self::Oldest => InitialPosition::TrimHorizon,
            Self::Time(ms) => InitialPosition::AtTimestamp(ms),
        }
    }
}

/// From when on the records of a shard were left to be read; `None` if it has none of its own, as
/// it is finished or its parents come first.
pub(super) fn since(backup: &Backup, shard: &BackedUpShard) -> Option<Since> {
    let lease = &shard.lease;
    if lease.is_finished() {
        return None;
    }
    if is_fresh(lease) {
        return since_of_fresh(backup, lease);
    }
    let known = lease.settled_arrival_ms.map(Since::Time);
    Some(match &lease.checkpoint {
        Checkpoint::Sought(Sought::Time(ms)) => Since::Time(*ms),
        Checkpoint::At(_) => known.unwrap_or(Since::Oldest),
        _ => Since::Oldest,
    })
}

/// Whether nothing of it was settled, and nobody sent it anywhere.
fn is_fresh(lease: &Lease) -> bool {
    match lease.checkpoint {
        Checkpoint::AtTimestamp | Checkpoint::TrimHorizon | Checkpoint::Latest => true,
        Checkpoint::At(_) | Checkpoint::Sought(_) | Checkpoint::ShardEnd => false,
    }
}

/// A child's records all arrived after those of its parents.
fn since_of_fresh(backup: &Backup, lease: &Lease) -> Option<Since> {
    let parents = lease.parents.iter();
    let keys = parents.map(LeaseKey::of_shard);
    let parents: Vec<_> = keys.filter_map(|key| backup.shard(&key)).collect();
    if parents.iter().any(|parent| !parent.lease.is_finished()) {
        return None;
    }
    let ended = parents.iter().map(|parent| {
        let arrived = parent.lease.settled_arrival_ms;
        arrived.map_or(Since::Oldest, Since::Time)
    });
    Some(
        ended
            .min()
            .unwrap_or_else(|| match lease.checkpoint.read_from(&backup.start) {
                Some(ReadFrom::AtTimestamp(ms)) => Since::Time(ms),
                _ => Since::Oldest,
            }),
    )
}
