use super::Incarnation;
use crate::lease::{LeaseCounter, WorkerId};
use crate::stream::LeaseKey;

/// What the leader leaves for one host. A hint with its evidence: the host first reads the row
/// consistently, and its write requires that the row is as the leader saw it. So old errands, and
/// errands of two leaders, are harmless.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mail {
    /// The run of the host that the mail is for; another run ignores it.
    pub to: Incarnation,
    /// Differs with every mail, so that each is heeded once.
    pub number: u64,
    /// What the host is to do, an entry for each lease.
    pub errands: Vec<Errand>,
}

/// What was left for one host, in rows that no other host reads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mailbox {
    /// What the leader left; `None` if it left nothing.
    pub mail: Option<Mail>,
    /// By a command that changed what operators want: differs each time, so that each is heeded
    /// once. The host then reads the rows of its leases and the board.
    pub nudge: Option<u64>,
}

/// One thing to do about one lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Errand {
    /// The lease that the errand is about.
    pub key: LeaseKey,
    /// What to do about it.
    pub task: Task,
}

/// What to do about a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Task {
    /// Become the owner, if the row and its owner's heart are still as seen.
    Take {
        /// The row's counter.
        counter: LeaseCounter,
        /// Its owner, if it has one.
        owner: Option<OwnerSeen>,
        /// The reason for the take.
        why: Why,
    },
    /// Ask a live owner for it.
    Claim {
        /// The owner.
        from: WorkerId,
        /// The claimant whose claim is on the row, which no longer counts.
        replaces: Option<WorkerId>,
        /// How many more leases the owner holds.
        lead: u64,
    },
    /// Watch the row for a while: another host asks for the lease, or has an errand to do so.
    Expect {
        /// The host that asks.
        by: WorkerId,
    },
}

/// The owner of a lease that did not move for its lease duration, as a leader saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerSeen {
    /// The owner's worker id in the lease's row.
    pub id: WorkerId,
    /// The run and the beat of its row; `None` if it is not registered.
    pub beat: Option<(Incarnation, u64)>,
}

/// Why a lease should be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// It is free or expired, and the host holds less than its share.
    BelowShare {
        /// How many leases each host should hold.
        fair_share: usize,
    },
    /// No host took it for a long time, whatever the shares are.
    Overdue,
    /// A KCL's worker, which does not know claims, holds more.
    Uneven {
        /// How many more.
        lead: u64,
    },
}

impl Mail {
    /// Most errands in one mail, about 13 KB: it is read once a second.
    pub(crate) const ERRANDS_MAX: usize = 128;
    /// Errands that cost no extra read unit. A longer mail is removed once its errands are done.
    pub const ERRANDS_FREE: usize = 32;
}
