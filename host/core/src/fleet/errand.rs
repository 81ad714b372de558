use super::Incarnation;
use crate::lease::{LeaseCounter, WorkerId};
use crate::stream::LeaseKey;

/// What the leader leaves for one host. A hint with its evidence: whoever does it reads the row
/// first, consistently, and writes on the condition that it is as the leader saw it. Old errands
/// and those of two leaders are therefore harmless.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mail {
    /// For which run of the host; another run leaves it alone.
    pub to: Incarnation,
    /// Another with every mail, so that each is heeded once.
    pub number: u64,
    /// What to do.
    pub errands: Vec<Errand>,
}

/// One thing to do about one lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Errand {
    /// The lease.
    pub key: LeaseKey,
    /// What.
    pub task: Task,
}

/// What to do about a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Task {
    /// Become the owner, if the row and its owner's heart still are as seen.
    Take {
        /// The row's counter.
        counter: LeaseCounter,
        /// Its owner, if it has one.
        owner: Option<OwnerSeen>,
        /// Why.
        why: Why,
    },
    /// Ask a live owner for it.
    Claim {
        /// The owner.
        from: WorkerId,
        /// Whose claim, which is void, is on the row.
        replaces: Option<WorkerId>,
        /// How much more the owner holds.
        lead: u64,
    },
    /// Look at the row for a while: another host asks for the lease, or was told to.
    Expect {
        /// Which.
        by: WorkerId,
    },
}

/// The owner of a lease as a leader saw it stand still for its lease duration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerSeen {
    /// Who.
    pub id: WorkerId,
    /// The run and the beat of its row; `None` if it is not registered.
    pub beat: Option<(Incarnation, u64)>,
}

/// Why a lease is to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// It is free or expired, and the host holds less than its share.
    BelowShare {
        /// How many leases each host should hold.
        fair_share: usize,
    },
    /// Nobody took it for long, whatever the shares are.
    Overdue,
    /// A KCL's worker, which knows no claims, holds more.
    Uneven {
        /// By how much.
        lead: u64,
    },
}

impl Mail {
    /// Most errands in one mail, about 13 KB: it is read once a second.
    pub(crate) const ERRANDS_MAX: usize = 128;
    /// So many fit what one read unit covers anyway; a longer mail is removed once it is worked
    /// off.
    pub const ERRANDS_FREE: usize = 32;
}
