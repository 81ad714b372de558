//! From what two versions did to whether the newer one goes on, is promoted, or is rolled back.

use std::fmt;
use std::time::Duration;

use super::policy::RolloutPolicy;
use super::track::{Sample, Track, median};

/// Batches of one class of size that both versions must have handled before their times are
/// compared.
const COMPARED_BATCHES: usize = 5;
/// A batch that takes less is never slow: what the scheduler of a busy machine adds to a call is of
/// this order.
const SLOW_BATCH_MIN: Duration = Duration::from_millis(10);
/// Batches before growth is judged: a guest warms up first.
const GROWTH_BATCHES: usize = 8;
/// Trials that have few batches to be judged by last this many times longer at most.
const PATIENCE: u32 = 3;

/// What follows from a trial so far.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Judgement {
    /// Too little is known yet.
    Continue,
    /// The version takes over.
    Promote(Passed),
    /// It does not.
    RollBack(Regression),
}

/// Why a version is promoted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passed {
    /// Its canary handled enough.
    Handled {
        /// Records.
        records: u64,
        /// Batches.
        batches: u64,
    },
    /// The time is up, and there was no trouble.
    NoTrouble {
        /// How long it was tried.
        tried_for: Duration,
        /// Records that the canary handled.
        records: u64,
    },
    /// This host held no shard: there was nothing to try it on, and nothing that it could harm.
    NoShard,
    /// It was deployed with other settings: this host tries both, on all of its shards.
    WithSettings,
    /// The version before does not start with the settings that this one came with.
    NothingBefore,
}

/// Why a version is rolled back, with the figures.
#[derive(Debug, Clone, PartialEq)]
pub enum Regression {
    /// It does not start.
    DoesNotStart {
        /// Why.
        reason: String,
    },
    /// It failed on records that the version before handled.
    Fails {
        /// The kind of failure.
        kind: &'static str,
        /// The last one, in its words.
        reason: String,
        /// How often it did.
        times: u32,
    },
    /// It cannot save its state.
    DoesNotSave {
        /// Why.
        reason: String,
    },
    /// It fails when it is called because time has passed.
    DoesNotTick {
        /// Why.
        reason: String,
    },
    /// It takes longer.
    Slower {
        /// Median time a record.
        took: Duration,
        /// Of the version before.
        before: Duration,
    },
    /// It takes more memory.
    Larger {
        /// Most bytes an instance held.
        bytes: u64,
        /// Of the version before.
        before: u64,
    },
    /// Its memory grows from batch to batch.
    Grows {
        /// Bytes after the first batch looked at.
        from: u64,
        /// Bytes after the last.
        to: u64,
        /// Batches between.
        batches: usize,
    },
}

/// Judges a version that was tried for `tried_for`, from what it did and what the version at work
/// did meanwhile and before.
pub(crate) fn judge_trial(
    old: &Track,
    new: &Track,
    policy: &RolloutPolicy,
    tried_for: Duration,
) -> Judgement {
    if let Some(regression) = slower(old, new, policy)
        .or_else(|| larger(old, new, policy))
        .or_else(|| begins_to_grow(old, new, policy))
    {
        return Judgement::RollBack(regression);
    }
    if new.records >= policy.canary_records && new.batches >= policy.canary_batches {
        return Judgement::Promote(Passed::Handled {
            records: new.records,
            batches: new.batches,
        });
    }
    // No batches at all are enough, too few are not: a stream at rest must not hold a deploy.
    let is_told =
        (new.batches == 0 && new.failures.is_empty()) || new.batches >= policy.canary_batches;
    let is_time_up =
        tried_for >= policy.canary_for && (is_told || tried_for >= policy.canary_for * PATIENCE);
    if is_time_up {
        return Judgement::Promote(Passed::NoTrouble {
            tried_for,
            records: new.records,
        });
    }
    Judgement::Continue
}

/// Compares medians of batches of a like size, or of larger ones with those of smaller ones: a
/// version that is slow falls behind, and then its batches are larger than any that the version
/// before had. A record of a larger batch is the cheaper one, so this finds none slow that is not.
fn slower(old: &Track, new: &Track, policy: &RolloutPolicy) -> Option<Regression> {
    let before = old.by_size();
    new.by_size().into_iter().find_map(|(class, now)| {
        let (_, before) = before
            .range(..=class)
            .rfind(|(_, before)| before.len() >= COMPARED_BATCHES)?;
        if now.len() < COMPARED_BATCHES {
            return None;
        }
        let took = median(now.iter().map(Sample::per_record));
        let before = median(before.iter().map(Sample::per_record));
        let is_slow = took > before.mul_f64(policy.time_factor)
            && median(now.iter().map(|sample| sample.took)) >= SLOW_BATCH_MIN;
        is_slow.then_some(Regression::Slower { took, before })
    })
}

