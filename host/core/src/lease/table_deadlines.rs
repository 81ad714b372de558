//! How long a call to a table may take: long enough for a slow answer, and short enough that a
//! lease does not depend on an answer that never comes.

use std::time::Duration;

/// Deadlines of calls to the lease table, the state table and the coordinator table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableDeadlines {
    /// For one request. An answer takes milliseconds; a connection that swallows a request costs
    /// this much.
    pub attempt: Duration,
    /// For one call, including the client's retries.
    pub call: Duration,
    /// For a listing, which takes several calls.
    pub listing: Duration,
}

impl TableDeadlines {
    /// Far longer than any healthy answer takes, whatever the lease duration.
    const ATTEMPT_MAX: Duration = Duration::from_secs(2);

    /// The deadlines for leases of this duration. Four attempts, or two calls, end before a holder
    /// has to let go.
    pub fn of(lease_duration: Duration) -> Self {
        Self {
            attempt: Self::ATTEMPT_MAX.min(lease_duration / 5),
            call: lease_duration / 3,
            listing: lease_duration,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_tries_end_before_a_holder_lets_go_whatever_the_lease_duration_is() {
        for millis in [1_000, 3_000, 10_000, 60_000, 600_000] {
            let duration = Duration::from_millis(millis);
            let TableDeadlines {
                attempt,
                call,
                listing,
            } = TableDeadlines::of(duration);
            let hold_for = duration.saturating_sub(duration / 10);
            assert!(
                attempt * 4 < hold_for && call * 2 < hold_for && listing <= duration,
                "{duration:?}"
            );
            assert!(
                attempt < call && attempt <= Duration::from_secs(2),
                "{duration:?}"
            );
        }
    }
}
