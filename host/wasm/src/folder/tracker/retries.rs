//! When a file that has not changed is tried again.

use std::time::{Duration, Instant};

use crate::folder::Refusal;

/// How long a version waits that could not be loaded because of the host, as with a full disk or
/// without processor time: first, and at most. Each try may cost a compilation, which takes
/// seconds.
const HOST_RETRY_MIN: Duration = Duration::from_secs(10);
const HOST_RETRY_MAX: Duration = Duration::from_mins(5);
/// How long a version waits that was not even tried: each try costs reading the file.
pub(super) const TURN_RETRY: Duration = Duration::from_secs(5);

/// Why a file is tried again though it has not changed.
#[derive(Debug, Default)]
pub(super) struct Retries {
    /// When a file that looked cut off is tried for the last time.
    pub(super) last_try_at: Option<Instant>,
    /// When what the host could not load is tried again.
    pub(super) host: Option<HostRetry>,
    /// Why it could not be read, or was not even tried: reported once, however often that is found
    /// again.
    pub(super) reported: Option<Refusal>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct HostRetry {
    at: Instant,
    /// How long that was from the last try.
    wait: Duration,
}

impl Retries {
    pub(super) fn next_at(&self) -> Option<Instant> {
        self.last_try_at.or(self.host.map(|retry| retry.at))
    }
}

impl HostRetry {
    pub(super) fn at_next_turn(now: Instant) -> Self {
        Self {
            at: now + TURN_RETRY,
            wait: TURN_RETRY,
        }
    }

    pub(super) fn after(last: Option<Self>, now: Instant) -> Self {
        let wait = last.map_or(HOST_RETRY_MIN, |last| HOST_RETRY_MAX.min(last.wait * 2));
        Self {
            at: now + wait,
            wait,
        }
    }
}
