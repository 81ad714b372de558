//! From what a guest reported of a batch to what is settled.

use std::time::Duration;

use crate::plugin::ProcessorError;
use crate::ports::{Commit, Outcome, RecordFailure};
use crate::stream::{Position, Record};

/// What follows from a batch's outcome.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settlement {
    /// Everything of the shard up to and including this position may be checkpointed, once outputs are flushed;
    /// `None` if this batch moves nothing.
    pub settled_through: Option<Position>,
    /// Indexes to deliver again, in order. Later records wait for them: order is by shard.
    pub deliver_again: Vec<usize>,
    /// The first failure, to be shown.
    pub first_failure: Option<RecordFailure>,
    /// How long the guest asked to wait before that.
    pub retry_after: Option<Duration>,
}

/// Judges `outcome` for `records`. Nothing the guest says can settle a record it did not get: indexes out of range, out
/// of order or twice make the whole outcome invalid, and the batch is delivered again.
pub fn settle(records: &[Record], outcome: &Outcome) -> Result<Settlement, ProcessorError> {
    check(records.len(), outcome)?;
    let first_failed = outcome.failures.first().map_or(records.len(), |failure| failure.index as usize);
    let committed = match outcome.commit {
        None => records.len(),
        Some(Commit::Nothing) => 0,
        Some(Commit::Through(index)) => index as usize + 1,
    };
    // A checkpoint covers everything before it, so it stops below the first record that is not settled.
    let settled = first_failed.min(committed);
    Ok(Settlement {
        settled_through: settled.checked_sub(1).map(|last| records[last].position.clone()),
        deliver_again: outcome.failures.iter().map(|failure| failure.index as usize).collect(),
        first_failure: outcome.failures.first().cloned(),
        retry_after: outcome.retry_after,
    })
}

fn check(batch_len: usize, outcome: &Outcome) -> Result<(), ProcessorError> {
    let invalid = |message: String| Err(ProcessorError::InvalidOutcome { message });
    let mut last: Option<u32> = None;
    for failure in &outcome.failures {
        if failure.index as usize >= batch_len {
            return invalid(format!("failure index {} in a batch of {batch_len}", failure.index));
        }
        if last.is_some_and(|last| failure.index <= last) {
            return invalid(format!("failure index {} does not rise", failure.index));
        }
        last = Some(failure.index);
    }
    match outcome.commit {
        Some(Commit::Through(index)) if index as usize >= batch_len => {
            invalid(format!("commit index {index} in a batch of {batch_len}"))
        }
        Some(Commit::Through(_) | Commit::Nothing) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::ports::FailureKind;
    use crate::stream::SequenceNumber;

    fn records(count: u64) -> Vec<Record> {
        let position = |n: u64| Position::plain(SequenceNumber::parse(&n.to_string()).unwrap());
        let record = |n| Record {
            data: Bytes::new(),
            partition_key: String::new(),
            explicit_hash_key: None,
            position: position(n),
            arrival_ms: 0,
        };
        (0..count).map(record).collect()
    }

    fn outcome(failures: &[u32], commit: Option<Commit>) -> Outcome {
        let failure = |index: &u32| RecordFailure { index: *index, kind: FailureKind::Retry, message: String::new() };
        Outcome { failures: failures.iter().map(failure).collect(), commit, retry_after: None }
    }

    fn settled(failures: &[u32], commit: Option<Commit>) -> Option<String> {
        let settlement = settle(&records(5), &outcome(failures, commit)).unwrap();
        assert_eq!(settlement.deliver_again.len(), failures.len());
        settlement.settled_through.map(|position| position.to_string())
    }

    #[test]
    fn progress_stops_below_the_first_record_that_is_not_settled() {
        assert_eq!(settled(&[], None).as_deref(), Some("4"));
        assert_eq!(settled(&[2, 4], None).as_deref(), Some("1"));
        assert_eq!(settled(&[0], None), None);
        assert_eq!(settled(&[], Some(Commit::Through(3))).as_deref(), Some("3"));
        assert_eq!(settled(&[2], Some(Commit::Through(3))).as_deref(), Some("1"));
        assert_eq!(settled(&[], Some(Commit::Nothing)), None);
    }

    #[test]
    fn what_a_guest_cannot_know_settles_nothing() {
        for bad in [
            outcome(&[5], None),
            outcome(&[1, 1], None),
            outcome(&[3, 1], None),
            outcome(&[u32::MAX], None),
            outcome(&[], Some(Commit::Through(5))),
        ] {
            assert!(matches!(settle(&records(5), &bad), Err(ProcessorError::InvalidOutcome { .. })), "{bad:?}");
        }
    }
}
