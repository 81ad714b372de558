//! Decides, from what was known and what is seen, which files to load, which to refuse, which are
//! gone. Pure: time and listings are arguments, and reading and compiling are someone else's.
//!
//! ```text
//!   appears or changes ──> settling ──(unchanged for `settle`, or a whole change)──> loading ──> known: loaded, or refused
//!                             ^                                                │
//!                             └───────────────(moved while read)───────────────┘
//! ```

mod retries;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::{Duration, Instant};

use shardmill_core::plugin::{PluginDigest, PluginName};

use self::retries::{HostRetry, Retries};
use super::Refusal;
use super::scan::{Seen, Stamps};

/// Failed versions remembered for one file; more are tried again, which costs a compilation and
/// nothing else.
const FAILED_MAX: usize = 32;

/// How often a file may be read at once when its writer closes it. Nobody deploys more often; a
/// writer that closes it after each piece does.
const HURRIED_EVERY: Duration = Duration::from_millis(500);
/// How long a host that starts waits for a new file that changes all the time.
const SETTLED_WITHIN: Duration = Duration::from_secs(5);

/// All files, as far as they are known.
#[derive(Debug)]
pub(crate) struct Tracker {
    settle: Duration,
    /// How long a file that looks cut off may take to be completed before it is refused.
    incomplete_grace: Duration,
    plugins_max: usize,
    /// Plugins for which places are kept while their files are here.
    first: BTreeSet<PluginName>,
    files: BTreeMap<String, Tracked>,
    /// Files that need not settle as the next listing has them.
    whole: BTreeSet<String>,
    /// Plugins whose manifests are changing: a version that comes with one is not to start with the
    /// one before.
    held: BTreeSet<PluginName>,
}

/// What to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Load {
        file: String,
        name: PluginName,
        stamps: Stamps,
    },
    Refuse {
        file: String,
        reason: Refusal,
        keeps: Option<PluginDigest>,
    },
    Remove {
        name: PluginName,
    },
    /// A file that was refused is gone.
    Forget {
        file: String,
    },
}

/// How a load ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// Hashed to a version that is loaded or has failed before; nothing was compiled.
    Known,
    Loaded(PluginDigest),
    Failed(Refusal),
    /// The file was not the one seen any more.
    Moved,
}

/// What a load's end means.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum News {
    Nothing,
    First,
    Changed {
        previous: PluginDigest,
    },
    Refused {
        reason: Refusal,
        keeps: Option<PluginDigest>,
    },
}

#[derive(Debug)]
struct Tracked {
    seen: Option<Seen>,
    since: Instant,
    known_since: Instant,
    /// Whether its writer was done with what was seen.
    is_whole: bool,
    /// When it was last read without waiting until it settled.
    hurried_at: Option<Instant>,
    is_loading: bool,
    /// The stamp or refusal that has been dealt with.
    dealt_with: Option<Seen>,
    loaded: Option<(PluginName, PluginDigest)>,
    failed: HashSet<PluginDigest>,
    /// Whether it was refused, and nothing was loaded since.
    is_refused: bool,
    retries: Retries,
}

impl Tracker {
    pub(crate) fn new(
        settle: Duration,
        incomplete_grace: Duration,
        plugins_max: usize,
        first: BTreeSet<PluginName>,
    ) -> Self {
        Self {
            settle,
            incomplete_grace,
            plugins_max,
            first,
            files: BTreeMap::new(),
            whole: BTreeSet::new(),
            held: BTreeSet::new(),
        }
    }

    /// Their writers have closed these files since the last listing. One that was opened again
    /// since is read while it is written, and is then read once more.
    pub(crate) fn note_whole(&mut self, files: &BTreeSet<String>) {
        self.whole.clone_from(files);
    }

    /// The manifests of these plugins are changing: their files wait for them, but not for ever.
    pub(crate) fn hold(&mut self, plugins: BTreeSet<PluginName>) {
        self.held = plugins;
    }

