//! Where batches that failed are kept, and what the host may hold for them in memory.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use shardmill_core::ports::Recorder;
use shardmill_core::recording::Recording;

/// Keeps batches that failed, with what their instances were given before. Cheap to clone; one for
/// all workers of a host, so that its memory is one sum.
#[derive(Clone, Default)]
pub struct Recordings(Option<Arc<Shared>>);

struct Shared {
    recorder: Arc<dyn Recorder>,
    limits: RecordingLimits,
    /// Bytes that are held, at most `limits.host_bytes`.
    used: AtomicUsize,
    /// Instances that hold some, or may.
    instances: AtomicUsize,
}

/// What a host may hold in memory of what it gave to plugins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordingLimits {
    /// For one instance, in bytes.
    pub instance_bytes: usize,
    /// For all of them, in bytes.
    pub host_bytes: usize,
}

impl Recordings {
    /// Nothing is kept, and nothing recorded.
    pub fn off() -> Self {
        Self(None)
    }

    /// All that fails goes to `recorder`.
    pub fn new(recorder: Arc<dyn Recorder>, limits: RecordingLimits) -> Self {
        Self(Some(Arc::new(Shared {
            recorder,
            limits,
            used: AtomicUsize::new(0),
            instances: AtomicUsize::new(0),
        })))
    }

    /// Bytes that are held in memory now.
    pub fn used_bytes(&self) -> usize {
        let shared = self.0.as_ref();
        shared.map_or(0, |shared| shared.used.load(Ordering::Relaxed))
    }

    pub(crate) fn keep(&self, recording: Recording) {
        if let Some(shared) = &self.0 {
            shared.recorder.keep(recording);
        }
    }

    /// The room for one instance; `None` if nothing is kept.
    pub(crate) fn room(&self) -> Option<Room> {
        let shared = self.0.as_ref()?;
        shared.instances.fetch_add(1, Ordering::Relaxed);
        Some(Room {
            shared: Arc::clone(shared),
            held: 0,
        })
    }
}

impl fmt::Debug for Recordings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Recordings")
            .field(&self.0.as_ref().map(|shared| shared.limits))
            .finish()
    }
}

/// One instance's part of the host's memory for this. Given back when dropped.
pub(crate) struct Room {
    shared: Arc<Shared>,
    held: usize,
}

impl Room {
    /// Takes all that the instance may have now, and returns how much that is: its equal part of
    /// the host's, and no more than is left of it. With [`Room::keep`] it gives back what it does
    /// not need.
    pub(crate) fn take(&mut self) -> usize {
        let limits = &self.shared.limits;
        let instances = self.shared.instances.load(Ordering::Relaxed).max(1);
        let wanted = limits.instance_bytes.min(limits.host_bytes / instances);
        self.resize(wanted);
        self.held
    }

    /// Gives back all but `bytes`.
    pub(crate) fn keep(&mut self, bytes: usize) {
        self.resize(bytes.min(self.held));
    }

    fn resize(&mut self, wanted: usize) {
        let (held, host_bytes) = (self.held, self.shared.limits.host_bytes);
        let resized = |used: usize| {
            let others = used.saturating_sub(held);
            let granted = wanted.min(host_bytes.saturating_sub(others));
            (others + granted, granted)
        };
        let mut used = self.shared.used.load(Ordering::Relaxed);
        // Ends as soon as no other instance was quicker.
        loop {
            let (sum, granted) = resized(used);
            let swapped = self.shared.used.compare_exchange_weak(
                used,
                sum,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            match swapped {
                Ok(_) => {
                    self.held = granted;
                    return;
                }
                Err(now) => used = now,
            }
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.resize(0);
        self.shared.instances.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nowhere;

    impl Recorder for Nowhere {
        fn keep(&self, _: Recording) {}
    }

    fn recordings(instance_bytes: usize, host_bytes: usize) -> Recordings {
        let limits = RecordingLimits {
            instance_bytes,
            host_bytes,
        };
        Recordings::new(Arc::new(Nowhere), limits)
    }

    #[test]
    fn a_thousand_instances_have_no_more_than_the_host_may_hold() {
        let recordings = recordings(1_000, 64_000);
        let mut rooms: Vec<Room> = Vec::new();
        for _ in 0..1_000 {
            rooms.extend(recordings.room());
            for room in &mut rooms {
                room.take();
            }
            assert!(recordings.used_bytes() <= 64_000);
        }
        for room in &mut rooms {
            assert_eq!(room.take(), 64, "each has its equal part in the end");
        }
        drop(rooms);
        assert_eq!(recordings.used_bytes(), 0);
    }

    #[test]
    fn who_needs_little_leaves_the_rest_to_others() {
        let recordings = recordings(600, 1_000);
        let (mut one, mut other) = (recordings.room().unwrap(), recordings.room().unwrap());
        assert_eq!(one.take(), 500);
        one.keep(10);
        assert_eq!((recordings.used_bytes(), other.take()), (10, 500));
        drop(one);
        assert_eq!(other.take(), 600);
        other.keep(0);
        assert_eq!(recordings.used_bytes(), 0);
    }

    #[test]
    fn who_comes_late_waits_for_what_others_hold_and_takes_no_more_than_is_left() {
        let recordings = recordings(1_000, 1_000);
        let mut first = recordings.room().unwrap();
        assert_eq!(first.take(), 1_000);
        let mut second = recordings.room().unwrap();
        assert_eq!(second.take(), 0);
        assert_eq!(first.take(), 500, "at its next batch it shares");
        assert_eq!(second.take(), 500);
    }

    #[test]
    fn a_host_that_keeps_nothing_has_no_room_for_it() {
        assert!(Recordings::off().room().is_none());
        assert_eq!(Recordings::off().used_bytes(), 0);
    }
}
