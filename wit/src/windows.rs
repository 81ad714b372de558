//! Windows of time: counts by hour, sums of a sliding ten minutes, sessions of a visitor.
//!
//! A window is kept for each key. It collects records by their time, which the processor reads in
//! the record or takes from its arrival, and it is closed by that time, never by the clock of the
//! host alone: the same records give the same windows, however late they are read.
//!
//! ```
//! use std::time::Duration;
//!
//! use shardmill_processor::windows::{Added, Windows};
//! use shardmill_processor::{
//!     Batch, Context, Error, HeldBack, Outcome, Processor, Stateful, Tick, Ticking, emit,
//! };
//!
//! struct Minutes {
//!     counts: Windows<u64>,
//! }
//!
//! impl Minutes {
//!     fn put_closed(&mut self, tick: Option<&Tick>) -> Result<(), Error> {
//!         self.counts.change(|counts| {
//!             if let Some(tick) = tick {
//!                 counts.tick(tick);
//!             }
//!             for window in counts.take_closed() {
//!                 let line = format!("{} {} {}", window.start_ms, window.key, window.value);
//!                 emit("stdout", &window.key, line.as_bytes())?;
//!             }
//!             Ok(())
//!         })
//!     }
//! }
//!
//! impl Processor for Minutes {
//!     fn init(_context: Context) -> Result<Self, Error> {
//!         let minute = Windows::tumbling(Duration::from_secs(60))?;
//!         Ok(Self {
//!             counts: minute.delayed_by(Duration::from_secs(5)),
//!         })
//!     }
//!
//!     fn process(&mut self, batch: Batch) -> Result<Outcome, Error> {
//!         self.counts.change(|counts| {
//!             for record in &batch.records {
//!                 let key = record.partition_key;
//!                 match counts.add(record, record.arrival_ms, key, |count| *count += 1) {
//!                     Added::InWindow => {}
//!                     Added::Late | Added::Ahead => emit("late", key, record.data)?,
//!                 }
//!             }
//!             for window in counts.take_closed() {
//!                 emit("stdout", &window.key, window.value.to_string().as_bytes())?;
//!             }
//!             Ok(Outcome::default())
//!         })
//!     }
//! }
//!
//! impl Ticking for Minutes {
//!     fn tick(&mut self, tick: Tick) -> Result<HeldBack, Error> {
//!         self.put_closed(Some(&tick))?;
//!         Ok(HeldBack::Keep)
//!     }
//! }
//!
//! impl Stateful for Minutes {
//!     fn save(&mut self) -> Result<Vec<u8>, Error> {
//!         self.counts.save()
//!     }
//!
//!     fn load(&mut self, state: Vec<u8>) -> Result<(), Error> {
//!         self.counts.load(&state)
//!     }
//! }
//!
//! shardmill_processor::plugin!(Minutes, state, ticks);
//! ```
//!
//! # When a window closes
//!
//! The *watermark* is the latest time of any record so far, less the allowed delay
//! ([`Windows::delayed_by`]). A window is closed once the watermark reaches its end. A record all
//! of whose windows are closed is late: [`Change::add`] says so, counts it and adds it to none.
//!
//! On a silent shard the watermark goes on with the ticks: by as much time as the host knows that
//! nothing has arrived after the last record
//! ([`Tick::delivered_until_ms`](crate::Tick::delivered_until_ms)), less [`GRACE`]. So an
//! hour that ends at noon, of a stream whose records come as they happen, is closed soon after noon
//! and the allowed delay. Where records come from long ago, an open hour takes up to an hour of
//! silence to close; [`Windows::closed_after_silence`] closes all windows sooner. While a shard has
//! records that were not delivered yet, or cannot be read, ticks move nothing.
//!
//! # State
//!
//! What [`Windows::save`] returns has 2 bytes and more for each window besides its key and its
//! value, and is at most as large as the host's limit `state` allows (256 KiB by default). If it is
//! larger, the shard waits, visibly, until the limit is raised. What is closed is kept no more, so
//! the state grows with the number of keys, the length of windows and the allowed delay.

mod change;
mod clock;
mod saved;
mod shape;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use change::Undo;
pub use change::{Added, Change};
use clock::Clock;
pub use clock::GRACE;
use shape::Shape;

use crate::Error;

/// How far the time of a record may be ahead of its arrival unless
/// [`at_most_ahead`](Windows::at_most_ahead) says otherwise: a day, so that no time zone is.
const AHEAD_MAX: Duration = Duration::from_hours(24);

