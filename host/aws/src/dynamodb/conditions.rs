//! Every conditional expression on a lease row, with its name. There is no write without one of
//! these.
//!
//! All raise `leaseCounter` by one, as the KCL does, so that a lease that is written is a lease
//! that lives.

use shardmill_core::lease::{Checkpoint, Lease, LeaseToken, WorkerId};
use shardmill_core::ports::{CheckpointWrite, Progress, ShardEndWrite};

use super::lease_item::{Item, number, shard_set, text, throughput};

/// Create: the row does not exist. KCL: the same (`createLeaseIfNotExists`).
pub(super) const IS_NEW: &str = "attribute_not_exists(leaseKey)";

/// Take a lease that had an owner. KCL takes on the counter alone; the owner is asked for too,
/// because a KCL 3.x hand-off changes the owner without moving the counter.
const UNCHANGED_AND_OWNED: &str = "leaseCounter = :seen AND leaseOwner = :seenOwner";

/// Take a lease that had no owner. A `leaseOwner` of type NULL is none, for the KCL too
/// (`DynamoUtils`): asked for by its absence alone, such a row could never be taken.
const UNCHANGED_AND_UNOWNED: &str = "leaseCounter = :seen AND (attribute_not_exists(leaseOwner) \
    OR attribute_type(leaseOwner, :null))";

/// Place: nobody holds or ever held the lease, and nobody wrote to it since.
const UNCHANGED_AND_NEVER_HELD: &str = "leaseCounter = :seen AND \
    (attribute_not_exists(leaseOwner) OR attribute_type(leaseOwner, :null)) AND \
    attribute_not_exists(heldSinceMillis)";

/// Renew, checkpoint, end, release: the row still is as this holder left it. KCL asks for the
/// counter alone.
const STILL_MINE: &str = "leaseCounter = :seen AND leaseOwner = :me";

/// Claim: the lease still is the owner's, and nobody else asked for it. Not the counter: that moves
/// with the owner's work.
const UNCLAIMED: &str = "leaseOwner = :seenOwner AND attribute_not_exists(claimedBy)";

/// Claim what somebody asked for and did not get.
const CLAIMED_IN_VAIN: &str = "leaseOwner = :seenOwner AND claimedBy = :seenClaimant";

/// What a checkpoint clears: a KCL two-phase checkpoint that somebody prepared is void once a newer
/// one is written.
const PENDING_CHECKPOINT: &str =
    "pendingCheckpoint, pendingCheckpointSubSequenceNumber, pendingCheckpointState";

/// One conditional `UpdateItem`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ConditionalUpdate {
    pub(super) condition: &'static str,
    pub(super) update: String,
    pub(super) values: Item,
}

/// Becomes the owner; clears a claim, and a KCL 3.x hand-off, which would leave the shard silent
/// (KCL PR 1743).
pub(super) fn take(seen: &Lease, by: &WorkerId, wall_ms: u64) -> ConditionalUpdate {
    let mut values = Item::from([
        (":seen".to_owned(), number(seen.counter.0)),
        (":next".to_owned(), number(seen.counter.next().0)),
        (":me".to_owned(), text(by.as_str())),
        (":now".to_owned(), number(wall_ms)),
    ]);
    let mut update = "SET leaseCounter = :next, leaseOwner = :me, heldSinceMillis = :now \
                      REMOVE checkpointOwner, claimedBy"
        .to_owned();
    let condition = if let Some(owner) = &seen.owner {
        values.insert(":seenOwner".to_owned(), text(owner.as_str()));
        if owner != by {
            values.insert(":one".to_owned(), number(1));
            update.push_str(" ADD ownerSwitchesSinceCheckpoint :one");
        }
        UNCHANGED_AND_OWNED
    } else {
        values.insert(":null".to_owned(), text("NULL"));
        UNCHANGED_AND_UNOWNED
    };
    ConditionalUpdate {
        condition,
        update,
        values,
    }
}

/// Asks the owner for the lease. The only write that leaves the counter alone: it is the owner's.
pub(super) fn claim(seen: &Lease, owner: &WorkerId, by: &WorkerId) -> ConditionalUpdate {
    let mut values = Item::from([
        (":seenOwner".to_owned(), text(owner.as_str())),
        (":me".to_owned(), text(by.as_str())),
    ]);
    let condition = match &seen.claimant {
        Some(claimant) => {
            values.insert(":seenClaimant".to_owned(), text(claimant.as_str()));
            CLAIMED_IN_VAIN
        }
        None => UNCLAIMED,
    };
    ConditionalUpdate {
        condition,
        update: "SET claimedBy = :me".to_owned(),
        values,
    }
}

