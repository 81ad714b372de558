//! Every conditional expression on a lease row, with its name. Every write uses one of them.
//!
//! All but a claim raise `leaseCounter` by one, as the KCL does: a write to a lease also renews it.

use aws_sdk_dynamodb::types::AttributeValue;
use shardmill_core::lease::{Checkpoint, Lease, LeaseCounter, LeaseToken, WorkerId};
use shardmill_core::ports::{CheckpointWrite, Progress, ShardEndWrite};

use super::lease_item::{Item, number, shard_set, text, throughput};

/// Create: the row does not exist. KCL: the same (`createLeaseIfNotExists`).
pub(super) const IS_NEW: &str = "attribute_not_exists(leaseKey)";

/// Take a lease that had an owner. KCL takes on the counter alone; the owner is asked for too,
/// because a KCL 3.x hand-off changes the owner without moving the counter.
const UNCHANGED_AND_OWNED: &str = "leaseCounter = :seen AND leaseOwner = :seenOwner";

/// Take a lease that had no owner. A `leaseOwner` of type NULL means no owner, for the KCL too
/// (`DynamoUtils`): if we asked for its absence alone, such a row could never be taken.
const UNCHANGED_AND_UNOWNED: &str = "leaseCounter = :seen AND (attribute_not_exists(leaseOwner) \
    OR attribute_type(leaseOwner, :null))";

/// Place: no worker holds or ever held the lease, and the row has not changed since it was read.
const UNCHANGED_AND_NEVER_HELD: &str = "leaseCounter = :seen AND \
    (attribute_not_exists(leaseOwner) OR attribute_type(leaseOwner, :null)) AND \
    attribute_not_exists(heldSinceMillis)";

/// Renew, checkpoint, end, release: the row is still as this holder left it. KCL asks for the
/// counter alone.
const STILL_MINE: &str = "leaseCounter = :seen AND leaseOwner = :me";

/// Claim: the lease is still the owner's, and no other worker asked for it. Not the counter: that
/// moves with the owner's work.
const UNCLAIMED: &str = "leaseOwner = :seenOwner AND attribute_not_exists(claimedBy)";

/// Claim a lease that another worker asked for and did not get.
const CLAIMED_IN_VAIN: &str = "leaseOwner = :seenOwner AND claimedBy = :seenClaimant";

/// What a checkpoint clears: a prepared KCL two-phase checkpoint is void once a newer one is
/// written.
const PENDING_CHECKPOINT: &str =
    "pendingCheckpoint, pendingCheckpointSubSequenceNumber, pendingCheckpointState";

/// One conditional `UpdateItem`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ConditionalUpdate {
    pub(super) condition: &'static str,
    pub(super) update: String,
    pub(super) values: Item,
}

/// The changes of one update, and the values that its expressions use.
#[derive(Default)]
struct Changes {
    sets: Vec<String>,
    removes: Vec<&'static str>,
    adds: Vec<&'static str>,
    values: Item,
}

/// Becomes the owner; clears a claim, and a KCL 3.x hand-off, which would leave the shard silent
/// (KCL PR 1743).
pub(super) fn take(seen: &Lease, by: &WorkerId, wall_ms: u64) -> ConditionalUpdate {
    let mut changes = Changes::raise_counter(seen.counter);
    changes.set("leaseOwner", ":me", text(by.as_str()));
    changes.set("heldSinceMillis", ":now", number(wall_ms));
    changes.removes.extend(["checkpointOwner", "claimedBy"]);
    if seen.owner.as_ref().is_some_and(|owner| owner != by) {
        changes.adds.push("ownerSwitchesSinceCheckpoint :one");
        changes.value(":one", number(1));
    }
    let condition = unchanged(seen, &mut changes.values);
    changes.on(condition)
}

/// Asks the owner for the lease. The only write that leaves the counter alone: only the owner may
/// raise it.
pub(super) fn claim(seen: &Lease, owner: &WorkerId, by: &WorkerId) -> ConditionalUpdate {
    let mut changes = Changes::default();
    changes.set("claimedBy", ":me", text(by.as_str()));
    changes.value(":seenOwner", text(owner.as_str()));
    let Some(claimant) = &seen.claimant else {
        return changes.on(UNCLAIMED);
    };
    changes.value(":seenClaimant", text(claimant.as_str()));
    changes.on(CLAIMED_IN_VAIN)
}

/// Another checkpoint for a lease that was never held: an import that runs again.
pub(super) fn place(seen: &Lease, to: &Lease) -> ConditionalUpdate {
    let mut changes = Changes::raise_counter(seen.counter);
    changes.set_checkpoint(&to.checkpoint);
    match shard_set(&to.children) {
        Some(children) => changes.set("childShardIds", ":children", children),
        None => changes.removes.push("childShardIds"),
    }
    changes.value(":null", text("NULL"));
    changes.on(UNCHANGED_AND_NEVER_HELD)
}

/// The condition of a delete, with its values: the row is still as seen. The KCL deletes
/// unconditionally.
pub(super) fn delete(seen: &Lease) -> (&'static str, Item) {
    let mut values = Item::from([(":seen".to_owned(), number(seen.counter.0))]);
    let condition = unchanged(seen, &mut values);
    (condition, values)
}

