use std::fmt;

use super::Asked;
use crate::lease::Checkpoint;
use crate::stream::{LeaseKey, ShardId};

/// What the key of a staged state begins with. No shard has a `:` in its id.
const STAGED: &str = "staged";

/// The plugin's state of a shard is replaced or removed. Gone from the row with the write that does
/// it; stays, with the reason, if the holder cannot do it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateEdit {
    /// The state from then on.
    pub to: NewState,
    /// Where the shard must be, or goes.
    pub at: StateAt,
    /// Who asked for it, when and why.
    pub asked: Asked,
    /// Why the holder did not do it; then it is not tried again.
    pub refused: Option<String>,
}

/// A state that replaces another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NewState {
    /// None: the plugin starts without any.
    None,
    /// The one in this row of the state table, which goes away with the edit.
    Staged(LeaseKey),
}

/// The place that a state is for. A state is that of all records up to a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StateAt {
    /// Wherever the shard is.
    Anywhere,
    /// Only if the shard is there.
    Only(Checkpoint),
    /// The shard goes there.
    GoTo(Checkpoint),
}

/// What the holder of a shard knows when it is to replace the state.
#[derive(Debug, Clone, Copy)]
pub struct EditFacts<'a> {
    /// How far the shard is settled.
    pub settled: &'a Checkpoint,
    /// Whether the plugin keeps state.
    pub keeps_state: bool,
    /// Bytes of the staged state; `None` if it is not there.
    pub staged_bytes: Option<usize>,
    /// The most bytes that a state of the plugin may have.
    pub bytes_max: usize,
}

/// Why a holder does not replace a state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EditRefusal {
    /// The plugin keeps none.
    KeepsNone,
    /// The shard is not where the state is for.
    Elsewhere {
        /// The checkpoint of the state.
        wanted: Box<Checkpoint>,
        /// The checkpoint of the shard.
        settled: Box<Checkpoint>,
    },
    /// The staged state is gone.
    NotStaged,
    /// The state is larger than the plugin's may be.
    TooLarge {
        /// Its bytes.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
}

impl StateEdit {
    /// Whether a holder is to do it.
    pub fn is_waiting(&self) -> bool {
        self.refused.is_none()
    }

    /// The row of the state that is to be taken over.
    pub fn staged(&self) -> Option<&LeaseKey> {
        match &self.to {
            NewState::None => None,
            NewState::Staged(key) => Some(key),
        }
    }

    /// Where the shard goes on with the new state.
    ///
    /// # Errors
    ///
    /// If the holder must leave the state as it is.
    pub fn place(&self, facts: &EditFacts<'_>) -> Result<Checkpoint, EditRefusal> {
        if !facts.keeps_state {
            return Err(EditRefusal::KeepsNone);
        }
        if self.staged().is_some() {
            let bytes = facts.staged_bytes.ok_or(EditRefusal::NotStaged)?;
            check_size(bytes, facts.bytes_max)?;
        }
        match &self.at {
            StateAt::Anywhere => Ok(facts.settled.clone()),
            StateAt::GoTo(place) => Ok(place.clone()),
            StateAt::Only(wanted) if wanted == facts.settled => Ok(wanted.clone()),
            StateAt::Only(wanted) => Err(EditRefusal::Elsewhere {
                wanted: Box::new(wanted.clone()),
                settled: Box::new(facts.settled.clone()),
            }),
        }
    }
}

fn check_size(bytes: usize, bytes_max: usize) -> Result<(), EditRefusal> {
    if bytes > bytes_max {
        return Err(EditRefusal::TooLarge { bytes, bytes_max });
    }
    Ok(())
}

/// The row in which a command leaves a state for the holder of `shard`. `id` is that of the
/// command, so that no command writes over what another one left.
pub fn staged_key(shard: &ShardId, id: u64) -> Option<LeaseKey> {
    LeaseKey::new(format!("{STAGED}:{id:016x}:{shard}")).ok()
}

