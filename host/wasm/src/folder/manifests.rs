//! The manifests beside the components: reports that one changed. The host reads what it says.
//! Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use shardmill_core::plugin::PluginName;

use super::scan::Stamp;

/// All manifests, as far as they are known.
#[derive(Debug)]
pub(crate) struct Manifests {
    /// How long a file must be unchanged before it is reported, also if its writer has closed it:
    /// scripts append to files, and the first line alone is a manifest as well.
    settle: Duration,
    files: BTreeMap<PluginName, Watched>,
}

#[derive(Debug)]
struct Watched {
    /// `None` once it is gone.
    stamp: Option<Stamp>,
    since: Instant,
    is_reported: bool,
}

impl Manifests {
    pub(crate) fn new(settle: Duration) -> Self {
        Self {
            settle,
            files: BTreeMap::new(),
        }
    }

    /// Takes in the contents of the folder. Returns the plugins whose manifest was added, changed
    /// or removed, and has settled.
    pub(crate) fn observe(
        &mut self,
        now: Instant,
        seen: &BTreeMap<PluginName, Stamp>,
    ) -> Vec<PluginName> {
        for name in seen.keys() {
            self.files
                .entry(name.clone())
                .or_insert_with(|| Watched::unseen(now));
        }
        for (name, watched) in &mut self.files {
            watched.see(now, seen.get(name).copied());
        }
        let mut changed = Vec::new();
        for (name, watched) in &mut self.files {
            let has_settled = now.saturating_duration_since(watched.since) >= self.settle;
            if !watched.is_reported && has_settled {
                watched.is_reported = true;
                changed.push(name.clone());
            }
        }
        self.files
            .retain(|_, watched| watched.stamp.is_some() || !watched.is_reported);
        changed
    }

    /// Plugins whose manifest is changing, and was not reported yet.
    pub(crate) fn changing(&self) -> BTreeSet<PluginName> {
        let changing = self
            .files
            .iter()
            .filter(|(_, watched)| !watched.is_reported);
        changing.map(|(name, _)| name.clone()).collect()
    }

    /// When to look again although nothing has happened.
    pub(crate) fn next_look(&self) -> Option<Instant> {
        let waiting = self.files.values().filter(|watched| !watched.is_reported);
        waiting.map(|watched| watched.since + self.settle).min()
    }
}

impl Watched {
    fn unseen(now: Instant) -> Self {
        Self {
            stamp: None,
            since: now,
            is_reported: true,
        }
    }

    fn see(&mut self, now: Instant, stamp: Option<Stamp>) {
        if self.stamp != stamp {
            *self = Self {
                stamp,
                since: now,
                is_reported: false,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTLE: Duration = Duration::from_millis(40);

    fn seen(sizes: &[(&str, u64)]) -> BTreeMap<PluginName, Stamp> {
        let stamp = |size| Stamp {
            inode: 1,
            size,
            modified: (0, 0),
            changed: (0, 0),
        };
        sizes
            .iter()
            .map(|(name, size)| (PluginName::new(name).unwrap(), stamp(*size)))
            .collect()
    }

    fn names(changed: &[PluginName]) -> Vec<&str> {
        changed.iter().map(PluginName::as_str).collect()
    }

    #[test]
    fn a_manifest_is_reported_once_when_it_came_changed_or_went_and_has_settled() {
        let (mut manifests, start) = (Manifests::new(SETTLE), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        assert!(manifests.observe(at(0), &seen(&[("orders", 1)])).is_empty());
        assert_eq!(manifests.next_look(), Some(at(40)));
        // It grows while it is written.
        assert!(
            manifests
                .observe(at(30), &seen(&[("orders", 2)]))
                .is_empty()
        );
        assert!(
            manifests
                .observe(at(50), &seen(&[("orders", 2)]))
                .is_empty()
        );
        assert_eq!(
            names(&manifests.observe(at(70), &seen(&[("orders", 2)]))),
            ["orders"]
        );
        assert!(
            manifests
                .observe(at(5_000), &seen(&[("orders", 2)]))
                .is_empty()
        );
        assert_eq!(manifests.next_look(), None);
        manifests.observe(at(6_000), &seen(&[("orders", 3), ("clicks", 1)]));
        assert_eq!(
            names(&manifests.observe(at(6_040), &seen(&[("orders", 3), ("clicks", 1)]))),
            ["clicks", "orders"]
        );
        manifests.observe(at(7_000), &seen(&[("orders", 3)]));
        assert_eq!(
            names(&manifests.observe(at(7_040), &seen(&[("orders", 3)]))),
            ["clicks"]
        );
        assert!(
            manifests
                .observe(at(7_080), &seen(&[("orders", 3)]))
                .is_empty()
        );
    }

    #[test]
    fn a_manifest_that_is_gone_for_a_moment_only_is_reported_once() {
        let (mut manifests, start) = (Manifests::new(SETTLE), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        manifests.observe(at(0), &seen(&[("orders", 1)]));
        manifests.observe(at(40), &seen(&[("orders", 1)]));
        manifests.observe(at(100), &seen(&[]));
        manifests.observe(at(120), &seen(&[("orders", 2)]));
        assert_eq!(
            names(&manifests.observe(at(160), &seen(&[("orders", 2)]))),
            ["orders"]
        );
    }
}
