//! Why a shard gets no row.

use std::fmt;

use crate::stream::ShardId;

/// Why a shard that Kinesis lists has no row, and gets none now. None of these is a fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoRow {
    /// It was finished, and its row removed: a descendant has started.
    WasFinished {
        /// A descendant that has started.
        descendant: ShardId,
    },
    /// An ancestor is unfinished: the host that ends it creates the rows of its children.
    AncestorUnfinished {
        /// The nearest unfinished ancestor with a row.
        ancestor: ShardId,
    },
    /// The application starts later than the shard was closed.
    ClosedBeforeStart,
    /// An unfinished shard covers some of its hash keys, and is read first.
    CoveredBy {
        /// That shard.
        covering: ShardId,
    },
}

impl NoRow {
    /// The reason's stable name for programs; it never changes.
    pub fn code(&self) -> &'static str {
        match self {
            Self::WasFinished { .. } => "was-finished",
            Self::AncestorUnfinished { .. } => "ancestor-unfinished",
            Self::ClosedBeforeStart => "closed-before-start",
            Self::CoveredBy { .. } => "covered-by",
        }
    }

    /// The shard that must end first, if there is one.
    pub fn waits_for(&self) -> Option<&ShardId> {
        match self {
            Self::AncestorUnfinished { ancestor: shard } | Self::CoveredBy { covering: shard } => {
                Some(shard)
            }
            Self::WasFinished { .. } | Self::ClosedBeforeStart => None,
        }
    }
}

impl fmt::Display for NoRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WasFinished { descendant } => {
                write!(
                    f,
                    "it was read to its end and its row removed: its descendant {descendant} has started"
                )
            }
            Self::AncestorUnfinished { ancestor } => {
                write!(f, "its row is created when {ancestor} ends")
            }
            Self::ClosedBeforeStart => f.write_str(
                "it was closed before this application started, which reads only later records",
            ),
            Self::CoveredBy { covering } => {
                write!(
                    f,
                    "{covering} covers some of its hash keys and is read to its end first"
                )
            }
        }
    }
}
