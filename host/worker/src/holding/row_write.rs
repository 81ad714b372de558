//! The writes to a held lease's row, and what came of them.

use shardmill_core::lease::{LeaseToken, LossReason};
use shardmill_core::ports::{CheckpointWrite, Progress, ShardEndWrite, StoreError};

/// What a single write does; kept as a value so that an unanswered one can be sent again unchanged.
#[derive(Clone, Copy)]
pub(super) enum Write<'a> {
    Renew(&'a Progress),
    Checkpoint(&'a CheckpointWrite),
    End(&'a ShardEndWrite),
    Release(&'a Progress),
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
}

/// Why a write is not applied, or not known to be.
#[derive(Debug)]
pub(super) enum Unwritten {
    /// The lease is gone.
    Lost(LossReason),
    /// The lease is given up, since its row cannot be written.
    GivenUp,
}
