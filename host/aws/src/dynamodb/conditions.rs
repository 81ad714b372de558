//! Every conditional expression on a lease row, with its name. Every write uses one of them.
//!
//! All but a claim and a change of directives raise `leaseCounter` by one, as the KCL does: a write
//! to a lease also renews it.

use aws_sdk_dynamodb::types::AttributeValue;
use shardmill_core::control::Directives;
use shardmill_core::lease::{Checkpoint, Lease, LeaseCounter, LeaseToken, WorkerId};
use shardmill_core::ports::{CheckpointWrite, ObeyWrite, Progress, ShardEndWrite};

use super::attributes::{Item, number, text};
use super::checkpoint_item::sought;
use super::directive_item;
use super::lease_item::{shard_set, state_percent, throughput};

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

/// Directives: nobody changed them since they were read. A row that never had any has none.
const NEVER_DIRECTED: &str = "attribute_exists(leaseKey) AND attribute_not_exists(directives)";
const DIRECTED_AS_SEEN: &str = "directives.version = :seenVersion";

/// The same of a shard that has not ended: nobody would do what is wanted of one that has.
const NEVER_DIRECTED_AND_GOES_ON: &str = "attribute_exists(leaseKey) AND \
    attribute_not_exists(directives) AND checkpoint <> :finished";
const DIRECTED_AS_SEEN_AND_GOES_ON: &str =
    "directives.version = :seenVersion AND checkpoint <> :finished";

/// The holder does what the directives wanted that it read.
const STILL_MINE_AND_DIRECTED_AS_SEEN: &str =
    "leaseCounter = :seen AND leaseOwner = :me AND directives.version = :seenVersion";
const STILL_MINE_AND_NEVER_DIRECTED: &str =
    "leaseCounter = :seen AND leaseOwner = :me AND attribute_not_exists(directives)";

/// Open a finished shard again: nobody holds it, and it has not changed since it was read.
const UNCHANGED_AND_FINISHED: &str = "leaseCounter = :seen AND checkpoint = :finished AND \
    (attribute_not_exists(leaseOwner) OR attribute_type(leaseOwner, :null))";
const UNCHANGED_FINISHED_AND_DIRECTED: &str = "leaseCounter = :seen AND checkpoint = :finished AND \
    (attribute_not_exists(leaseOwner) OR attribute_type(leaseOwner, :null)) AND \
    directives.version = :seenVersion";

/// Restore: owner, counter and directives are as they were seen.
const UNCHANGED_OWNED_AND_NEVER_DIRECTED: &str =
    "leaseCounter = :seen AND leaseOwner = :seenOwner AND attribute_not_exists(directives)";
const UNCHANGED_OWNED_AND_DIRECTED: &str =
    "leaseCounter = :seen AND leaseOwner = :seenOwner AND directives.version = :seenVersion";
const UNCHANGED_UNOWNED_AND_NEVER_DIRECTED: &str = "leaseCounter = :seen AND \
    (attribute_not_exists(leaseOwner) OR attribute_type(leaseOwner, :null)) AND \
    attribute_not_exists(directives)";
const UNCHANGED_UNOWNED_AND_DIRECTED: &str = "leaseCounter = :seen AND \
    (attribute_not_exists(leaseOwner) OR attribute_type(leaseOwner, :null)) AND \
    directives.version = :seenVersion";

/// What a checkpoint clears: a prepared KCL two-phase checkpoint is void once a newer one is
/// written.
const PENDING_CHECKPOINT: &str =
    "pendingCheckpoint, pendingCheckpointSubSequenceNumber, pendingCheckpointState";
/// What a restore clears: it says something of the holder, or of the place that is left.
const OF_THE_LAST_HOLDER: &str = "leaseOwner, heldSinceMillis, checkpointOwner, claimedBy, \
    stuckBecause, millisBehindLatest";
/// Where an operator sent the shard: gone once something is settled.
const SOUGHT_PLACE: &str = "soughtPlace";

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
pub(super) fn move_checkpoint(seen: &Lease, to: &Lease) -> ConditionalUpdate {
    let mut changes = Changes::raise_counter(seen.counter);
    changes.set_checkpoint(&to.checkpoint);
    changes.set_or_remove("childShardIds", ":children", shard_set(&to.children));
    changes.value(":null", text("NULL"));
    changes.on(UNCHANGED_AND_NEVER_HELD)
}

/// Opens the row of a finished shard again. Its children stay named: they are rows of their own.
/// What was wanted of it before it ended is not wanted any more, but for a pause.
pub(super) fn reopen(seen: &Lease, at: &Checkpoint) -> ConditionalUpdate {
    let mut changes = Changes::raise_counter(seen.counter);
    changes.set_checkpoint(at);
    changes.value(":finished", text(Checkpoint::ShardEnd.text()));
    changes.value(":null", text("NULL"));
    if seen.directives.version == 0 {
        return changes.on(UNCHANGED_AND_FINISHED);
    }
    let next = seen.directives.changed(|next| {
        *next = Directives {
            version: next.version,
            pause: next.pause.take(),
            ..Directives::default()
        };
    });
    changes.set("directives", ":directives", directive_item::encode(&next));
    changes.value(":seenVersion", number(seen.directives.version));
    changes.on(UNCHANGED_FINISHED_AND_DIRECTED)
}

