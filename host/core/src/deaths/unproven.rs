use std::collections::BTreeMap;

use super::{PROVEN_AFTER, Proven};
use crate::plugin::{PluginDigest, PluginName};
use crate::time::Moment;

/// The versions in use in this process: those that are still unproven, and those that are proven.
#[derive(Debug, Clone, Default)]
pub struct Unproven {
    // By digest.
    marked: BTreeMap<String, Marked>,
    proven: Proven,
}

/// A marked version: if the host dies now, this version may be the cause.
#[derive(Debug, Clone)]
struct Marked {
    plugin: PluginName,
    since: Moment,
    /// Whether it must be the only unproven version.
    is_alone: bool,
    /// Calls that have not ended.
    calls: usize,
    /// Whether it has finished a batch.
    has_worked: bool,
}

/// What must be done before a version is loaded or called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// Nothing: the version is proven.
    Proven,
    /// Nothing: it is already marked.
    Marked,
    /// It must be marked.
    Mark,
    /// It must wait while versions of these plugins are unproven.
    Wait(Vec<PluginName>),
}

/// A version whose mark must be removed, by the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unmark {
    /// It worked well for long enough.
    Proven(PluginDigest),
    /// It was idle. Others get their turn, and it is marked again when it is called.
    Idle(PluginDigest),
}

impl Unproven {
    /// Starts with no version marked; those of `proven` need no mark.
    pub fn new(proven: Proven) -> Self {
        Self {
            marked: BTreeMap::new(),
            proven,
        }
    }

    /// Whether a version needs no mark.
    pub fn is_proven(&self, digest: &PluginDigest) -> bool {
        self.proven.contains(digest)
    }

    /// The versions that need no mark.
    pub fn proven(&self) -> &Proven {
        &self.proven
    }

    /// A version is about to be called or loaded. Unless it must wait, [`Self::leave`] follows.
    pub fn enter(
        &mut self,
        plugin: &PluginName,
        digest: &PluginDigest,
        is_suspect: bool,
        now: Moment,
    ) -> Entry {
        if self.proven.contains(digest) {
            return Entry::Proven;
        }
        if let Some(marked) = self.marked.get_mut(digest.as_str()) {
            marked.calls += 1;
            return Entry::Marked;
        }
        let others = self.in_the_way(is_suspect);
        if !others.is_empty() {
            return Entry::Wait(others);
        }
        let marked = Marked {
            plugin: plugin.clone(),
            since: now,
            is_alone: is_suspect,
            calls: 1,
            has_worked: false,
        };
        self.marked.insert(digest.as_str().to_owned(), marked);
        Entry::Mark
    }

    /// The plugins to wait for. A suspect must be the only unproven version, so that a death can be
    /// traced to it.
    fn in_the_way(&self, is_suspect: bool) -> Vec<PluginName> {
        self.marked
            .values()
            .filter(|marked| is_suspect || marked.is_alone)
            .map(|marked| marked.plugin.clone())
            .collect()
    }

    /// The call or the loading ended, whatever the result; `has_worked` if it was a batch.
    pub fn leave(&mut self, digest: &PluginDigest, has_worked: bool) {
        if let Some(marked) = self.marked.get_mut(digest.as_str()) {
            marked.calls = marked.calls.saturating_sub(1);
            marked.has_worked |= has_worked;
        }
    }

    /// A call of the version was denied memory: it has grown as far as it may, so its time starts
    /// again. A version that keeps doing that is never proven.
    pub fn denied_memory(&mut self, digest: &PluginDigest, now: Moment) {
        if let Some(marked) = self.marked.get_mut(digest.as_str()) {
            marked.since = now;
        }
    }

    /// A version is loaded, or refused. Returns whether its mark must be removed: nothing of it
    /// runs until it is called.
    pub fn loaded(&mut self, digest: &PluginDigest) -> bool {
        let is_idle = self
            .marked
            .get(digest.as_str())
            .is_some_and(|marked| marked.calls == 0 && !marked.has_worked);
        is_idle && self.marked.remove(digest.as_str()).is_some()
    }

    /// Removes the versions whose time is up.
    pub fn look(&mut self, now: Moment) -> Vec<Unmark> {
        let due: Vec<String> = self
            .marked
            .iter()
            .filter(|(_, marked)| marked.is_due(now))
            .map(|(digest, _)| digest.clone())
            .collect();
        due.into_iter()
            .filter_map(|digest| self.unmark(&digest))
            .collect()
    }

    fn unmark(&mut self, digest: &str) -> Option<Unmark> {
        let marked = self.marked.remove(digest)?;
        let digest = PluginDigest::from_hex(digest)?;
        if !marked.has_worked {
            return Some(Unmark::Idle(digest));
        }
        self.proven.add(digest.clone());
        Some(Unmark::Proven(digest))
    }
}

