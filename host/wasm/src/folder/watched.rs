//! File events, as one bit: "look again". What changed is found by looking, so a lost or late event
//! costs time only.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use notify::event::{AccessKind, AccessMode, EventKind};
use notify::{RecommendedWatcher, RecursiveMode};
use notify_debouncer_full::{DebounceEventResult, Debouncer, NoCache, new_debouncer_opt};
use tokio::sync::Notify;

/// A watch on a directory; ends when dropped.
pub(crate) struct Watched {
    _debouncer: Debouncer<RecommendedWatcher, NoCache>,
}

impl Watched {
    pub(crate) fn start(
        folder: &Path,
        debounce: Duration,
        changed: Arc<Notify>,
    ) -> notify::Result<Self> {
        let on_events = move |events: DebounceEventResult| {
            // An error (an overflown queue, say) means that events were lost: all the more reason
            // to look.
            let is_relevant = events.map_or(true, |events| {
                events.iter().any(|event| is_change(event.kind))
            });
            if is_relevant {
                changed.notify_one();
            }
        };
        let mut debouncer = new_debouncer_opt(
            debounce,
            None,
            on_events,
            NoCache::new(),
            notify::Config::default(),
        )?;
        debouncer.watch(folder, RecursiveMode::NonRecursive)?;
        Ok(Self {
            _debouncer: debouncer,
        })
    }
}

/// Reading a file is an event too, and reading is what we do after an event.
fn is_change(kind: EventKind) -> bool {
    !matches!(kind, EventKind::Access(access) if access != AccessKind::Close(AccessMode::Write))
}
