//! Log lines of guests that are handed to whoever runs them, in place of the log.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use shardmill_core::ports::GuestLines;

use super::guest_identity::GuestIdentity;

/// Lines that are kept at most. A plugin's log budget bounds them as well.
const LINES_MAX: usize = 10_000;

/// Where the lines of guests go: into the log, and to whoever watches it; or to the command that
/// runs the guest. Cheap to clone.
#[derive(Clone, Default)]
pub struct LogLines {
    kept: Option<Arc<Mutex<Vec<String>>>>,
    seen: Option<Arc<dyn GuestLines>>,
}

impl LogLines {
    /// Keeps lines, up to a bound, until they are taken.
    pub fn kept() -> Self {
        Self {
            kept: Some(Arc::default()),
            seen: None,
        }
    }

    /// Lines go into the log, and are shown here, too.
    pub fn seen_by(seen: Arc<dyn GuestLines>) -> Self {
        Self {
            kept: None,
            seen: Some(seen),
        }
    }

    /// Shows a line to whoever watches.
    pub(crate) fn show(&self, whose: &GuestIdentity, line: impl FnOnce() -> String) {
        let Some(seen) = self.seen.as_ref().filter(|seen| seen.are_wanted()) else {
            return;
        };
        let line = if whose.is_shadow {
            format!("shadow: {}", line())
        } else {
            line()
        };
        seen.line(&whose.application, &whose.shard, &line);
    }

    /// The lines so far, each with its level; none of them comes again.
    pub fn take(&self) -> Vec<String> {
        let Some(lines) = &self.kept else {
            return Vec::new();
        };
        std::mem::take(&mut *lines.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether the line was taken over, and does not belong into the log.
    pub(crate) fn add(&self, line: impl FnOnce() -> String) -> bool {
        let Some(lines) = &self.kept else {
            return false;
        };
        let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() < LINES_MAX {
            lines.push(line());
        }
        true
    }
}

impl fmt::Debug for LogLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogLines")
            .field("are_kept", &self.kept.is_some())
            .field("are_seen", &self.seen.is_some())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_taken_once_and_only_by_who_asked_for_them() {
        let log = LogLines::default();
        assert!(!log.add(|| "one".to_owned()));
        assert_eq!(log.take(), [""; 0]);
        let kept = LogLines::kept();
        for number in 0..LINES_MAX + 5 {
            assert!(kept.add(|| number.to_string()));
        }
        assert_eq!(kept.take().len(), LINES_MAX);
        assert_eq!(kept.take(), [""; 0]);
    }
}
