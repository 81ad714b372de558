//! From how a delivery ended to what becomes of each of its records.
//!
//! | the delivery | the record | then |
//! |---|---|---|
//! | succeeded | any | handled |
//! | failed, with records named | not named | handled |
//! | failed, with records named | named, for a lack that does not count | delivered again |
//! | failed, with records named | named, after one of its key, where keys keep their order | delivered again |
//! | failed, with records named | any other that is named | its own failure |
//! | failed as a whole, by the host or for a lack that does not count | any | delivered again |
//! | failed as a whole, of several records, and the policy cuts batches | any | delivered again, with half of the batch |
//! | failed as a whole, otherwise | any | its own failure |
//!
//! After a failure of its own, a record is delivered again, or given up: if the plugin rejected it,
//! if it is out of attempts, or if it is too old. Nothing is given up without a policy for it.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{FailurePolicy, LaneKey, Order, RETRY_AFTER_MAX};
use crate::plugin::{Lack, ProcessorError};
use crate::ports::{Commit, FailureKind, Outcome, RecordFailure};
use crate::seeded_bug::SeededBug;
use crate::stream::{Position, Record};

mod cause;

pub use cause::Cause;

/// The result of a delivery, and what is done next, each with its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// How far the plugin lets the host commit; [`Commit::Nothing`] if the call failed.
    pub commit: Option<Commit>,
    /// The records that were not handled, in order; all others were.
    pub rulings: Vec<Ruling>,
    /// Set if it is unknown which record failed: the records below this index are delivered again
    /// first, and apart from those at the index and above.
    pub split_at: Option<usize>,
    /// What failed; `None` if every record was handled.
    pub failure: Option<Failure>,
}

/// What failed in a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The failure's stable name for metrics.
    pub kind: &'static str,
    /// The error, as people read it.
    pub reason: String,
    /// Failures in a row, for the back-off; at least 1. It is 1 while a batch is cut in two, since
    /// each part is something new to try.
    pub in_a_row: u32,
    /// How long the plugin asked to wait instead; five minutes at most.
    pub retry_after: Option<Duration>,
    /// What it is held against.
    pub of: Blame,
}

/// What a failed delivery is held against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// The records that the plugin named; the rest of the call counts.
    Records,
    /// Some record of the batch, it is unknown which; nothing of the call is kept.
    Batch,
    /// Something that the plugin needs and does not have: not an attempt of any record, and nothing
    /// of the call is kept.
    Surroundings,
    /// The host, which could not make the call: not an attempt of any record, and nothing of the
    /// call is kept.
    Host,
}

/// What becomes of a record that was not handled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruling {
    /// The record's index in the batch.
    pub index: usize,
    /// Its failed deliveries, this one included.
    pub tried: Tried,
    /// What is done with the record.
    pub fate: Fate,
    /// What failed, in the plugin's or the host's words.
    pub message: String,
}

/// How often a record was delivered without being handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tried {
    /// Deliveries of the record, alone or in a batch.
    pub deliveries: u32,
    /// How many of these count as its own attempts.
    pub attempts: u32,
    /// How many failed because something that the plugin needs was away, where that counts.
    pub unavailable: u32,
    /// How many failed because the plugin's configuration is wrong, where that counts.
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

impl Failure {
    /// Whether it is held against no record.
    pub fn is_of_nobody(&self) -> bool {
        matches!(self.of, Blame::Surroundings | Blame::Host)
    }
}

impl Ruling {
    /// The reason in the record's dead letter.
    pub fn reason(&self, cause: Cause) -> String {
        format!("{cause}: {}", self.message)
    }
}

impl Tried {
    /// The deliveries that count, as any kind of failure.
    fn counted(self) -> u32 {
        self.attempts
            .saturating_add(self.unavailable)
            .saturating_add(self.misconfigured)
    }

    /// The same with nothing counted, for another version of the plugin.
    pub(crate) fn forgiven(self) -> Self {
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

    /// The same verdict, held against no record: what failed is delivered again, as it was, at once
    /// and to another version, and nothing of it is given up. What the plugin handled stays
    /// handled. `tried` counts earlier deliveries.
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

    /// The same verdict, held only against the records in `counted`: the others are delivered
    /// again, and none of them is given up. `tried` counts earlier deliveries.
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

/// Judges a delivery of `records` that ended with `result` at `wall_ms`. `tried` counts earlier
/// deliveries.
///
/// An invalid outcome comes as an error, since whatever ran the plugin checked it: the delivery has
/// failed as a whole.
pub fn judge(
    records: &[Record],
    tried: &dyn Fn(&Position) -> Tried,
    result: Result<&Outcome, &ProcessorError>,
    policy: &FailurePolicy,
    wall_ms: u64,
) -> Verdict {
    let delivery = Delivery {
        records,
        tried,
        policy,
        wall_ms,
    };
    debug_assert!(
        result.is_err() || result.is_ok_and(|outcome| outcome.check(records.len()).is_ok()),
        "an outcome is checked where it comes in: its indexes name records of the batch"
    );
    match result {
        Ok(outcome) if outcome.failures.is_empty() => Verdict {
            commit: outcome.commit,
            rulings: Vec::new(),
            split_at: None,
            failure: None,
        },
        Ok(outcome) => delivery.partly_failed(outcome),
        Err(error) => delivery.wholly_failed(error),
    }
}

/// A failed delivery, and what it is judged by.
struct Delivery<'a> {
    records: &'a [Record],
    tried: &'a dyn Fn(&Position) -> Tried,
    policy: &'a FailurePolicy,
    wall_ms: u64,
}

impl Delivery<'_> {
    /// The plugin named the records that failed.
    fn partly_failed(&self, outcome: &Outcome) -> Verdict {
        let mut failed_keys = BTreeSet::new();
        let mut rulings = Vec::new();
        for failure in &outcome.failures {
            rulings.push(self.rule_on(failure, &mut failed_keys));
        }
        let mut failures = outcome.failures.iter();
        let does_count = failures.any(|failure| self.counts_as(failure.kind.lack()).is_some());
        let failure = Failure {
            kind: "records",
            reason: self.reason_of(&rulings),
            in_a_row: in_a_row(&rulings, does_count),
            retry_after: outcome.retry_after.map(|wait| wait.min(RETRY_AFTER_MAX)),
            of: Blame::Records,
        };
        Verdict {
            commit: outcome.commit,
            rulings,
            split_at: None,
            failure: Some(failure),
        }
    }

