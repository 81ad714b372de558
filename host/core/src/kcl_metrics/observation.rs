//! What happened, and which values of which metrics that is.

use std::time::Duration;

use super::metric::{
    ASSIGNED_EXPIRED_LEASES, ASSIGNED_NUM_WORKERS, ASSIGNED_TOTAL_LEASES, ASSIGNER_SUCCESS,
    ASSIGNER_TIME, BEHIND, BEHIND_OF_ALL, CALL_TIME, CHECKPOINT_SUCCESS, CHECKPOINT_TIME,
    CURRENT_LEASES, DATA_BYTES, EXPIRED_ITERATOR, EXPIRED_LEASES, INITIALIZE_TIME,
    ITERATOR_SUCCESS, ITERATOR_TIME, KclMetric, LEASES_TO_TAKE, LIST_SUCCESS, LIST_TIME,
    LOST_LEASES, NUM_WORKERS, PROCESS_SUCCESS, PROCESS_TIME, READ_SUCCESS, READ_TIME, RECORDS,
    RENEW_ALL_SUCCESS, RENEW_ALL_TIME, RENEW_SUCCESS, RENEW_TIME, SHUTDOWN_TIME, TAKE_SUCCESS,
    TAKE_TIME, TAKEN_LEASES, TAKER_SUCCESS, TAKER_TIME, TOTAL_LEASES, UNTAKEN_LEASES,
};

/// Something that a worker did, or saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Observation {
    /// A shard was read.
    Read {
        /// Until the answer was there, whoever's call it came from.
        took: Duration,
        /// Whether there was a reply.
        is_ok: bool,
    },
    /// An iterator was asked for.
    Iterator {
        /// Until the answer was there.
        took: Duration,
        /// Whether there is one.
        is_ok: bool,
    },
    /// An iterator was too old.
    IteratorExpired,
    /// A reply or an event said how far the tip is ahead.
    Behind {
        /// That, in milliseconds.
        millis: u64,
    },
    /// The plugin returned from a batch, or was cut off.
    Called {
        /// The time in the plugin.
        took: Duration,
    },
    /// A batch was delivered, and what follows from it is done.
    Delivered {
        /// From the call on, with the storing of its output.
        took: Duration,
        /// Whether no record of it failed.
        is_ok: bool,
        /// Records that are done with: handled, and their output stored.
        records: u64,
        /// Bytes of their data.
        bytes: u64,
    },
    /// A checkpoint was sent to the lease table.
    Checkpoint {
        /// Until the answer was there.
        took: Duration,
        /// Whether there was an answer, be it that the lease is lost.
        is_ok: bool,
    },
    /// An instance was made, and its `init` called.
    Initialized {
        /// Until it was ready, or refused.
        took: Duration,
    },
    /// An instance was closed.
    Closed {
        /// The time in its `close`.
        took: Duration,
    },
    /// A heartbeat was sent, which holds all leases of this host.
    Heartbeat {
        /// Until the answer was there.
        took: Duration,
        /// Whether it was written.
        is_ok: bool,
    },
    /// How many leases this host holds, as of a heartbeat.
    Leases {
        /// Their number.
        held: u64,
        /// Those that were lost since the last time.
        lost: u64,
    },
    /// The row of one lease was renewed by itself, as beside a KCL.
    Renewed {
        /// Until the answer was there.
        took: Duration,
        /// Whether there was an answer, be it that the lease is lost.
        is_ok: bool,
    },
    /// The leases were listed.
    Listed {
        /// Until all rows were there.
        took: Duration,
        /// Whether they were read.
        is_ok: bool,
    },
    /// A take of a lease was sent.
    Take {
        /// Until the answer was there.
        took: Duration,
        /// Whether there was an answer, be it that another host was faster.
        is_ok: bool,
    },
    /// A take of a lease came back.
    Taken {
        /// Whether this host has it.
        is_ours: bool,
    },
    /// This host looked at the fleet, decided, and acted.
    Passed {
        /// All of that.
        took: Duration,
        /// Whether all of it could be done.
        is_ok: bool,
        /// Whether it leads the fleet.
        is_leader: bool,
    },
    /// What this host saw of the fleet when it decided.
    Fleet(Fleet),
}

/// A fleet at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fleet {
    /// Workers that share the leases.
    pub workers: usize,
    /// Rows of leases, with those of finished shards that are still there.
    pub leases: usize,
    /// Leases of unfinished shards that have no live owner.
    pub expired: usize,
    /// Leases that this host is to take now.
    pub to_take: usize,
    /// Whether this host leads.
    pub is_leader: bool,
}

fn millis(took: Duration) -> f64 {
    // Nanoseconds say nothing here, and each digit is paid for.
    (took.as_secs_f64() * 1_000_000.0).round() / 1_000.0
}

fn success(is_ok: bool) -> f64 {
    if is_ok { 1.0 } else { 0.0 }
}

