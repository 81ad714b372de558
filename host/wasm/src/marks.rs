//! What a host remembers of its own death: a file for each version on trial, locked by the process
//! that tries it. A file that is not locked was left by a process that died.
//! [`shardmill_core::deaths`] decides what follows.
//!
//! ```text
//!   CACHE.marks/DIGEST.RUN    a version on trial in a process, or a death of it
//!   CACHE.marks/DIGEST.told   the applications whose fleets were told that it is quarantined
//!   CACHE.marks/proven        versions that need no mark
//! ```
//!
//! Nothing is flushed to the disk: what kills a process leaves the file, and of a power cut nothing
//! need be known.

mod build;
mod files;
mod mark;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use shardmill_core::deaths::{Entry, Ruling, Stage, Unmark, Unproven, describe, ruling};
use shardmill_core::plugin::{PluginDigest, PluginName, ProcessorError};
use shardmill_core::time::Moment;

use self::files::Folder;
use self::mark::Mark;
use crate::LoadError;

/// The versions on trial in this process, and the deaths of others. Cheap to clone.
#[derive(Clone, Default)]
pub struct Marks {
    /// None where nothing is remembered.
    shared: Option<Arc<Shared>>,
    why_not: Option<Arc<str>>,
}

struct Shared {
    folder: Folder,
    started: Instant,
    // Held while a mark is written: a call must not begin before.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    unproven: Unproven,
    held: HashMap<PluginDigest, Mark>,
    /// Why a mark could not be written, so that a lasting trouble is logged once.
    trouble: Option<String>,
    /// Suspects that were reported.
    suspects: HashSet<PluginDigest>,
    /// The host ends on purpose.
    is_over: bool,
}

/// A version as far as it is on trial.
pub(crate) struct Newcomer {
    marks: Marks,
    plugin: PluginName,
    digest: PluginDigest,
    is_suspect: bool,
    /// Read before each call.
    is_proven: AtomicBool,
}

/// A version that is being loaded or called, and marked.
pub(crate) struct AtWork {
    newcomer: Arc<Newcomer>,
    stage: Stage,
}

/// A version is not to be loaded or called before others are through.
#[derive(Debug)]
pub(crate) struct OutOfTurn {
    others: String,
}

impl Marks {
    /// Beside the folder of compiled plugins, for the owner only; nothing is remembered where that
    /// cannot be written to.
    pub fn beside(cache: &Path) -> Self {
        match Folder::open(cache) {
            Ok(folder) => {
                let unproven = Unproven::new(folder.proven());
                let state = Mutex::new(State {
                    unproven,
                    ..State::default()
                });
                let shared = Shared {
                    folder,
                    started: Instant::now(),
                    state,
                };
                Self {
                    shared: Some(Arc::new(shared)),
                    why_not: None,
                }
            }
            Err(error) => Self::nothing(&error.to_string()),
        }
    }

    /// Remembers nothing, and shows why.
    pub fn nothing(why_not: &str) -> Self {
        Self {
            shared: None,
            why_not: Some(why_not.into()),
        }
    }

    /// Why this host remembers nothing of its deaths, if it does not.
    pub fn why_not(&self) -> Option<String> {
        let lasting = self.why_not.as_deref().map(str::to_owned);
        lasting.or_else(|| self.shared.as_ref()?.lock().trouble.clone())
    }

    /// Ends the marks whose time is up; to be called every few seconds.
    pub fn look(&self) {
        if let Some(shared) = &self.shared {
            shared.look(shared.now());
        }
    }

    /// The host ends, or is being stopped: no version is to blame for what follows.
    pub fn end(&self) {
        let Some(shared) = &self.shared else { return };
        let mut state = shared.lock();
        state.is_over = true;
        state.held.clear();
    }

    /// The applications whose fleets were told of a version's quarantine: it is released if these
    /// know nothing of it.
    pub fn published(&self, digest: &PluginDigest) -> BTreeSet<String> {
        let shared = self.shared.as_ref();
        shared.map_or_else(BTreeSet::new, |shared| shared.folder.published(digest))
    }

    /// The fleet of an application is told of a version's quarantine.
    pub fn mark_published(&self, digest: &PluginDigest, application: &str) {
        if let Some(shared) = &self.shared {
            let written = shared.folder.mark_published(digest, application);
            shared.lock().note(written);
        }
    }

    /// Somebody released a version: its deaths do not count any more.
    pub fn release(&self, digest: &PluginDigest) {
        if let Some(shared) = &self.shared {
            let forgotten = shared.folder.forget(digest);
            let mut state = shared.lock();
            state.suspects.remove(digest);
            state.note(forgotten);
        }
    }

    /// A version that is about to be loaded; an error if the host died of it.
    pub(crate) fn newcomer(
        &self,
        plugin: &PluginName,
        digest: &PluginDigest,
    ) -> Result<Arc<Newcomer>, LoadError> {
        let shared = self
            .shared
            .as_ref()
            .filter(|shared| !shared.lock().unproven.is_proven(digest));
        let is_suspect = match shared {
            Some(shared) => shared.is_suspect(plugin, digest)?,
            None => false,
        };
        Ok(Arc::new(Newcomer {
            marks: self.clone(),
            plugin: plugin.clone(),
            digest: digest.clone(),
            is_suspect,
            is_proven: AtomicBool::new(shared.is_none()),
        }))
    }
}

