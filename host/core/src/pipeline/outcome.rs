//! What a plugin may report of a batch: the one check of it, and what its commit covers.

use std::time::Duration;

use crate::plugin::ProcessorError;
use crate::ports::{Commit, Outcome, RecordFailure};

/// A plugin may not keep its shard waiting for longer than this with one answer; it can ask again
/// at the next delivery.
pub(crate) const RETRY_AFTER_MAX: Duration = Duration::from_mins(5);

/// Checks what a plugin reports of a batch of `records`: the indexes of those that `failed`, and
/// its commit. Indexes out of range, out of order or twice make the whole outcome invalid: nothing
/// a plugin says can settle a record it did not get.
///
/// Whatever runs a plugin checks this, before it copies anything of what the plugin reports: the
/// error is the result of the call. All that reads an [`Outcome`] relies on it.
///
/// # Errors
///
/// [`ProcessorError::InvalidOutcome`], which says what is wrong with it.
pub fn check_outcome(
    records: usize,
    failed: impl IntoIterator<Item = u32>,
    commit: Option<Commit>,
) -> Result<(), ProcessorError> {
    let invalid = |message: String| Err(ProcessorError::InvalidOutcome { message });
    let mut last: Option<u32> = None;
    for index in failed {
        if index as usize >= records {
            return invalid(format!(
                "failure index {index} is beyond the batch of {records}"
            ));
        }
        if last.is_some_and(|last| index <= last) {
            return invalid(format!("failure index {index} is not above the one before"));
        }
        last = Some(index);
    }
    match commit {
        Some(Commit::Through(index)) if index as usize >= records => invalid(format!(
            "commit index {index} is beyond the batch of {records}"
        )),
        Some(Commit::Through(_) | Commit::Nothing) | None => Ok(()),
    }
}

impl Outcome {
    /// [`check_outcome`] of an outcome that is there already, of a batch of `records`.
    ///
    /// # Errors
    ///
    /// As [`check_outcome`].
    pub fn check(&self, records: usize) -> Result<(), ProcessorError> {
        let failed = self.failures.iter().map(|failure| failure.index);
        check_outcome(records, failed, self.commit)
    }

    /// Whether the plugin holds back some of a batch of `records`: it neither failed on them nor
    /// commits them.
    pub fn holds_back(&self, records: usize) -> bool {
        let committed = committed(self.commit, records);
        let is_beyond = |failure: &&RecordFailure| failure.index as usize >= committed;
        let failed_beyond = self.failures.iter().filter(is_beyond).count();
        committed + failed_beyond < records
    }
}

/// How many records of a batch of `records`, from the first on, a commit covers.
pub fn committed(commit: Option<Commit>, records: usize) -> usize {
    match commit {
        None => records,
        Some(Commit::Nothing) => 0,
        Some(Commit::Through(index)) => index as usize + 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::FailureKind;

    #[test]
    fn indexes_must_rise_and_stay_within_the_batch_and_so_must_the_commit() {
        for (failed, commit, problem) in [
            (vec![], None, None),
            (vec![0, 2], Some(Commit::Through(2)), None),
            (
                vec![3],
                None,
                Some("failure index 3 is beyond the batch of 3"),
            ),
            (
                vec![u32::MAX],
                None,
                Some("failure index 4294967295 is beyond the batch of 3"),
            ),
            (
                vec![1, 0],
                None,
                Some("failure index 0 is not above the one before"),
            ),
            (
                vec![1, 1],
                None,
                Some("failure index 1 is not above the one before"),
            ),
            (
                vec![],
                Some(Commit::Through(3)),
                Some("commit index 3 is beyond the batch of 3"),
            ),
            (vec![], Some(Commit::Nothing), None),
        ] {
            let checked = check_outcome(3, failed.iter().copied(), commit);
            let expected = problem.map(|message| ProcessorError::InvalidOutcome {
                message: message.to_owned(),
            });
            assert_eq!(checked.err(), expected, "{failed:?} {commit:?}");
        }
    }

    #[test]
    fn a_record_is_held_back_that_neither_failed_nor_is_committed() {
        let of = |failed: &[u32], commit| {
            let failure = |index: &u32| RecordFailure {
                index: *index,
                kind: FailureKind::Retry,
                message: String::new(),
            };
            let outcome = Outcome {
                failures: failed.iter().map(failure).collect(),
                commit,
                retry_after: None,
            };
            outcome.holds_back(3)
        };
        assert!(!of(&[], None) && !of(&[1], None));
        assert!(of(&[], Some(Commit::Nothing)) && of(&[2], Some(Commit::Through(0))));
        assert!(!of(&[1, 2], Some(Commit::Through(0))) && !of(&[0, 1, 2], Some(Commit::Nothing)));
    }

    #[test]
    fn a_commit_covers_records_from_the_first_on() {
        let of = |commit| committed(commit, 3);
        assert_eq!(
            [
                of(None),
                of(Some(Commit::Nothing)),
                of(Some(Commit::Through(0)))
            ],
            [3, 0, 1]
        );
    }
}