/// Another checkpoint for a lease that nobody ever held: an import that runs again.
pub(super) fn place(seen: &Lease, to: &Lease) -> ConditionalUpdate {
    let (mut values, mut sets) = checkpoint_values(&to.checkpoint);
    values.insert(":seen".to_owned(), number(seen.counter.0));
    values.insert(":next".to_owned(), number(seen.counter.next().0));
    values.insert(":null".to_owned(), text("NULL"));
    let mut removed = "";
    match shard_set(&to.children) {
        Some(children) => {
            values.insert(":children".to_owned(), children);
            sets.push("childShardIds = :children");
        }
        None => removed = " REMOVE childShardIds",
    }
    ConditionalUpdate {
        condition: UNCHANGED_AND_NEVER_HELD,
        update: format!("SET leaseCounter = :next, {}{removed}", sets.join(", ")),
        values,
    }
}

/// The condition of a delete, with its values: the row still is as seen. The KCL deletes
/// unconditionally.
pub(super) fn delete(seen: &Lease) -> (&'static str, Item) {
    let mut values = Item::from([(":seen".to_owned(), number(seen.counter.0))]);
    if let Some(owner) = &seen.owner {
        values.insert(":seenOwner".to_owned(), text(owner.as_str()));
        (UNCHANGED_AND_OWNED, values)
    } else {
        values.insert(":null".to_owned(), text("NULL"));
        (UNCHANGED_AND_UNOWNED, values)
    }
}

/// KCL `renewLease`.
pub(super) fn renew(token: &LeaseToken, progress: &Progress) -> ConditionalUpdate {
    held_write(token, progress, Item::new(), &[], "")
}

/// KCL `updateLease` with a checkpoint.
pub(super) fn checkpoint(token: &LeaseToken, write: &CheckpointWrite) -> ConditionalUpdate {
    let (values, sets) = checkpoint_values(&write.checkpoint());
    held_write(token, &write.progress, values, &sets, PENDING_CHECKPOINT)
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

/// KCL 2.x `evictLease`, with the counter asked for as well; its peers see the lease as free at
/// once.
///
/// Leaves the claim in place: it says whom the lease is given up for. `stuck` says why it is given
/// up, if for a trouble.
pub(super) fn release(token: &LeaseToken, progress: &Progress) -> ConditionalUpdate {
    held_write(token, progress, Item::new(), &[], "leaseOwner")
}

fn checkpoint_values(checkpoint: &Checkpoint) -> (Item, Vec<&'static str>) {
    let values = Item::from([
        (":checkpoint".to_owned(), text(checkpoint.text())),
        (":sub".to_owned(), number(checkpoint.sub_sequence())),
        (":zero".to_owned(), number(0)),
    ]);
    let sets = vec![
        "checkpoint = :checkpoint",
        "checkpointSubSequenceNumber = :sub",
        "ownerSwitchesSinceCheckpoint = :zero",
    ];
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
    if let Some(millis) = progress.settled_arrival_ms {
        values.insert(":arrived".to_owned(), number(millis));
        set("settledArrivalMillis = :arrived");
    }
    if let Some(rate) = progress.bytes_per_second {
        values.insert(":rate".to_owned(), throughput(rate));
        set("throughputKBps = :rate");
    }
    if let Some(given_up) = &progress.given_up {
        values.insert(":given".to_owned(), text(given_up));
        set("lastGivenUp = :given");
    }
    let mut removed: Vec<&str> = if remove.is_empty() {
        Vec::new()
    } else {
        vec![remove]
    };
    match &progress.stuck {
        Some(why) => {
            values.insert(":stuck".to_owned(), text(why));
            set("stuckBecause = :stuck");
        }
        None => removed.push("stuckBecause"),
    }
    if !removed.is_empty() {
        update.push_str(" REMOVE ");
        update.push_str(&removed.join(", "));
    }
    values.insert(":seen".to_owned(), number(token.counter.0));
    values.insert(":next".to_owned(), number(token.counter.next().0));
    values.insert(":me".to_owned(), text(token.owner.as_str()));
    ConditionalUpdate {
        condition: STILL_MINE,
        update,
        values,
    }
}
