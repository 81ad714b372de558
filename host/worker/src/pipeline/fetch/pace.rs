//! Keeps calls and bytes within the shard's rates.

use std::time::Duration;

use tokio::time::Instant;

use crate::options::WorkerOptions;

pub(super) struct Pace {
    call_interval: Duration,
    bytes_per_second: f64,
    idle_every: Duration,
    next_call: Instant,
}

impl Pace {
    pub(super) fn new(options: &WorkerOptions) -> Self {
        let reads = &options.reads;
        Self {
            call_interval: Duration::from_secs_f64(1.0 / reads.calls_per_second),
            bytes_per_second: reads.bytes_per_second,
            idle_every: reads.idle_every,
            next_call: Instant::now(),
        }
    }

    pub(super) async fn wait(&mut self) {
        tokio::time::sleep_until(self.next_call).await;
        // Until a reply says otherwise: a failed call counts against the rate too.
        self.next_call = Instant::now() + self.call_interval;
    }

    pub(super) fn replied(&mut self, bytes: usize, is_empty: bool) {
        let called_at = self.next_call - self.call_interval;
        let for_bytes = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second);
        let for_idle = if is_empty { self.idle_every } else { Duration::ZERO };
        self.next_call = called_at + self.call_interval.max(for_bytes).max(for_idle);
    }
}
