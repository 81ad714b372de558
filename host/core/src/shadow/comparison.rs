use crate::plugin::ProcessorError;
use crate::ports::{FailureKind, Outcome, RecordFailure};

/// What two versions made of the same batch, apart from what they emitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Agreement {
    /// The same: both go on from here.
    Same,
    /// Records failed in the one at work only, or other records, or in another way. What comes next
    /// differs: the shadow must start anew.
    AtWorkFailed,
    /// Records failed in the shadow only, or the call.
    ShadowFailed,
    /// Both calls failed. The records come again, to new instances perhaps.
    BothFailed,
    /// The call failed for the host's own reasons, or the version at work lacked something, such as
    /// a service: that says nothing of the versions.
    Unknown,
}

/// Compares two outcomes of the same batch.
pub fn compare(
    at_work: Result<&Outcome, &ProcessorError>,
    shadow: Result<&Outcome, &ProcessorError>,
) -> Agreement {
    match (at_work, shadow) {
        (Err(error), _) if error.is_hosts() || error.lack().is_some() => Agreement::Unknown,
        (_, Err(error)) if error.is_hosts() => Agreement::Unknown,
        (Err(_), Err(_)) => Agreement::BothFailed,
        (Err(_), Ok(_)) => Agreement::AtWorkFailed,
        (Ok(_), Err(_)) => Agreement::ShadowFailed,
        (Ok(at_work), Ok(shadow)) => compare_failures(&at_work.failures, &shadow.failures),
    }
}

fn compare_failures(at_work: &[RecordFailure], shadow: &[RecordFailure]) -> Agreement {
    // A record that is rejected becomes a dead letter at once; one that is retried does not.
    let failed = |failures: &[RecordFailure]| -> Vec<(u32, FailureKind)> {
        let failed = failures.iter().map(|failure| (failure.index, failure.kind));
        failed.collect()
    };
    let (at_work, shadow) = (failed(at_work), failed(shadow));
    if at_work == shadow {
        Agreement::Same
    } else if shadow.iter().any(|one| !at_work.contains(one)) {
        Agreement::ShadowFailed
    } else {
        Agreement::AtWorkFailed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(failed: &[u32]) -> Outcome {
        let failure = |index: &u32| RecordFailure {
            index: *index,
            kind: FailureKind::Retry,
            message: String::new(),
        };
        Outcome {
            failures: failed.iter().map(failure).collect(),
            ..Outcome::default()
        }
    }

    #[test]
    fn versions_agree_if_the_same_records_failed() {
        let compared =
            |at_work: &[u32], shadow: &[u32]| compare(Ok(&outcome(at_work)), Ok(&outcome(shadow)));
        assert_eq!(compared(&[], &[]), Agreement::Same);
        assert_eq!(compared(&[1, 4], &[1, 4]), Agreement::Same);
        assert_eq!(compared(&[1, 4], &[4]), Agreement::AtWorkFailed);
        assert_eq!(compared(&[4], &[1, 4]), Agreement::ShadowFailed);
        assert_eq!(compared(&[1], &[4]), Agreement::ShadowFailed, "a new one");
        let mut rejecting = outcome(&[1]);
        rejecting.failures[0].kind = FailureKind::Reject;
        let compared = compare(Ok(&outcome(&[1])), Ok(&rejecting));
        assert_eq!(compared, Agreement::ShadowFailed, "in another way");
    }

    #[test]
    fn what_the_host_lacked_says_nothing_of_a_version() {
        let trap = ProcessorError::Trapped {
            message: "unreachable".to_owned(),
        };
        let memory = ProcessorError::Host {
            message: "no thread".to_owned(),
        };
        let good = outcome(&[]);
        assert_eq!(compare(Err(&trap), Ok(&good)), Agreement::AtWorkFailed);
        assert_eq!(compare(Ok(&good), Err(&trap)), Agreement::ShadowFailed);
        assert_eq!(compare(Err(&trap), Err(&trap)), Agreement::BothFailed);
        assert_eq!(compare(Ok(&good), Err(&memory)), Agreement::Unknown);
        assert_eq!(compare(Err(&memory), Err(&trap)), Agreement::Unknown);
        let lack = ProcessorError::HoldsBack;
        assert_eq!(compare(Err(&lack), Ok(&good)), Agreement::Unknown);
        assert_eq!(compare(Ok(&good), Err(&lack)), Agreement::ShadowFailed);
    }
}