fn larger(old: &Track, new: &Track, policy: &RolloutPolicy) -> Option<Regression> {
    let (bytes, before) = (new.memory_high_bytes()?, old.memory_high_bytes()?);
    let most = before as f64 * policy.memory_factor + policy.memory_allowance as f64;
    (bytes as f64 > most).then_some(Regression::Larger { bytes, before })
}

/// A version that leaks like the previous one is not worse.
fn begins_to_grow(old: &Track, new: &Track, policy: &RolloutPolicy) -> Option<Regression> {
    if grows(old, policy).is_some() {
        return None;
    }
    grows(new, policy)
}

/// A leak goes on; a guest that fills a cache or doubles a buffer stops. So the later half of the
/// batches must have added at least half of what the earlier half did, in more steps than one, and
/// all of it more than the allowance.
fn grows(new: &Track, policy: &RolloutPolicy) -> Option<Regression> {
    let memory = new.memory();
    if memory.len() < GROWTH_BATCHES {
        return None;
    }
    let (first, middle, last) = (
        memory[0],
        memory[memory.len() / 2],
        memory[memory.len() - 1],
    );
    let (earlier, later) = (middle.saturating_sub(first), last.saturating_sub(middle));
    let steps = memory[memory.len() / 2..]
        .windows(2)
        .filter(|pair| pair[1] > pair[0])
        .count();
    let is_leak = earlier + later > policy.memory_allowance
        && later * 2 >= earlier
        && steps > 1
        && earlier > 0;
    is_leak.then_some(Regression::Grows {
        from: first,
        to: last,
        batches: memory.len() - 1,
    })
}

impl fmt::Display for Passed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Handled { records, batches } => {
                write!(
                    f,
                    "the canary handled {records} records in {batches} batches"
                )
            }
            Self::NoTrouble { tried_for, records } => {
                write!(f, "no failure in {tried_for:.1?}, with {records} records")
            }
            Self::NoShard => f.write_str("this host held no shard to try it on"),
            Self::WithSettings => {
                f.write_str("it was deployed with other settings, which this host tries with it")
            }
            Self::NothingBefore => f.write_str(
                "the previous version does not start with the settings that came with this one",
            ),
        }
    }
}

impl Regression {
    /// Every word of [`Self::code`].
    pub const CODES: [&str; 6] = ["start", "failures", "state", "tick", "time", "memory"];

    /// A short, stable word for metrics.
    pub fn code(&self) -> &'static str {
        match self {
            Self::DoesNotStart { .. } => "start",
            Self::Fails { .. } => "failures",
            Self::DoesNotSave { .. } => "state",
            Self::DoesNotTick { .. } => "tick",
            Self::Slower { .. } => "time",
            Self::Larger { .. } | Self::Grows { .. } => "memory",
        }
    }
}

