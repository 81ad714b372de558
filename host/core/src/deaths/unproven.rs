use std::collections::BTreeMap;
use std::time::Duration;

use super::{PROVEN_AFTER, PROVEN_MAX, Proven, TRIED_FOR};
use crate::plugin::{PluginDigest, PluginName};
use crate::time::Moment;

/// The versions in use in this process: those that are still unproven, and those that are proven.
#[derive(Debug, Clone, Default)]
pub struct Unproven {
    // By digest.
    marked: BTreeMap<String, Marked>,
    /// How long a version that is neither marked nor proven was marked before. At most
    /// [`PROVEN_MAX`]; the time of others begins again with each mark.
    tried: BTreeMap<String, Duration>,
    proven: Proven,
}

/// A marked version: if the host dies now, this version may be the cause.
#[derive(Debug, Clone)]
struct Marked {
    plugin: PluginName,
    /// Since when it was denied no memory.
    since: Moment,
    /// Since when it is marked.
    entered_at: Moment,
    /// How long it was marked before that.
    tried_before: Duration,
    /// Whether it must be the only unproven version, until its time is over.
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
    /// The same; but first the marks of these versions must say that they are not alone any more.
    MarkBeside(Vec<PluginDigest>),
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
            tried: BTreeMap::new(),
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
        let others = self.in_the_way(is_suspect, now);
        if !others.is_empty() {
            return Entry::Wait(others);
        }
        let beside = self.end_solitude();
        let marked = Marked {
            plugin: plugin.clone(),
            since: now,
            entered_at: now,
            tried_before: self.tried.remove(digest.as_str()).unwrap_or_default(),
            is_alone: is_suspect,
            calls: 1,
            has_worked: false,
        };
        self.marked.insert(digest.as_str().to_owned(), marked);
        if beside.is_empty() {
            Entry::Mark
        } else {
            Entry::MarkBeside(beside)
        }
    }

    /// The plugins to wait for. A suspect must be the only unproven version, so that a death can be
    /// traced to it. But one that is neither proven nor blamed in its time is waited for no longer:
    /// what kills a host only later than that is not found by waiting.
    fn in_the_way(&self, is_suspect: bool, now: Moment) -> Vec<PluginName> {
        self.marked
            .values()
            .filter(|marked| (is_suspect || marked.is_alone) && !marked.had_its_time(now))
            .map(|marked| marked.plugin.clone())
            .collect()
    }

    /// Another version is about to be tried beside those that were alone.
    fn end_solitude(&mut self) -> Vec<PluginDigest> {
        let alone = self.marked.iter_mut().filter(|(_, marked)| marked.is_alone);
        alone
            .filter_map(|(digest, marked)| {
                marked.is_alone = false;
                PluginDigest::from_hex(digest)
            })
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
    pub fn loaded(&mut self, digest: &PluginDigest, now: Moment) -> bool {
        let is_idle = self
            .marked
            .get(digest.as_str())
            .is_some_and(|marked| marked.calls == 0 && !marked.has_worked);
        is_idle && self.take(digest.as_str(), now).is_some()
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
            .filter_map(|digest| self.unmark(&digest, now))
            .collect()
    }

    fn unmark(&mut self, digest: &str, now: Moment) -> Option<Unmark> {
        let marked = self.take(digest, now)?;
        let digest = PluginDigest::from_hex(digest)?;
        if !marked.has_worked {
            return Some(Unmark::Idle(digest));
        }
        self.tried.remove(digest.as_str());
        self.proven.add(digest.clone());
        Some(Unmark::Proven(digest))
    }

    /// Ends a mark. Its time goes on with the next one: a version that is idle now and then would
    /// otherwise be waited for again and again.
    fn take(&mut self, digest: &str, now: Moment) -> Option<Marked> {
        let marked = self.marked.remove(digest)?;
        if self.tried.len() < PROVEN_MAX {
            self.tried.insert(digest.to_owned(), marked.tried_for(now));
        }
        Some(marked)
    }
}