    /// Takes in a listing of the folder.
    pub(crate) fn observe(
        &mut self,
        now: Instant,
        listing: &BTreeMap<String, Seen>,
    ) -> Vec<Action> {
        self.see(now, listing);
        let actions = self.act(now);
        self.files.retain(|_, tracked| {
            tracked.seen.is_some()
                || tracked.loaded.is_some()
                || tracked.is_loading
                || tracked.is_refused
        });
        actions
    }

    fn see(&mut self, now: Instant, listing: &BTreeMap<String, Seen>) {
        for (file, seen) in listing {
            let tracked = self
                .files
                .entry(file.clone())
                .or_insert_with(|| Tracked::new(now));
            tracked.see(now, Some(seen));
        }
        for (file, tracked) in &mut self.files {
            if !listing.contains_key(file) {
                tracked.see(now, None);
            }
        }
        for file in std::mem::take(&mut self.whole) {
            if let Some(tracked) = self.files.get_mut(&file) {
                tracked.is_whole = tracked.seen.is_some();
            }
        }
    }

    /// Versions that only run in the shadow of plugins have places of their own, as many: none
    /// takes a plugin's.
    fn act(&mut self, now: Instant) -> Vec<Action> {
        let mut actions = self.act_on(now, |tracked| !tracked.is_shadow());
        actions.extend(self.act_on(now, Tracked::is_shadow));
        actions
    }

    fn act_on(&mut self, now: Instant, is_meant: impl Fn(&Tracked) -> bool) -> Vec<Action> {
        let placed = self
            .files
            .values()
            .filter(|tracked| is_meant(tracked) && tracked.counts_as_plugin());
        let mut room = self.plugins_max.saturating_sub(placed.count());
        let mut in_turn: Vec<_> = self.files.iter_mut().collect();
        in_turn.retain(|(_, tracked)| is_meant(tracked));
        // Otherwise in the order of names, which anybody may choose.
        in_turn.sort_by_key(|(_, tracked)| !tracked.is_one_of(&self.first));
        let to_come = in_turn
            .iter()
            .filter(|(_, tracked)| tracked.is_one_of(&self.first) && !tracked.counts_as_plugin());
        let mut kept = to_come.count();
        let mut actions = Vec::new();
        for (file, tracked) in in_turn {
            let is_held =
                tracked.is_one_of(&self.held) && now < tracked.since + self.incomplete_grace;
            if is_held || !tracked.is_due(now, self.settle) {
                continue;
            }
            let is_first = tracked.is_one_of(&self.first);
            let room_for_it = if is_first {
                room
            } else {
                room.saturating_sub(kept)
            };
            let had_place = tracked.counts_as_plugin();
            let limit = (!had_place && room_for_it == 0).then_some(self.plugins_max);
            tracked.note_hurry(now, self.settle);
            actions.extend(tracked.act(file, limit));
            let is_placed = !had_place && tracked.counts_as_plugin();
            room -= usize::from(is_placed);
            kept -= usize::from(is_placed && is_first);
        }
        actions
    }

    /// When to look again although nothing has happened.
    pub(crate) fn next_look(&self) -> Option<Instant> {
        let looks = self.files.values();
        looks
            .filter_map(|tracked| {
                let at = tracked.next_look(self.settle)?;
                if tracked.is_one_of(&self.held) {
                    // Until then, its manifest is the reason to look.
                    return Some(at.max(tracked.since + self.incomplete_grace));
                }
                Some(at)
            })
            .min()
    }

    /// Whether everything seen has been dealt with. What the host could not load for reasons of its
    /// own has been, too.
    pub(crate) fn is_settled(&self, now: Instant) -> bool {
        self.files.values().all(|tracked| {
            tracked.never_settles(now)
                || !tracked.is_loading
                    && !tracked.is_pending()
                    && tracked.retries.last_try_at.is_none()
        })
    }

