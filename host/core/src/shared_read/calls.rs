//! The calls that were made for a chain, and when the next one is worth making.

use crate::pipeline::ReadRate;
use crate::ports::ReadError;
use crate::time::Moment;

/// See the module's description.
#[derive(Debug)]
pub struct Calls {
    finished: u64,
    /// How often another chain's call stood for one of this.
    rides: u64,
    /// How the last one ended.
    outcome: Result<(), ReadError>,
    /// When the last good one was sent.
    sent_at: Moment,
    due: Moment,
    /// Calls in a row that had nothing.
    idle: u32,
}

impl Calls {
    /// None was made; the first is due.
    pub(super) fn none(now: Moment) -> Self {
        Self {
            finished: 0,
            rides: 0,
            outcome: Ok(()),
            sent_at: now,
            due: now,
            idle: 0,
        }
    }

    /// How many have ended.
    pub fn finished(&self) -> u64 {
        self.finished
    }

    /// How the last one ended.
    pub fn outcome(&self) -> Result<(), ReadError> {
        self.outcome.clone()
    }

    /// When the last good one was sent.
    pub fn sent_at(&self) -> Moment {
        self.sent_at
    }

    /// When the next one is worth making.
    pub fn due(&self) -> Moment {
        self.due
    }

    /// Whether the last one found nothing at the tip.
    pub fn is_idle(&self) -> bool {
        self.idle > 0 && self.outcome.is_ok()
    }

    /// Whether the last one was good, and the next one is not due.
    pub fn is_fresh(&self, now: Moment) -> bool {
        self.finished > 0 && self.outcome.is_ok() && now < self.due
    }

    /// How often a caller could hear something of the chain.
    pub fn answers(&self) -> u64 {
        self.finished + self.rides
    }

    /// Another chain's call, which found nothing, replaces a call of this chain until `due`.
    pub fn ride(&mut self, due: Moment) {
        self.rides += 1;
        self.due = due;
    }

    /// The next one is worth making at `now`.
    pub fn hurry(&mut self, now: Moment) {
        self.due = self.due.min(now);
    }

    /// One has ended that was sent at `sent_at`. If it was good, its reply is to be absorbed next.
    pub fn ended(&mut self, outcome: Result<(), ReadError>, sent_at: Moment, rate: &ReadRate) {
        self.finished += 1;
        self.outcome = outcome;
        self.due = sent_at + rate.call_interval;
    }

    /// The reply of the one that was sent at `sent_at` was absorbed. `is_idle`: it had nothing, at
    /// the tip.
    pub(super) fn absorbed(&mut self, sent_at: Moment, is_idle: bool, rate: &ReadRate) {
        self.idle = if is_idle {
            self.idle.saturating_add(1)
        } else {
            0
        };
        self.sent_at = sent_at;
        self.due = sent_at + rate.idle_wait(self.idle);
    }
}
