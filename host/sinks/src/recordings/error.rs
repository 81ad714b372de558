//! What is wrong with a recording's file.

use std::fmt::Display;

/// The version that is written, and the only one that is read.
pub const RECORDING_VERSION: u32 = 1;

/// Why a file cannot be used as a recording.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordingError {
    /// It is something else.
    #[error("not a recording: its first line is not the head of one")]
    Other,
    /// A later version of shardmill wrote it.
    #[error(
        "a recording of version {0}, but this shardmill reads version {RECORDING_VERSION}: use a \
            newer shardmill"
    )]
    Version(u32),
    /// It was meant to be one.
    #[error("a damaged recording: {0}; copy the file again, or use another recording")]
    Damaged(String),
}

pub(super) fn damaged(problem: impl Display) -> RecordingError {
    RecordingError::Damaged(problem.to_string())
}