impl Newcomer {
    /// Marks the version, if it needs that, until what is returned is dropped and its trial is
    /// over.
    pub(crate) fn enter(self: &Arc<Self>, stage: Stage) -> Result<Option<AtWork>, OutOfTurn> {
        if self.is_proven.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let Some(shared) = &self.marks.shared else {
            return Ok(None);
        };
        let mut state = shared.lock();
        if state.is_over {
            return Ok(None);
        }
        let now = shared.now();
        let entry = state
            .unproven
            .enter(&self.plugin, &self.digest, self.is_suspect, now);
        match entry {
            Entry::Proven => {
                self.is_proven.store(true, Ordering::Relaxed);
                return Ok(None);
            }
            Entry::Wait(others) => return Err(OutOfTurn::behind(&others)),
            Entry::Marked => state.advance(&self.digest, stage),
            Entry::Mark => self.mark(shared, &mut state, stage),
            Entry::MarkBeside(others) => {
                state.end_solitude(&others);
                self.mark(shared, &mut state, stage);
            }
        }
        Ok(Some(AtWork {
            newcomer: Arc::clone(self),
            stage,
        }))
    }

    fn mark(&self, shared: &Shared, state: &mut State, stage: Stage) {
        let mark = shared
            .folder
            .mark(&self.plugin, &self.digest, stage, self.is_suspect);
        let written = mark.map(|mark| {
            state.held.insert(self.digest.clone(), mark);
        });
        state.note(written);
    }
}

impl OutOfTurn {
    fn behind(others: &[PluginName]) -> Self {
        let others: Vec<&str> = others.iter().map(PluginName::as_str).collect();
        Self {
            others: others.join(", "),
        }
    }
}

impl AtWork {
    /// The call was denied memory.
    pub(crate) fn denied_memory(&self) {
        let Newcomer { marks, digest, .. } = &*self.newcomer;
        if let Some(shared) = &marks.shared {
            shared.lock().unproven.denied_memory(digest, shared.now());
        }
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        let Newcomer { marks, digest, .. } = &*self.newcomer;
        let Some(shared) = &marks.shared else { return };
        let mut state = shared.lock();
        state.unproven.leave(digest, self.stage == Stage::Call);
        if self.stage == Stage::Load && state.unproven.loaded(digest, shared.now()) {
            state.held.remove(digest);
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Moment {
        Moment::from_origin(self.started.elapsed())
    }

    /// Whether the host may have died of a version that is about to be loaded; an error if it
    /// surely did.
    fn is_suspect(&self, plugin: &PluginName, digest: &PluginDigest) -> Result<bool, LoadError> {
        let deaths = self.folder.deaths(digest).unwrap_or_default();
        match ruling(&deaths) {
            Ruling::Together => Ok(false),
            Ruling::Alone => {
                if self.lock().suspects.insert(digest.clone()) {
                    let why = describe(&deaths);
                    tracing::warn!(
                        %plugin,
                        %digest,
                        why,
                        code = "suspect",
                        "the version may have killed the host, trying it alone"
                    );
                }
                Ok(true)
            }
            Ruling::Quarantined => Err(LoadError::Deadly {
                plugin: plugin.clone(),
                digest: digest.clone(),
                why: describe(&deaths),
            }),
        }
    }

    fn look(&self, now: Moment) {
        let mut state = self.lock();
        for unmark in state.unproven.look(now) {
            let (Unmark::Proven(digest) | Unmark::Idle(digest)) = &unmark;
            state.held.remove(digest);
            if matches!(unmark, Unmark::Proven(_)) {
                let kept = self
                    .folder
                    .forget(digest)
                    .and_then(|()| self.folder.prove(digest));
                state.note(kept);
            }
        }
    }
}

impl State {
    /// Writes down that a marked version came further.
    fn advance(&mut self, digest: &PluginDigest, stage: Stage) {
        let Some(mark) = self.held.get_mut(digest).filter(|mark| mark.stage < stage) else {
            return;
        };
        mark.stage = stage;
        let written = files::write_stage(&mark.file, stage);
        self.note(written);
    }

    /// Writes down that versions which were tried alone are so no more.
    fn end_solitude(&mut self, digests: &[PluginDigest]) {
        for digest in digests {
            tracing::warn!(
                %digest,
                code = "suspect-unproven",
                "the version that was tried alone was not proven in time: trying others beside it \
                    now"
            );
            let mark = self.held.get(digest);
            let written = mark.map_or(Ok(()), |mark| files::write_alone(&mark.file, false));
            self.note(written);
        }
    }

    /// Logs a failure to write once, and again if it comes back after a success.
    fn note(&mut self, result: std::io::Result<()>) {
        let trouble = result.err().map(|error| error.to_string());
        if let Some(error) = trouble
            .as_ref()
            .filter(|error| self.trouble.as_ref() != Some(error))
        {
            tracing::warn!(
                error,
                code = "mark-failed",
                "a version on trial cannot be marked: if it kills this host, the next run will not \
                    know"
            );
        }
        self.trouble = trouble;
    }
}

impl From<OutOfTurn> for LoadError {
    fn from(wait: OutOfTurn) -> Self {
        Self::OutOfTurn {
            others: wait.others,
        }
    }
}

impl From<OutOfTurn> for ProcessorError {
    fn from(wait: OutOfTurn) -> Self {
        Self::Host {
            message: LoadError::from(wait).to_string(),
        }
    }
}

impl std::fmt::Debug for Marks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Marks")
            .field("why_not", &self.why_not)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
