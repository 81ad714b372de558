use std::collections::BTreeMap;

use super::{PROVEN_AFTER, Proven};
use crate::plugin::{PluginDigest, PluginName};
use crate::time::Moment;

/// The versions that are on trial in this process, and those that are so no more.
#[derive(Debug, Clone, Default)]
pub struct Trials {
    // By digest.
    on_trial: BTreeMap<String, Trial>,
    proven: Proven,
}

#[derive(Debug, Clone)]
struct Trial {
    plugin: PluginName,
    since: Moment,
    /// It is tried alone, whoever comes.
    is_alone: bool,
    /// Calls of it that have not ended.
    calls: usize,
    /// Whether a batch came to an end.
    has_worked: bool,
}

/// What must be done before a version is loaded or called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// Nothing: it has done well for long enough.
    Proven,
    /// Nothing: it is marked.
    Marked,
    /// It must be marked.
    Mark,
    /// It is not its turn, while these plugins' versions are on trial.
    Wait(Vec<PluginName>),
}

/// How a trial ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Over {
    /// The version did well for long enough.
    Proven(PluginDigest),
    /// It did nothing: others get their turn, and it is marked anew when it is called.
    Idle(PluginDigest),
}

impl Trials {
    /// None is on trial, and these need not be.
    pub fn new(proven: Proven) -> Self {
        Self {
            on_trial: BTreeMap::new(),
            proven,
        }
    }

    /// Whether a version needs no mark.
    pub fn is_proven(&self, digest: &PluginDigest) -> bool {
        self.proven.contains(digest)
    }

    /// All that need none.
    pub fn proven(&self) -> &Proven {
        &self.proven
    }

