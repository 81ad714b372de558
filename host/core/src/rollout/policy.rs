use std::time::Duration;

/// Failures in probation that the version before handled, until the new one is rolled back. Three:
/// a passing trouble of a plugin that calls others must not undo a deploy, and each of them cost
/// two swaps of one shard and no record.
pub const PROBATION_STRIKES: u32 = 3;

/// A share of the fleet that is one host, however many there are: the smallest one.
pub const ONE_HOST: f64 = f64::MIN_POSITIVE;

/// What an operator decided about new versions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RolloutPolicy {
    /// Whether new versions are tried at all; otherwise each shard takes them up at once.
    pub enabled: bool,
    /// Records that the canary handles before the version is promoted. 1,000: one batch of the
    /// default size, and some seconds of a quiet shard.
    pub canary_records: u64,
    /// Batches that these must come in at least. 5: a median of fewer says nothing about time.
    pub canary_batches: u64,
    /// The longest trial without trouble. 10 s: a deploy must not hang because no records arrive.
    pub canary_for: Duration,
    /// How many times slower a record may become. 3: far above what a busy machine makes of
    /// medians.
    pub time_factor: f64,
    /// How many times more memory an instance may take. 2.
    pub memory_factor: f64,
    /// Bytes that it may take on top of that, and that it may grow by in a trial. 16 MiB: caches
    /// and buffers of a guest that starts small are no regression.
    pub memory_allowance: u64,
    /// How long the version before is kept after the promotion, for failures to be held against it.
    /// 5 minutes.
    pub probation: Duration,
    /// The part of the fleet's hosts that may start with a new version, above 0 up to 1; the others
    /// wait until these run it as active. 1: no host waits.
    pub share: f64,
    /// How long a host waits for the others at most. 15 minutes: three default probations, so that
    /// a host that is gone cannot hold a deploy for ever.
    pub share_wait: Duration,
    /// How long a quarantined version is refused. 7 days: longer than it takes to see to it, and no
    /// list for ever.
    pub quarantine_for: Duration,
}

/// A policy that contradicts itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RolloutProblem {
    /// The field, as a configuration key.
    pub key: &'static str,
    /// What is wrong and what would be right.
    pub problem: &'static str,
}

impl Default for RolloutPolicy {
    fn default() -> Self {
        Self {
            enabled: true,
            canary_records: 1_000,
            canary_batches: 5,
            canary_for: Duration::from_secs(10),
            time_factor: 3.0,
            memory_factor: 2.0,
            memory_allowance: 16 << 20,
            probation: Duration::from_mins(5),
            share: 1.0,
            share_wait: Duration::from_mins(15),
            quarantine_for: Duration::from_hours(7 * 24),
        }
    }
}

impl RolloutPolicy {
    /// Every shard takes up a new version at once, and nothing is quarantined.
    pub fn off() -> Self {
        Self {
            enabled: false,
            ..Self::default()
        }
    }

    /// What contradicts itself, if anything does.
    pub fn problem(&self) -> Option<RolloutProblem> {
        // A number that is none compares as false.
        let is_factor = |factor: f64| factor >= 1.0 && factor.is_finite();
        let (key, problem) = if self.canary_records == 0 {
            (
                "canary-records",
                "must be at least 1; to skip trials, set enabled = false",
            )
        } else if self.canary_batches == 0 {
            (
                "canary-batches",
                "must be at least 1; to skip trials, set enabled = false",
            )
        } else if self.canary_for.is_zero() {
            (
                "canary-for",
                "must be above zero; to skip trials, set enabled = false",
            )
        } else if !is_factor(self.time_factor) {
            (
                "time-factor",
                "must be at least 1: a version as fast as the one before is not a regression",
            )
        } else if !is_factor(self.memory_factor) {
            (
                "memory-factor",
                "must be at least 1: a version as large as the one before is not a regression",
            )
        } else if !(self.share > 0.0 && self.share <= 1.0) {
            (
                "share",
                "must be above 0 and at most 1: a part of the fleet's hosts",
            )
        } else if self.quarantine_for.is_zero() {
            (
                "quarantine-for",
                "must be above zero; to never quarantine, set enabled = false",
            )
        } else {
            return None;
        };
        Some(RolloutProblem { key, problem })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_that_cannot_work_is_refused_by_the_key_that_mends_it() {
        let good = RolloutPolicy::default();
        assert_eq!(good.problem(), None);
        for (policy, key) in [
            (
                RolloutPolicy {
                    canary_records: 0,
                    ..good
                },
                "canary-records",
            ),
            (
                RolloutPolicy {
                    canary_batches: 0,
                    ..good
                },
                "canary-batches",
            ),
            (
                RolloutPolicy {
                    canary_for: Duration::ZERO,
                    ..good
                },
                "canary-for",
            ),
            (
                RolloutPolicy {
                    time_factor: 0.5,
                    ..good
                },
                "time-factor",
            ),
            (
                RolloutPolicy {
                    time_factor: f64::NAN,
                    ..good
                },
                "time-factor",
            ),
            (
                RolloutPolicy {
                    memory_factor: f64::INFINITY,
                    ..good
                },
                "memory-factor",
            ),
            (RolloutPolicy { share: 0.0, ..good }, "share"),
            (RolloutPolicy { share: 1.1, ..good }, "share"),
            (
                RolloutPolicy {
                    quarantine_for: Duration::ZERO,
                    ..good
                },
                "quarantine-for",
            ),
        ] {
            assert_eq!(policy.problem().map(|problem| problem.key), Some(key));
        }
    }
}
