//! From how a delivery ended to what becomes of each of its records.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use super::{FailurePolicy, LaneKey, Order, RETRY_AFTER_MAX, check_outcome};
use crate::plugin::{Lack, ProcessorError};
use crate::ports::{Commit, FailureKind, Outcome, RecordFailure};
use crate::seeded_bug::SeededBug;
use crate::stream::{Position, Record};

/// What came of a delivery, and what is done next, each with its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// How far the plugin lets the host commit; [`Commit::Nothing`] if the call failed.
    pub commit: Option<Commit>,
    /// The records that were not handled, in order; all others were.
    pub rulings: Vec<Ruling>,
    /// Nobody knows which record it was: those below this index go again before, and apart from,
    /// those at it and above.
    pub split_at: Option<usize>,
    /// What failed, if anything did.
    pub failure: Option<Failure>,
}

/// What failed in a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// A short, stable word for metrics.
    pub kind: &'static str,
    /// For people.
    pub reason: String,
    /// Failures in a row, for the back-off. One while a batch is cut in two, since each part is
    /// something new to try.
    pub in_a_row: u32,
    /// How long the plugin asked to wait instead; five minutes at most.
    pub retry_after: Option<Duration>,
    /// Whose failure it is.
    pub of: Blame,
}

/// Whose failure a failed delivery is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// Of the records that the plugin named; the rest of the call stands.
    Records,
    /// Of some record of the batch, nobody knows which; nothing of the call is kept.
    Batch,
    /// Of what the plugin needs and does not have: it is no record's attempt, and nothing of it is
    /// kept.
    Surroundings,
    /// Of the host, which could not make the call: it is no record's attempt, and nothing of it is
    /// kept.
    Host,
}

/// What becomes of a record that was not handled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruling {
    /// Its index in the batch.
    pub index: usize,
    /// With this delivery.
    pub tried: Tried,
    /// What is done with it.
    pub fate: Fate,
    /// What failed, in the plugin's or the host's words.
    pub message: String,
}

/// How often a record was delivered without being handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tried {
    /// Alone or in a batch.
    pub deliveries: u32,
    /// Of these, those that count as its own attempts.
    pub attempts: u32,
    /// Those that failed because what the plugin needs was away, where that counts.
    pub unavailable: u32,
    /// Those that failed because the plugin's configuration is wrong, where that counts.
    pub misconfigured: u32,
}

/// What a failure of a record counts as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Count {
    Attempt,
    Unavailable,
    Misconfigured,
}

/// What is done with a record that was not handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is delivered again.
    Again,
    /// It is given up, as the policy says.
    GivenUp(Cause),
}

/// Why a record is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The plugin said that it will never work.
    Rejected,
    /// It failed as often as it may.
    Attempts,
    /// What the plugin needs was away as often as it may be.
    Unavailable,
    /// The plugin's configuration was wrong as often as it may be.
    Misconfigured,
    /// It is older than it may be.
    Age,
}

impl Cause {
    /// Every cause.
    pub const ALL: [Self; 5] = [
        Self::Rejected,
        Self::Attempts,
        Self::Unavailable,
        Self::Misconfigured,
        Self::Age,
    ];

    /// The word used in metrics.
    pub fn code(self) -> &'static str {
        match self {
            Self::Rejected => "rejected",
            Self::Attempts => "attempts",
            Self::Unavailable => "unavailable",
            Self::Misconfigured => "misconfigured",
            Self::Age => "age",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rejected => "rejected",
            Self::Attempts => "out of attempts",
            Self::Unavailable => "out of unavailable-attempts",
            Self::Misconfigured => "out of misconfigured-attempts",
            Self::Age => "too old",
        })
    }
}

impl Failure {
    /// Whether it says nothing of the records.
    pub fn is_of_nobody(&self) -> bool {
        matches!(self.of, Blame::Surroundings | Blame::Host)
    }
}

impl Ruling {
    /// What a dead letter says of why its record was given up.
    pub fn reason(&self, cause: Cause) -> String {
        format!("{cause}: {}", self.message)
    }
}

impl Tried {
    /// Those that count, as whatever.
    fn counted(self) -> u32 {
        self.attempts
            .saturating_add(self.unavailable)
            .saturating_add(self.misconfigured)
    }

    /// The same with nothing counted: another version of the plugin is at work.
    pub fn forgiven(self) -> Self {
        Self {
            deliveries: self.deliveries,
            ..Self::default()
        }
    }
}

impl Verdict {
    /// Whether every record was handled.
    pub fn is_clean(&self) -> bool {
        self.failure.is_none()
    }

