use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Batches that are remembered one by one. 64: enough for medians by size, and forgotten within
/// seconds under load, so that both versions are compared on the machine as it is now.
const RECENT_MAX: usize = 64;

/// One batch that was handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sample {
    /// How many records the batch had.
    pub records: u64,
    /// How long the call of `process` took.
    pub took: Duration,
    /// Memory of the instance after the call, in bytes; `None` if it is not measured.
    pub memory_bytes: Option<u64>,
}

/// What is known of a version on a host.
#[derive(Debug, Clone, Default)]
pub(crate) struct Track {
    /// Records that the version handled on this host.
    pub records: u64,
    /// Batches that the version handled on this host.
    pub batches: u64,
    /// Failed calls, by kind.
    pub failures: BTreeMap<&'static str, u64>,
    recent: VecDeque<Sample>,
}

impl Track {
    /// Takes in a batch that was handled.
    pub(crate) fn handled(&mut self, sample: Sample) {
        self.records += sample.records;
        self.batches += 1;
        if self.recent.len() >= RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(sample);
    }

    /// Takes in a failed call.
    pub(crate) fn failed(&mut self, kind: &'static str) {
        *self.failures.entry(kind).or_default() += 1;
    }

    /// The most that an instance held, of late.
    pub(crate) fn memory_high_bytes(&self) -> Option<u64> {
        self.recent
            .iter()
            .filter_map(|sample| sample.memory_bytes)
            .max()
    }

    /// What instances held after each batch, of late, oldest first.
    pub(super) fn memory(&self) -> Vec<u64> {
        self.recent
            .iter()
            .filter_map(|sample| sample.memory_bytes)
            .collect()
    }

    /// Batches of late by the class of their size, each class spanning a factor of four: what a
    /// call costs whatever it holds makes a record of a small batch dearer than one of a large
    /// batch.
    pub(super) fn by_size(&self) -> BTreeMap<u32, Vec<Sample>> {
        let mut classes: BTreeMap<u32, Vec<Sample>> = BTreeMap::new();
        for sample in self.recent.iter().filter(|sample| sample.records > 0) {
            classes
                .entry(sample.records.ilog2() / 2)
                .or_default()
                .push(*sample);
        }
        classes
    }
}

impl Sample {
    /// Time a record.
    pub(super) fn per_record(&self) -> Duration {
        self.took / u32::try_from(self.records.max(1)).unwrap_or(u32::MAX)
    }
}

/// The middle one; zero of nothing.
pub(super) fn median(times: impl Iterator<Item = Duration>) -> Duration {
    let mut times: Vec<Duration> = times.collect();
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_track_counts_all_and_remembers_the_last_batches() {
        let mut track = Track::default();
        for n in 1..=100 {
            track.handled(Sample {
                records: 2,
                took: Duration::from_millis(n),
                memory_bytes: Some(1_000 - n),
            });
        }
        track.failed("trapped");
        track.failed("trapped");
        assert_eq!(
            (track.records, track.batches, track.failures["trapped"]),
            (200, 100, 2)
        );
        assert_eq!(track.memory().len(), RECENT_MAX);
        assert_eq!(
            track.memory_high_bytes(),
            Some(1_000 - 37),
            "what was long ago is forgotten"
        );
        assert_eq!(track.by_size().keys().collect::<Vec<_>>(), [&0]);
    }

    #[test]
    fn a_median_is_the_middle() {
        assert_eq!(
            median([3, 1, 900].map(Duration::from_millis).into_iter()),
            Duration::from_millis(3)
        );
        assert_eq!(
            median([4, 3, 2, 900, 1].map(Duration::from_millis).into_iter()),
            Duration::from_millis(3)
        );
        assert_eq!(median(std::iter::empty()), Duration::ZERO);
    }

    #[test]
    fn batches_are_compared_with_batches_of_a_like_size_and_an_empty_one_with_none() {
        let mut track = Track::default();
        for records in [0, 1, 3, 4, 15, 16, 1_000] {
            track.handled(Sample {
                records,
                took: Duration::from_millis(1),
                memory_bytes: None,
            });
        }
        let sizes: Vec<(u32, usize)> = track
            .by_size()
            .iter()
            .map(|(class, of)| (*class, of.len()))
            .collect();
        assert_eq!(sizes, [(0, 2), (1, 2), (2, 1), (4, 1)]);
    }
}