impl fmt::Display for Regression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DoesNotStart { reason } => write!(f, "it does not start: {reason}"),
            Self::Fails {
                reason, times: 1, ..
            } => {
                write!(
                    f,
                    "it failed on records that the previous version handled: {reason}"
                )
            }
            Self::Fails { reason, times, .. } => {
                write!(
                    f,
                    "it failed {times} times on records that the previous version handled, last: {reason}"
                )
            }
            Self::DoesNotSave { reason } => write!(f, "it cannot save its state: {reason}"),
            Self::DoesNotTick { reason } => write!(f, "it fails at ticks: {reason}"),
            Self::Slower { took, before } => {
                write!(
                    f,
                    "it takes {took:.1?} a record (median), the previous version {before:.1?}"
                )
            }
            Self::Larger { bytes, before } => {
                write!(
                    f,
                    "an instance uses {} of memory, one of the previous version {}",
                    mib(*bytes),
                    mib(*before)
                )
            }
            Self::Grows { from, to, batches } => {
                write!(
                    f,
                    "its memory grew from {} to {} in {batches} batches",
                    mib(*from),
                    mib(*to)
                )
            }
        }
    }
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;
    const MIB: u64 = 1 << 20;

    fn track(batches: u64, records: u64, took: Duration, memory: impl Fn(u64) -> u64) -> Track {
        let mut track = Track::default();
        for n in 0..batches {
            track.handled(Sample {
                records,
                took,
                memory_bytes: Some(memory(n)),
            });
        }
        track
    }

    fn steady(batches: u64, records: u64, micros: u64) -> Track {
        track(batches, records, Duration::from_micros(micros), |_| MIB)
    }

    fn judged(old: &Track, new: &Track, seconds: u64) -> Judgement {
        judge_trial(
            old,
            new,
            &RolloutPolicy::default(),
            Duration::from_secs(seconds),
        )
    }

    #[test]
    fn a_version_is_promoted_once_it_handled_enough_records_in_enough_batches() {
        let old = steady(60, 250, 1_000);
        assert_eq!(judged(&old, &steady(3, 250, 1_000), 1), Judgement::Continue);
        assert_eq!(
            judged(&old, &steady(4, 250, 1_000), 1),
            Judgement::Continue,
            "1,000 records, four batches"
        );
        let passed = Passed::Handled {
            records: 1_250,
            batches: 5,
        };
        assert_eq!(
            judged(&old, &steady(5, 250, 1_000), 1),
            Judgement::Promote(passed)
        );
    }

    #[test]
    fn time_without_trouble_is_enough_also_without_any_records() {
        let old = steady(60, 250, 1_000);
        assert_eq!(judged(&old, &Track::default(), 9), Judgement::Continue);
        assert!(matches!(
            judged(&old, &Track::default(), 10),
            Judgement::Promote(Passed::NoTrouble { records: 0, .. })
        ));
        assert!(matches!(
            judged(&old, &steady(5, 10, 1_000), 10),
            Judgement::Promote(Passed::NoTrouble { .. })
        ));
        let few = steady(2, 250, 1_000);
        assert_eq!(
            judged(&old, &few, 29),
            Judgement::Continue,
            "too few batches to tell its time"
        );
        assert!(matches!(
            judged(&old, &few, 30),
            Judgement::Promote(Passed::NoTrouble { .. })
        ));
    }

    #[test]
    fn a_version_three_times_slower_on_batches_of_a_like_size_is_rolled_back_with_the_figures() {
        let old = steady(60, 100, 10_000);
        let Judgement::RollBack(regression) = judged(&old, &steady(5, 100, 31_000), 1) else {
            panic!("not slow")
        };
        assert_eq!(
            regression.to_string(),
            "it takes 310.0µs a record (median), the previous version 100.0µs"
        );
        assert_eq!(regression.code(), "time");
        assert!(Regression::CODES.contains(&regression.code()));
        assert_eq!(
            judged(&old, &steady(5, 100, 30_000), 1),
            Judgement::Continue,
            "three times is allowed"
        );
        assert_eq!(
            judged(&old, &steady(4, 100, 90_000), 1),
            Judgement::Continue,
            "four batches tell nothing"
        );
    }

    #[test]
    fn a_version_whose_batches_grow_because_it_falls_behind_is_compared_with_smaller_ones() {
        let old = steady(60, 20, 2_000);
        assert!(matches!(
            judged(&old, &steady(10, 100, 100_000), 1),
            Judgement::RollBack(Regression::Slower { .. })
        ));
        assert!(
            matches!(
                judged(&old, &steady(10, 100, 30_000), 1),
                Judgement::Promote(_)
            ),
            "three times is allowed"
        );
        let mut of_all_sizes = steady(30, 20, 20_000);
        for _ in 0..30 {
            of_all_sizes.handled(Sample {
                records: 100,
                took: Duration::from_millis(10),
                memory_bytes: None,
            });
        }
        assert!(
            matches!(
                judged(&of_all_sizes, &steady(10, 100, 60_000), 1),
                Judgement::RollBack(Regression::Slower { .. })
            ),
            "the nearest size counts"
        );
    }

    #[test]
    fn noise_rolls_nothing_back() {
        let quick = steady(60, 100, 500);
        assert_eq!(
            judged(&quick, &steady(6, 100, 9_900), 1),
            Judgement::Continue,
            "no batch under 10 ms is slow"
        );
        let mut spikes = steady(4, 100, 11_000);
        (0..3).for_each(|_| {
            spikes.handled(Sample {
                records: 100,
                took: Duration::from_secs(1),
                memory_bytes: None,
            });
        });
        assert_eq!(
            judged(&steady(60, 100, 10_000), &spikes, 1),
            Judgement::Continue,
            "a median bears three spikes"
        );
        let at_the_tip = steady(5, 1, 20_000);
        assert_eq!(
            judged(&steady(60, 1_000, 20_000), &at_the_tip, 1),
            Judgement::Continue,
            "other sizes tell nothing"
        );
        assert_eq!(
            judged(&Track::default(), &steady(4, 200, 90_000), 1),
            Judgement::Continue,
            "nothing to compare with"
        );
    }

    #[test]
    fn a_version_that_takes_twice_the_memory_and_more_is_rolled_back() {
        let old = track(10, 10, Duration::from_millis(1), |_| 20 * MIB);
        let of = |mib: u64| track(3, 10, Duration::from_millis(1), move |_| mib * MIB);
        assert_eq!(judged(&old, &of(56), 1), Judgement::Continue);
        let Judgement::RollBack(regression) = judged(&old, &of(57), 1) else {
            panic!("not larger")
        };
        assert_eq!(
            regression.to_string(),
            "an instance uses 57.0 MiB of memory, one of the previous version 20.0 MiB"
        );
    }

    #[test]
    fn memory_that_grows_on_and_on_is_a_leak_and_memory_that_levels_off_is_none() {
        let old = track(10, 10, Duration::from_millis(1), |_| 20 * MIB);
        let trial = |memory: fn(u64) -> u64| track(10, 10, Duration::from_millis(1), memory);
        let Judgement::RollBack(regression) = judged(&old, &trial(|n| (20 + 3 * n) * MIB), 1)
        else {
            panic!("no leak")
        };
        assert_eq!(
            regression.to_string(),
            "its memory grew from 20.0 MiB to 47.0 MiB in 9 batches"
        );
        assert_eq!(
            judged(&old, &trial(|n| (20 + 5 * n.min(5)) * MIB), 1),
            Judgement::Continue,
            "it levels off"
        );
        assert_eq!(
            judged(&old, &trial(|n| (20 + n) * MIB), 1),
            Judgement::Continue,
            "within the allowance"
        );
        let leaking = track(10, 10, Duration::from_millis(1), |n| (20 + 3 * n) * MIB);
        assert_eq!(
            judged(&leaking, &trial(|n| (20 + 3 * n) * MIB), 1),
            Judgement::Continue,
            "it always did"
        );
        let short = track(7, 10, Duration::from_millis(1), |n| (20 + 4 * n) * MIB);
        assert_eq!(
            judged(&old, &short, 1),
            Judgement::Continue,
            "seven batches are warming up"
        );
    }

    #[test]
    fn growth_is_a_leak_only_if_it_began_early_goes_on_in_steps_and_passes_the_allowance() {
        let old = track(10, 10, Duration::from_millis(1), |_| 20 * MIB);
        let trial = |mib: &[u64]| {
            let memory = |n: u64| mib[usize::try_from(n).unwrap()] * MIB;
            judged(
                &old,
                &track(mib.len() as u64, 1, Duration::from_millis(1), memory),
                1,
            )
        };
        let is_leak =
            |mib: &[u64]| matches!(trial(mib), Judgement::RollBack(Regression::Grows { .. }));
        assert!(
            is_leak(&[20, 24, 28, 32, 36, 40, 44, 48]),
            "eight batches are enough"
        );
        assert!(
            !is_leak(&[20, 22, 24, 26, 28, 30, 32, 34, 36]),
            "as much as the allowance of 16 MiB"
        );
        assert!(is_leak(&[20, 22, 24, 26, 28, 30, 32, 34, 37]));
        assert!(
            !is_leak(&[20, 25, 30, 35, 36, 36, 36, 50, 50, 50]),
            "one step is a buffer that became larger"
        );
        assert!(
            !is_leak(&[20, 20, 20, 20, 20, 20, 30, 40, 45, 50]),
            "it only began"
        );
    }

    #[test]
    fn why_a_version_is_promoted_is_reported_with_the_figures() {
        let passed = [
            Passed::Handled {
                records: 1_250,
                batches: 5,
            },
            Passed::NoTrouble {
                tried_for: Duration::from_secs(10),
                records: 3,
            },
            Passed::NoShard,
            Passed::WithSettings,
            Passed::NothingBefore,
        ];
        let told = [
            "the canary handled 1250 records in 5 batches",
            "no failure in 10.0s, with 3 records",
            "this host held no shard to try it on",
            "it was deployed with other settings, which this host tries with it",
            "the previous version does not start with the settings that came with this one",
        ];
        assert_eq!(passed.map(|passed| passed.to_string()), told);
    }
}
