//! What a load test puts into a stream, and what it asks of it, before anything is put.

use std::time::Duration;

/// What a shard takes in a second (AWS limit).
pub const SHARD_RECORDS_A_SECOND: f64 = 1_000.0;
/// Bytes of data and keys that a shard takes in a second (AWS limit).
pub const SHARD_BYTES_A_SECOND: f64 = 1_048_576.0;
/// AWS bills puts by units of this size, each record by itself, rounded up.
const PUT_UNIT_BYTES: u32 = 25 * 1_024;

/// A load that is as high from the first second to the last.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoadTest {
    /// Records to put in a second, above zero.
    pub records_per_second: f64,
    /// Bytes of a record, data and key.
    pub record_bytes: u32,
    /// For how long records are put.
    pub lasts: Duration,
}

impl LoadTest {
    /// Records in all, one at least.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "above zero; the cast saturates"
    )]
    pub fn records(&self) -> u64 {
        let records = self.records_per_second * self.lasts.as_secs_f64();
        (records.round() as u64).max(1)
    }

    /// How many shards take it without being throttled, if keys spread evenly.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "above zero; the cast saturates"
    )]
    pub fn shards_needed(&self) -> u32 {
        let bytes_per_second = self.records_per_second * f64::from(self.record_bytes);
        let by_records = self.records_per_second / SHARD_RECORDS_A_SECOND;
        let by_bytes = bytes_per_second / SHARD_BYTES_A_SECOND;
        (by_records.max(by_bytes).ceil() as u32).max(1)
    }

    /// The units that AWS bills for the puts.
    pub fn put_units(&self) -> u64 {
        let of_record = u64::from(self.record_bytes.div_ceil(PUT_UNIT_BYTES));
        self.records().saturating_mul(of_record)
    }

    /// How many records are due after so long, of those that are put in lane `number` of `lanes`,
    /// counted from 0. At the end all are.
    pub fn due_in_lane(&self, after: Duration, number: u32, lanes: u32) -> u64 {
        let (number, lanes) = (u64::from(number), u64::from(lanes.max(1)));
        let due = self.due(after);
        due.saturating_add(lanes - 1).saturating_sub(number) / lanes
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "above zero; the cast saturates"
    )]
    fn due(&self, after: Duration) -> u64 {
        if after >= self.lasts {
            return self.records();
        }
        let due = self.records_per_second * after.as_secs_f64();
        (due as u64).min(self.records())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(records_per_second: f64, record_bytes: u32, secs: u64) -> LoadTest {
        LoadTest {
            records_per_second,
            record_bytes,
            lasts: Duration::from_secs(secs),
        }
    }

    #[test]
    fn a_load_needs_shards_by_its_records_or_its_bytes_whichever_are_more() {
        assert_eq!(load(1.0, 100, 1).shards_needed(), 1);
        assert_eq!(load(1_000.0, 1_000, 1).shards_needed(), 1);
        assert_eq!(load(1_001.0, 100, 1).shards_needed(), 2, "records");
        assert_eq!(load(1_000.0, 10_240, 1).shards_needed(), 10, "bytes");
        assert_eq!(load(1e12, 1, 1).shards_needed(), 1_000_000_000);
    }

    #[test]
    fn puts_are_billed_by_units_of_25_kib_each_record_by_itself() {
        assert_eq!(load(10.0, 1, 60).put_units(), 600);
        assert_eq!(load(10.0, 25_600, 60).put_units(), 600);
        assert_eq!(load(10.0, 25_601, 60).put_units(), 1_200);
        assert_eq!(load(0.001, 1, 1).put_units(), 1, "one record at least");
    }

    #[test]
    fn lanes_put_all_records_together_at_the_rate_and_none_after_the_end() {
        let load = load(1_000.0, 100, 10);
        let due = |secs, number, lanes| load.due_in_lane(Duration::from_secs(secs), number, lanes);
        assert_eq!((due(0, 0, 4), due(1, 3, 4), due(5, 0, 4)), (0, 250, 1_250));
        assert_eq!((due(10, 3, 4), due(60, 3, 4)), (2_500, 2_500));
        let of_three = [0, 1, 2].map(|number| due(10, number, 3));
        assert_eq!(of_three, [3_334, 3_333, 3_333]);
    }

    #[test]
    fn a_load_of_less_than_one_record_is_one_record_at_the_end() {
        let load = load(0.001, 100, 10);
        assert_eq!(load.due_in_lane(Duration::from_secs(9), 0, 1), 0);
        assert_eq!(load.due_in_lane(Duration::from_secs(10), 0, 1), 1);
    }
}
