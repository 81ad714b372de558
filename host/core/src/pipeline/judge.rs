//! From how a delivery ended to what becomes of each of its records.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use super::{FailurePolicy, LaneKey, Order, RETRY_AFTER_MAX, check_outcome};
use crate::plugin::ProcessorError;
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
    /// Nobody knows which record it was: those below this index go again before, and apart from, those at it and above.
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
    /// Failures in a row, for the back-off. One while a batch is cut in two, since each part is something new to try.
    pub in_a_row: u32,
    /// How long the plugin asked to wait instead, cut to [`RETRY_AFTER_MAX`].
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
    /// Of the host, which could not make the call: it is no record's attempt, and nothing of it is kept.
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
    /// It is older than it may be.
    Age,
}

impl Cause {
    /// The word used in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rejected => "rejected",
            Self::Attempts => "attempts",
            Self::Age => "age",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rejected => "rejected",
            Self::Attempts => "out of attempts",
            Self::Age => "too old",
        })
    }
}

impl Ruling {
    /// What a dead letter says of why its record was given up.
    pub fn reason(&self, cause: Cause) -> String {
        format!("{cause}: {}", self.message)
    }
}

impl Verdict {
    /// Whether every record was handled.
    pub fn is_clean(&self) -> bool {
        self.failure.is_none()
    }

    /// The same, held against no record: what failed goes again as it was, at once and to another version, and nothing of it
    /// is given up. What the plugin handled stays handled. `tried` tells of earlier deliveries.
    #[must_use]
    pub fn without_blame(mut self, records: &[Record], tried: &dyn Fn(&Position) -> Tried) -> Self {
        for ruling in &mut self.rulings {
            ruling.tried.attempts = tried(&records[ruling.index].position).attempts;
            ruling.fate = Fate::Again;
        }
        self.split_at = None;
        if let Some(failure) = &mut self.failure {
            (failure.in_a_row, failure.retry_after) = (1, None);
            if failure.of == Blame::Batch {
                failure.of = Blame::Host;
            }
        }
        self
    }

    /// Whether some of the records are delivered again.
    pub fn has_again(&self) -> bool {
        self.rulings.iter().any(|ruling| ruling.fate == Fate::Again)
    }
}

/// Judges a delivery of `records` that ended with `result` at `wall_ms`. `tried` tells of earlier deliveries.
///
/// Nothing the plugin says can settle a record it did not get: indexes out of range, out of order or twice make the
/// whole outcome invalid, which is a failure of the whole batch.
pub fn judge(
    records: &[Record],
    tried: &dyn Fn(&Position) -> Tried,
    result: Result<&Outcome, &ProcessorError>,
    policy: &FailurePolicy,
    wall_ms: u64,
) -> Verdict {
    let court = Court { records, tried, policy, wall_ms };
    match result.map_err(Clone::clone).and_then(|outcome| check(records, outcome).map(|()| outcome)) {
        Ok(outcome) if outcome.failures.is_empty() => {
            Verdict { commit: outcome.commit, rulings: Vec::new(), split_at: None, failure: None }
        }
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
            let is_first = self.policy.order == Order::Shard || keys.insert(LaneKey::of(&self.records[index]));
            if is_first || is_rejected {
                return self.own_failure(index, message, is_rejected);
            }
            // A plugin that keeps the order of a key reports what follows a failed record, though it did not try it.
            Ruling { index, tried: self.delivered(index), fate: Fate::Again, message }
        };
        let rulings: Vec<Ruling> = outcome.failures.iter().map(rule).collect();
        let reason = rulings.first().map_or_else(String::new, |first| {
            let at = &self.records[first.index].position;
            format!("{} record(s) failed, the first at {at}: {}", rulings.len(), first.message)
        });
        let in_a_row = in_a_row(&rulings, |tried| tried.attempts);
        let retry_after = outcome.retry_after.map(|wait| wait.min(RETRY_AFTER_MAX));
        let failure = Failure { kind: "records", reason, in_a_row, retry_after, of: Blame::Records };
        Verdict { commit: outcome.commit, rulings, split_at: None, failure: Some(failure) }
    }

    /// Nothing is known but that the call failed.
    fn whole(&self, error: &ProcessorError) -> Verdict {
        let message = error.to_string();
        let is_hosts = error.is_hosts();
        let count = self.records.len();
        let split_at = (!is_hosts && self.policy.bisect && count > 1).then_some(count / 2);
        let rule = |index: usize| {
            if !is_hosts && (split_at.is_none() || SeededBug::ChargesWholeBatch.is_on()) {
                return self.own_failure(index, message.clone(), false);
            }
            let tried = self.delivered(index);
            Ruling { index, tried, fate: Fate::Again, message: message.clone() }
        };
        let rulings: Vec<Ruling> = (0..count).map(rule).collect();
        let (in_a_row, of) = match (split_at, is_hosts) {
            (Some(_), _) => (1, Blame::Batch),
            (None, false) => (in_a_row(&rulings, |tried| tried.attempts), Blame::Batch),
            (None, true) => (in_a_row(&rulings, |tried| tried.deliveries), Blame::Host),
        };
        let failure = Failure { kind: error.kind(), reason: message, in_a_row, retry_after: None, of };
        Verdict { commit: Some(Commit::Nothing), rulings, split_at, failure: Some(failure) }
    }

    fn own_failure(&self, index: usize, message: String, is_rejected: bool) -> Ruling {
        let mut tried = self.delivered(index);
        tried.attempts = tried.attempts.saturating_add(1);
        let fate = match self.cause(&self.records[index], tried, is_rejected) {
            Some(cause) => Fate::GivenUp(cause),
            None => Fate::Again,
        };
        Ruling { index, tried, fate, message }
    }

    fn delivered(&self, index: usize) -> Tried {
        let tried = (self.tried)(&self.records[index].position);
        Tried { deliveries: tried.deliveries.saturating_add(1), ..tried }
    }

    fn cause(&self, record: &Record, tried: Tried, is_rejected: bool) -> Option<Cause> {
        self.policy.then.as_ref()?;
        if is_rejected {
            return Some(Cause::Rejected);
        }
        let is_out = self.policy.attempts.is_some_and(|most| tried.attempts >= most);
        if is_out && !SeededBug::NeverOutOfAttempts.is_on() {
            return Some(Cause::Attempts);
        }
        // An arrival in the future, as a wall clock that is behind sees it, is no age at all.
        let age = Duration::from_millis(self.wall_ms.saturating_sub(record.arrival_ms));
        let is_known = record.arrival_ms > 0;
        self.policy.max_age.filter(|most| is_known && age > *most).map(|_| Cause::Age)
    }
}

/// Failures in a row of what goes again; at least one.
fn in_a_row(rulings: &[Ruling], count: impl Fn(Tried) -> u32) -> u32 {
    let again = rulings.iter().filter(|ruling| ruling.fate == Fate::Again);
    again.map(|ruling| count(ruling.tried)).max().unwrap_or(1).max(1)
}

fn check(records: &[Record], outcome: &Outcome) -> Result<(), ProcessorError> {
    check_outcome(records.len(), outcome.failures.iter().map(|failure| failure.index), outcome.commit)
}

#[cfg(test)]
mod tests;
