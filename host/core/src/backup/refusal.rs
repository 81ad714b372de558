//! Why nothing is restored, and how to go on.

use std::fmt;

use crate::fleet::ApplicationStart;
use crate::lease::Checkpoint;
use crate::stream::{ShardId, StreamName};

/// Why an application is not restored at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RestoreRefusal {
    /// The application's rows belong to another stream than the one that is named.
    OtherStream {
        /// The stream of its rows.
        theirs: StreamName,
    },
    /// It began elsewhere, and rows of the backup say only that they are at the beginning.
    OtherStart {
        /// Where it began.
        theirs: ApplicationStart,
        /// Where it would have begun.
        ours: ApplicationStart,
    },
    /// States of shards whose hash keys no single shard of the stream has.
    StatesFitNowhere(Vec<ShardId>),
    /// The backup has no shard.
    Empty,
}

/// Why one shard is not restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShardRefusal {
    /// A host has served it since, and it is at another place.
    HasProgress {
        /// Where the row is.
        at: Box<Checkpoint>,
    },
    /// Its place comes before that of the backup, or may: what lies between would be left out.
    Forward {
        /// Where the row is.
        at: Box<Checkpoint>,
    },
    /// The row is at that place, and has another state.
    OtherState,
    /// It was read to its end, and Kinesis says that it still takes records.
    FinishedButOpen,
}

impl fmt::Display for RestoreRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherStream { theirs } => write!(
                f,
                "the application has rows of another stream, {theirs} (or of one of that name that \
                    was created at another time): `shardmill delete` removes its tables, or name \
                    another --application"
            ),
            Self::OtherStart { theirs, ours } => write!(
                f,
                "the application began at {theirs}, and would begin at {ours}: `shardmill delete` \
                    removes its tables, or name another --application"
            ),
            Self::StatesFitNowhere(shards) => {
                write!(f, "{} state(s) fit no shard of this stream (", shards.len())?;
                for (index, shard) in shards.iter().take(SHOWN_MAX).enumerate() {
                    let comma = if index == 0 { "" } else { ", " };
                    write!(f, "{comma}{shard}")?;
                }
                let more = if shards.len() > SHOWN_MAX {
                    ", ..."
                } else {
                    ""
                };
                write!(
                    f,
                    "{more}): a state belongs to all records of its shard's hash keys, and no shard \
                        here has the same ones. Give the stream the same shards, or drop these \
                        states with --states fitting, or all with --states drop"
                )
            }
            Self::Empty => f.write_str("the backup has no shard: there is nothing to restore"),
        }
    }
}

/// Shards that a message names.
const SHOWN_MAX: usize = 5;

impl ShardRefusal {
    /// The reason's stable name for programs; it never changes.
    pub fn code(&self) -> &'static str {
        match self {
            Self::HasProgress { .. } => "has-progress",
            Self::Forward { .. } => "forward",
            Self::OtherState => "other-state",
            Self::FinishedButOpen => "finished-but-open",
        }
    }
}

impl fmt::Display for ShardRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HasProgress { at } => write!(
                f,
                "a host has served it, and it is at {at}; --overwrite restores it all the same"
            ),
            Self::Forward { at } => write!(
                f,
                "it is at {at}, and would go forward from there, or may: what lies between is then \
                    never delivered. --forward moves it all the same"
            ),
            Self::OtherState => f.write_str(
                "its row is at that place with another state; --overwrite restores the backup's",
            ),
            Self::FinishedButOpen => f.write_str(
                "the backup says that it was read to its end, and Kinesis that it takes records: \
                    this is not the stream of the backup",
            ),
        }
    }
}
