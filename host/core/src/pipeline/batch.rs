//! How large a batch may get.

use std::time::Duration;

use crate::stream::Record;

/// What one batch holds at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchLimits {
    /// Records, at least one.
    pub records: usize,
    /// What they cost the host's buffer. A record that is larger makes a batch alone.
    pub bytes: usize,
    /// How long records may wait for more before they go as they are.
    pub window: Duration,
}

/// A batch that is put together record by record.
#[derive(Debug, Default)]
pub struct OpenBatch {
    records: Vec<Record>,
    bytes: usize,
}

impl Default for BatchLimits {
    /// 1,000 records or 4 MiB: enough to make the cost of a call vanish, small enough to retry and
    /// to swap between.
    fn default() -> Self {
        Self {
            records: 1_000,
            bytes: 4 << 20,
            window: Duration::ZERO,
        }
    }
}

impl OpenBatch {
    /// Whether `record` may be added. The first one always may, however large it is.
    pub fn has_room_for(&self, record: &Record, limits: &BatchLimits) -> bool {
        self.records.is_empty()
            || (self.records.len() < limits.records
                && self.bytes + record.cost_bytes() <= limits.bytes)
    }

    /// Adds the next record.
    pub fn push(&mut self, record: Record) {
        self.bytes += record.cost_bytes();
        self.records.push(record);
    }

    /// Whether it has no record yet.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// What its records cost the host's buffer.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Its records, in the order in which they were added.
    pub fn into_records(self) -> Vec<Record> {
        self.records
    }
}
