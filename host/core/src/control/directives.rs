use std::fmt;

use super::{Asked, Place, RecordRange, StateEdit};

/// What operators want of one shard: a part of its lease's row, obeyed by the lease's holder.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Directives {
    /// Raised by one with every change: a change of what was read before is refused, and an old
    /// read is known for what it is. 0 for a row that never had any.
    pub version: u64,
    /// Deliver nothing, until the pause ends; `None` delivers.
    pub pause: Option<Pause>,
    /// Go on at another place. Gone from the row with the write that moves the checkpoint.
    pub seek: Option<Seek>,
    /// Give records up. Gone from the row once the checkpoint is past them.
    pub skip: Option<Skip>,
    /// Replace or remove the plugin's state. Gone from the row with the write that does it.
    pub state: Option<StateEdit>,
}

/// Nothing is delivered; leases and heartbeats are held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pause {
    /// Who asked for the pause, when and why.
    pub asked: Asked,
    /// When it ends by itself, by each host's clock, in milliseconds since the Unix epoch.
    pub until_ms: Option<u64>,
}

/// The shard goes on at another place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seek {
    /// The first record that is delivered next.
    pub to: Place,
    /// Whether records are only left out: a shard that has come past the place by the time its
    /// holder obeys stays where it is, or what was delivered meanwhile would be delivered again.
    pub only_forward: bool,
    /// What becomes of the plugin's state.
    pub state: SeekState,
    /// Who asked for the seek, when and why.
    pub asked: Asked,
}

/// What becomes of a plugin's state when its shard goes to another place: it belongs to all records
/// before the old one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeekState {
    /// There was none when the command was given. If there is one by the time the holder obeys, the
    /// shard stays where it is: nobody has said what becomes of it.
    Absent,
    /// It is kept as it is, though it does not match the new place.
    Keep,
    /// It is removed: the plugin starts without any.
    Drop,
}

/// Records are given up without being delivered, or delivered again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skip {
    /// The records to give up, both ends included.
    pub records: RecordRange,
    /// The sink in which they are stored first, as dead letters; `None` if they are dropped.
    pub dead_letters: Option<String>,
    /// Who asked for the skip, when and why.
    pub asked: Asked,
}

impl Directives {
    /// Whether nothing is wanted.
    pub fn are_none(&self) -> bool {
        self.pause.is_none() && self.seek.is_none() && self.skip.is_none() && self.state.is_none()
    }

    /// What waits to be done that would move the shard or change its state, who wants it and why.
    /// It was promised to somebody.
    pub fn waiting(&self) -> Option<String> {
        let edit = self.state.as_ref().filter(|edit| edit.is_waiting());
        let edit = edit.map(|edit| format!("{edit}, {}", edit.asked));
        let seek = self.seek.as_ref();
        edit.or_else(|| seek.map(|seek| format!("a seek to {}, {}", seek.to, seek.asked)))
    }

    /// Those that replace these, once `change` is made.
    #[must_use]
    pub fn changed(&self, change: impl FnOnce(&mut Self)) -> Self {
        let mut next = self.clone();
        change(&mut next);
        next.version = self.version.saturating_add(1);
        next
    }
}

/// Why a shard that was to go to another place stays where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stays {
    /// It was to go forward, and has come past the place.
    IsPast,
    /// The plugin has saved a state since the command was given.
    HasState,
}

impl fmt::Display for Stays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::IsPast => "it was past that place already",
            Self::HasState => {
                "the plugin has saved a state meanwhile; --state keep or --state drop says what \
                    becomes of it"
            }
        })
    }
}

impl Pause {
    /// Whether it has not ended by itself.
    pub fn is_in_effect(&self, wall_ms: u64) -> bool {
        self.until_ms.is_none_or(|until| wall_ms < until)
    }
}
