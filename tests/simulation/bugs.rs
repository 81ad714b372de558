//! Deliberate bugs at the ports, for the judge to find: what a wrong adapter, SDK, sink or table would do to a right
//! host. Those that sit inside a decision are switches of the product instead (`shardmill_core::seeded_bug`).

mod coordinator;
mod reader;
mod sink;
mod store;

pub use coordinator::WrongCoordinator;
pub use reader::WrongReader;
pub use sink::WrongDeadLetters;
pub use store::WrongStore;

use std::fmt;
use std::str::FromStr;

use shardmill_core::seeded_bug::SeededBug;

/// A bug to run with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// In a decision of the product.
    Decision(SeededBug),
    /// At a port.
    Port(PortBug),
}

macro_rules! port_bugs {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// A wrong port. Its doc says what it does.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum PortBug {
            $($(#[doc = $doc])+ $name,)+
        }

        impl PortBug {
            /// Every one.
            pub const ALL: &[Self] = &[$(Self::$name,)+];
        }
    };
}

port_bugs! {
    /// A listing leaves out its last row, as if the last page of a scan were forgotten.
    ListsWithoutLastRow,
    /// A listing is kept for half a minute.
    ListsFromCache,
    /// Rows are read without their parents.
    ForgetsParents,
    /// A consistent read shows the row as it was when it was read before.
    ReadsRowFromCache,
    /// A write without an answer is told to be refused.
    UnknownToldAsRefused,
    /// A write that lost its race is told to be applied.
    ConflictToldAsApplied,
    /// A fresh row replaces the one that is there.
    CreateReplaces,
    /// A row is removed whatever it shows.
    DeletesWhateverItShows,
    /// A checkpoint inside an aggregate is written as its first user record.
    ForgetsSubSequence,
    /// The end of a shard is written without its children.
    EndForgetsChildren,
    /// A lease that is given up keeps its owner.
    ReleaseOnlyRenews,
    /// A release is told to be applied and never sent.
    ReleaseIsNotSent,
    /// A checkpoint is told to be applied and never sent.
    CheckpointIsNotSent,
    /// Every other checkpoint is written one record too far.
    CheckpointOneTooFar,
    /// The state of a shard is the one that was loaded first.
    LoadsStateFromCache,
    /// A checkpoint is written without the state that goes with it.
    CheckpointWithoutState,
    /// A state is read as if none were there.
    StateIsNotFound,
    /// A heartbeat is told to be applied and never sent.
    HeartbeatIsNotSent,
    /// A heartbeat that was refused is told to be applied.
    HeartbeatAlwaysHolds,
    /// A registration replaces whatever is there.
    RegisterReplaces,
    /// A leader's record replaces whatever is there.
    LeaderReplaces,
    /// A look at the fleet shows nobody but the one who looks.
    SeesOnlyItself,
    /// A sign-off is told to be applied and never sent.
    SignOffIsNotSent,
    /// One worker's row is never found by itself.
    WorkerIsNotFound,
    /// "After this record" begins with the oldest.
    AfterIsOldest,
    /// "The oldest" begins with what comes next.
    OldestIsLatest,
    /// The time at which the application begins is read as now, whoever begins to read, and when.
    StartIsNow,
    /// A reply lacks its last record.
    ReplyLacksLast,
    /// A reply lacks its first record.
    ReplyLacksFirst,
    /// A reply has its first record twice.
    ReplyRepeatsFirst,
    /// A reply is out of order.
    ReplyOutOfOrder,
    /// An empty reply ends the shard.
    EmptyReplyEnds,
    /// The end of a shard names no children.
    EndNamesNoChildren,
    /// The end of a shard names one of its children.
    EndNamesOneChild,
    /// A listing shows open shards only.
    ListsOpenShardsOnly,
    /// A listing shows shards without their parents.
    ListsWithoutParents,
    /// The list of shards is kept for ever.
    ListsShardsFromCache,
    /// A flush returns before anything is stored.
    FlushStoresNothing,
    /// Output is dropped now and then, and told to be stored.
    DropsOutput,
    /// Of several dead letters the last is not stored.
    LastLetterIsLost,
}

impl Bug {
    /// Every one.
    pub fn all() -> impl Iterator<Item = Self> {
        let decisions = SeededBug::ALL.iter().map(|bug| Self::Decision(*bug));
        decisions.chain(PortBug::ALL.iter().map(|bug| Self::Port(*bug)))
    }

    /// The one at a port, if it is.
    pub fn port(self) -> Option<PortBug> {
        match self {
            Self::Port(bug) => Some(bug),
            Self::Decision(_) => None,
        }
    }

    /// The one in a decision, if it is.
    pub fn decision(self) -> Option<SeededBug> {
        match self {
            Self::Decision(bug) => Some(bug),
            Self::Port(_) => None,
        }
    }
}

impl fmt::Display for Bug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Decision(bug) => f.pad(&format!("{bug:?}")),
            Self::Port(bug) => f.pad(&format!("{bug:?}")),
        }
    }
}

impl FromStr for Bug {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let names: Vec<String> = Self::all().map(|bug| bug.to_string()).collect();
        let found = Self::all().find(|bug| bug.to_string() == name);
        found.ok_or_else(|| format!("no such bug; there are {}", names.join(", ")))
    }
}
