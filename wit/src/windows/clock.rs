//! What is known of time on a shard.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Tick;

/// How much of a silence does not count: clocks differ, and records may be on their way.
pub const GRACE: Duration = Duration::from_secs(5);
const GRACE_MS: u64 = 5_000;

/// Times are in milliseconds since the Unix epoch; 0 before the first record.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Clock {
    /// The latest time of a record.
    latest_ms: u64,
    /// When the last record arrived.
    arrived_ms: u64,
    /// Everything before this is closed.
    watermark_ms: u64,
    /// The same by silence. Saved only once it has closed a window: else each tick on a silent
    /// shard would make another state, to be written.
    #[serde(skip)]
    silent_ms: u64,
    late: u64,
    ahead: u64,
}

impl Clock {
    pub(super) fn watermark_ms(&self) -> u64 {
        self.watermark_ms.max(self.silent_ms)
    }

    pub(super) fn late(&self) -> u64 {
        self.late
    }

    pub(super) fn ahead(&self) -> u64 {
        self.ahead
    }

    pub(super) fn count_late(&mut self) {
        self.late += 1;
    }

    pub(super) fn count_ahead(&mut self) {
        self.ahead += 1;
    }

    /// A record came.
    pub(super) fn arrived(&mut self, arrived_ms: u64) {
        self.arrived_ms = self.arrived_ms.max(arrived_ms);
    }

    /// A record of this time came, which may be `delay_ms` after others.
    pub(super) fn saw(&mut self, time_ms: u64, delay_ms: u64) {
        self.latest_ms = self.latest_ms.max(time_ms);
        let watermark_ms = self.latest_ms.saturating_sub(delay_ms);
        self.watermark_ms = self.watermark_ms.max(watermark_ms);
    }

    /// Time has passed. How long the shard has been silent, as far as is known.
    pub(super) fn tick(&mut self, tick: &Tick, delay_ms: u64) -> Option<u64> {
        let until_ms = tick.delivered_until_ms?;
        if self.latest_ms == 0 || self.arrived_ms == 0 {
            return None;
        }
        let silence_ms = until_ms
            .checked_sub(self.arrived_ms)?
            .checked_sub(GRACE_MS)?;
        let now_ms = self.latest_ms.saturating_add(silence_ms);
        self.close_through(now_ms.saturating_sub(delay_ms));
        Some(silence_ms)
    }

    /// Everything before this counts as closed.
    pub(super) fn close_through(&mut self, watermark_ms: u64) {
        self.silent_ms = self.silent_ms.max(watermark_ms);
    }

    /// A window was closed: what closed it must not be forgotten.
    pub(super) fn closed(&mut self) {
        self.watermark_ms = self.watermark_ms();
    }
}