    /// Versions that need not be compiled again: they are loaded already, or have failed already.
    pub(crate) fn known_digests(&self, file: &str) -> HashSet<PluginDigest> {
        let Some(tracked) = self.files.get(file) else {
            return HashSet::new();
        };
        tracked
            .failed
            .iter()
            .cloned()
            .chain(tracked.loaded.iter().map(|(_, digest)| digest.clone()))
            .collect()
    }

    /// Takes in how a load ended.
    pub(crate) fn ended(
        &mut self,
        now: Instant,
        file: &str,
        name: &PluginName,
        stamps: Stamps,
        ended: Ended,
    ) -> News {
        let grace = self.incomplete_grace;
        let Some(tracked) = self.files.get_mut(file) else {
            return News::Nothing;
        };
        tracked.is_loading = false;
        tracked.dealt_with = Some(Seen::File(name.clone(), stamps));
        let before = std::mem::take(&mut tracked.retries);
        match ended {
            Ended::Known => News::Nothing,
            Ended::Moved => {
                tracked.dealt_with = None;
                tracked.since = now;
                tracked.is_whole = false;
                News::Nothing
            }
            Ended::Loaded(digest) => tracked.load(name, digest),
            Ended::Failed(reason) if may_be_incomplete(&reason) && before.last_try_at.is_none() => {
                tracked.retries.last_try_at = Some(now + grace);
                News::Nothing
            }
            Ended::Failed(reason) => tracked.fail(now, reason, &before),
        }
    }
}

impl Tracked {
    fn new(now: Instant) -> Self {
        Self {
            seen: None,
            since: now,
            known_since: now,
            is_whole: false,
            hurried_at: None,
            is_loading: false,
            dealt_with: None,
            loaded: None,
            failed: HashSet::new(),
            is_refused: false,
            retries: Retries::default(),
        }
    }

    fn see(&mut self, now: Instant, seen: Option<&Seen>) {
        if self.seen.as_ref() != seen {
            self.seen = seen.cloned();
            self.since = now;
            self.is_whole = false;
            self.retries = Retries::default();
        }
    }

    fn is_pending(&self) -> bool {
        match &self.seen {
            Some(_) => self.seen != self.dealt_with,
            None => self.loaded.is_some() || self.is_refused,
        }
    }

    /// Whether somebody writes to it all the time, and it was nothing before: then nobody waits for
    /// it.
    fn never_settles(&self, now: Instant) -> bool {
        self.loaded.is_none() && !self.is_loading && now >= self.known_since + SETTLED_WITHIN
    }

    fn is_one_of(&self, plugins: &BTreeSet<PluginName>) -> bool {
        matches!(&self.seen, Some(Seen::File(name, _)) if plugins.contains(name))
    }

    fn is_shadow(&self) -> bool {
        let seen = match &self.seen {
            Some(Seen::File(name, _)) => Some(name),
            Some(Seen::Refused(_)) | None => None,
        };
        let loaded = self.loaded.as_ref().map(|(name, _)| name);
        seen.or(loaded)
            .is_some_and(|name| name.shadowed().is_some())
    }

    /// Whether it counts as one of the plugins of the host.
    fn counts_as_plugin(&self) -> bool {
        self.loaded.is_some() || self.is_loading
    }

    fn is_due(&self, now: Instant, settle: Duration) -> bool {
        let has_settled = now >= self.settled_at(settle);
        let is_retry_due = self.retries.next_at().is_some_and(|at| now >= at);
        !self.is_loading && has_settled && (self.is_pending() || is_retry_due)
    }

    /// A whole file is read at once if it changes a plugin that was loaded before. The first
    /// version settles: it writes down for good where it starts, as its manifest says, which may
    /// come a moment later. So does a file that changes again and again.
    fn settled_at(&self, settle: Duration) -> Instant {
        let is_new = self.loaded.is_none();
        let rested = self
            .hurried_at
            .is_none_or(|at| self.since >= at + HURRIED_EVERY);
        if self.is_whole && !is_new && rested {
            self.since
        } else {
            self.since + settle
        }
    }

