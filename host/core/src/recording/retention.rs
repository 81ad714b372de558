//! Which recordings stay on a disk, and which go.

use std::collections::HashMap;
use std::time::Duration;

/// What recordings may take together. The newest are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Recordings of one shard: a shard that fails all the time leaves room for others.
    pub per_shard: usize,
    /// Most recordings of a host.
    pub in_all: usize,
    /// Their bytes in all.
    pub bytes: u64,
    /// How long one is kept.
    pub keep_for: Duration,
}

/// A recording on a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptFile {
    /// Distinguishes its shard from others.
    pub shard: u64,
    /// How large the file is.
    pub bytes: u64,
    /// When it was written, in milliseconds since the Unix epoch.
    pub at_ms: u64,
}

impl Retention {
    /// The indexes of those that go. One from the future is as old as one of now: a clock that was
    /// set back must not make room by what is newest.
    pub fn to_remove(&self, files: &[KeptFile], now_ms: u64) -> Vec<usize> {
        let mut newest_first: Vec<usize> = (0..files.len()).collect();
        newest_first.sort_by_key(|index| std::cmp::Reverse(files[*index].at_ms));
        let mut of_shard: HashMap<u64, usize> = HashMap::new();
        let (mut count, mut bytes) = (0, 0_u64);
        let mut removed = Vec::new();
        for index in newest_first {
            let file = &files[index];
            let age = Duration::from_millis(now_ms.saturating_sub(file.at_ms));
            let own = of_shard.entry(file.shard).or_default();
            let fits = age <= self.keep_for
                && *own < self.per_shard
                && count < self.in_all
                && bytes.saturating_add(file.bytes) <= self.bytes;
            if fits {
                *own += 1;
                count += 1;
                bytes += file.bytes;
            } else {
                removed.push(index);
            }
        }
        removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Retention = Retention {
        per_shard: 3,
        in_all: 10,
        bytes: 1_000,
        keep_for: Duration::from_mins(1),
    };

    fn file(shard: u64, bytes: u64, at_ms: u64) -> KeptFile {
        KeptFile {
            shard,
            bytes,
            at_ms,
        }
    }

    fn removed(retention: &Retention, files: &[KeptFile]) -> Vec<usize> {
        let mut removed = retention.to_remove(files, 60_000);
        removed.sort_unstable();
        removed
    }

    #[test]
    fn a_shard_that_fails_all_the_time_leaves_room_for_others() {
        let mut files: Vec<KeptFile> = (0..100).map(|at| file(1, 1, 1_000 + at)).collect();
        files.push(file(2, 1, 500));
        assert_eq!(removed(&ALL, &files), (0..97).collect::<Vec<_>>());
    }

    #[test]
    fn a_thousand_shards_that_fail_have_no_more_than_the_host_may_keep() {
        let files: Vec<KeptFile> = (0..3_000)
            .map(|number| file(number % 1_000, 1, number))
            .collect();
        let left = files.len() - removed(&ALL, &files).len();
        assert_eq!(left, ALL.in_all);
    }

    #[test]
    fn the_newest_are_kept_within_the_bytes_and_what_is_too_old_goes() {
        let files = [
            file(1, 600, 10_000),
            file(2, 600, 20_000),
            file(3, 300, 9_000),
        ];
        assert_eq!(
            removed(&ALL, &files),
            [0],
            "a smaller old one may still fit"
        );
        let too_large = [file(1, 1_001, 30_000), file(2, 10, 1)];
        assert_eq!(removed(&ALL, &too_large), [0]);
        let short = Retention {
            keep_for: Duration::from_secs(30),
            ..ALL
        };
        assert_eq!(
            removed(&short, &[file(1, 1, 29_999), file(1, 1, 30_000)]),
            [0]
        );
        assert_eq!(
            removed(&ALL, &[file(1, 1, u64::MAX)]),
            [0; 0],
            "of the future"
        );
    }
}
