//! What follows when a shard cannot be read: how long to wait, whether to show it, whether another
//! host would help.

use std::time::Duration;

use crate::backoff::Backoff;
use crate::ports::ReadError;

/// An operator has to restore the key. More frequent attempts only cost calls to KMS, which are
/// billed and limited.
const KEY_WAIT: Duration = Duration::from_secs(30);
/// From here on a failure lasts. Until then throttles are ordinary, since others may read the same
/// shard, and anything else is not worth a write to the lease's row.
const LASTS_FROM: Duration = Duration::from_secs(10);

/// How long to wait after `failures` failed reads in a row; `roll` is uniform in `[0, 1)`.
pub fn read_again_after(error: &ReadError, failures: u32, backoff: Backoff, roll: f64) -> Duration {
    match error {
        ReadError::ExpiredIterator => Duration::ZERO,
        // All readers of the shard were throttled at the same moment, and must not all return at
        // once.
        ReadError::Throttled { .. } => backoff.ceiling(failures).mul_f64(roll.clamp(0.0, 1.0)),
        ReadError::KeyUnusable { .. } => KEY_WAIT + KEY_WAIT.mul_f64(roll.clamp(0.0, 1.0)),
        ReadError::NotFound { .. } | ReadError::Refused { .. } | ReadError::Unavailable { .. } => {
            backoff.delay(failures, roll)
        }
    }
}

/// Whether reads that have failed for so long are an error that people should see.
pub fn is_trouble(error: &ReadError, failing_for: Duration) -> bool {
    match error {
        ReadError::ExpiredIterator => false,
        ReadError::Throttled { .. } => is_lasting(failing_for),
        ReadError::NotFound { .. }
        | ReadError::Refused { .. }
        | ReadError::KeyUnusable { .. }
        | ReadError::Unavailable { .. } => true,
    }
}

/// Whether reads have failed for long enough to be noted in the lease's row.
pub fn is_lasting(failing_for: Duration) -> bool {
    failing_for >= LASTS_FROM
}

/// Whether any other host would get the same error. If so, giving the lease up would not help.
pub fn is_told_to_all(error: &ReadError) -> bool {
    match error {
        ReadError::Throttled { .. } | ReadError::KeyUnusable { .. } => true,
        ReadError::ExpiredIterator
        | ReadError::NotFound { .. }
        // Rights may differ from host to host, and so may the way to Kinesis.
        | ReadError::Refused { .. }
        | ReadError::Unavailable { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn throttled() -> ReadError {
        ReadError::Throttled {
            message: String::new(),
        }
    }

    fn key() -> ReadError {
        ReadError::KeyUnusable {
            message: String::new(),
        }
    }

    #[test]
    fn throttled_readers_come_back_at_any_moment_up_to_a_doubling_bound() {
        let wait =
            |failures, roll| read_again_after(&throttled(), failures, Backoff::standard(), roll);
        assert_eq!(wait(1, 0.0), Duration::ZERO);
        assert_eq!(wait(3, 0.5), Duration::from_millis(200));
        assert_eq!(wait(90, 1.0), Duration::from_secs(30));
    }

    #[test]
    fn a_key_that_cannot_be_used_is_tried_every_half_to_whole_minute_from_the_first_failure_on() {
        for failures in [1, 2, 50] {
            let wait = |roll| read_again_after(&key(), failures, Backoff::standard(), roll);
            assert_eq!(
                (wait(0.0), wait(1.0)),
                (Duration::from_secs(30), Duration::from_mins(1))
            );
        }
    }

    #[test]
    fn throttles_are_no_trouble_before_they_last() {
        assert!(!is_trouble(&throttled(), Duration::from_secs(9)));
        assert!(is_trouble(&throttled(), Duration::from_secs(10)));
        assert!(is_trouble(&key(), Duration::ZERO));
    }

    #[test]
    fn a_shard_stays_where_it_is_if_no_host_could_read_it() {
        assert!(is_told_to_all(&throttled()) && is_told_to_all(&key()));
        assert!(!is_told_to_all(&ReadError::Refused {
            message: String::new()
        }));
        assert!(!is_told_to_all(&ReadError::Unavailable {
            message: String::new()
        }));
    }
}
