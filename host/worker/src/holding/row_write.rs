//! The writes to a held lease's row, and what came of them.

use shardmill_core::control::Directives;
use shardmill_core::lease::{Lease, LeaseToken, LossReason};
use shardmill_core::ports::{CheckpointWrite, ObeyWrite, Progress, ShardEndWrite, StoreError};

/// What a single write does; kept as a value so that an unanswered one can be sent again unchanged.
#[derive(Clone, Copy)]
pub(super) enum Write<'a> {
    Renew(&'a Progress),
    Checkpoint(&'a CheckpointWrite),
    End(&'a ShardEndWrite),
    Release(&'a Progress),
    Obey(&'a ObeyWrite),
}

/// A write that is known to be applied.
pub(super) enum Applied {
    /// By the try that was just answered.
    Now(LeaseToken),
    /// By this try or one before it: the row shows it.
    Earlier(LeaseToken),
}

/// The result of an attempt that is not known to be applied.
pub(super) enum NotApplied {
    Lost(LossReason),
    /// It should be sent again.
    Failed(StoreError),
    /// What operators want has changed since it was read: this, now.
    Outdated(Box<Directives>),
}

/// Why a write is not applied, or not known to be.
#[derive(Debug)]
pub(super) enum Unwritten {
    /// The lease is gone.
    Lost(LossReason),
    /// The lease is given up, since its row cannot be written.
    GivenUp,
    /// What operators want has changed since it was read: this, now. The lease is held.
    Outdated(Box<Directives>),
}

impl Write<'_> {
    /// Whether a row that its holder left like this, but for its directives, shows that the write
    /// was applied by an earlier try.
    pub(super) fn is_shown_by(self, row: &Lease) -> bool {
        let Self::Obey(obey) = self else {
            return false;
        };
        let is_there = obey.to.as_ref().is_none_or(|to| row.checkpoint == *to);
        row.directives == obey.next && is_there
    }

    /// Whether it rests on directives that the row has no more.
    pub(super) fn is_outdated_by(self, row: &Lease) -> bool {
        match self {
            Self::Obey(obey) => row.directives.version != obey.seen_version,
            Self::End(end) => row.directives.version != end.seen_version,
            Self::Renew(_) | Self::Checkpoint(_) | Self::Release(_) => false,
        }
    }
}
