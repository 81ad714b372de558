//! Whether a batch that is run again fails as it did.

use super::FailureRecord;
use crate::plugin::ProcessorError;
use crate::ports::Outcome;

/// What came of running a batch again, compared with what was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Likeness {
    /// It fails as it did.
    Same,
    /// It fails, but otherwise.
    FailsOtherwise,
    /// It does not fail.
    DoesNotFail,
}

impl Likeness {
    /// Compares `again` with what was `recorded`.
    ///
    /// A call that took too long is measured by its work when it is run again: that it takes too
    /// much counts as the same.
    pub fn of(recorded: &FailureRecord, again: Result<&Outcome, &ProcessorError>) -> Self {
        let is_same = match again {
            Ok(outcome) if outcome.failures.is_empty() => return Self::DoesNotFail,
            Ok(outcome) => match recorded.code.as_str() {
                FailureRecord::RECORDS => recorded.records == outcome.failures,
                _ => is_in_letter(recorded, &outcome.failures[0].message),
            },
            Err(error) => {
                let again = error.to_string();
                let is_known = recorded.code == error.code()
                    && without_addresses(&recorded.message) == without_addresses(&again);
                let took_too_much = recorded.code == "deadline"
                    && matches!(error, ProcessorError::LimitExceeded { what, .. } if *what == FUEL);
                is_known || took_too_much || is_in_letter(recorded, &again)
            }
        };
        if is_same {
            Self::Same
        } else {
            Self::FailsOtherwise
        }
    }

    /// A word for programs.
    pub fn code(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::FailsOtherwise => "fails-otherwise",
            Self::DoesNotFail => "does-not-fail",
        }
    }
}

/// What comes before an address in a backtrace.
const ADDRESS: &str = " at 0x";
/// What a call exceeds that is measured by its work.
const FUEL: &str = "fuel in one call";

/// A dead letter says the failure in its own words, among others.
fn is_in_letter(recorded: &FailureRecord, message: &str) -> bool {
    let (recorded_message, message) = (
        without_addresses(&recorded.message),
        without_addresses(message),
    );
    recorded.code == FailureRecord::LETTER && recorded_message.contains(&message)
}

/// The message without where in the code each call of a backtrace was: code that is measured by its
/// work is laid out otherwise, so the same call is some bytes further on.
fn without_addresses(message: &str) -> String {
    let mut pieces = message.split(ADDRESS);
    let mut without = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        without.push_str(piece.trim_start_matches(|c: char| c.is_ascii_hexdigit()));
    }
    without
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::ports::{FailureKind, RecordFailure};

    fn trapped(message: &str) -> ProcessorError {
        ProcessorError::Trapped {
            message: message.to_owned(),
        }
    }

    fn rejected(index: u32) -> Outcome {
        let failure = RecordFailure {
            index,
            kind: FailureKind::Reject,
            message: "no".to_owned(),
        };
        Outcome {
            failures: vec![failure],
            ..Outcome::default()
        }
    }

    #[test]
    fn the_same_failure_is_known_by_all_that_it_says() {
        let recorded = FailureRecord::of(Err(&trapped("unreachable, in a!b at 0x1"))).unwrap();
        let like = |error| Likeness::of(&recorded, Err(&error));
        assert_eq!(like(trapped("unreachable, in a!b at 0x1")), Likeness::Same);
        // The layout of the code differs if its work is counted.
        assert_eq!(like(trapped("unreachable, in a!b at 0x2f")), Likeness::Same);
        for other in ["unreachable, in a!c at 0x1", "overflow, in a!b at 0x1"] {
            assert_eq!(like(trapped(other)), Likeness::FailsOtherwise, "{other}");
        }
        let clean = Likeness::of(&recorded, Ok(&Outcome::default()));
        assert_eq!(clean, Likeness::DoesNotFail);
        let recorded = FailureRecord::of(Ok(&rejected(3))).unwrap();
        assert_eq!(Likeness::of(&recorded, Ok(&rejected(3))), Likeness::Same);
        assert_eq!(
            Likeness::of(&recorded, Ok(&rejected(4))),
            Likeness::FailsOtherwise
        );
    }

    #[test]
    fn a_call_that_took_too_long_takes_too_much_when_its_work_is_counted() {
        let late = ProcessorError::DeadlineExceeded {
            call: "process",
            limit: Duration::from_secs(5),
        };
        let recorded = FailureRecord::of(Err(&late)).unwrap();
        let limit = |what| ProcessorError::LimitExceeded { what, limit: 1 };
        assert_eq!(Likeness::of(&recorded, Err(&limit(FUEL))), Likeness::Same);
        assert_eq!(
            Likeness::of(&recorded, Err(&limit("memory bytes"))),
            Likeness::FailsOtherwise
        );
    }

    #[test]
    fn a_dead_letter_says_the_failure_among_other_words() {
        let letter = FailureRecord {
            code: FailureRecord::LETTER.to_owned(),
            message: "tried 5 times: the plugin trapped: unreachable".to_owned(),
            records: Vec::new(),
        };
        let error = trapped("unreachable");
        assert_eq!(Likeness::of(&letter, Err(&error)), Likeness::Same);
        assert_eq!(
            Likeness::of(&letter, Ok(&rejected(0))),
            Likeness::FailsOtherwise
        );
    }
}
