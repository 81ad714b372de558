//! What the model's world is made of. Everything saturates or is bounded, so that there is an end
//! of states.

use std::collections::BTreeSet;

use shardmill_invariants::history::{Checkpoint, Place, Row, WriteKind};
use shardmill_invariants::{Invariant, Limits};

/// Ticks after which an observer calls an unmoved lease expired, and after which its holder stops.
pub(crate) const LEASE_TICKS: u8 = 3;
pub(crate) const HOLD_TICKS: u8 = 2;
pub(crate) const TICK: u64 = 1_000_000;
/// Stands for `SHARD_END`; 0 is "nothing yet", anything else the number of a record.
pub(crate) const END: u8 = u8::MAX;
pub(crate) const HOSTS: [&str; 2] = ["a", "b"];
pub(crate) const SHARDS: [&str; 3] = ["p", "l", "r"];

/// One point of a run.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct State {
    /// The parent's row.
    pub(crate) row: ModelRow,
    /// The children's: absent, free, or served by a host.
    pub(crate) children: [Child; 2],
    pub(crate) hosts: [Host; 2],
    pub(crate) budget: Budget,
    /// The first rule that was broken; nothing happens after.
    pub(crate) broken: Option<Invariant>,
}

/// Faults that may still happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Budget {
    pub(crate) crashes: u8,
    pub(crate) pauses: u8,
    pub(crate) lost_answers: u8,
    pub(crate) claims: u8,
    /// Ticks that may pass while a call is under way, or while a host has not seen what is new.
    pub(crate) delays: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Child {
    Absent,
    Free,
    Served,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ModelRow {
    pub(crate) owner: Option<u8>,
    pub(crate) counter: u8,
    pub(crate) checkpoint: u8,
    pub(crate) claimant: Option<u8>,
    /// Counter after the last take.
    pub(crate) epoch: u8,
    /// Ticks since the counter moved; saturates.
    pub(crate) quiet: u8,
    /// Settled through when last given back.
    pub(crate) given_back: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Host {
    pub(crate) life: Life,
    /// What its last scan showed, and for how many ticks it has not moved.
    pub(crate) seen: Option<(ModelRow, u8)>,
    /// Only the first scan of a process may take back what is under its own name.
    pub(crate) is_starting: bool,
    pub(crate) tenure: Option<Tenure>,
    /// The call that it waits for.
    pub(crate) call: Option<Message>,
    /// A write that it gave up waiting for, and that may still arrive.
    pub(crate) ghost: Option<Message>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Life {
    Up,
    /// Whether it had just looked at its lease and was about to deliver.
    Paused {
        is_past_check: bool,
    },
    Down,
}

/// What a host believes of its lease.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Tenure {
    pub(crate) counter: u8,
    pub(crate) epoch: u8,
    pub(crate) settled: u8,
    pub(crate) written: u8,
    /// Ticks until it must stop.
    pub(crate) left: u8,
    /// An unanswered write, to be settled before anything else.
    pub(crate) doubt: Option<Doubt>,
    pub(crate) said_end: bool,
    pub(crate) is_draining: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Doubt {
    pub(crate) intent: Intent,
    /// Ticks since it was first sent.
    pub(crate) age: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Intent {
    Take,
    Renew,
    Checkpoint(u8),
    End,
    Release,
}

/// A conditional write on its way, or its answer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Message {
    pub(crate) intent: Intent,
    /// The condition.
    pub(crate) expected: (Option<u8>, u8),
    /// Under which epoch it was sent.
    pub(crate) epoch: u8,
    /// Records settled when it was sent.
    pub(crate) settled: u8,
    /// Whether Kinesis had told the sender that the shard has ended.
    pub(crate) said_end: bool,
    /// What was true when it was sent: the row's counter, and for how long it had been quiet.
    pub(crate) at_sending: (u8, u8),
    pub(crate) age: u8,
    pub(crate) fate: Fate,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Fate {
    Travelling,
    Applied,
    /// With the row that it met.
    Refused(Option<u8>, u8),
}

impl Intent {
    pub(crate) fn kind(self, expected_counter: u8) -> WriteKind {
        match self {
            Self::Take => WriteKind::Take {
                seen: expected_counter.into(),
            },
            Self::Renew => WriteKind::Renew,
            Self::Checkpoint(_) => WriteKind::Checkpoint,
            Self::End => WriteKind::End,
            Self::Release => WriteKind::Release,
        }
    }
}

impl ModelRow {
    pub(crate) fn to_row(&self) -> Row {
        let name = |host: u8| HOSTS[usize::from(host)].to_owned();
        let children: &[&str] = if self.checkpoint == END {
            &SHARDS[1..]
        } else {
            &[]
        };
        Row {
            owner: self.owner.map(name),
            counter: self.counter.into(),
            checkpoint: checkpoint(self.checkpoint),
            parents: BTreeSet::new(),
            children: children.iter().map(|id| (*id).to_owned()).collect(),
            range: Some((0, u128::MAX)),
            claimant: self.claimant.map(name),
        }
    }
}

pub(crate) fn place(record: u8) -> Place {
    Place::plain(&record.to_string())
}

pub(crate) fn checkpoint(number: u8) -> Checkpoint {
    match number {
        0 => Checkpoint::Initial,
        END => Checkpoint::End,
        record => Checkpoint::At(place(record)),
    }
}

pub(crate) fn limits() -> Limits {
    let mut limits = Limits::new(u64::from(LEASE_TICKS) * TICK, 0);
    limits.margin = u64::from(LEASE_TICKS - HOLD_TICKS) * TICK;
    limits
}
