//! What operators want of a fleet that runs, as its tables say.

use std::collections::BTreeSet;

use super::{Checkpoint, Micros, Place};

/// What is wanted of one shard: a part of its lease's row.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wanted {
    /// Raised by one with every change.
    pub version: u64,
    /// Deliver nothing.
    pub pause: Option<Pause>,
    /// Go on at another place.
    pub seek: Option<Seek>,
    /// Give records up.
    pub skip: Option<Skip>,
}

/// What is wanted of all shards and hosts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FleetWanted {
    /// Raised by one with every change.
    pub version: u64,
    /// Deliver nothing, on any shard.
    pub pause: Option<Pause>,
    /// Hosts that are to hand over what they hold and to take nothing.
    pub drained: BTreeSet<String>,
}

/// Nothing is delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pause {
    /// No two have the same number.
    pub number: u64,
    /// When it ends by itself, by the true clock; hosts go by their wall clocks.
    pub until: Option<Micros>,
}

/// A shard goes on at another place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seek {
    /// What the row's checkpoint then is: everything before the place, and nothing of it.
    pub to: Checkpoint,
    /// Whether a shard that is past the place stays where it is.
    pub only_forward: bool,
    /// Whether the plugin's state is kept as it is, and not removed.
    pub keeps_state: bool,
}

impl Seek {
    /// Whether a shard at `checkpoint` is past the place and stays where it is. One that is right
    /// there begins again.
    pub fn is_passed(&self, checkpoint: &Checkpoint) -> bool {
        match &self.to {
            Checkpoint::At(to) => {
                self.only_forward && checkpoint.covers(to) && *checkpoint != self.to
            }
            Checkpoint::Initial | Checkpoint::End => false,
        }
    }
}

/// Records are given up without being delivered, or delivered again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skip {
    /// The first.
    pub first: Place,
    /// The last, with all that was packed into it.
    pub last: Place,
    /// Whether they are stored as dead letters first.
    pub is_stored: bool,
}

impl Skip {
    /// Whether `place` is one of the records.
    pub fn has(&self, place: &Place) -> bool {
        self.first.sequence <= place.sequence && place.sequence <= self.last.sequence
    }
}

#[cfg(test)]
mod tests {
    use super::super::Sequence;
    use super::*;

    #[test]
    fn only_a_shard_that_is_past_the_place_stays_where_it_is() {
        let at = |digits, sub| {
            let sequence = Sequence::new(digits);
            Checkpoint::At(Place { sequence, sub })
        };
        let seek = Seek {
            to: at("21", u64::MAX),
            only_forward: true,
            keeps_state: false,
        };
        assert!(!seek.is_passed(&at("21", 0)));
        assert!(
            !seek.is_passed(&at("21", u64::MAX)),
            "it begins again there"
        );
        assert!(seek.is_passed(&at("22", 0)));
        let back = Seek {
            only_forward: false,
            ..seek
        };
        assert!(!back.is_passed(&at("22", 0)));
    }
}
