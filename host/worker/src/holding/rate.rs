//! A lease's throughput, as the KCL 3.x measures it: a moving average with weight one half
//! (`DynamoDBLeaseRenewer`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use shardmill_core::time::Moment;

use super::handle::Settled;

/// Shorter samples are noise: a batch more or less would double the rate.
const SAMPLE_MIN: Duration = Duration::from_secs(2);

/// What of a lease's shard is settled in a second.
pub(super) struct Rates {
    bytes: Rate,
    records: Rate,
}

/// Bytes, or records, settled over time.
struct Rate {
    settled: Arc<AtomicU64>,
    counted: u64,
    since: Moment,
    average: Option<u64>,
    written: Option<u64>,
}

impl Rates {
    pub(super) fn of(settled: &Settled, now: Moment) -> Self {
        Self {
            bytes: Rate::new(Arc::clone(&settled.bytes), now),
            records: Rate::new(Arc::clone(&settled.records), now),
        }
    }

    /// Bytes a second, as [`Rate::measure`].
    pub(super) fn measure(&mut self, now: Moment) -> Option<u64> {
        self.records.measure(now);
        self.bytes.measure(now)
    }

    /// Records a second, as of the last [`Self::measure`].
    pub(super) fn records_per_second(&self) -> Option<u64> {
        self.records.average
    }

    /// Whether the row says less than half or more than twice of what is measured now.
    pub(super) fn has_changed(&self) -> bool {
        self.bytes.has_changed()
    }

    /// The row says what was measured.
    pub(super) fn written(&mut self) {
        self.bytes.written();
    }
}

impl Rate {
    fn new(settled: Arc<AtomicU64>, now: Moment) -> Self {
        Self {
            settled,
            counted: 0,
            since: now,
            average: None,
            written: None,
        }
    }

    /// So many a second, averaged with what was measured before; `None` until there is enough to
    /// measure.
    fn measure(&mut self, now: Moment) -> Option<u64> {
        let elapsed = now.since(self.since);
        if elapsed >= SAMPLE_MIN {
            let total = self.settled.load(Ordering::Relaxed);
            let millis = u64::try_from(elapsed.as_millis())
                .unwrap_or(u64::MAX)
                .max(1);
            let rate = (total - self.counted).saturating_mul(1_000) / millis;
            self.average = Some(self.average.map_or(rate, |average| average.midpoint(rate)));
            (self.counted, self.since) = (total, now);
        }
        self.average
    }

    /// Whether the row says less than half or more than twice of what is measured now.
    fn has_changed(&self) -> bool {
        let (now, then) = (self.average.unwrap_or(0), self.written.unwrap_or(0));
        now.abs_diff(then) > now.min(then).max(1024)
    }

    /// The row says what was measured.
    fn written(&mut self) {
        self.written = self.average;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_follows_the_bytes_by_halves_and_says_when_it_is_news() {
        let bytes = Arc::new(AtomicU64::new(0));
        let at = |seconds| Moment::from_origin(Duration::from_secs(seconds));
        let mut rate = Rate::new(Arc::clone(&bytes), at(0));
        assert_eq!(rate.measure(at(1)), None);
        bytes.fetch_add(40_000, Ordering::Relaxed);
        assert_eq!(rate.measure(at(4)), Some(10_000));
        assert!(rate.has_changed());
        rate.written();
        assert_eq!(rate.measure(at(8)), Some(5_000));
        assert!(!rate.has_changed());
        assert_eq!(rate.measure(at(12)), Some(2_500));
        assert!(rate.has_changed());
    }
}
