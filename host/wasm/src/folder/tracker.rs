//! Decides, from what was known and what is seen, which files to load, which to refuse, which are
//! gone. Pure: time and listings are arguments, and reading and compiling are someone else's.
//!
//! ```text
//!   appears or changes ──> settling ──(unchanged for `settle`)──> loading ──> known: loaded, or refused
//!                             ^                                      │
//!                             └──────────(moved while read)──────────┘
//! ```

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use shardmill_core::plugin::{PluginDigest, PluginName};

use super::Refusal;
use super::scan::{Seen, Stamps};
use crate::LoadError;

/// Failed versions remembered for one file; more are tried again, which costs a compilation and
/// nothing else.
const FAILED_MAX: usize = 32;

/// How long a version waits that the host could not load for reasons of its own, a full disk or no
/// processor time: first, and at most. Each try may cost a compilation, which takes seconds.
const HOST_RETRY_MIN: Duration = Duration::from_secs(10);
const HOST_RETRY_MAX: Duration = Duration::from_mins(5);
/// How long a version waits that was not even tried: each try costs reading the file.
const TURN_RETRY: Duration = Duration::from_secs(5);

/// All files, as far as they are known.
#[derive(Debug)]
pub(crate) struct Tracker {
    settle: Duration,
    /// How long a file that looks cut off may take to be completed before it is refused.
    incomplete_grace: Duration,
    plugins_max: usize,
    files: BTreeMap<String, Tracked>,
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
    is_loading: bool,
    /// The stamp or refusal that has been dealt with.
    dealt_with: Option<Seen>,
    loaded: Option<(PluginName, PluginDigest)>,
    failed: HashSet<PluginDigest>,
    /// Whether it was refused, and nothing was loaded since.
    is_refused: bool,
    /// When a file that looked cut off is tried for the last time.
    retry_at: Option<Instant>,
    /// When what the host could not load is tried again.
    host_retry: Option<HostRetry>,
    /// Why it was not even tried: told once, however often that is found again.
    turned_away: Option<LoadError>,
}

#[derive(Debug, Clone, Copy)]
struct HostRetry {
    at: Instant,
    /// How long that was from the last try.
    wait: Duration,
}

impl Tracker {
    pub(crate) fn new(settle: Duration, incomplete_grace: Duration, plugins_max: usize) -> Self {
        Self {
            settle,
            incomplete_grace,
            plugins_max,
            files: BTreeMap::new(),
        }
    }

    /// Takes in a listing of the folder.
    pub(crate) fn observe(
        &mut self,
        now: Instant,
        listing: &BTreeMap<String, Seen>,
    ) -> Vec<Action> {
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
        let mut actions = Vec::new();
        let mut room = self.plugins_max.saturating_sub(
            self.files
                .values()
                .filter(|tracked| tracked.has_place())
                .count(),
        );
        for (file, tracked) in &mut self.files {
            let had_place = tracked.has_place();
            let is_room = had_place || room > 0;
            actions.extend(tracked.act(
                now,
                self.settle,
                file,
                is_room.then_some(()).ok_or(self.plugins_max),
            ));
            room -= usize::from(!had_place && tracked.has_place());
        }
        self.files.retain(|_, tracked| {
            tracked.seen.is_some()
                || tracked.loaded.is_some()
                || tracked.is_loading
                || tracked.is_refused
        });
        actions
    }

    /// When to look again although nothing has happened.
    pub(crate) fn next_look(&self) -> Option<Instant> {
        let look = |tracked: &Tracked| match tracked
            .retry_at
            .or(tracked.host_retry.map(|retry| retry.at))
        {
            _ if tracked.is_loading => None,
            Some(at) => Some(at.max(tracked.since + self.settle)),
            None => tracked.is_pending().then(|| tracked.since + self.settle),
        };
        self.files.values().filter_map(look).min()
    }

    /// Whether everything seen has been dealt with. What the host could not load for reasons of its
    /// own has been, too.
    pub(crate) fn is_settled(&self) -> bool {
        self.files.values().all(|tracked| {
            !tracked.is_loading && !tracked.is_pending() && tracked.retry_at.is_none()
        })
    }