    /// The same, held against no record: what failed goes again as it was, at once and to another
    /// version, and nothing of it is given up. What the plugin handled stays handled. `tried` tells
    /// of earlier deliveries.
    #[must_use]
    pub fn without_blame(mut self, records: &[Record], tried: &dyn Fn(&Position) -> Tried) -> Self {
        for ruling in &mut self.rulings {
            let deliveries = ruling.tried.deliveries;
            ruling.tried = Tried {
                deliveries,
                ..tried(&records[ruling.index].position)
            };
            ruling.fate = Fate::Again;
        }
        self.split_at = None;
        if let Some(failure) = &mut self.failure {
            (failure.in_a_row, failure.retry_after) = (1, None);
            if matches!(failure.of, Blame::Batch | Blame::Surroundings) {
                failure.of = Blame::Host;
            }
        }
        self
    }

    /// The same, held against those of the records only that `counted` has: of the others nothing
    /// is given up, and they go again. `tried` tells of earlier deliveries.
    #[must_use]
    pub fn held_against(
        mut self,
        counted: &BTreeSet<Position>,
        records: &[Record],
        tried: &dyn Fn(&Position) -> Tried,
    ) -> Self {
        for ruling in &mut self.rulings {
            let position = &records[ruling.index].position;
            if !counted.contains(position) {
                ruling.tried = Tried {
                    deliveries: ruling.tried.deliveries,
                    ..tried(position)
                };
                ruling.fate = Fate::Again;
            }
        }
        self
    }

    /// Whether some of the records are delivered again.
    pub fn has_again(&self) -> bool {
        self.rulings.iter().any(|ruling| ruling.fate == Fate::Again)
    }
}

/// Judges a delivery of `records` that ended with `result` at `wall_ms`. `tried` tells of earlier
/// deliveries.
///
/// Nothing the plugin says can settle a record it did not get: indexes out of range, out of order
/// or twice make the whole outcome invalid, which is a failure of the whole batch.
pub fn judge(
    records: &[Record],
    tried: &dyn Fn(&Position) -> Tried,
    result: Result<&Outcome, &ProcessorError>,
    policy: &FailurePolicy,
    wall_ms: u64,
) -> Verdict {
    let court = Court {
        records,
        tried,
        policy,
        wall_ms,
    };
    match result
        .map_err(Clone::clone)
        .and_then(|outcome| check(records, outcome).map(|()| outcome))
    {
        Ok(outcome) if outcome.failures.is_empty() => Verdict {
            commit: outcome.commit,
            rulings: Vec::new(),
            split_at: None,
            failure: None,
        },
        Ok(outcome) => court.partly(outcome),
        Err(error) => court.whole(&error),
    }
}

/// What a judgement goes by.
struct Court<'a> {
    records: &'a [Record],
    tried: &'a dyn Fn(&Position) -> Tried,
    policy: &'a FailurePolicy,
    wall_ms: u64,
}

