//! Which windows a record is in.

use std::time::Duration;

use super::{Open, millis};
use crate::Error;

/// Windows that one record may be in.
const WINDOWS_MAX: u64 = 100;

#[derive(Debug)]
pub(super) enum Shape<V> {
    /// Of a fixed size, beginning at each multiple of a time.
    Sliding { size_ms: u64, every_ms: u64 },
    /// As long as records follow each other.
    Sessions {
        gap_ms: u64,
        /// Adds the second to the first.
        merge: fn(&mut V, V),
    },
}

impl<V: Default> Shape<V> {
    pub(super) fn sliding(size: Duration, every: Duration) -> Result<Self, Error> {
        let (size_ms, every_ms) = (millis(size), millis(every));
        let problem = if every_ms == 0 {
            "a window lasts at least a millisecond"
        } else if every_ms > size_ms {
            "between windows that begin less often than they last, records would be lost"
        } else if size_ms.div_ceil(every_ms) > WINDOWS_MAX {
            "a record may be in at most 100 sliding windows: let them begin less often"
        } else {
            return Ok(Self::Sliding { size_ms, every_ms });
        };
        Err(Error::Misconfigured(problem.to_owned()))
    }

    pub(super) fn sessions(gap: Duration, merge: fn(&mut V, V)) -> Result<Self, Error> {
        let gap_ms = millis(gap);
        if gap_ms == 0 {
            let problem = "a session ends at least a millisecond after its last record";
            return Err(Error::Misconfigured(problem.to_owned()));
        }
        Ok(Self::Sessions { gap_ms, merge })
    }

    /// The end of the last window that a record of this time would be in.
    pub(super) fn last_end_ms(&self, time_ms: u64) -> u64 {
        match self {
            Self::Sliding { size_ms, every_ms } => {
                (time_ms - time_ms % every_ms).saturating_add(*size_ms)
            }
            Self::Sessions { gap_ms, .. } => time_ms.saturating_add(*gap_ms),
        }
    }

    /// Adds a record of this time to the `open` windows of its key that end after the watermark,
    /// and opens those that are missing. Whether there is any.
    pub(super) fn add(
        &self,
        open: &mut Vec<Open<V>>,
        time_ms: u64,
        watermark_ms: u64,
        add: &mut dyn FnMut(&mut V),
    ) -> bool {
        match self {
            Self::Sliding { size_ms, every_ms } => {
                add_to_sliding(open, (*size_ms, *every_ms), time_ms, watermark_ms, add)
            }
            Self::Sessions { gap_ms, merge } => {
                let own = Open {
                    start_ms: time_ms,
                    end_ms: time_ms.saturating_add(*gap_ms),
                    value: V::default(),
                };
                add_to_session(open, own, *merge, watermark_ms, add)
            }
        }
    }
}

fn add_to_sliding<V: Default>(
    open: &mut Vec<Open<V>>,
    (size_ms, every_ms): (u64, u64),
    time_ms: u64,
    watermark_ms: u64,
    add: &mut dyn FnMut(&mut V),
) -> bool {
    let mut is_added = false;
    let mut start_ms = Some(time_ms - time_ms % every_ms);
    // At most `WINDOWS_MAX` times.
    while let Some(start) = start_ms.filter(|start| time_ms - start < size_ms) {
        let end_ms = start.saturating_add(size_ms);
        if end_ms > watermark_ms {
            add(value_of(open, start, end_ms));
            is_added = true;
        }
        start_ms = start.checked_sub(every_ms);
    }
    is_added
}

fn value_of<V: Default>(open: &mut Vec<Open<V>>, start_ms: u64, end_ms: u64) -> &mut V {
    let found = open
        .iter()
        .position(|window| window.start_ms == start_ms && window.end_ms == end_ms);
    let at = found.unwrap_or_else(|| {
        open.push(Open {
            start_ms,
            end_ms,
            value: V::default(),
        });
        open.len() - 1
    });
    &mut open[at].value
}

/// Joins the sessions that the record touches. Of those that are closed none is touched, though
/// they may not be taken yet.
fn add_to_session<V: Default>(
    open: &mut Vec<Open<V>>,
    own: Open<V>,
    merge: fn(&mut V, V),
    watermark_ms: u64,
    add: &mut dyn FnMut(&mut V),
) -> bool {
    let touches = |one: &Open<V>| {
        one.end_ms > watermark_ms && one.start_ms <= own.end_ms && own.start_ms <= one.end_ms
    };
    let (mut touched, rest): (Vec<_>, Vec<_>) = open.drain(..).partition(touches);
    *open = rest;
    if touched.is_empty() && own.end_ms <= watermark_ms {
        return false;
    }
    touched.sort_by_key(|session| session.start_ms);
    let mut joined = touched.into_iter();
    let mut session = match joined.next() {
        Some(first) => Open {
            start_ms: first.start_ms.min(own.start_ms),
            end_ms: first.end_ms.max(own.end_ms),
            ..first
        },
        None => own,
    };
    for later in joined {
        session.end_ms = session.end_ms.max(later.end_ms);
        merge(&mut session.value, later.value);
    }
    add(&mut session.value);
    open.push(session);
    true
}