    fn rule_on(&self, failure: &RecordFailure, failed_keys: &mut BTreeSet<LaneKey>) -> Ruling {
        let index = failure.index as usize;
        let message = failure.message.clone();
        let Some(count) = self.counts_as(failure.kind.lack()) else {
            return self.again(index, message);
        };
        // A plugin that keeps the order of a key reports what follows a failed record, though it
        // did not try it.
        let is_first = self.policy.order == Order::Shard
            || failed_keys.insert(LaneKey::of(&self.records[index]));
        let is_rejected = failure.kind == FailureKind::Reject;
        if is_first || is_rejected {
            self.own_failure(index, message, count, is_rejected)
        } else {
            self.again(index, message)
        }
    }

    fn reason_of(&self, rulings: &[Ruling]) -> String {
        let Some(first) = rulings.first() else {
            return String::new();
        };
        let at = &self.records[first.index].position;
        let count = rulings.len();
        let message = &first.message;
        format!("{count} record(s) failed, the first at {at}: {message}")
    }

    /// Says where the batch is, so that somebody can look at its records, or skip the one that it
    /// was cut down to.
    fn reason_of_batch(&self, error: &ProcessorError) -> String {
        match self.records {
            [] => error.to_string(),
            _ if error.is_hosts() => error.to_string(),
            [record] => format!("record {}: {error}", record.position),
            [first, .., last] => format!(
                "{} records, {} to {}: {error}",
                self.records.len(),
                first.position,
                last.position
            ),
        }
    }

    /// Only that the call failed is known.
    fn wholly_failed(&self, error: &ProcessorError) -> Verdict {
        let count = self.records.len();
        let counts_as = if error.is_hosts() {
            None
        } else {
            self.counts_as(error.lack())
        };
        let is_split = counts_as.is_some() && self.policy.bisect && count > 1;
        let own = if is_split && !SeededBug::ChargesWholeBatch.is_on() {
            None
        } else {
            counts_as
        };
        let message = error.to_string();
        let rule = |index| match own {
            Some(counted) => self.own_failure(index, message.clone(), counted, false),
            None => self.again(index, message.clone()),
        };
        let rulings: Vec<Ruling> = (0..count).map(rule).collect();
        let failure = Failure {
            kind: error.code(),
            in_a_row: if is_split {
                1
            } else {
                in_a_row(&rulings, counts_as.is_some())
            },
            reason: self.reason_of_batch(error),
            retry_after: None,
            of: match counts_as {
                Some(_) => Blame::Batch,
                None if error.is_hosts() => Blame::Host,
                None => Blame::Surroundings,
            },
        };
        Verdict {
            commit: Some(Commit::Nothing),
            rulings,
            split_at: is_split.then_some(count / 2),
            failure: Some(failure),
        }
    }

    /// What a failure counts as, if it counts: a lack blocks the shard, unless the policy says
    /// otherwise.
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

    /// Not its own failure.
    fn again(&self, index: usize, message: String) -> Ruling {
        Ruling {
            index,
            tried: self.delivered(index),
            fate: Fate::Again,
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
        (count == Count::Attempt && self.is_too_old(record)).then_some(Cause::Age)
    }

    fn is_too_old(&self, record: &Record) -> bool {
        // To a wall clock that is behind, an arrival may be in the future: the age is then zero.
        let age = Duration::from_millis(self.wall_ms.saturating_sub(record.arrival_ms));
        let is_known = record.arrival_ms > 0;
        is_known && self.policy.max_age.is_some_and(|most| age > most)
    }
}

/// The longest run of failures among the records to deliver again, at least one: of counted
/// failures if `does_count`, else of all.
fn in_a_row(rulings: &[Ruling], does_count: bool) -> u32 {
    let again = rulings.iter().filter(|ruling| ruling.fate == Fate::Again);
    again
        .map(|ruling| {
            if does_count {
                ruling.tried.counted()
            } else {
                ruling.tried.deliveries
            }
        })
        .max()
        .unwrap_or(1)
        .max(1)
}

#[cfg(test)]
mod tests;
