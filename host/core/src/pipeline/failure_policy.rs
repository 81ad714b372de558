//! What happens to records that fail: how often they are tried, and what then.

use std::time::Duration;

/// What an operator decided about records that fail. The default tries for ever, and later records
/// wait.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FailurePolicy {
    /// Deliveries that may fail before a record is given up; `None` means no limit. A failure
    /// counts against a record if it was delivered alone, or if the plugin reported it; without
    /// `bisect`, a failure of its whole batch counts too. With `Order::Key`, of several reported
    /// records of one key only the first is counted.
    pub attempts: Option<u32>,
    /// Deliveries that may fail because something that the plugin needs is unavailable, as the
    /// plugin reported, before a record is given up. `None` means no limit: the shard waits.
    /// Counted like
    /// `attempts`, and separately.
    pub unavailable_attempts: Option<u32>,
    /// The same for deliveries that failed because the plugin's configuration is wrong, as the
    /// plugin or the host reported.
    pub misconfigured_attempts: Option<u32>,
    /// A record that fails and arrived longer ago than this is given up. Judged only when it fails;
    /// a record without an arrival time from Kinesis has no age.
    pub max_age: Option<Duration>,
    /// Whether a batch that failed as a whole is cut in two, until the record that fails is alone.
    pub bisect: bool,
    /// What is done with a record that is given up; `None` gives up nothing.
    pub then: Option<GiveUp>,
    /// What waits for a record that is tried again.
    pub order: Order,
}

/// What is done with a record that is given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GiveUp {
    /// It is stored whole in the sink of this name, with the reason; then the shard goes on.
    DeadLetter(String),
    /// It is dropped, counted and logged; then the shard goes on.
    Skip,
    /// The shard stops there until another version of the plugin comes, or the host is started
    /// again.
    Halt,
}

/// What waits for a record that is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// All later records of the shard.
    #[default]
    Shard,
    /// Later records of the same partition key.
    Key,
}

/// A policy that contradicts itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyProblem {
    /// The field, as a configuration key.
    pub key: &'static str,
    /// What is wrong and what would be right.
    pub problem: &'static str,
}

impl GiveUp {
    /// The word used in configuration, logs and metrics.
    pub fn code(&self) -> &'static str {
        match self {
            Self::DeadLetter(_) => "dead-letter",
            Self::Skip => "skip",
            Self::Halt => "halt",
        }
    }
}

impl FailurePolicy {
    /// What contradicts itself, if anything does.
    pub fn problem(&self) -> Option<PolicyProblem> {
        let counts = [
            ("attempts", self.attempts),
            ("unavailable-attempts", self.unavailable_attempts),
            ("misconfigured-attempts", self.misconfigured_attempts),
        ];
        let none = counts.iter().find(|(_, most)| *most == Some(0));
        let idle = counts
            .iter()
            .find(|(_, most)| most.is_some() && self.then.is_none());
        let (key, problem) = if let Some((key, _)) = none {
            (
                *key,
                "must be at least 1: a record is delivered before it can fail",
            )
        } else if self.max_age.is_some_and(|age| age.is_zero()) {
            ("max-age", "must be above zero; leave it out for no limit")
        } else if let Some((key, _)) = idle {
            (
                *key,
                "says when a record is given up, but not what happens then: set on-exhausted as well",
            )
        } else if self.max_age.is_some() && self.then.is_none() {
            (
                "max-age",
                "says when a record is given up, but not what happens then: set on-exhausted as well",
            )
        } else if matches!(&self.then, Some(GiveUp::DeadLetter(sink)) if sink.is_empty()) {
            ("dead-letter", "must name a sink")
        } else {
            return None;
        };
        Some(PolicyProblem { key, problem })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_that_cannot_work_is_refused_by_the_key_that_mends_it() {
        let good = FailurePolicy {
            attempts: Some(1),
            then: Some(GiveUp::Skip),
            ..FailurePolicy::default()
        };
        let age = Some(Duration::from_secs(1));
        for (policy, key) in [
            (FailurePolicy::default(), None),
            (good.clone(), None),
            (
                FailurePolicy {
                    attempts: None,
                    ..good.clone()
                },
                None,
            ),
            (
                FailurePolicy {
                    unavailable_attempts: Some(0),
                    ..good.clone()
                },
                Some("unavailable-attempts"),
            ),
            (
                FailurePolicy {
                    misconfigured_attempts: Some(1),
                    ..FailurePolicy::default()
                },
                Some("misconfigured-attempts"),
            ),
            (
                FailurePolicy {
                    attempts: Some(0),
                    ..good.clone()
                },
                Some("attempts"),
            ),
            (
                FailurePolicy {
                    then: None,
                    ..good.clone()
                },
                Some("attempts"),
            ),
            (
                FailurePolicy {
                    attempts: None,
                    max_age: age,
                    then: None,
                    ..good.clone()
                },
                Some("max-age"),
            ),
            (
                FailurePolicy {
                    max_age: Some(Duration::ZERO),
                    ..good.clone()
                },
                Some("max-age"),
            ),
            (
                FailurePolicy {
                    then: Some(GiveUp::DeadLetter(String::new())),
                    ..good
                },
                Some("dead-letter"),
            ),
        ] {
            assert_eq!(
                policy.problem().map(|problem| problem.key),
                key,
                "{policy:?}"
            );
        }
    }

    #[test]
    fn what_is_done_with_a_record_has_the_word_of_the_configuration() {
        let all = [
            GiveUp::DeadLetter("letters".to_owned()),
            GiveUp::Skip,
            GiveUp::Halt,
        ];
        assert_eq!(all.map(|then| then.code()), ["dead-letter", "skip", "halt"]);
    }
}