/// For people: what becomes of the state.
impl fmt::Display for StateEdit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.to, &self.at) {
            (NewState::None, _) => f.write_str("state removed")?,
            (NewState::Staged(_), StateAt::Anywhere) => f.write_str("state replaced")?,
            (NewState::Staged(_), StateAt::Only(at)) => write!(f, "state replaced, if at {at}")?,
            (NewState::Staged(_), StateAt::GoTo(to)) => {
                write!(f, "state replaced, continuing after {to}")?;
            }
        }
        if let Some(why) = &self.refused {
            write!(f, " (refused: {})", crate::text::one_line(why))?;
        }
        Ok(())
    }
}

/// What is wrong and how to go on.
impl fmt::Display for EditRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KeepsNone => f.write_str(
                "the plugin keeps no state: its manifest needs grants.state and the configuration \
                    must allow it",
            ),
            Self::Elsewhere { wanted, settled } => write!(
                f,
                "the shard is at {settled}, and the state is that of {wanted}: --go-back sends the \
                    shard there, --any-checkpoint takes the state as that of where the shard is"
            ),
            Self::NotStaged => f.write_str("the state that was left for it is gone: import again"),
            Self::TooLarge { bytes, bytes_max } => write!(
                f,
                "the state has {bytes} bytes, and limits.state allows {bytes_max}: raise the limit \
                    first"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::{Position, SequenceNumber};

    fn at(number: &str) -> Checkpoint {
        Checkpoint::At(Position::plain(SequenceNumber::parse(number).unwrap()))
    }

    fn edit(to: NewState, at: StateAt) -> StateEdit {
        StateEdit {
            to,
            at,
            asked: Asked {
                by: "me".to_owned(),
                why: "test".to_owned(),
                at_ms: 0,
            },
            refused: None,
        }
    }

    fn staged() -> NewState {
        let shard = ShardId::new("shardId-000000000000").unwrap();
        NewState::Staged(staged_key(&shard, 7).unwrap())
    }

    fn facts(settled: &Checkpoint) -> EditFacts<'_> {
        EditFacts {
            settled,
            keeps_state: true,
            staged_bytes: Some(10),
            bytes_max: 10,
        }
    }

    #[test]
    fn a_state_is_only_taken_as_that_of_another_place_if_that_is_wanted() {
        let (here, there) = (at("7"), at("9"));
        let facts = facts(&here);
        let only = |place: &Checkpoint| edit(staged(), StateAt::Only(place.clone()));
        assert_eq!(only(&here).place(&facts), Ok(here.clone()));
        assert_eq!(
            only(&there).place(&facts),
            Err(EditRefusal::Elsewhere {
                wanted: Box::new(there.clone()),
                settled: Box::new(here.clone()),
            })
        );
        let goes = edit(staged(), StateAt::GoTo(there.clone()));
        assert_eq!(goes.place(&facts), Ok(there));
        let anywhere = edit(staged(), StateAt::Anywhere);
        assert_eq!(anywhere.place(&facts), Ok(here.clone()));
    }

    #[test]
    fn a_state_that_is_too_large_or_gone_or_for_a_plugin_without_state_is_refused() {
        let here = at("7");
        let anywhere = edit(staged(), StateAt::Anywhere);
        let too_large = EditFacts {
            staged_bytes: Some(11),
            ..facts(&here)
        };
        let expected = EditRefusal::TooLarge {
            bytes: 11,
            bytes_max: 10,
        };
        assert_eq!(anywhere.place(&too_large), Err(expected));
        let gone = EditFacts {
            staged_bytes: None,
            ..facts(&here)
        };
        assert_eq!(anywhere.place(&gone), Err(EditRefusal::NotStaged));
        let none = EditFacts {
            keeps_state: false,
            ..facts(&here)
        };
        assert_eq!(anywhere.place(&none), Err(EditRefusal::KeepsNone));
        let removed = edit(NewState::None, StateAt::Anywhere);
        assert_eq!(removed.place(&gone), Ok(here.clone()), "nothing is needed");
    }

    #[test]
    fn a_staged_state_has_a_key_that_no_shard_has_and_names_its_shard() {
        let shard = ShardId::new("shardId-000000000003").unwrap();
        let key = staged_key(&shard, 7).unwrap();
        assert_ne!(key, LeaseKey::of_shard(&shard));
        assert_eq!(key.shard_id(), shard);
        assert_ne!(staged_key(&shard, 8), Some(key));
        assert_eq!(ShardId::new("staged:7:shard").ok(), None);
    }
}
