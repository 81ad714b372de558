//! What came of a batch, from the component to the host. An empty frame means that all went well
//! and that all of the batch may be committed.
//!
//! | Bytes | |
//! |---|---|
//! | 4 | layout: 1 |
//! | 4 | how many failures |
//! | 4 | commit: 0 all, 1 nothing, 2 through an index |
//! | 4 | that index; 0 if there is none |
//! | 4 | 1 if the next number means something, or 0 |
//! | 8 | milliseconds to wait before failed records are delivered again; 0 if it means nothing |
//!
//! Then each failure:
//!
//! | Bytes | |
//! |---|---|
//! | 4 | index of the record in the batch |
//! | 4 | 0 to try it again, 1 not to |
//! | 4 | length of the message |
//! | | message |

use crate::frame::{LAYOUT, Malformed, Reading, TooLong, length};

const FAILURE_BYTES: usize = 12;

/// What came of a batch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome<'a> {
    /// The records that failed.
    pub failures: Vec<Failure<'a>>,
    /// How far the batch may be committed.
    pub commit: Commit,
    /// How long to wait before failed records are delivered again.
    pub retry_after_ms: Option<u64>,
}

/// How far a batch may be committed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Commit {
    /// All of it.
    #[default]
    All,
    /// None of it yet.
    Nothing,
    /// Up to and including this index.
    Through(u32),
}

/// One record that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure<'a> {
    /// Its index in the batch, from 0.
    pub index: u32,
    /// Whether to try it again.
    pub kind: FailureKind,
    /// Why it failed, for the log and the dead letter.
    pub message: &'a str,
}

/// Whether a failed record is worth another try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// Deliver it again.
    Retry,
    /// It will never work.
    Reject,
}

impl<'a> Outcome<'a> {
    /// Reads an outcome; its messages are slices of the frame.
    ///
    /// # Errors
    ///
    /// If the frame is neither empty nor an outcome in this layout.
    pub fn read(frame: &'a [u8]) -> Result<Self, Malformed> {
        Self::read_of(frame, usize::MAX)
    }

    /// Reads an outcome of a batch of so many records.
    ///
    /// # Errors
    ///
    /// As [`Self::read`], and if it has more failures than that.
    pub fn read_of(frame: &'a [u8], records: usize) -> Result<Self, Malformed> {
        if frame.is_empty() {
            return Ok(Self::default());
        }
        let mut reading = Reading::new(frame)?;
        let count = reading.count(FAILURE_BYTES)?;
        if count > records {
            // Before memory is reserved for them.
            return Err(Malformed::Meaningless("more failures than records"));
        }
        let commit = read_commit(&mut reading)?;
        let retry_after_ms = read_retry(&mut reading)?;
        let mut failures = Vec::with_capacity(count);
        for _ in 0..count {
            failures.push(read_failure(&mut reading)?);
        }
        reading.end()?;
        Ok(Self {
            failures,
            commit,
            retry_after_ms,
        })
    }

    /// Writes an outcome.
    ///
    /// # Errors
    ///
    /// If there are more than 4 G failures, or one has a message of more than 4 GiB.
    pub fn write(&self) -> Result<Vec<u8>, TooLong> {
        if *self == Self::default() {
            return Ok(Vec::new());
        }
        let count = u32::try_from(self.failures.len()).map_err(|_| TooLong)?;
        let (commit, index) = match self.commit {
            Commit::All => (0, 0),
            Commit::Nothing => (1, 0),
            Commit::Through(index) => (2, index),
        };
        let mut frame = Vec::new();
        for number in [
            LAYOUT,
            count,
            commit,
            index,
            u32::from(self.retry_after_ms.is_some()),
        ] {
            frame.extend(number.to_le_bytes());
        }
        frame.extend(self.retry_after_ms.unwrap_or(0).to_le_bytes());
        for failure in &self.failures {
            let message = failure.message.as_bytes();
            let kind = match failure.kind {
                FailureKind::Retry => 0,
                FailureKind::Reject => 1,
            };
            for number in [failure.index, kind, length(message)?] {
                frame.extend(number.to_le_bytes());
            }
            frame.extend_from_slice(message);
        }
        Ok(frame)
    }
}

fn read_commit(reading: &mut Reading<'_>) -> Result<Commit, Malformed> {
    let kind = reading.u32()?;
    let index = reading.u32()?;
    match (kind, index) {
        (0, 0) => Ok(Commit::All),
        (1, 0) => Ok(Commit::Nothing),
        (2, index) => Ok(Commit::Through(index)),
        _ => Err(Malformed::Meaningless("how far the batch may be committed")),
    }
}

fn read_retry(reading: &mut Reading<'_>) -> Result<Option<u64>, Malformed> {
    let is_set = reading.u32()?;
    let ms = reading.u64()?;
    match (is_set, ms) {
        (0, 0) => Ok(None),
        (1, ms) => Ok(Some(ms)),
        _ => Err(Malformed::Meaningless("when to deliver again")),
    }
}

fn read_failure<'a>(reading: &mut Reading<'a>) -> Result<Failure<'a>, Malformed> {
    let index = reading.u32()?;
    let kind = match reading.u32()? {
        0 => FailureKind::Retry,
        1 => FailureKind::Reject,
        _ => return Err(Malformed::Meaningless("whether to try a record again")),
    };
    let length = reading.u32()?;
    Ok(Failure {
        index,
        kind,
        message: reading.text(length)?,
    })
}
