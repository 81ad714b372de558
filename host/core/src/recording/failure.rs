//! How a delivery failed, as far as that says something of its records.

use crate::plugin::ProcessorError;
use crate::ports::{Outcome, RecordFailure};

/// How a delivery failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailureRecord {
    /// A short, stable word: that of [`ProcessorError::code`], or `records` if the call returned
    /// and said which records had failed.
    pub code: String,
    /// What happened, in the plugin's or the host's words.
    pub message: String,
    /// The records that failed, if the plugin said which.
    pub records: Vec<RecordFailure>,
}

impl FailureRecord {
    /// The code of a call that returned and said which records had failed.
    pub const RECORDS: &'static str = "records";
    /// The code of a failure of which only a dead letter is left.
    pub const LETTER: &'static str = "dead-letter";

    /// What is to be recorded of a delivery. `None` if it did not fail, or failed for something
    /// that running it again elsewhere would not show: the host's trouble, or something that the
    /// plugin lacked.
    pub fn of(result: Result<&Outcome, &ProcessorError>) -> Option<Self> {
        match result {
            Ok(outcome) => Self::of_outcome(outcome),
            Err(error) if error.is_hosts() || error.lack().is_some() => None,
            Err(error) => Some(Self {
                code: error.code().to_owned(),
                message: error.to_string(),
                records: Vec::new(),
            }),
        }
    }

    fn of_outcome(outcome: &Outcome) -> Option<Self> {
        let own = outcome
            .failures
            .iter()
            .find(|failure| failure.kind.lack().is_none())?;
        Some(Self {
            code: Self::RECORDS.to_owned(),
            message: own.message.clone(),
            records: outcome.failures.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::Lack;
    use crate::ports::FailureKind;

    fn outcome(kind: FailureKind) -> Outcome {
        let failure = RecordFailure {
            index: 3,
            kind,
            message: "no such carrier".to_owned(),
        };
        Outcome {
            failures: vec![failure],
            ..Outcome::default()
        }
    }

    #[test]
    fn what_a_record_may_have_caused_is_recorded() {
        let trapped = ProcessorError::Trapped {
            message: "unreachable".to_owned(),
        };
        let failure = FailureRecord::of(Err(&trapped)).unwrap();
        assert_eq!(failure.code, "trapped");
        assert!(failure.message.contains("unreachable"));
        for kind in [FailureKind::Retry, FailureKind::Reject] {
            let failure = FailureRecord::of(Ok(&outcome(kind))).unwrap();
            assert_eq!(
                (failure.code.as_str(), failure.records.len()),
                ("records", 1)
            );
            assert_eq!(failure.message, "no such carrier");
        }
    }

    #[test]
    fn what_elsewhere_would_go_otherwise_is_not_recorded() {
        assert_eq!(FailureRecord::of(Ok(&Outcome::default())), None);
        let misconfigured = outcome(FailureKind::Misconfigured);
        assert_eq!(FailureRecord::of(Ok(&misconfigured)), None);
        let message = "away".to_owned();
        for error in [
            ProcessorError::Host {
                message: message.clone(),
            },
            ProcessorError::HostMemory { limit: 1 },
            ProcessorError::NotReady {
                lack: Lack::Service,
                message,
            },
            ProcessorError::HoldsBack,
        ] {
            assert_eq!(FailureRecord::of(Err(&error)), None, "{error}");
        }
    }
}