/// KCL `renewLease`.
pub(super) fn renew(token: &LeaseToken, progress: &Progress) -> ConditionalUpdate {
    let changes = Changes::raise_counter(token.counter);
    changes.by_holder(token, progress)
}

/// KCL `updateLease` with a checkpoint.
pub(super) fn checkpoint(token: &LeaseToken, write: &CheckpointWrite) -> ConditionalUpdate {
    let mut changes = Changes::raise_counter(token.counter);
    changes.set_checkpoint(&write.checkpoint());
    changes.removes.push(PENDING_CHECKPOINT);
    changes.by_holder(token, &write.progress)
}

/// KCL `updateLease` with `SHARD_END`, and the children in the same write.
pub(super) fn end(token: &LeaseToken, write: &ShardEndWrite) -> ConditionalUpdate {
    let mut changes = Changes::raise_counter(token.counter);
    changes.set_checkpoint(&Checkpoint::ShardEnd);
    changes.set_some("childShardIds", ":children", shard_set(&write.children));
    changes.removes.push(PENDING_CHECKPOINT);
    changes.by_holder(token, &write.progress)
}

/// KCL 2.x `evictLease`, with the counter in the condition as well. Other KCL workers see the lease
/// as free at once.
///
/// Leaves the claim in place: it names the worker that the lease is released for. If the shard is
/// stuck, `progress` says why.
pub(super) fn release(token: &LeaseToken, progress: &Progress) -> ConditionalUpdate {
    let mut changes = Changes::raise_counter(token.counter);
    changes.removes.push("leaseOwner");
    changes.by_holder(token, progress)
}

/// The condition that counter and owner are as seen; adds the owner's value to `values`, which has
/// the counter's.
fn unchanged(seen: &Lease, values: &mut Item) -> &'static str {
    let Some(owner) = &seen.owner else {
        values.insert(":null".to_owned(), text("NULL"));
        return UNCHANGED_AND_UNOWNED;
    };
    values.insert(":seenOwner".to_owned(), text(owner.as_str()));
    UNCHANGED_AND_OWNED
}

impl Changes {
    /// Raises the counter by one, if the condition finds it at `seen`.
    fn raise_counter(seen: LeaseCounter) -> Self {
        let mut changes = Self::default();
        changes.set("leaseCounter", ":next", number(seen.next().0));
        changes.value(":seen", number(seen.0));
        changes
    }

    fn set(&mut self, attribute: &str, placeholder: &str, value: AttributeValue) {
        self.sets.push(format!("{attribute} = {placeholder}"));
        self.value(placeholder, value);
    }

    fn set_some(&mut self, attribute: &str, placeholder: &str, value: Option<AttributeValue>) {
        if let Some(value) = value {
            self.set(attribute, placeholder, value);
        }
    }

    fn value(&mut self, placeholder: &str, value: AttributeValue) {
        self.values.insert(placeholder.to_owned(), value);
    }

    fn set_checkpoint(&mut self, checkpoint: &Checkpoint) {
        let sub_sequence = number(checkpoint.sub_sequence());
        self.set("checkpoint", ":checkpoint", text(checkpoint.text()));
        self.set("checkpointSubSequenceNumber", ":sub", sub_sequence);
        self.set("ownerSwitchesSinceCheckpoint", ":zero", number(0));
    }

    fn set_progress(&mut self, progress: &Progress) {
        let digest = progress.plugin_digest.as_ref();
        let digest = digest.map(|digest| text(digest.as_str()));
        let behind = progress.millis_behind_latest.map(number);
        let arrived = progress.settled_arrival_ms.map(number);
        let rate = progress.bytes_per_second.map(throughput);
        let given_up = progress.given_up.as_deref().map(text);
        self.set_some("pluginDigest", ":digest", digest);
        self.set_some("millisBehindLatest", ":behind", behind);
        self.set_some("settledArrivalMillis", ":arrived", arrived);
        self.set_some("throughputKBps", ":rate", rate);
        self.set_some("lastGivenUp", ":given", given_up);
        match &progress.stuck {
            Some(why) => self.set("stuckBecause", ":stuck", text(why)),
            None => self.removes.push("stuckBecause"),
        }
    }

    /// The update with which the holder of the lease also reports its progress.
    fn by_holder(mut self, token: &LeaseToken, progress: &Progress) -> ConditionalUpdate {
        self.set_progress(progress);
        self.value(":me", text(token.owner.as_str()));
        self.on(STILL_MINE)
    }

    /// The update that makes the changes if `condition` holds.
    fn on(self, condition: &'static str) -> ConditionalUpdate {
        let mut update = format!("SET {}", self.sets.join(", "));
        if !self.removes.is_empty() {
            update.push_str(" REMOVE ");
            update.push_str(&self.removes.join(", "));
        }
        if !self.adds.is_empty() {
            update.push_str(" ADD ");
            update.push_str(&self.adds.join(", "));
        }
        ConditionalUpdate {
            condition,
            update,
            values: self.values,
        }
    }
}