    /// Whether loading this version would change nothing: it is loaded already, or has failed
    /// already.
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
        let is_last_try = tracked.retry_at.take().is_some();
        let host_retry = tracked.host_retry.take();
        let turned_away = tracked.turned_away.take();
        match ended {
            Ended::Known => News::Nothing,
            Ended::Moved => {
                tracked.dealt_with = None;
                tracked.since = now;
                News::Nothing
            }
            Ended::Loaded(digest) => {
                tracked.is_refused = false;
                match tracked.loaded.replace((name.clone(), digest)) {
                    None => News::First,
                    Some((_, previous)) => News::Changed { previous },
                }
            }
            Ended::Failed(reason) if may_be_incomplete(&reason) && !is_last_try => {
                tracked.retry_at = Some(now + grace);
                News::Nothing
            }
            Ended::Failed(Refusal::Bytes { digest, error }) if error.may_pass() => {
                tracked.host_retry = Some(HostRetry {
                    at: now + TURN_RETRY,
                    wait: TURN_RETRY,
                });
                tracked.is_refused = true;
                tracked.turned_away = Some(error.clone());
                if turned_away.as_ref() == Some(&error) {
                    return News::Nothing;
                }
                News::Refused {
                    reason: Refusal::Bytes { digest, error },
                    keeps: tracked.kept(),
                }
            }
            Ended::Failed(reason) => {
                if let Refusal::Bytes { digest, error } = &reason {
                    if error.is_hosts() {
                        // It says nothing of the bytes: they are tried again, later and later.
                        let wait = host_retry
                            .map_or(HOST_RETRY_MIN, |last| HOST_RETRY_MAX.min(last.wait * 2));
                        tracked.host_retry = Some(HostRetry {
                            at: now + wait,
                            wait,
                        });
                    } else if tracked.failed.len() < FAILED_MAX {
                        tracked.failed.insert(digest.clone());
                    }
                }
                tracked.is_refused = true;
                News::Refused {
                    reason,
                    keeps: tracked.kept(),
                }
            }
        }
    }
}

impl Tracked {
    fn new(now: Instant) -> Self {
        Self {
            seen: None,
            since: now,
            is_loading: false,
            dealt_with: None,
            loaded: None,
            failed: HashSet::new(),
            is_refused: false,
            retry_at: None,
            host_retry: None,
            turned_away: None,
        }
    }

    fn see(&mut self, now: Instant, seen: Option<&Seen>) {
        if self.seen.as_ref() != seen {
            self.seen = seen.cloned();
            self.since = now;
            self.retry_at = None;
            self.host_retry = None;
            self.turned_away = None;
        }
    }

    fn is_pending(&self) -> bool {
        match &self.seen {
            Some(_) => self.seen != self.dealt_with,
            None => self.loaded.is_some() || self.is_refused,
        }
    }

    /// Whether it counts as one of the plugins of the host.
    fn has_place(&self) -> bool {
        self.loaded.is_some() || self.is_loading
    }

    /// `room` is the most plugins there may be, if there are as many.
    fn act(
        &mut self,
        now: Instant,
        settle: Duration,
        file: &str,
        room: Result<(), usize>,
    ) -> Option<Action> {
        let retry_at = self.retry_at.or(self.host_retry.map(|retry| retry.at));
        let is_retry_due = retry_at.is_some_and(|at| now >= at);
        let has_settled = now.saturating_duration_since(self.since) >= settle;
        if self.is_loading || !has_settled || !(self.is_pending() || is_retry_due) {
            return None;
        }
        match self.seen.clone() {
            Some(Seen::File(name, stamps)) => match room {
                Ok(()) => {
                    self.is_loading = true;
                    Some(Action::Load {
                        file: file.to_owned(),
                        name,
                        stamps,
                    })
                }
                Err(limit) => {
                    self.is_refused = true;
                    self.dealt_with = self.seen.clone();
                    Some(Action::Refuse {
                        file: file.to_owned(),
                        reason: Refusal::TooMany { limit },
                        keeps: None,
                    })
                }
            },
            Some(Seen::Refused(reason)) => {
                self.is_refused = true;
                self.dealt_with = self.seen.clone();
                Some(Action::Refuse {
                    file: file.to_owned(),
                    reason,
                    keeps: self.kept(),
                })
            }
            None => {
                let was_refused = std::mem::take(&mut self.is_refused);
                match self.loaded.take() {
                    Some((name, _)) => Some(Action::Remove { name }),
                    None => was_refused.then(|| Action::Forget {
                        file: file.to_owned(),
                    }),
                }
            }
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
        | Refusal::Unreadable { .. } => false,
    }
}

#[cfg(test)]
mod tests;
