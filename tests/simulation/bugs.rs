//! Deliberate bugs at the ports, for the judge to find: what a wrong adapter, SDK, sink or table
//! would do to a right host. Those that sit inside a decision are switches of the product instead
//! (`shardmill_core::seeded_bug`).

mod coordinator;
mod reader;
mod sharing;
mod sink;
mod store;
mod subscriptions;
mod table;

pub use coordinator::WrongCoordinator;
pub use reader::WrongReader;
pub(crate) use sharing::{FirstStart, Mixed, WrongSharing};
pub use sink::WrongDeadLetters;
pub use store::WrongStore;
pub use subscriptions::WrongSubscriptions;
pub(crate) use table::{asked_of_direct, asked_of_obey, asked_of_take, held_write, spoilt};

use std::fmt;
use std::str::FromStr;

use shardmill_core::seeded_bug::SeededBug;

use crate::dimension::Dimension;

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
    /// A take asks for nothing.
    TakeWithoutCondition,
    /// Renewals, checkpoints, ends and releases are written whatever the row shows (vmware-go-kcl's
    /// `PutItem`).
    HeldWritesWithoutCondition,
    /// A checkpoint is written whatever the row shows.
    CheckpointWithoutCondition,
    /// Held writes ask for the owner and not for the counter (ruststream).
    ConditionOnOwnerOnly,
    /// A take does not raise the counter.
    TakeKeepsCounter,
    /// A checkpoint does not raise the counter.
    CheckpointKeepsCounter,
    /// A release does not raise the counter.
    ReleaseKeepsCounter,
    /// A claim raises the counter, which is the owner's.
    ClaimRaisesCounter,
    /// A take writes the checkpoint back as it was once seen (vmware-go-kcl's `GetLease`).
    TakeWritesBackOldCheckpoint,
    /// A take leaves the claim that it fulfils (KCL 3.x: a hand-over that is never finished).
    TakeKeepsClaim,
    /// A release forgets whom the lease is given up for.
    ReleaseDropsClaim,
    /// A plugin's state is written after its checkpoint, and not with it.
    StateWrittenApart,
    /// A write without an answer is reported as applied.
    UnknownToldAsApplied,
    /// A listing leaves out its last row, as if the last page of a scan were forgotten.
    ListsWithoutLastRow,
    /// A listing is kept for half a minute.
    ListsFromCache,
    /// Rows are read without their parents.
    ForgetsParents,
    /// A consistent read shows the row as it was when it was read before.
    ReadsRowFromCache,
    /// A write that lost its race is reported as applied.
    ConflictToldAsApplied,
    /// A fresh row replaces the one that is there.
    CreateReplaces,
    /// A checkpoint inside an aggregate is written as its first user record.
    ForgetsSubSequence,
    /// The end of a shard is written without its children.
    EndForgetsChildren,
    /// A lease that is given up keeps its owner.
    ReleaseOnlyRenews,
    /// A release is reported as applied and never sent.
    ReleaseIsNotSent,
    /// A checkpoint is reported as applied and never sent.
    CheckpointIsNotSent,
    /// Every other checkpoint is written one record too far.
    CheckpointOneTooFar,
    /// The state of a shard is the one that was loaded first.
    LoadsStateFromCache,
    /// A checkpoint is written without the state that goes with it.
    CheckpointWithoutState,
    /// A state is read as if none were there.
    StateIsNotFound,
    /// A heartbeat is reported as applied and never sent.
    HeartbeatIsNotSent,
    /// A heartbeat that was refused is reported as applied.
    HeartbeatAlwaysHolds,
    /// A look at the fleet shows nobody but the one who looks.
    SeesOnlyItself,
    /// The moment when the application began is reported as written and never sent, so that each
    /// run has its own.
    StartIsNotWritten,
    /// A sign-off is reported as applied and never sent.
    SignOffIsNotSent,
    /// One worker's row is never found by itself.
    WorkerIsNotFound,
    /// "At this record" begins after it, so that the rest of an aggregate is left out.
    AtIsAfter,
    /// "At this record" begins with what comes next.
    AtIsLatest,
    /// Kinesis' time is told half a minute ahead.
    TellsTimeAhead,
    /// "The oldest" begins with what comes next.
    OldestIsLatest,
    /// The time at which the application begins is read as now, whoever begins to read, and when.
    StartIsNow,
    /// A reply lacks its last record.
    ReplyLacksLast,
    /// A reply lacks its first record.
    ReplyLacksFirst,
    /// A reply lacks a record in its middle.
    ReplyLacksMiddle,
    /// A reply is out of order.
    ReplyOutOfOrder,
    /// An empty reply ends the shard.
    EmptyReplyEnds,
    /// The end of a shard is never told.
    EndIsNotTold,
    /// An event of a subscription lacks its first record.
    EventLacksFirst,
    /// An event without records ends the shard.
    EmptyEventEnds,
    /// The end of a shard names one of its children.
    EndNamesOneChild,
    /// A listing of shards ends after its first page, of two shards.
    ListsFirstPageOnly,
    /// A listing shows open shards only.
    ListsOpenShardsOnly,
    /// A listing shows shards without their parents.
    ListsWithoutParents,
    /// The list of shards is kept for ever.
    ListsShardsFromCache,
    /// A flush returns before anything is stored.
    FlushStoresNothing,
    /// Output is dropped now and then, and reported as stored.
    DropsOutput,
    /// Of several dead letters the last is not stored.
    LastLetterIsLost,
    /// All plugins of a host have one share of its budget.
    OneShareForAll,
    /// All plugins of a host read the stream that the first of them reads.
    OneStreamForAll,
    /// A reply that another plugin of the host had comes without its records.
    ReplyForOneOnly,
    /// The end of a shard is told to the first plugin of the host that comes to it; others cannot
    /// read it.
    EndForOneOnly,
    /// A plugin that begins to read a shard begins where another of the host is.
    BeginsWhereAnotherIs,
    /// Of all applications of a host, the start of the first is taken for each.
    StartOfAnother,
    /// A command is written whatever version of the directives the row has.
    DirectWithoutCondition,
    /// What a holder has done is written whatever version of the directives the row has.
    ObeyWithoutVersion,
    /// A holder that has done something leaves the directive in the row.
    ObeyKeepsDirective,
    /// A seek leaves the plugin's state as it is, whatever is to become of it.
    ObeyForgetsState,
    /// A seek writes the place after the one that was asked for.
    ObeyOneTooFar,
    /// A seek is written without its place: only the directive goes.
    ObeyKeepsPlace,
    /// A take is answered without what operators want.
    TakeTellsNothing,
}