impl Court<'_> {
    /// The plugin named the records that failed.
    fn partly(&self, outcome: &Outcome) -> Verdict {
        let mut keys = BTreeSet::new();
        let rule = |failure: &RecordFailure| {
            let (index, message) = (failure.index as usize, failure.message.clone());
            let is_rejected = failure.kind == FailureKind::Reject;
            let Some(count) = self.counts_as(failure.kind.lack()) else {
                return Ruling {
                    index,
                    tried: self.delivered(index),
                    fate: Fate::Again,
                    message,
                };
            };
            let is_first =
                self.policy.order == Order::Shard || keys.insert(LaneKey::of(&self.records[index]));
            if is_first || is_rejected {
                return self.own_failure(index, message, count, is_rejected);
            }
            // A plugin that keeps the order of a key reports what follows a failed record, though
            // it did not try it.
            Ruling {
                index,
                tried: self.delivered(index),
                fate: Fate::Again,
                message,
            }
        };
        let rulings: Vec<Ruling> = outcome.failures.iter().map(rule).collect();
        let reason = rulings.first().map_or_else(String::new, |first| {
            let at = &self.records[first.index].position;
            format!(
                "{} record(s) failed, the first at {at}: {}",
                rulings.len(),
                first.message
            )
        });
        let is_counted = outcome
            .failures
            .iter()
            .any(|failure| self.counts_as(failure.kind.lack()).is_some());
        let in_a_row = in_a_row(&rulings, |tried| {
            if is_counted {
                tried.counted()
            } else {
                tried.deliveries
            }
        });
        let retry_after = outcome.retry_after.map(|wait| wait.min(RETRY_AFTER_MAX));
        let failure = Failure {
            kind: "records",
            reason,
            in_a_row,
            retry_after,
            of: Blame::Records,
        };
        Verdict {
            commit: outcome.commit,
            rulings,
            split_at: None,
            failure: Some(failure),
        }
    }

    /// Nothing is known but that the call failed.
    fn whole(&self, error: &ProcessorError) -> Verdict {
        let message = error.to_string();
        let counts_as = if error.is_hosts() {
            None
        } else {
            self.counts_as(error.lack())
        };
        let count = self.records.len();
        let split_at =
            (counts_as.is_some() && self.policy.bisect && count > 1).then_some(count / 2);
        let rule = |index: usize| {
            if let Some(counted) = counts_as
                && (split_at.is_none() || SeededBug::ChargesWholeBatch.is_on())
            {
                return self.own_failure(index, message.clone(), counted, false);
            }
            let tried = self.delivered(index);
            Ruling {
                index,
                tried,
                fate: Fate::Again,
                message: message.clone(),
            }
        };
        let rulings: Vec<Ruling> = (0..count).map(rule).collect();
        let of = match (counts_as, error.is_hosts()) {
            (Some(_), _) => Blame::Batch,
            (None, true) => Blame::Host,
            (None, false) => Blame::Surroundings,
        };
        let in_a_row = match (split_at, counts_as) {
            (Some(_), _) => 1,
            (None, Some(_)) => in_a_row(&rulings, Tried::counted),
            (None, None) => in_a_row(&rulings, |tried| tried.deliveries),
        };
        let failure = Failure {
            kind: error.code(),
            reason: message,
            in_a_row,
            retry_after: None,
            of,
        };
        Verdict {
            commit: Some(Commit::Nothing),
            rulings,
            split_at,
            failure: Some(failure),
        }
    }

    /// What a failure counts as, if it counts: what the plugin lacked holds the shard, unless the
    /// policy says otherwise.
    fn counts_as(&self, lack: Option<Lack>) -> Option<Count> {
        match lack {
            None => Some(Count::Attempt),
            Some(Lack::Service) => self.policy.unavailable_attempts.map(|_| Count::Unavailable),
            Some(Lack::Configuration) => self
                .policy
                .misconfigured_attempts
                .map(|_| Count::Misconfigured),
        }
    }

    fn own_failure(
        &self,
        index: usize,
        message: String,
        count: Count,
        is_rejected: bool,
    ) -> Ruling {
        let mut tried = self.delivered(index);
        let counted = match count {
            Count::Attempt => &mut tried.attempts,
            Count::Unavailable => &mut tried.unavailable,
            Count::Misconfigured => &mut tried.misconfigured,
        };
        *counted = counted.saturating_add(1);
        let fate = match self.cause(&self.records[index], tried, count, is_rejected) {
            Some(cause) => Fate::GivenUp(cause),
            None => Fate::Again,
        };
        Ruling {
            index,
            tried,
            fate,
            message,
        }
    }

    fn delivered(&self, index: usize) -> Tried {
        let tried = (self.tried)(&self.records[index].position);
        Tried {
            deliveries: tried.deliveries.saturating_add(1),
            ..tried
        }
    }

    fn cause(
        &self,
        record: &Record,
        tried: Tried,
        count: Count,
        is_rejected: bool,
    ) -> Option<Cause> {
        self.policy.then.as_ref()?;
        if is_rejected {
            return Some(Cause::Rejected);
        }
        let (most, so_far, cause) = match count {
            Count::Attempt => (self.policy.attempts, tried.attempts, Cause::Attempts),
            Count::Unavailable => (
                self.policy.unavailable_attempts,
                tried.unavailable,
                Cause::Unavailable,
            ),
            Count::Misconfigured => (
                self.policy.misconfigured_attempts,
                tried.misconfigured,
                Cause::Misconfigured,
            ),
        };
        if most.is_some_and(|most| so_far >= most) && !SeededBug::NeverOutOfAttempts.is_on() {
            return Some(cause);
        }
        if count != Count::Attempt {
            return None;
        }
        // An arrival in the future, as a wall clock that is behind sees it, is no age at all.
        let age = Duration::from_millis(self.wall_ms.saturating_sub(record.arrival_ms));
        let is_known = record.arrival_ms > 0;
        self.policy
            .max_age
            .filter(|most| is_known && age > *most)
            .map(|_| Cause::Age)
    }
}

/// Failures in a row of what goes again; at least one.
fn in_a_row(rulings: &[Ruling], count: impl Fn(Tried) -> u32) -> u32 {
    let again = rulings.iter().filter(|ruling| ruling.fate == Fate::Again);
    again
        .map(|ruling| count(ruling.tried))
        .max()
        .unwrap_or(1)
        .max(1)
}

fn check(records: &[Record], outcome: &Outcome) -> Result<(), ProcessorError> {
    check_outcome(
        records.len(),
        outcome.failures.iter().map(|failure| failure.index),
        outcome.commit,
    )
}

#[cfg(test)]
mod tests;