    /// A call of a version is about to begin, or its loading. Unless it must wait, [`Self::leave`]
    /// follows.
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
        if let Some(trial) = self.on_trial.get_mut(digest.as_str()) {
            trial.calls += 1;
            return Entry::Marked;
        }
        // Who may be suspected must not be on trial beside anybody else who may.
        let in_the_way = self
            .on_trial
            .values()
            .filter(|trial| is_suspect || trial.is_alone);
        let others: Vec<PluginName> = in_the_way.map(|trial| trial.plugin.clone()).collect();
        if !others.is_empty() {
            return Entry::Wait(others);
        }
        let (plugin, is_alone) = (plugin.clone(), is_suspect);
        let trial = Trial {
            plugin,
            since: now,
            is_alone,
            calls: 1,
            has_worked: false,
        };
        self.on_trial.insert(digest.as_str().to_owned(), trial);
        Entry::Mark
    }

    /// The call ended, or the loading, whichever way; `has_worked` if it was a batch.
    pub fn leave(&mut self, digest: &PluginDigest, has_worked: bool) {
        if let Some(trial) = self.on_trial.get_mut(digest.as_str()) {
            trial.calls = trial.calls.saturating_sub(1);
            trial.has_worked |= has_worked;
        }
    }

    /// A call of the version was denied memory: it has grown as far as it may, and its time starts
    /// again. Whoever does that is never proven.
    pub fn denied_memory(&mut self, digest: &PluginDigest, now: Moment) {
        if let Some(trial) = self.on_trial.get_mut(digest.as_str()) {
            trial.since = now;
        }
    }

    /// A version is loaded, or refused. Whether it is on trial no more: nothing of it runs until it
    /// is called.
    pub fn loaded(&mut self, digest: &PluginDigest) -> bool {
        let is_over = self
            .on_trial
            .get(digest.as_str())
            .is_some_and(|trial| trial.calls == 0 && !trial.has_worked);
        is_over && self.on_trial.remove(digest.as_str()).is_some()
    }

    /// Ends the trials whose time is up.
    pub fn look(&mut self, now: Moment) -> Vec<Over> {
        let is_over = |trial: &Trial| {
            now.since(trial.since) >= PROVEN_AFTER && (trial.has_worked || trial.calls == 0)
        };
        let due: Vec<String> = self
            .on_trial
            .iter()
            .filter(|(_, trial)| is_over(trial))
            .map(|(digest, _)| digest.clone())
            .collect();
        due.into_iter()
            .filter_map(|digest| self.end(&digest))
            .collect()
    }

    fn end(&mut self, digest: &str) -> Option<Over> {
        let trial = self.on_trial.remove(digest)?;
        let digest = PluginDigest::from_hex(digest)?;
        if !trial.has_worked {
            return Some(Over::Idle(digest));
        }
        self.proven.add(digest.clone());
        Some(Over::Proven(digest))
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

    fn enter(trials: &mut Trials, version: u64, is_suspect: bool, seconds: u64) -> Entry {
        trials.enter(&name(version), &digest(version), is_suspect, at(seconds))
    }

    #[test]
    fn a_version_that_worked_for_a_minute_is_proven_and_marked_no_more() {
        let mut trials = Trials::default();
        assert_eq!(enter(&mut trials, 1, false, 0), Entry::Mark);
        assert_eq!(enter(&mut trials, 1, false, 1), Entry::Marked);
        trials.leave(&digest(1), true);
        assert!(trials.look(at(59)).is_empty());
        assert_eq!(
            trials.look(at(60)),
            [Over::Proven(digest(1))],
            "though a call of it goes on"
        );
        assert_eq!(enter(&mut trials, 1, true, 61), Entry::Proven);
    }

    #[test]
    fn a_version_that_does_nothing_is_not_proven_and_stands_in_nobodys_way() {
        let mut trials = Trials::default();
        assert_eq!(enter(&mut trials, 1, true, 0), Entry::Mark);
        assert!(trials.look(at(600)).is_empty(), "its first call goes on");
        trials.leave(&digest(1), false);
        assert_eq!(trials.look(at(600)), [Over::Idle(digest(1))]);
        assert_eq!(
            enter(&mut trials, 1, true, 601),
            Entry::Mark,
            "its time starts again"
        );
        trials.leave(&digest(1), true);
        assert!(trials.look(at(660)).is_empty());
        assert_eq!(trials.look(at(661)), [Over::Proven(digest(1))]);
    }

    #[test]
    fn a_version_that_grows_as_far_as_it_may_is_not_proven_by_lasting() {
        let mut trials = Trials::default();
        assert_eq!(enter(&mut trials, 1, false, 0), Entry::Mark);
        trials.leave(&digest(1), true);
        trials.denied_memory(&digest(1), at(59));
        assert!(trials.look(at(118)).is_empty());
        assert_eq!(
            trials.look(at(119)),
            [Over::Proven(digest(1))],
            "a minute without that"
        );
        trials.denied_memory(&digest(1), at(120));
        assert_eq!(enter(&mut trials, 1, false, 121), Entry::Proven);
    }

    #[test]
    fn a_suspect_is_tried_alone_and_nobody_beside_it_but_who_is_proven() {
        let mut trials = Trials::default();
        assert_eq!(enter(&mut trials, 1, false, 0), Entry::Mark);
        assert_eq!(
            enter(&mut trials, 2, false, 0),
            Entry::Mark,
            "two that nothing is known of"
        );
        assert_eq!(
            enter(&mut trials, 3, true, 0),
            Entry::Wait(vec![name(1), name(2)])
        );
        trials.leave(&digest(1), true);
        trials.leave(&digest(2), false);
        assert_eq!(
            trials.look(at(60)),
            [Over::Proven(digest(1)), Over::Idle(digest(2))]
        );
        assert_eq!(enter(&mut trials, 3, true, 61), Entry::Mark);
        assert_eq!(enter(&mut trials, 4, true, 61), Entry::Wait(vec![name(3)]));
        assert_eq!(enter(&mut trials, 2, false, 61), Entry::Wait(vec![name(3)]));
        assert_eq!(enter(&mut trials, 1, false, 61), Entry::Proven);
        assert_eq!(
            enter(&mut trials, 3, true, 62),
            Entry::Marked,
            "its own shards wait for nobody"
        );
    }

    #[test]
    fn what_is_loaded_and_not_called_is_on_trial_no_more() {
        let mut trials = Trials::default();
        assert_eq!(enter(&mut trials, 1, true, 0), Entry::Mark);
        assert!(!trials.loaded(&digest(1)), "it is being loaded still");
        trials.leave(&digest(1), false);
        assert!(trials.loaded(&digest(1)) && !trials.loaded(&digest(1)));
        // Loaded again while it is at work.
        assert_eq!(enter(&mut trials, 1, true, 1), Entry::Mark);
        assert_eq!(enter(&mut trials, 1, true, 2), Entry::Marked);
        trials.leave(&digest(1), false);
        assert!(!trials.loaded(&digest(1)));
    }
}