impl Bug {
    /// Every one.
    pub fn all() -> impl Iterator<Item = Self> {
        let decisions = SeededBug::ALL.iter().map(|bug| Self::Decision(*bug));
        decisions.chain(PortBug::ALL.iter().map(|bug| Self::Port(*bug)))
    }

    /// What a run must have for it to matter, of what is not usual.
    pub fn needs(self) -> &'static [Dimension] {
        match self {
            Self::Decision(SeededBug::VanishedWorkerIsDead | SeededBug::VanishedHeartHolds)
            | Self::Port(PortBug::HeartbeatAlwaysHolds) => &[Dimension::RemovedWorkers],
            Self::Decision(SeededBug::ReapsWorkersAtWork) => &[Dimension::LongCuts],
            Self::Decision(SeededBug::KeepsOwnAboveMax) => &[Dimension::MaxLeases],
            Self::Decision(
                SeededBug::PauseIsForgotten
                | SeededBug::SeeksAgain
                | SeededBug::SeekKeepsReadAhead
                | SeededBug::OldPlaceIsWritten
                | SeededBug::SeekSkipsFirstRecord
                | SeededBug::PauseMissesTakes
                | SeededBug::SkipDropsLetters
                | SeededBug::SkipsOneMore
                | SeededBug::DrainKeepsLeases
                | SeededBug::DrainedTakes
                | SeededBug::SoughtChildRunsOn
                | SeededBug::ForwardSeekGoesBack,
            )
            | Self::Port(
                PortBug::DirectWithoutCondition
                | PortBug::ObeyWithoutVersion
                | PortBug::ObeyKeepsDirective
                | PortBug::ObeyForgetsState
                | PortBug::ObeyOneTooFar
                | PortBug::ObeyKeepsPlace
                | PortBug::TakeTellsNothing,
            ) => &[Dimension::Commands],
            Self::Decision(SeededBug::TickIsCoveredFirst) => &[Dimension::Ticks],
            _ => &[],
        }
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