    fn next_look(&self, settle: Duration) -> Option<Instant> {
        if self.is_loading {
            return None;
        }
        let settled_at = self.settled_at(settle);
        match self.retries.next_at() {
            Some(at) => Some(at.max(settled_at)),
            None => self.is_pending().then_some(settled_at),
        }
    }

    fn note_hurry(&mut self, now: Instant, settle: Duration) {
        if now < self.since + settle {
            self.hurried_at = Some(now);
        }
    }

    /// `limit` is how many plugins there may be, if there is no room for one more.
    fn act(&mut self, file: &str, limit: Option<usize>) -> Option<Action> {
        match (self.seen.clone(), limit) {
            (Some(Seen::File(name, stamps)), None) => {
                self.is_loading = true;
                Some(Action::Load {
                    file: file.to_owned(),
                    name,
                    stamps,
                })
            }
            (Some(Seen::File(..)), Some(limit)) => {
                Some(self.refuse(file, Refusal::TooMany { limit }))
            }
            (Some(Seen::Refused(reason)), _) => Some(self.refuse(file, reason)),
            (None, _) => self.forget(file),
        }
    }

    fn refuse(&mut self, file: &str, reason: Refusal) -> Action {
        self.is_refused = true;
        self.dealt_with = self.seen.clone();
        Action::Refuse {
            file: file.to_owned(),
            reason,
            keeps: self.kept(),
        }
    }

    fn forget(&mut self, file: &str) -> Option<Action> {
        let was_refused = std::mem::take(&mut self.is_refused);
        match self.loaded.take() {
            Some((name, _)) => Some(Action::Remove { name }),
            None => was_refused.then(|| Action::Forget {
                file: file.to_owned(),
            }),
        }
    }

    fn load(&mut self, name: &PluginName, digest: PluginDigest) -> News {
        self.is_refused = false;
        match self.loaded.replace((name.clone(), digest)) {
            None => News::First,
            Some((_, previous)) => News::Changed { previous },
        }
    }

    fn fail(&mut self, now: Instant, reason: Refusal, before: &Retries) -> News {
        self.is_refused = true;
        self.set_retries(now, &reason, before);
        if self.retries.reported.is_some() && self.retries.reported == before.reported {
            return News::Nothing;
        }
        News::Refused {
            reason,
            keeps: self.kept(),
        }
    }

    /// What says nothing about the bytes is tried again though the file does not change, later and
    /// later.
    fn set_retries(&mut self, now: Instant, reason: &Refusal, before: &Retries) {
        match reason {
            Refusal::Unreadable { .. } => {
                self.retries.host = Some(HostRetry::after(before.host, now));
                self.retries.reported = Some(reason.clone());
            }
            Refusal::Bytes { error, .. } if error.may_pass() => {
                self.retries.host = Some(HostRetry::at_next_turn(now));
                self.retries.reported = Some(reason.clone());
            }
            Refusal::Bytes { error, .. } if error.is_hosts() => {
                self.retries.host = Some(HostRetry::after(before.host, now));
            }
            Refusal::Bytes { digest, .. } => {
                if self.failed.len() < FAILED_MAX {
                    self.failed.insert(digest.clone());
                }
            }
            Refusal::Name { .. }
            | Refusal::NotAFile { .. }
            | Refusal::TooBig { .. }
            | Refusal::TooMany { .. }
            | Refusal::Unlisted { .. }
            | Refusal::Untrusted { .. } => {}
        }
    }

    fn kept(&self) -> Option<PluginDigest> {
        self.loaded.as_ref().map(|(_, digest)| digest.clone())
    }
}

fn may_be_incomplete(reason: &Refusal) -> bool {
    match reason {
        Refusal::Bytes { error, .. } => error.may_be_incomplete(),
        Refusal::Untrusted { error, .. } => error.may_be_incomplete(),
        Refusal::Name { .. }
        | Refusal::NotAFile { .. }
        | Refusal::TooBig { .. }
        | Refusal::TooMany { .. }
        | Refusal::Unlisted { .. }
        | Refusal::Unreadable { .. } => false,
    }
}

#[cfg(test)]
mod tests;