impl Marked {
    fn is_due(&self, now: Moment) -> bool {
        now.since(self.since) >= PROVEN_AFTER && (self.has_worked || self.calls == 0)
    }

    fn tried_for(&self, now: Moment) -> Duration {
        self.tried_before + now.since(self.entered_at)
    }

    fn had_its_time(&self, now: Moment) -> bool {
        self.tried_for(now) >= TRIED_FOR
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
        assert!(
            !versions.loaded(&digest(1), at(1)),
            "it is being loaded still"
        );
        versions.leave(&digest(1), false);
        assert!(versions.loaded(&digest(1), at(1)) && !versions.loaded(&digest(1), at(1)));
        // Loaded again while it runs.
        assert_eq!(enter(&mut versions, 1, true, 1), Entry::Mark);
        assert_eq!(enter(&mut versions, 1, true, 2), Entry::Marked);
        versions.leave(&digest(1), false);
        assert!(!versions.loaded(&digest(1), at(2)));
    }

    #[test]
    fn a_suspect_that_is_neither_proven_nor_blamed_is_waited_for_no_longer_than_its_time() {
        let mut versions = Unproven::default();
        assert_eq!(enter(&mut versions, 1, true, 0), Entry::Mark);
        versions.leave(&digest(1), true);
        for minute in 1..=5 {
            let now = minute * 60 - 1;
            assert_eq!(
                (
                    enter(&mut versions, 2, false, now),
                    enter(&mut versions, 3, true, now)
                ),
                (Entry::Wait(vec![name(1)]), Entry::Wait(vec![name(1)])),
                "second {now}"
            );
            versions.denied_memory(&digest(1), at(now));
            assert!(versions.look(at(now)).is_empty(), "second {now}");
        }
        assert_eq!(
            enter(&mut versions, 3, true, 300),
            Entry::MarkBeside(vec![digest(1)]),
            "the next suspect has its turn"
        );
        assert_eq!(
            enter(&mut versions, 2, false, 300),
            Entry::Wait(vec![name(3)]),
            "and is tried without whoever is new"
        );
        // Its first call never ends.
        assert!(
            versions
                .look(at(599))
                .iter()
                .all(|unmark| *unmark == Unmark::Proven(digest(1)))
        );
        assert_eq!(
            enter(&mut versions, 2, false, 600),
            Entry::MarkBeside(vec![digest(3)])
        );
        assert_eq!(
            enter(&mut versions, 4, false, 600),
            Entry::Mark,
            "that was told"
        );
    }

    #[test]
    fn a_version_that_is_idle_now_and_then_has_its_time_only_once() {
        let mut versions = Unproven::default();
        for minute in 0..5 {
            let now = minute * 60;
            assert_eq!(
                enter(&mut versions, 1, true, now),
                Entry::Mark,
                "second {now}"
            );
            assert_eq!(
                enter(&mut versions, 2, false, now),
                Entry::Wait(vec![name(1)]),
                "second {now}"
            );
            versions.leave(&digest(1), false);
            assert_eq!(versions.look(at(now + 60)), [Unmark::Idle(digest(1))]);
        }
        assert_eq!(enter(&mut versions, 1, true, 300), Entry::Mark);
        assert_eq!(
            enter(&mut versions, 2, false, 300),
            Entry::MarkBeside(vec![digest(1)])
        );
    }

    #[test]
    fn the_times_that_are_remembered_are_bounded_and_a_proven_version_has_none() {
        let mut versions = Unproven::default();
        for version in 0..=PROVEN_MAX as u64 {
            assert_eq!(enter(&mut versions, version, false, 0), Entry::Mark);
            versions.leave(&digest(version), false);
            assert!(versions.loaded(&digest(version), at(1)));
        }
        assert_eq!(versions.tried.len(), PROVEN_MAX);
        assert_eq!(enter(&mut versions, 1, false, 2), Entry::Mark);
        versions.leave(&digest(1), true);
        assert_eq!(versions.look(at(62)), [Unmark::Proven(digest(1))]);
        assert_eq!(versions.tried.len(), PROVEN_MAX - 1);
    }
}
