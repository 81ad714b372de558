//! Deliberate protocol bugs, for the simulator to find: a checker that never fires proves nothing.
//!
//! The switch exists only in builds with debug assertions, and only on the thread that turned it on; a release build
//! answers `false` at compile time.

/// One deliberate bug. Its doc says what a host with it does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SeededBug {
    /// A checkpoint is written whatever the row shows.
    CheckpointWithoutCondition,
}

impl SeededBug {
    /// Every bug.
    pub const ALL: &[Self] = &[Self::CheckpointWithoutCondition];

    /// Whether this bug is switched on for this thread.
    #[inline]
    pub fn is_on(self) -> bool {
        #[cfg(debug_assertions)]
        return switch::ACTIVE.get() == Some(self);
        #[cfg(not(debug_assertions))]
        return false;
    }
}

/// Switches one bug on, or all off, for this thread.
#[cfg(debug_assertions)]
pub fn switch_on(bug: Option<SeededBug>) {
    switch::ACTIVE.set(bug);
}

#[cfg(debug_assertions)]
mod switch {
    use std::cell::Cell;

    use super::SeededBug;

    thread_local! {
        pub(super) static ACTIVE: Cell<Option<SeededBug>> = const { Cell::new(None) };
    }
}
