//! What kept replies may cost, over all shards and streams of a host.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use shardmill_core::ports::REPLY_BYTES_MAX;

use crate::budget::{ByteBudget, ByteShare, Reservation};
use crate::metrics;

/// Bytes of the host's budget for replies that are kept for other plugins. Cheap to clone.
#[derive(Debug, Clone)]
pub struct RingBudget {
    share: ByteShare,
    bytes_max: usize,
    used: Arc<AtomicUsize>,
}

/// One kept reply's bytes; given back when dropped.
#[derive(Debug)]
pub(super) struct Kept {
    _reservation: Reservation,
    used: Arc<AtomicUsize>,
    bytes: usize,
}

impl RingBudget {
    /// A quarter of the host's `budget_bytes`, never so much that a shard could not read (twice the
    /// largest reply is left for that), and nothing of what a plugin is guaranteed.
    pub fn of(budget: &ByteBudget, budget_bytes: usize) -> Self {
        let bytes_max = (budget_bytes / 4).min(budget_bytes.saturating_sub(2 * REPLY_BYTES_MAX));
        Self {
            share: budget.borrowing(),
            bytes_max,
            used: Arc::default(),
        }
    }

    /// Room for a reply; `None` if the ring is full: kept replies only save calls, records to be
    /// processed go first.
    pub(super) fn keep(&self, bytes: usize) -> Option<Kept> {
        let fits = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= self.bytes_max);
        self.used
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, fits)
            .ok()?;
        let reservation = self.share.try_reserve(bytes);
        if reservation.is_none() {
            self.used.fetch_sub(bytes, Ordering::AcqRel);
        }
        show(&self.used);
        reservation.map(|reservation| Kept {
            _reservation: reservation,
            used: Arc::clone(&self.used),
            bytes,
        })
    }

    /// Bytes of the replies that are kept at this moment.
    pub fn used_bytes(&self) -> usize {
        self.used.load(Ordering::Acquire)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.used.fetch_sub(self.bytes, Ordering::AcqRel);
        show(&self.used);
    }
}

fn show(used: &AtomicUsize) {
    ::metrics::gauge!(metrics::BUFFER_SHARED).set(used.load(Ordering::Acquire) as f64);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_ring_takes_a_quarter_at_most_and_nothing_that_is_needed_to_read() {
        let ring = |bytes| RingBudget::of(&ByteBudget::new(bytes).unwrap(), bytes);
        let small = ring(20 << 20);
        assert!(small.keep(1).is_none());
        let budget = ByteBudget::new(64 << 20).unwrap();
        let large = RingBudget::of(&budget, 64 << 20);
        let kept = large.keep(16 << 20).unwrap();
        assert!(large.keep(1).is_none());
        drop(kept);
        assert_eq!(large.used_bytes(), 0);
        let plugin = budget.share().unwrap();
        let _busy = plugin.reserve(60 << 20).await;
        assert!(
            large.keep(5 << 20).is_none(),
            "records to be processed go first"
        );
        assert_eq!(large.used_bytes(), 0);
        assert!(large.keep(4 << 20).is_some());
    }
}