impl Observation {
    /// Gives each value to `to`.
    pub fn values(&self, mut to: impl FnMut(KclMetric, f64)) {
        let mut request = |time, result, took, is_ok| {
            to(time, millis(took));
            to(result, success(is_ok));
        };
        match *self {
            Self::Read { took, is_ok } => request(READ_TIME, READ_SUCCESS, took, is_ok),
            Self::Iterator { took, is_ok } => {
                request(ITERATOR_TIME, ITERATOR_SUCCESS, took, is_ok);
            }
            Self::Checkpoint { took, is_ok } => {
                request(CHECKPOINT_TIME, CHECKPOINT_SUCCESS, took, is_ok);
            }
            Self::Heartbeat { took, is_ok } => {
                request(RENEW_ALL_TIME, RENEW_ALL_SUCCESS, took, is_ok);
            }
            Self::Renewed { took, is_ok } => request(RENEW_TIME, RENEW_SUCCESS, took, is_ok),
            Self::Listed { took, is_ok } => request(LIST_TIME, LIST_SUCCESS, took, is_ok),
            Self::Take { took, is_ok } => request(TAKE_TIME, TAKE_SUCCESS, took, is_ok),
            Self::Passed {
                took,
                is_ok,
                is_leader,
            } => {
                request(TAKER_TIME, TAKER_SUCCESS, took, is_ok);
                if is_leader {
                    request(ASSIGNER_TIME, ASSIGNER_SUCCESS, took, is_ok);
                }
            }
            Self::Delivered {
                took,
                is_ok,
                records,
                bytes,
            } => {
                request(PROCESS_TIME, PROCESS_SUCCESS, took, is_ok);
                to(RECORDS, records as f64);
                to(DATA_BYTES, bytes as f64);
            }
            Self::Behind { millis } => {
                to(BEHIND, millis as f64);
                to(BEHIND_OF_ALL, millis as f64);
            }
            Self::IteratorExpired => to(EXPIRED_ITERATOR, 1.0),
            Self::Called { took } => to(CALL_TIME, millis(took)),
            Self::Initialized { took } => to(INITIALIZE_TIME, millis(took)),
            Self::Closed { took } => to(SHUTDOWN_TIME, millis(took)),
            Self::Leases { held, lost } => {
                to(CURRENT_LEASES, held as f64);
                to(LOST_LEASES, lost as f64);
            }
            Self::Taken { is_ours } => {
                let metric = if is_ours {
                    TAKEN_LEASES
                } else {
                    UNTAKEN_LEASES
                };
                to(metric, 1.0);
            }
            Self::Fleet(fleet) => fleet.values(to),
        }
    }
}

impl Fleet {
    fn values(&self, mut to: impl FnMut(KclMetric, f64)) {
        to(NUM_WORKERS, self.workers as f64);
        to(TOTAL_LEASES, self.leases as f64);
        to(EXPIRED_LEASES, self.expired as f64);
        to(LEASES_TO_TAKE, self.to_take as f64);
        if self.is_leader {
            to(ASSIGNED_NUM_WORKERS, self.workers as f64);
            to(ASSIGNED_TOTAL_LEASES, self.leases as f64);
            to(ASSIGNED_EXPIRED_LEASES, self.expired as f64);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::metric::EMITTED;
    use super::*;

    const TOOK: Duration = Duration::from_micros(1_234);

    fn all() -> Vec<Observation> {
        let (took, is_ok) = (TOOK, true);
        let fleet = Fleet {
            workers: 3,
            leases: 8,
            expired: 2,
            to_take: 1,
            is_leader: true,
        };
        vec![
            Observation::Read { took, is_ok },
            Observation::Iterator { took, is_ok },
            Observation::IteratorExpired,
            Observation::Behind { millis: 7 },
            Observation::Called { took },
            Observation::Delivered {
                took,
                is_ok: false,
                records: 5,
                bytes: 500,
            },
            Observation::Checkpoint { took, is_ok },
            Observation::Initialized { took },
            Observation::Closed { took },
            Observation::Heartbeat { took, is_ok },
            Observation::Leases { held: 4, lost: 1 },
            Observation::Renewed { took, is_ok },
            Observation::Listed { took, is_ok },
            Observation::Take { took, is_ok },
            Observation::Taken { is_ours: true },
            Observation::Taken { is_ours: false },
            Observation::Passed {
                took,
                is_ok,
                is_leader: true,
            },
            Observation::Fleet(fleet),
        ]
    }

    fn values(observation: Observation) -> Vec<(&'static str, f64)> {
        let mut values = Vec::new();
        observation.values(|metric, value| values.push((metric.name, value)));
        values
    }

    #[test]
    fn every_metric_that_is_listed_is_published_by_something_and_no_other_is() {
        let mut published = BTreeSet::new();
        for observation in all() {
            observation.values(|metric, _| published.extend([metric]));
        }
        assert_eq!(published, BTreeSet::from(EMITTED));
    }

    #[test]
    fn a_failed_delivery_is_no_success_and_counts_what_of_it_was_handled() {
        let delivered = values(all()[5]);
        let expected = [
            ("Time", 1.234),
            ("Success", 0.0),
            ("RecordsProcessed", 5.0),
            ("DataBytesProcessed", 500.0),
        ];
        assert_eq!(delivered, expected);
    }

    #[test]
    fn only_the_leader_speaks_for_the_fleet() {
        let follower = Fleet {
            workers: 3,
            leases: 8,
            expired: 2,
            to_take: 1,
            is_leader: false,
        };
        let mut operations = BTreeSet::new();
        Observation::Fleet(follower).values(|metric, _| operations.extend([metric.operation]));
        let passed = Observation::Passed {
            took: TOOK,
            is_ok: true,
            is_leader: false,
        };
        passed.values(|metric, _| operations.extend([metric.operation]));
        assert_eq!(operations, BTreeSet::from(["TakeLeases"]));
    }

    #[test]
    fn how_far_a_shard_is_behind_counts_for_the_shard_and_for_the_application() {
        let mut scopes = Vec::new();
        let behind = Observation::Behind { millis: 1_500 };
        behind.values(|metric, value| scopes.push((metric.operation, value)));
        let expected = [("ProcessTask", 1_500.0), ("ApplicationTracker", 1_500.0)];
        assert_eq!(scopes, expected);
    }
}
