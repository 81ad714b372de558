//! What one call has to do with the windows, and how it is undone.

use std::collections::BTreeMap;

use super::clock::Clock;
use super::{Closed, Open, Windows};
use crate::{Record, Tick};

/// What became of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a record that is in no window is lost, unless something else is done with it"]
pub enum Added {
    /// It is in a window, or in several.
    InWindow,
    /// All its windows were closed before it came.
    Late,
    /// Its time is too far ahead of its arrival to be true.
    Ahead,
}

/// One call, which is undone as a whole if it fails: see [`Windows::change`].
#[derive(Debug)]
pub struct Change<'a, V> {
    pub(super) windows: &'a mut Windows<V>,
    pub(super) undo: Undo<V>,
}

/// What was there before the call.
#[derive(Debug)]
pub(super) struct Undo<V> {
    clock: Clock,
    /// The windows of each key that the call has touched.
    touched: BTreeMap<String, Vec<Open<V>>>,
}

impl<V> Undo<V> {
    pub(super) fn of(clock: Clock) -> Self {
        Self {
            clock,
            touched: BTreeMap::new(),
        }
    }
}

impl<V: Clone + Default> Change<'_, V> {
    /// Adds a record to the windows of `key` that its time is in: `add` is called with the value of
    /// each. `time_ms` is in milliseconds since the Unix epoch; the record's `arrival_ms` makes
    /// windows of arrival time.
    pub fn add(
        &mut self,
        record: &Record<'_>,
        time_ms: u64,
        key: &str,
        mut add: impl FnMut(&mut V),
    ) -> Added {
        let arrived_ms = record.arrival_ms;
        self.windows.clock.arrived(arrived_ms);
        let ahead_max_ms = arrived_ms.saturating_add(self.windows.ahead_max_ms);
        if arrived_ms > 0 && time_ms > ahead_max_ms {
            self.windows.clock.count_ahead();
            return Added::Ahead;
        }
        let watermark_ms = self.windows.watermark_ms();
        self.windows.clock.saw(time_ms, self.windows.delay_ms);
        let is_late = self.windows.shape.last_end_ms(time_ms) <= watermark_ms;
        if is_late && !self.windows.open.contains_key(key) {
            self.windows.clock.count_late();
            return Added::Late;
        }
        self.touch(key);
        let windows = &mut *self.windows;
        let open = windows.open.entry(key.to_owned()).or_default();
        let is_added = windows.shape.add(open, time_ms, watermark_ms, &mut add);
        if is_added {
            return Added::InWindow;
        }
        windows.clock.count_late();
        Added::Late
    }

    /// Has the watermark go on, as far as the host knows that the shard is silent.
    pub fn tick(&mut self, tick: &Tick) {
        let delay_ms = self.windows.delay_ms;
        let silence_ms = self.windows.clock.tick(tick, delay_ms);
        if let (Some(silence_ms), Some(limit_ms)) = (silence_ms, self.windows.silence_ms)
            && silence_ms >= limit_ms
        {
            self.close_all();
        }
    }

    /// Closes all windows, such as at the end of the shard.
    pub fn close_all(&mut self) {
        let open = self.windows.open.values().flatten();
        let last_end_ms = open.map(|window| window.end_ms).max();
        if let Some(last_end_ms) = last_end_ms {
            self.windows.clock.close_through(last_end_ms);
        }
    }

    /// Takes the windows that have closed, by their ends. They are gone then: emit them in the same
    /// change.
    pub fn take_closed(&mut self) -> Vec<Closed<V>> {
        let watermark_ms = self.windows.watermark_ms();
        let mut closed = Vec::new();
        for key in self.keys_with_closed(watermark_ms) {
            self.touch(&key);
            let open = self.windows.open.remove(&key).unwrap_or_default();
            let (ended, rest): (Vec<_>, Vec<_>) = open
                .into_iter()
                .partition(|window| window.end_ms <= watermark_ms);
            closed.extend(ended.into_iter().map(|window| window.close(&key)));
            if !rest.is_empty() {
                self.windows.open.insert(key, rest);
            }
        }
        if !closed.is_empty() {
            self.windows.clock.closed();
        }
        closed.sort_by(|one, other| one.order().cmp(&other.order()));
        closed
    }

    fn keys_with_closed(&self, watermark_ms: u64) -> Vec<String> {
        let has_closed =
            |windows: &[Open<V>]| windows.iter().any(|window| window.end_ms <= watermark_ms);
        let keys = self.windows.open.iter();
        let closing = keys.filter(|(_, windows)| has_closed(windows.as_slice()));
        closing.map(|(key, _)| key.clone()).collect()
    }

    /// Remembers the windows of a key as they were before the call.
    fn touch(&mut self, key: &str) {
        if !self.undo.touched.contains_key(key) {
            let before = self.windows.open.get(key).cloned().unwrap_or_default();
            self.undo.touched.insert(key.to_owned(), before);
        }
    }

    /// Puts everything back as it was before the call.
    pub(super) fn undo(self) {
        let Self { windows, undo } = self;
        windows.clock = undo.clock;
        for (key, before) in undo.touched {
            if before.is_empty() {
                windows.open.remove(&key);
            } else {
                windows.open.insert(key, before);
            }
        }
    }
}

impl<V> Open<V> {
    fn close(self, key: &str) -> Closed<V> {
        Closed {
            key: key.to_owned(),
            start_ms: self.start_ms,
            end_ms: self.end_ms,
            value: self.value,
        }
    }
}

impl<V> Closed<V> {
    fn order(&self) -> (u64, u64, &str) {
        (self.end_ms, self.start_ms, &self.key)
    }
}
