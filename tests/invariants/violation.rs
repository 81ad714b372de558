//! What a check says.

use std::fmt;

use crate::history::Micros;

/// A rule of the catalogue. The doc of each says what breaks it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Invariant {
    /// Counter: a write that does not raise the row's counter by exactly one.
    S1,
    /// Fencing: a write by a host that does not hold the lease under this epoch, or that did not
    /// know the counter.
    S2,
    /// Monotone checkpoint: a checkpoint that goes back.
    S3,
    /// Justified checkpoint: a checkpoint past a record that was not settled in its tenure before
    /// the write was sent.
    S4,
    /// Justified end: `SHARD_END` before all is settled, before Kinesis said so, or before the
    /// children have rows.
    S5,
    /// Parent first: a delivery from a child whose parent has not ended.
    S6,
    /// Order: a record attempted before all attempts at an earlier one were over.
    S7,
    /// Contiguity: a tenure that does not start right after its checkpoint, or that leaves a record
    /// out.
    S8,
    /// Bounded duplicates: more repeats after a change of owner than allowed, or any where none may
    /// be; a lease given up, so that more may repeat than after a hand-over, although its shard got
    /// on.
    S9,
    /// Holder deadline: a delivery, or a take, while the lease is another's.
    S10,
    /// Unknown outcome: a delivery before an unanswered write was settled.
    S11,
    /// Safe deletion: a row deleted while it is still needed.
    S12,
    /// Coverage: hash keys that no lease covers.
    S13,
    /// One digest: a delivery to a version that was refused, or that was replaced before.
    S14,
    /// Isolation: a record that waited although nothing had faults but another plugin or, in order
    /// by key, another key.
    S15,
    /// Identity: a stream resumed from the checkpoint of its namesake.
    S16,
    /// Failure policy: a record given up that the policy keeps, or tried although the policy gives
    /// it up.
    S17,
    /// State: an instance that starts from another state than that of the checkpoint, in which each
    /// record counts once.
    S18,
    /// Start: an application that begins elsewhere than where it was to, or somewhere else later
    /// on.
    S19,
    /// Outputs, then checkpoint: a checkpoint past a record whose output was not stored when the
    /// checkpoint was sent.
    S20,
    /// Told gaps: records that left the stream unread, and nobody said so; or a gap that was told
    /// and is none.
    S21,
    /// Pause: a delivery from a shard that is paused, by a host that knows it.
    S22,
    /// Seek: a shard that goes elsewhere than it was sent, or not exactly once.
    S23,
    /// Skip: a record skipped that was not to be, one that was to be and is delivered, or one that
    /// was to be stored first and is not.
    S24,
    /// Drain: a take by a host that knows that it is drained, or a lease that it keeps.
    S25,
    /// Orphaned leases find an owner.
    L1,
    /// Leases are spread evenly, and then stay where they are.
    L2,
    /// Children have rows soon after their parent's end was read.
    L3,
    /// What waited during an outage is settled soon after.
    L4,
    /// A host that is told to stop gives its leases back, and others take them at once.
    L5,
    /// Held means progress, or is shown: a shard that is held, makes no progress, and is not shown
    /// as blocked.
    L6,
    /// No storm of calls after an outage.
    L7,
    /// By name is held: in calm, a lease whose row names a running host that neither reads it nor
    /// gives it back.
    L8,
    /// No loss: a record of a healed run that nobody ever settled.
    NoLoss,
}

/// One broken rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub invariant: Invariant,
    /// At which event, by the true clock.
    pub at: Micros,
    /// What was seen.
    pub what: String,
}

/// What was found so far.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// The time of the event under judgement.
    pub(crate) now: Micros,
    pub(crate) found: Vec<Violation>,
}

impl Report {
    pub(crate) fn add(&mut self, invariant: Invariant, what: String) {
        self.found.push(Violation {
            invariant,
            at: self.now,
            what,
        });
    }

    /// Adds what a rule said, if it said anything.
    pub(crate) fn add_all(&mut self, invariant: Invariant, what: impl IntoIterator<Item = String>) {
        for what in what {
            self.add(invariant, what);
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {} us: {}", self.invariant, self.at, self.what)
    }
}
