//! When settled progress is written to the lease table.

use std::fmt;
use std::time::Duration;

use crate::time::Moment;

/// Limits that trigger a write; the first one that is reached does. They bound what is repeated
/// after a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckpointPolicy {
    /// Settled records since the last write.
    pub records: u64,
    /// Bytes of these records, as they count against the host's buffer.
    pub bytes: u64,
    /// Time since the first of them was settled.
    pub age: Duration,
}

impl Default for CheckpointPolicy {
    /// 10,000 records or 16 MiB: one large `GetRecords` reply. 3 s: as long as the renewal
    /// interval, so that a busy shard's checkpoints are its renewals and cost nothing more.
    fn default() -> Self {
        Self {
            records: 10_000,
            bytes: 16 << 20,
            age: Duration::from_secs(3),
        }
    }
}

/// Which limit was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckpointReason {
    /// Enough records.
    Records,
    /// Enough bytes.
    Bytes,
    /// Old enough.
    Age,
}

impl fmt::Display for CheckpointReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Records => "record count reached",
            Self::Bytes => "byte count reached",
            Self::Age => "age reached",
        })
    }
}

/// Settled progress that is not written yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Unwritten {
    records: u64,
    bytes: u64,
    since: Option<Moment>,
}

impl Unwritten {
    /// Counts settled records.
    pub(super) fn add(&mut self, records: u64, bytes: u64, now: Moment) {
        self.records += records;
        self.bytes += bytes;
        self.since.get_or_insert(now);
    }

    /// Forgets what was written.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Starts the wait again for what could not be written, without forgetting how much it is.
    pub(super) fn postpone(&mut self, now: Moment) {
        self.since = self.since.map(|_| now);
    }

    /// Whether to write now, and why.
    pub(super) fn due(self, policy: &CheckpointPolicy, now: Moment) -> Option<CheckpointReason> {
        let since = self.since?;
        if self.records >= policy.records {
            return Some(CheckpointReason::Records);
        }
        if self.bytes >= policy.bytes {
            return Some(CheckpointReason::Bytes);
        }
        (now.since(since) >= policy.age).then_some(CheckpointReason::Age)
    }

    /// How long until it is due by age alone; `None` if there is nothing to write.
    pub(super) fn due_in(self, policy: &CheckpointPolicy, now: Moment) -> Option<Duration> {
        Some(policy.age.saturating_sub(now.since(self.since?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_is_due_by_count_by_bytes_or_by_age_whichever_comes_first() {
        let policy = CheckpointPolicy {
            records: 10,
            bytes: 100,
            age: Duration::from_secs(3),
        };
        let at = |seconds| Moment::from_origin(Duration::from_secs(seconds));
        let mut unwritten = Unwritten::default();
        assert_eq!(
            (
                unwritten.due(&policy, at(99)),
                unwritten.due_in(&policy, at(99))
            ),
            (None, None)
        );
        unwritten.add(9, 10, at(1));
        assert_eq!(unwritten.due(&policy, at(3)), None);
        assert_eq!(
            unwritten.due_in(&policy, at(3)),
            Some(Duration::from_secs(1))
        );
        assert_eq!(unwritten.due(&policy, at(4)), Some(CheckpointReason::Age));
        unwritten.add(1, 0, at(2));
        assert_eq!(
            unwritten.due(&policy, at(2)),
            Some(CheckpointReason::Records)
        );
        unwritten.postpone(at(3));
        assert_eq!(
            unwritten.due_in(&policy, at(3)),
            Some(Duration::from_secs(3)),
            "it is asked again later"
        );
        assert_eq!(
            unwritten.due(&policy, at(3)),
            Some(CheckpointReason::Records),
            "or once there is more"
        );
        unwritten.clear();
        assert_eq!(
            unwritten.due(&policy, at(99)),
            None,
            "what was written is not written again"
        );
        unwritten.add(1, 100, at(5));
        assert_eq!(unwritten.due(&policy, at(5)), Some(CheckpointReason::Bytes));
        assert_eq!(CheckpointReason::Bytes.to_string(), "byte count reached");
    }

    #[test]
    fn there_is_something_to_write_from_the_first_settled_record_until_it_is_written() {
        let now = Moment::from_origin(Duration::from_secs(1));
        let mut unwritten = Unwritten::default();
        unwritten.postpone(now);
        assert!(
            unwritten.since.is_none(),
            "waiting anew makes nothing out of nothing"
        );
        unwritten.add(1, 0, now);
        unwritten.postpone(now);
        assert!(unwritten.since.is_some());
        unwritten.clear();
        assert!(unwritten.since.is_none());
    }
}
