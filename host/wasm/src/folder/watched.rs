//! File events: "look again", and which files are whole. What changed is found by looking, so a
//! lost or late event costs time only.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode, Event, EventKind, ModifyKind, RenameMode};
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;

use super::scan::COMPONENT_SUFFIX;

/// Names of whole files that wait for the next look. More plugins than a host is good for are
/// seldom written within milliseconds; what is not noted settles like any other file.
const WHOLE_MAX: usize = 1_000;

/// A watch on a directory; ends when dropped.
pub(crate) struct Watched {
    _watcher: RecommendedWatcher,
}

/// What events say, until the next look.
#[derive(Default)]
pub(crate) struct Changes {
    again: Notify,
    at_once: Notify,
    whole: Mutex<BTreeSet<String>>,
}

impl Watched {
    pub(crate) fn start(folder: &Path, changes: Arc<Changes>) -> notify::Result<Self> {
        let mut watcher =
            notify::recommended_watcher(move |event: notify::Result<Event>| changes.note(&event))?;
        watcher.watch(folder, RecursiveMode::NonRecursive)?;
        Ok(Self { _watcher: watcher })
    }
}

impl Changes {
    /// Asks for another look.
    pub(crate) fn look_again(&self) {
        self.again.notify_one();
    }

    /// Waits for a reason to look. Events are gathered for `debounce`, unless a file is whole.
    pub(crate) async fn reason(&self, debounce: Duration) {
        let gathered = async {
            self.again.notified().await;
            tokio::time::sleep(debounce).await;
        };
        tokio::select! {
            () = self.at_once.notified() => {}
            () = gathered => {}
        }
    }

    /// Files that became whole since this was asked last.
    pub(crate) fn take_whole(&self) -> BTreeSet<String> {
        std::mem::take(&mut *self.whole.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn note(&self, event: &notify::Result<Event>) {
        match event {
            Ok(event) if is_whole(event.kind) => self.note_whole(event),
            Ok(event) if !is_change(event.kind) => {}
            // An error (an overflown queue, say) means that events were lost: all the more reason
            // to look.
            Ok(_) | Err(_) => self.look_again(),
        }
    }

    fn note_whole(&self, event: &Event) {
        // Of a file that was renamed, the second path is the new one.
        let name = event
            .paths
            .last()
            .and_then(|path| path.file_name()?.to_str());
        let mut whole = self.whole.lock().unwrap_or_else(PoisonError::into_inner);
        match name {
            Some(name) if name.ends_with(COMPONENT_SUFFIX) && whole.len() < WHOLE_MAX => {
                whole.insert(name.to_owned());
                self.at_once.notify_one();
            }
            _ => self.look_again(),
        }
    }
}

/// Its writer has closed it, or it has been moved here: nobody writes to it as things are.
fn is_whole(kind: EventKind) -> bool {
    matches!(
        kind,
        EventKind::Access(AccessKind::Close(AccessMode::Write))
            | EventKind::Modify(ModifyKind::Name(RenameMode::To | RenameMode::Both))
    )
}

/// Reading a file is an event too, and reading is what we do after an event.
fn is_change(kind: EventKind) -> bool {
    !matches!(kind, EventKind::Access(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER: Duration = Duration::from_hours(1);

    /// What is whole at the first reason to look that says so.
    async fn whole(changes: &Changes) -> Vec<String> {
        loop {
            changes.reason(NEVER).await;
            let whole = changes.take_whole();
            if !whole.is_empty() {
                return whole.into_iter().collect();
            }
        }
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_file_is_whole_once_its_writer_closes_it_or_it_is_moved_here() {
        use std::io::Write;

        let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let changes = Arc::new(Changes::default());
        let _watched = Watched::start(folder.path(), Arc::clone(&changes)).unwrap();
        let mut file = std::fs::File::create(folder.path().join("a.wasm")).unwrap();
        file.write_all(b"half").unwrap();
        // The writer is not done, and that is a reason to look as well.
        changes.reason(Duration::ZERO).await;
        assert!(changes.take_whole().is_empty());
        drop(file);
        assert_eq!(whole(&changes).await, ["a.wasm"]);

        let written = elsewhere.path().join("x");
        std::fs::write(&written, "whole").unwrap();
        std::fs::rename(&written, folder.path().join("b.wasm")).unwrap();
        assert_eq!(whole(&changes).await, ["b.wasm"]);
        std::fs::rename(folder.path().join("b.wasm"), folder.path().join("c.wasm")).unwrap();
        assert_eq!(whole(&changes).await, ["c.wasm"]);
    }

    #[test]
    fn more_files_than_anybody_writes_at_once_settle_like_any_other() {
        let changes = Changes::default();
        for number in 0..2 * WHOLE_MAX {
            let event = Event::new(EventKind::Access(AccessKind::Close(AccessMode::Write)));
            let path = format!("/plugins/{number}.wasm").into();
            changes.note(&Ok(event.add_path(path)));
        }
        assert_eq!(changes.take_whole().len(), WHOLE_MAX);
    }
}
