//! How much one plugin's failures may write to the host's log.

use std::sync::{Mutex, PoisonError};

use shardmill_core::time::Moment;
use shardmill_core::token_bucket::TokenBucket;

/// A plugin that rejects all it gets must not fill the log, which its neighbours share. What is
/// kept back is in the log at level debug, and counted.
const LINES_PER_SECOND: u32 = 10;
/// So that the first failing batch is logged whole, if it is small.
const LINES_AT_ONCE: u32 = 20;

/// A rate of lines, shared by all shards of a plugin on a stream.
#[derive(Debug)]
pub(crate) struct LogAllowance {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    bucket: TokenBucket,
    kept_back: u64,
}

impl LogAllowance {
    pub(crate) fn new(now: Moment) -> Self {
        Self {
            state: Mutex::new(State {
                bucket: TokenBucket::new(LINES_PER_SECOND, LINES_AT_ONCE, now),
                kept_back: 0,
            }),
        }
    }

    /// Whether a line may be written now: with the number of those that were kept back since the
    /// last one.
    pub(super) fn take(&self, now: Moment) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.bucket.take(now) {
            return Some(std::mem::take(&mut state.kept_back));
        }
        state.kept_back += 1;
        None
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn lines_of_failures_have_a_rate_however_small_the_batches_and_what_is_kept_back_is_counted() {
        let at = |seconds| Moment::from_origin(Duration::from_secs(seconds));
        let allowance = LogAllowance::new(at(0));
        let told_in = |second| {
            (0..1_000)
                .filter_map(|_| allowance.take(at(second)))
                .count()
        };
        assert_eq!((told_in(0), told_in(1)), (20, 10));
        assert_eq!(allowance.take(at(2)), Some(990), "since the last line");
        assert_eq!(allowance.take(at(2)), Some(0));
    }
}
