//! What a backup holds.

use std::collections::BTreeSet;

use crate::control::{DeployAsked, Pause};
use crate::fleet::{ApplicationStart, StreamRow};
use crate::lease::{Checkpoint, Lease};
use crate::ports::SavedState;
use crate::rollout::Quarantined;
use crate::stream::LeaseKey;

/// One application on one stream, at about one moment: each shard is as it was at some moment
/// while the backup was made, and not all at the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backup {
    /// The application that it is of.
    pub application: String,
    /// When it was begun, in milliseconds since the Unix epoch: nothing in it is older.
    pub at_ms: u64,
    /// The stream that the checkpoints belong to.
    pub stream: BackedUpStream,
    /// Where the application began on it.
    pub start: ApplicationStart,
    /// The pause of all shards, if operators want one.
    pub pause: Option<Pause>,
    /// The version that the fleet is to run, if somebody deployed one.
    pub deploy: Option<DeployAsked>,
    /// Versions that hosts found bad.
    pub quarantined: Vec<Quarantined>,
    /// Every shard that has a row, in the order of their ids.
    pub shards: Vec<BackedUpShard>,
}

/// Which stream the checkpoints of a backup belong to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackedUpStream {
    /// As the coordinator table has it.
    pub row: StreamRow,
    /// Its ARN, which names region and account; `None` if Kinesis did not say it.
    pub arn: Option<String>,
}

/// A shard's row, and the state that belongs to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackedUpShard {
    /// The row. Who held it then is of no use.
    pub lease: Lease,
    /// The plugin's state at that checkpoint, if it keeps one.
    pub state: Option<SavedState>,
    /// When both were read, in milliseconds since the Unix epoch.
    pub read_at_ms: u64,
}

impl Backup {
    /// The shard with that row, if it has one.
    pub(super) fn shard(&self, key: &LeaseKey) -> Option<&BackedUpShard> {
        self.shards.iter().find(|shard| shard.lease.key == *key)
    }
}

/// The row and the state that belong together, of a row that was read before its state and once
/// more after it. `None` if a checkpoint came between: they are to be read again.
///
/// A state says which checkpoint it belongs to, and both are written in one transaction. A state
/// that is not there says nothing, so the row must not have moved around that read.
pub fn pair(
    before: &Lease,
    state: Option<SavedState>,
    after: &Lease,
) -> Option<(Lease, Option<SavedState>)> {
    let Some(state) = state else {
        let is_unmoved = before.checkpoint == after.checkpoint;
        return is_unmoved.then(|| (after.clone(), None));
    };
    let row = [before, after]
        .into_iter()
        .find(|row| row.checkpoint == state.checkpoint)?;
    Some((row.clone(), Some(state)))
}

/// The shards that were read before they ended, and whose children were read after these had begun:
/// they are to be read again. Otherwise both would seem to be at work, which they never are.
pub fn torn<'a>(shards: impl Iterator<Item = &'a BackedUpShard> + Clone) -> BTreeSet<LeaseKey> {
    let has_begun = |shard: &&BackedUpShard| {
        let checkpoint = &shard.lease.checkpoint;
        matches!(checkpoint, Checkpoint::At(_) | Checkpoint::ShardEnd)
    };
    let begun = shards.clone().filter(has_begun);
    let parents: BTreeSet<LeaseKey> = begun
        .flat_map(|shard| shard.lease.parents.iter().map(LeaseKey::of_shard))
        .collect();
    let unfinished = shards.filter(|shard| !shard.lease.is_finished());
    unfinished
        .map(|shard| shard.lease.key.clone())
        .filter(|key| parents.contains(key))
        .collect()
}
