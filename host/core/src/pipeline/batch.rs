//! How large a batch may get.

use std::time::Duration;

use crate::stream::Record;

/// The most that one batch holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchLimits {
    /// Records, at least one.
    pub records: usize,
    /// What they cost the host's buffer, in bytes. A record that costs more makes a batch alone.
    pub bytes: usize,
    /// How long records may wait for more before they are delivered.
    pub window: Duration,
}

/// A batch that is put together record by record.
#[derive(Debug, Default)]
pub struct OpenBatch {
    records: Vec<Record>,
    bytes: usize,
}

impl Default for BatchLimits {
    /// 1,000 records or 4 MiB: large enough to make the cost of a call negligible, small enough to
    /// retry and to swap between.
    fn default() -> Self {
        Self {
            records: 1_000,
            bytes: 4 << 20,
            window: Duration::ZERO,
        }
    }
}

impl BatchLimits {
    /// Whether a record that costs `cost_bytes` may be added to a batch of `records` that cost
    /// `bytes`. The first one always may, however large it is.
    pub(super) fn have_room_for(&self, cost_bytes: usize, records: usize, bytes: usize) -> bool {
        records == 0 || (records < self.records && bytes + cost_bytes <= self.bytes)
    }
}

impl OpenBatch {
    /// Whether `record` may be added.
    pub fn has_room_for(&self, record: &Record, limits: &BatchLimits) -> bool {
        limits.have_room_for(record.cost_bytes(), self.records.len(), self.bytes)
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

    /// What its records cost the host's buffer, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Its records, in the order of adding.
    pub fn into_records(self) -> Vec<Record> {
        self.records
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_has_room_up_to_both_limits_and_always_for_its_first_record() {
        let limits = BatchLimits {
            records: 3,
            bytes: 100,
            ..BatchLimits::default()
        };
        assert!(limits.have_room_for(5_000, 0, 0));
        assert!(limits.have_room_for(40, 2, 60));
        assert!(!limits.have_room_for(41, 2, 60));
        assert!(!limits.have_room_for(1, 3, 60));
    }
}