/// The open windows of a shard, by key. See the [module](self).
///
/// `V` is what a window collects: it begins as its default.
#[derive(Debug)]
pub struct Windows<V> {
    shape: Shape<V>,
    delay_ms: u64,
    silence_ms: Option<u64>,
    ahead_max_ms: u64,
    clock: Clock,
    open: BTreeMap<String, Vec<Open<V>>>,
}

/// An open window of a key.
#[derive(Debug, Clone, PartialEq)]
struct Open<V> {
    start_ms: u64,
    /// The first millisecond after it.
    end_ms: u64,
    value: V,
}

/// A window that has closed. Times are in milliseconds since the Unix epoch.
#[derive(Debug, Clone, PartialEq)]
pub struct Closed<V> {
    /// Its key.
    pub key: String,
    /// The first millisecond of it.
    pub start_ms: u64,
    /// The first millisecond after it.
    pub end_ms: u64,
    /// What it has collected.
    pub value: V,
}

impl<V: Clone + Default> Windows<V> {
    /// Windows of `size` that follow each other, such as each hour, counted from the Unix epoch.
    ///
    /// # Errors
    ///
    /// `size` is less than a millisecond.
    pub fn tumbling(size: Duration) -> Result<Self, Error> {
        Shape::sliding(size, size).map(Self::of)
    }

    /// Windows of `size`, one beginning at each multiple of `every`: each record is in several.
    ///
    /// # Errors
    ///
    /// `every` is less than a millisecond, more than `size`, or less than a hundredth of it: each
    /// record would be kept that often.
    pub fn sliding(size: Duration, every: Duration) -> Result<Self, Error> {
        Shape::sliding(size, every).map(Self::of)
    }

    /// Windows that last as long as no two records of the key are further apart than `gap`.
    /// `merge` adds the second of two sessions to the first, if a record comes that joins them.
    ///
    /// # Errors
    ///
    /// `gap` is less than a millisecond.
    pub fn sessions(gap: Duration, merge: fn(&mut V, V)) -> Result<Self, Error> {
        Shape::sessions(gap, merge).map(Self::of)
    }

    fn of(shape: Shape<V>) -> Self {
        Self {
            shape,
            delay_ms: 0,
            silence_ms: None,
            ahead_max_ms: millis(AHEAD_MAX),
            clock: Clock::default(),
            open: BTreeMap::new(),
        }
    }

    /// How much later than the latest record one may come and still count: none by default.
    /// Windows close that much later.
    #[must_use]
    pub fn delayed_by(self, delay: Duration) -> Self {
        Self {
            delay_ms: millis(delay),
            ..self
        }
    }

    /// Closes all windows once nothing has arrived for so long, whatever their end. Records for
    /// them that come later are late.
    #[must_use]
    pub fn closed_after_silence(self, silence: Duration) -> Self {
        Self {
            silence_ms: Some(millis(silence)),
            ..self
        }
    }

    /// How far the time of a record may be ahead of its arrival, a day by default. One further
    /// ahead is [`Added::Ahead`]: a single wrong clock would make all other records late.
    #[must_use]
    pub fn at_most_ahead(self, ahead: Duration) -> Self {
        Self {
            ahead_max_ms: millis(ahead),
            ..self
        }
    }

    /// Does what one call of `process`, `tick` or `close` has to do with the windows. If `call`
    /// fails, all of it is undone: the host delivers the same records again, and each has to count
    /// once.
    ///
    /// # Errors
    ///
    /// What `call` returns.
    pub fn change<T>(
        &mut self,
        call: impl FnOnce(&mut Change<'_, V>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut change = Change {
            undo: Undo::of(self.clock),
            windows: self,
        };
        let result = call(&mut change);
        if result.is_err() {
            change.undo();
        }
        result
    }

    /// All windows that end before this, in milliseconds since the Unix epoch, are closed; 0 before
    /// the first record.
    pub fn watermark_ms(&self) -> u64 {
        self.clock.watermark_ms()
    }

    /// Windows that are open.
    pub fn count(&self) -> usize {
        self.open.values().map(Vec::len).sum()
    }

    /// Records that were late since the shard's beginning.
    pub fn late(&self) -> u64 {
        self.clock.late()
    }

    /// Records that were too far ahead of their arrival since the shard's beginning.
    pub fn ahead(&self) -> u64 {
        self.clock.ahead()
    }
}

/// In milliseconds; what is longer than they can count is as good as for ever.
fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
