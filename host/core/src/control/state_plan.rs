//! What an import or a reset of states does to each shard, for the command that shows it and for
//! the one that does it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::{Asked, NewState, StateAt, StateEdit, staged_key};
use crate::lease::{Checkpoint, Lease};
use crate::stream::{LeaseKey, ShardId};

/// A state that somebody has in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundState {
    /// The shard that it is for.
    pub shard: ShardId,
    /// The place that it is for.
    pub checkpoint: Checkpoint,
    /// How large it is.
    pub bytes: usize,
}

/// How an import treats shards that are not where the state is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportPolicy {
    /// They are refused.
    Matching,
    /// They go there.
    GoTo,
    /// They stay where they are: the state is taken as that of their place.
    Anywhere,
}

/// What is done to the state of one shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardStateEdit {
    /// The shard whose state is edited.
    pub shard: ShardId,
    /// Its row as it was seen; `None` if it has none.
    pub row: Option<Lease>,
    /// What is done about its state.
    pub step: StateStep,
}

/// What is done to the state of one shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StateStep {
    /// The holder is told, or whoever takes the lease next.
    Direct(StateEdit),
    /// Nothing may be done.
    Refuse(StateRefusal),
}

/// Why the state of a shard is left alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StateRefusal {
    /// It has no row.
    Unknown,
    /// It was read to its end, where its state ended too.
    Finished,
    /// The file has two states for it.
    Twice,
    /// The state is that of another place.
    Elsewhere {
        /// The place of the state.
        state: Box<Checkpoint>,
        /// The place of the shard.
        shard: Box<Checkpoint>,
    },
    /// The state is larger than any may be.
    TooLarge {
        /// Its bytes.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// Kinesis knows no such place in the shard.
    Nowhere {
        /// The place.
        state: Box<Checkpoint>,
        /// What Kinesis says.
        why: String,
    },
    /// Another command's change of the state, or seek, waits to be done.
    Waiting {
        /// What waits, who wants it and why.
        what: String,
    },
}

/// What an import of `found` does to each shard, in the order of the file. `id` is that of the
/// command, see [`staged_key`]; no state may have more than `bytes_max` bytes.
pub fn plan_state_import(
    found: &[FoundState],
    rows: &[Lease],
    policy: ImportPolicy,
    bytes_max: usize,
    id: u64,
    asked: &Asked,
) -> Vec<ShardStateEdit> {
    let rows = by_shard(rows);
    let mut seen = BTreeSet::new();
    let mut plan = Vec::new();
    for state in found {
        let row = rows.get(&state.shard).copied();
        let step = if seen.insert(&state.shard) {
            import_step(state, row, policy, bytes_max, id, asked)
        } else {
            StateStep::Refuse(StateRefusal::Twice)
        };
        plan.push(ShardStateEdit {
            shard: state.shard.clone(),
            row: row.cloned(),
            step,
        });
    }
    plan
}

fn import_step(
    state: &FoundState,
    row: Option<&Lease>,
    policy: ImportPolicy,
    bytes_max: usize,
    id: u64,
    asked: &Asked,
) -> StateStep {
    let row = match editable(row) {
        Ok(row) => row,
        Err(refusal) => return StateStep::Refuse(refusal),
    };
    if state.bytes > bytes_max {
        let bytes = state.bytes;
        return StateStep::Refuse(StateRefusal::TooLarge { bytes, bytes_max });
    }
    let is_there = row.checkpoint == state.checkpoint;
    let at = match policy {
        ImportPolicy::Matching if !is_there => {
            return StateStep::Refuse(StateRefusal::Elsewhere {
                state: Box::new(state.checkpoint.clone()),
                shard: Box::new(row.checkpoint.clone()),
            });
        }
        ImportPolicy::Matching => StateAt::Only(state.checkpoint.clone()),
        ImportPolicy::GoTo => StateAt::GoTo(state.checkpoint.clone()),
        ImportPolicy::Anywhere => StateAt::Anywhere,
    };
    match staged_key(&state.shard, id) {
        Some(key) => direct(NewState::Staged(key), at, asked),
        None => StateStep::Refuse(StateRefusal::Unknown),
    }
}

/// What a reset does to each of these shards; to all that have a state, if none is named.
pub fn plan_state_reset(
    only: Option<&BTreeSet<ShardId>>,
    rows: &[Lease],
    with_state: &BTreeSet<LeaseKey>,
    asked: &Asked,
) -> Vec<ShardStateEdit> {
    let of_rows = || rows.iter().filter(|row| with_state.contains(&row.key));
    let all: BTreeSet<ShardId> = of_rows().map(|row| row.key.shard_id()).collect();
    let rows = by_shard(rows);
    let shards = only.unwrap_or(&all).iter();
    let edit = |shard: &ShardId| {
        let row = rows.get(shard).copied();
        ShardStateEdit {
            shard: shard.clone(),
            row: row.cloned(),
            step: match editable(row) {
                Ok(_) => direct(NewState::None, StateAt::Anywhere, asked),
                Err(refusal) => StateStep::Refuse(refusal),
            },
        }
    };
    shards.map(edit).collect()
}

fn by_shard(rows: &[Lease]) -> BTreeMap<ShardId, &Lease> {
    rows.iter().map(|row| (row.key.shard_id(), row)).collect()
}

/// The row, if its state may be edited.
fn editable(row: Option<&Lease>) -> Result<&Lease, StateRefusal> {
    let row = row.ok_or(StateRefusal::Unknown)?;
    if row.is_finished() {
        return Err(StateRefusal::Finished);
    }
    match row.directives.waiting() {
        Some(what) => Err(StateRefusal::Waiting { what }),
        None => Ok(row),
    }
}

fn direct(to: NewState, at: StateAt, asked: &Asked) -> StateStep {
    StateStep::Direct(StateEdit {
        to,
        at,
        asked: asked.clone(),
        refused: None,
    })
}

impl StateRefusal {
    /// A stable word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Finished => "finished",
            Self::Twice => "twice",
            Self::Elsewhere { .. } => "elsewhere",
            Self::TooLarge { .. } => "too-large",
            Self::Nowhere { .. } => "nowhere",
            Self::Waiting { .. } => "waiting",
        }
    }
}

/// What is wrong and how to go on.
impl fmt::Display for StateRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("the lease table has no such shard"),
            Self::Finished => f.write_str("it was read to its end, and its state ended with it"),
            Self::Twice => f.write_str("the file has more than one state of it: keep one"),
            Self::Elsewhere { state, shard } => write!(
                f,
                "the state is that of {state}, and the shard is at {shard}: --go-back sends the \
                    shard there, --any-checkpoint takes the state as that of where the shard is"
            ),
            Self::TooLarge { bytes, bytes_max } => {
                write!(f, "the state has {bytes} bytes; at most {bytes_max} fit")
            }
            Self::Nowhere { state, why } => write!(
                f,
                "the state is that of {state}, which is not in this shard, so that it could not go \
                    there: {why}"
            ),
            Self::Waiting { what } => write!(
                f,
                "something else waits to be done: {what}; wait until it is, or take it back with \
                    --cancel"
            ),
        }
    }
}

#[cfg(test)]
#[path = "state_plan_tests.rs"]
mod tests;