impl Marked {
    fn is_due(&self, now: Moment) -> bool {
        now.since(self.since) >= PROVEN_AFTER && (self.has_worked || self.calls == 0)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn digest(version: u64) -> PluginDigest {
        PluginDigest::from_hex(&format!("{version:064x}")).unwrap()
    }

    fn at(seconds: u64) -> Moment {
        Moment::from_origin(Duration::from_secs(seconds))
    }

    fn name(version: u64) -> PluginName {
        PluginName::new(&format!("plugin-{version}")).unwrap()
    }

    fn enter(versions: &mut Unproven, version: u64, is_suspect: bool, seconds: u64) -> Entry {
        versions.enter(&name(version), &digest(version), is_suspect, at(seconds))
    }

    #[test]
    fn a_version_that_worked_for_a_minute_is_proven_and_marked_no_more() {
        let mut versions = Unproven::default();
        assert_eq!(enter(&mut versions, 1, false, 0), Entry::Mark);
        assert_eq!(enter(&mut versions, 1, false, 1), Entry::Marked);
        versions.leave(&digest(1), true);
        assert!(versions.look(at(59)).is_empty());
        assert_eq!(
            versions.look(at(60)),
            [Unmark::Proven(digest(1))],
            "though a call of it goes on"
        );
        assert_eq!(enter(&mut versions, 1, true, 61), Entry::Proven);
    }

    #[test]
    fn a_version_that_does_nothing_is_not_proven_and_stands_in_nobodys_way() {
        let mut versions = Unproven::default();
        assert_eq!(enter(&mut versions, 1, true, 0), Entry::Mark);
        assert!(versions.look(at(600)).is_empty(), "its first call goes on");
        versions.leave(&digest(1), false);
        assert_eq!(versions.look(at(600)), [Unmark::Idle(digest(1))]);
        assert_eq!(
            enter(&mut versions, 1, true, 601),
            Entry::Mark,
            "its time starts again"
        );
        versions.leave(&digest(1), true);
        assert!(versions.look(at(660)).is_empty());
        assert_eq!(versions.look(at(661)), [Unmark::Proven(digest(1))]);
    }

    #[test]
    fn a_version_that_grows_as_far_as_it_may_is_not_proven_by_lasting() {
        let mut versions = Unproven::default();
        assert_eq!(enter(&mut versions, 1, false, 0), Entry::Mark);
        versions.leave(&digest(1), true);
        versions.denied_memory(&digest(1), at(59));
        assert!(versions.look(at(118)).is_empty());
        assert_eq!(
            versions.look(at(119)),
            [Unmark::Proven(digest(1))],
            "a minute without that"
        );
        versions.denied_memory(&digest(1), at(120));
        assert_eq!(enter(&mut versions, 1, false, 121), Entry::Proven);
    }

    #[test]
    fn a_suspect_is_tried_alone_and_nobody_beside_it_but_who_is_proven() {
        let mut versions = Unproven::default();
        assert_eq!(enter(&mut versions, 1, false, 0), Entry::Mark);
        assert_eq!(
            enter(&mut versions, 2, false, 0),
            Entry::Mark,
            "two that nothing is known of"
        );
        assert_eq!(
            enter(&mut versions, 3, true, 0),
            Entry::Wait(vec![name(1), name(2)])
        );
        versions.leave(&digest(1), true);
        versions.leave(&digest(2), false);
        assert_eq!(
            versions.look(at(60)),
            [Unmark::Proven(digest(1)), Unmark::Idle(digest(2))]
        );
        assert_eq!(enter(&mut versions, 3, true, 61), Entry::Mark);
        assert_eq!(
            enter(&mut versions, 4, true, 61),
            Entry::Wait(vec![name(3)])
        );
        assert_eq!(
            enter(&mut versions, 2, false, 61),
            Entry::Wait(vec![name(3)])
        );
        assert_eq!(enter(&mut versions, 1, false, 61), Entry::Proven);
        assert_eq!(
            enter(&mut versions, 3, true, 62),
            Entry::Marked,
            "its own shards wait for nobody"
        );
    }

    #[test]
    fn what_is_loaded_and_not_called_needs_no_mark() {
        let mut versions = Unproven::default();
        assert_eq!(enter(&mut versions, 1, true, 0), Entry::Mark);
        assert!(!versions.loaded(&digest(1)), "it is being loaded still");
        versions.leave(&digest(1), false);
        assert!(versions.loaded(&digest(1)) && !versions.loaded(&digest(1)));
        // Loaded again while it runs.
        assert_eq!(enter(&mut versions, 1, true, 1), Entry::Mark);
        assert_eq!(enter(&mut versions, 1, true, 2), Entry::Marked);
        versions.leave(&digest(1), false);
        assert!(!versions.loaded(&digest(1)));
    }
}