/// The row goes to where a backup has it, held by nobody. A holder that wakes up later finds the
/// counter raised.
pub(super) fn restore(seen: &Lease, to: &Lease) -> ConditionalUpdate {
    let mut changes = Changes::raise_counter(seen.counter);
    changes.set_checkpoint(&to.checkpoint);
    changes
        .removes
        .extend([PENDING_CHECKPOINT, OF_THE_LAST_HOLDER]);
    let (children, arrived) = (shard_set(&to.children), to.settled_arrival_ms);
    changes.set_or_remove("childShardIds", ":children", children);
    changes.set_or_remove("settledArrivalMillis", ":arrived", arrived.map(number));
    let digest = to.plugin_digest.as_ref();
    changes.set_some(
        "pluginDigest",
        ":digest",
        digest.map(|it| text(it.as_str())),
    );
    let is_directed = seen.directives.version > 0;
    if is_directed {
        changes.value(":seenVersion", number(seen.directives.version));
    }
    if to.directives.version > 0 {
        let directives = directive_item::encode(&to.directives);
        changes.set("directives", ":directives", directives);
    }
    // For its values: what the row was seen with.
    unchanged(seen, &mut changes.values);
    changes.on(match (seen.owner.is_some(), is_directed) {
        (true, false) => UNCHANGED_OWNED_AND_NEVER_DIRECTED,
        (true, true) => UNCHANGED_OWNED_AND_DIRECTED,
        (false, false) => UNCHANGED_UNOWNED_AND_NEVER_DIRECTED,
        (false, true) => UNCHANGED_UNOWNED_AND_DIRECTED,
    })
}

/// What operators want of the shard. Leaves the counter alone, which is the owner's.
pub(super) fn direct(seen: &Lease, next: &Directives) -> ConditionalUpdate {
    let mut changes = Changes::default();
    changes.set("directives", ":directives", directive_item::encode(next));
    let is_first = seen.directives.version == 0;
    if !is_first {
        changes.value(":seenVersion", number(seen.directives.version));
    }
    if !seen.is_finished() {
        changes.value(":finished", text(Checkpoint::ShardEnd.text()));
    }
    changes.on(match (is_first, seen.is_finished()) {
        (true, true) => NEVER_DIRECTED,
        (false, true) => DIRECTED_AS_SEEN,
        (true, false) => NEVER_DIRECTED_AND_GOES_ON,
        (false, false) => DIRECTED_AS_SEEN_AND_GOES_ON,
    })
}

/// The holder has done what was wanted.
pub(super) fn obey(token: &LeaseToken, write: &ObeyWrite) -> ConditionalUpdate {
    let mut changes = Changes::raise_counter(token.counter);
    changes.set(
        "directives",
        ":directives",
        directive_item::encode(&write.next),
    );
    if let Some(to) = &write.to {
        changes.set_checkpoint(to);
        changes
            .removes
            .extend([PENDING_CHECKPOINT, "settledArrivalMillis"]);
    }
    changes.value(":seenVersion", number(write.seen_version));
    let mut progress = write.progress.clone();
    if write.to.is_some() {
        // What settled last says nothing of another place.
        progress.settled_arrival_ms = None;
    }
    let update = changes.by_holder(token, &progress);
    ConditionalUpdate {
        condition: STILL_MINE_AND_DIRECTED_AS_SEEN,
        ..update
    }
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
    changes.set_checkpoint(&write.checkpoint);
    changes.removes.push(PENDING_CHECKPOINT);
    changes.by_holder(token, &write.progress)
}

/// KCL `updateLease` with `SHARD_END`, and the children in the same write; not over directives that
/// the holder has not read.
pub(super) fn end(token: &LeaseToken, write: &ShardEndWrite) -> ConditionalUpdate {
    let mut changes = Changes::raise_counter(token.counter);
    changes.set_checkpoint(&Checkpoint::ShardEnd);
    changes.set_some("childShardIds", ":children", shard_set(&write.children));
    changes.removes.push(PENDING_CHECKPOINT);
    let condition = if write.seen_version == 0 {
        STILL_MINE_AND_NEVER_DIRECTED
    } else {
        changes.value(":seenVersion", number(write.seen_version));
        STILL_MINE_AND_DIRECTED_AS_SEEN
    };
    let update = changes.by_holder(token, &write.progress);
    ConditionalUpdate {
        condition,
        ..update
    }
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

    fn set_or_remove(
        &mut self,
        attribute: &'static str,
        placeholder: &str,
        value: Option<AttributeValue>,
    ) {
        match value {
            Some(value) => self.set(attribute, placeholder, value),
            None => self.removes.push(attribute),
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
        match sought(checkpoint) {
            Some(place) => self.set(SOUGHT_PLACE, ":sought", place),
            None => self.removes.push(SOUGHT_PLACE),
        }
    }

    fn set_progress(&mut self, progress: &Progress) {
        let digest = progress.plugin_digest.as_ref();
        let digest = digest.map(|digest| text(digest.as_str()));
        let behind = progress.millis_behind_latest.map(number);
        let arrived = progress.settled_arrival_ms.map(number);
        let rate = progress.bytes_per_second.map(throughput);
        let given_up = progress.given_up.as_deref().map(text);
        let state = progress.state_fill.map(state_percent);
        self.set_some("pluginDigest", ":digest", digest);
        self.set_some("millisBehindLatest", ":behind", behind);
        self.set_some("settledArrivalMillis", ":arrived", arrived);
        self.set_some("throughputKBps", ":rate", rate);
        self.set_some("lastGivenUp", ":given", given_up);
        self.set_some("statePercent", ":state", state);
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
