use std::collections::BTreeMap;
use std::time::Duration;

use crate::deaths::DIED;
use crate::lease::WorkerId;
use crate::plugin::PluginDigest;
use crate::text::shortened;

/// Entries that are kept for one application; the oldest go first. 32: more bad versions within
/// days are one trouble.
pub const ENTRIES_MAX: usize = 32;
/// Characters of a reason that is written into a row; rows of up to 1 KB cost one unit (AWS).
pub const REASON_CHARS_MAX: usize = 300;

/// A version that is not taken any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quarantined {
    /// The version that is in quarantine.
    pub digest: PluginDigest,
    /// The host that found out.
    pub host: WorkerId,
    /// Why, with the figures.
    pub reason: String,
    /// When, on that host's wall clock, in milliseconds since the Unix epoch. For people, and for
    /// expiry after days.
    pub at_ms: u64,
}

/// The versions that a host does not take.
#[derive(Debug, Clone, Default)]
pub struct Quarantine {
    entries: BTreeMap<String, Quarantined>,
}

impl Quarantine {
    /// Adds one, with its reason cut to what a row holds; the first reason stays.
    pub fn add(&mut self, mut entry: Quarantined) {
        entry.reason = shortened(&entry.reason, REASON_CHARS_MAX).into_owned();
        self.entries
            .entry(entry.digest.as_str().to_owned())
            .or_insert(entry);
        if self.entries.len() > ENTRIES_MAX {
            let oldest = self
                .entries
                .values()
                .min_by_key(|entry| entry.at_ms)
                .map(|entry| entry.digest.clone());
            if let Some(oldest) = oldest {
                let _ = self.release(&oldest);
            }
        }
    }

    /// Lets a version go; whether it was quarantined.
    pub fn release(&mut self, digest: &PluginDigest) -> bool {
        self.entries.remove(digest.as_str()).is_some()
    }

    /// Forgets what is older than `lifetime` at `wall_ms`.
    pub fn expire(&mut self, wall_ms: u64, lifetime: Duration) {
        self.entries
            .retain(|_, entry| !entry.is_expired(wall_ms, lifetime));
    }

    /// Why a version is quarantined, if it is.
    pub fn get(&self, digest: &PluginDigest) -> Option<&Quarantined> {
        self.entries.get(digest.as_str())
    }

    /// All quarantined versions, in the order of their digests.
    pub fn iter(&self) -> impl Iterator<Item = &Quarantined> {
        self.entries.values()
    }
}

impl Quarantined {
    /// Whether a host died of it. If so, no host takes it because another runs it, whatever its
    /// policy is. Recognised by the reason, because hosts of other builds write and read such rows
    /// too.
    pub fn is_deadly(&self) -> bool {
        self.reason.starts_with(DIED)
    }

    /// Whether it has ended at `wall_ms`: it is older than `lifetime`, and no host died of it. What
    /// a host died of stays out until an operator releases it.
    pub fn is_expired(&self, wall_ms: u64, lifetime: Duration) -> bool {
        !self.is_deadly() && self.is_older(wall_ms, lifetime)
    }

    /// Whether it is older than `lifetime` at `wall_ms`. One from the future, as a wall clock that
    /// is behind sees it, is not.
    pub fn is_older(&self, wall_ms: u64, lifetime: Duration) -> bool {
        Duration::from_millis(wall_ms.saturating_sub(self.at_ms)) > lifetime
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(version: u64, at_ms: u64) -> Quarantined {
        let digest = PluginDigest::from_hex(&format!("{version:064x}")).unwrap();
        Quarantined {
            digest,
            host: WorkerId::new("a").unwrap(),
            reason: "r".repeat(1_000),
            at_ms,
        }
    }

    #[test]
    fn what_a_host_died_of_stays_out_however_long_ago_that_was() {
        let mut quarantine = Quarantine::default();
        let deadly = Quarantined {
            reason: format!("{DIED} 2 times in its calls"),
            ..entry(1, 1_000)
        };
        quarantine.add(deadly.clone());
        quarantine.add(entry(2, 1_000));
        quarantine.expire(u64::MAX, Duration::from_mins(1));
        assert!(quarantine.get(&deadly.digest).is_some());
        assert!(quarantine.get(&entry(2, 0).digest).is_none());
        assert!(deadly.is_older(u64::MAX, Duration::from_mins(1)));
        assert!(
            quarantine.release(&deadly.digest),
            "an operator's word ends it"
        );
    }

    #[test]
    fn the_quarantine_is_bounded_in_number_size_and_time() {
        let mut quarantine = Quarantine::default();
        for n in 0..40 {
            quarantine.add(entry(n, 1_000 + n));
        }
        assert_eq!(quarantine.iter().count(), ENTRIES_MAX);
        assert!(
            quarantine.get(&entry(7, 0).digest).is_none()
                && quarantine.get(&entry(8, 0).digest).is_some()
        );
        assert!(
            quarantine
                .iter()
                .all(|entry| entry.reason.chars().count() == REASON_CHARS_MAX)
        );
        quarantine.expire(1_010 + 5_000, Duration::from_secs(5));
        assert!(
            quarantine.get(&entry(9, 0).digest).is_none(),
            "a moment too old"
        );
        assert!(
            quarantine.get(&entry(10, 0).digest).is_some(),
            "as old as it may be"
        );
        assert!(
            quarantine.release(&entry(10, 0).digest) && !quarantine.release(&entry(10, 0).digest)
        );
    }
}
