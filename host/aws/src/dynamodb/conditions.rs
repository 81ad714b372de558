//! Every conditional expression on a lease row, with its name. There is no write without one of these.
//!
//! All raise `leaseCounter` by one, as the KCL does, so that a lease that is written is a lease that lives.

use shardmill_core::lease::{Checkpoint, Lease, LeaseToken, WorkerId};
use shardmill_core::ports::{CheckpointWrite, Progress, ShardEndWrite};
use shardmill_core::seeded_bug::SeededBug;

use super::lease_item::{Item, number, shard_set, text};

/// Create: the row does not exist. KCL: the same (`createLeaseIfNotExists`).
pub(super) const IS_NEW: &str = "attribute_not_exists(leaseKey)";

/// Take a lease that had an owner. KCL takes on the counter alone; the owner is asked for too, because a KCL 3.x
/// hand-off changes the owner without moving the counter.
const UNCHANGED_AND_OWNED: &str = "leaseCounter = :seen AND leaseOwner = :seenOwner";

/// Take a lease that had no owner.
const UNCHANGED_AND_UNOWNED: &str = "leaseCounter = :seen AND attribute_not_exists(leaseOwner)";

/// Renew, checkpoint, end, release: the row still is as this holder left it. KCL asks for the counter alone.
const STILL_MINE: &str = "leaseCounter = :seen AND leaseOwner = :me";

/// No condition at all, in an expression that names the same values: only for [`SeededBug::CheckpointWithoutCondition`].
const ALWAYS: &str = "attribute_exists(leaseKey) OR leaseCounter = :seen OR leaseOwner = :me";

/// What a checkpoint clears: a KCL two-phase checkpoint that somebody prepared is void once a newer one is written.
const PENDING_CHECKPOINT: &str = "pendingCheckpoint, pendingCheckpointSubSequenceNumber, pendingCheckpointState";

/// One conditional `UpdateItem`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ConditionalUpdate {
    pub(super) condition: &'static str,
    pub(super) update: String,
    pub(super) values: Item,
}

/// Becomes the owner; clears a KCL 3.x hand-off, which would leave the shard silent (KCL PR 1743).
pub(super) fn take(seen: &Lease, by: &WorkerId) -> ConditionalUpdate {
    let mut values = Item::from([
        (":seen".to_owned(), number(seen.counter.0)),
        (":next".to_owned(), number(seen.counter.next().0)),
        (":me".to_owned(), text(by.as_str())),
    ]);
    let mut update = "SET leaseCounter = :next, leaseOwner = :me REMOVE checkpointOwner".to_owned();
    let condition = match &seen.owner {
        Some(owner) => {
            values.insert(":seenOwner".to_owned(), text(owner.as_str()));
            if owner != by {
                values.insert(":one".to_owned(), number(1));
                update.push_str(" ADD ownerSwitchesSinceCheckpoint :one");
            }
            UNCHANGED_AND_OWNED
        }
        None => UNCHANGED_AND_UNOWNED,
    };
    ConditionalUpdate { condition, update, values }
}

/// KCL `renewLease`.
pub(super) fn renew(token: &LeaseToken, progress: &Progress) -> ConditionalUpdate {
    held_write(token, progress, Item::new(), &[], "")
}

/// KCL `updateLease` with a checkpoint.
pub(super) fn checkpoint(token: &LeaseToken, write: &CheckpointWrite) -> ConditionalUpdate {
    let (values, sets) = checkpoint_values(&write.checkpoint());
    let update = held_write(token, &write.progress, values, &sets, PENDING_CHECKPOINT);
    if SeededBug::CheckpointWithoutCondition.is_on() {
        return ConditionalUpdate { condition: ALWAYS, ..update };
    }
    update
}

/// KCL `updateLease` with `SHARD_END`, and the children in the same write.
pub(super) fn end(token: &LeaseToken, write: &ShardEndWrite) -> ConditionalUpdate {
    let (mut values, mut sets) = checkpoint_values(&Checkpoint::ShardEnd);
    if let Some(children) = shard_set(&write.children) {
        values.insert(":children".to_owned(), children);
        sets.push("childShardIds = :children");
    }
    held_write(token, &write.progress, values, &sets, PENDING_CHECKPOINT)
}

/// KCL 2.x `evictLease`, with the counter asked for as well; its peers see the lease as free at once.
pub(super) fn release(token: &LeaseToken) -> ConditionalUpdate {
    held_write(token, &Progress::default(), Item::new(), &[], "leaseOwner")
}

fn checkpoint_values(checkpoint: &Checkpoint) -> (Item, Vec<&'static str>) {
    let values = Item::from([
        (":checkpoint".to_owned(), text(checkpoint.text())),
        (":sub".to_owned(), number(checkpoint.sub_sequence())),
        (":zero".to_owned(), number(0)),
    ]);
    let sets =
        vec!["checkpoint = :checkpoint", "checkpointSubSequenceNumber = :sub", "ownerSwitchesSinceCheckpoint = :zero"];
    (values, sets)
}

fn held_write(
    token: &LeaseToken,
    progress: &Progress,
    mut values: Item,
    sets: &[&str],
    remove: &str,
) -> ConditionalUpdate {
    let mut update = "SET leaseCounter = :next".to_owned();
    let mut set = |assignment: &str| {
        update.push_str(", ");
        update.push_str(assignment);
    };
    for assignment in sets {
        set(assignment);
    }
    if let Some(digest) = &progress.plugin_digest {
        values.insert(":digest".to_owned(), text(digest.as_str()));
        set("pluginDigest = :digest");
    }
    if let Some(millis) = progress.millis_behind_latest {
        values.insert(":behind".to_owned(), number(millis));
        set("millisBehindLatest = :behind");
    }
    if !remove.is_empty() {
        update.push_str(" REMOVE ");
        update.push_str(remove);
    }
    values.insert(":seen".to_owned(), number(token.counter.0));
    values.insert(":next".to_owned(), number(token.counter.next().0));
    values.insert(":me".to_owned(), text(token.owner.as_str()));
    ConditionalUpdate { condition: STILL_MINE, update, values }
}
