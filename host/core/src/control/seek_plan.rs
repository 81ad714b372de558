//! What a seek does to each shard, for the command that shows it and for the one that does it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::{Asked, Direction, Directives, Place, Seek, SeekState};
use crate::lease::{Checkpoint, Lease};
use crate::stream::{LeaseKey, Shard, ShardId};

/// A seek that somebody asks for, and what is known of the shards.
pub struct SeekRequest<'a> {
    /// The place where the shards are to continue.
    pub to: &'a Place,
    /// Whether it was asked for as a place after the checkpoint, such as the tip: then no shard
    /// goes back to it, also where its row does not say when the last settled record arrived.
    pub is_ahead: bool,
    /// The shards that are to go there; `None` means all.
    pub only: Option<&'a BTreeSet<ShardId>>,
    /// Whether shards that were read to their end are read again.
    pub reopens_finished: bool,
    /// What becomes of the plugin's state. `None`: shards with state are refused.
    pub state: Option<SeekState>,
    /// Who asks for the seek, when and why.
    pub asked: &'a Asked,
    /// All rows of the lease table.
    pub rows: &'a [Lease],
    /// The shards that may hold records at the place or after it.
    pub listed: &'a [Shard],
    /// The shards that have a state.
    pub with_state: &'a BTreeSet<LeaseKey>,
}

/// What a seek does to one shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardSeek {
    /// The shard that is sent elsewhere.
    pub shard: ShardId,
    /// Where it is now; `None` if it has no row any more.
    pub from: Option<Checkpoint>,
    /// The place where it is to continue.
    pub to: Place,
    /// What a command has to write for that.
    pub step: SeekStep,
}

/// What is done to one shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SeekStep {
    /// The holder is told, or whoever takes the lease next.
    Direct {
        /// The row as it was seen.
        seen: Box<Lease>,
        /// Its directives from now on.
        next: Box<Directives>,
    },
    /// The row of a finished shard is opened again.
    Reopen(Box<Lease>),
    /// The row of a finished shard, which was removed, is made again.
    Create(Box<Lease>),
    /// Nothing may be done.
    Refuse(SeekRefusal),
}

/// Why a shard is not sent to another place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SeekRefusal {
    /// It has neither a row nor records.
    Unknown,
    /// It was read to its end.
    Finished,
    /// The plugin has a state that would not match.
    HasState,
    /// Another command's seek, or change of the state, waits to be done.
    Waiting {
        /// What waits, who wants it and why.
        what: String,
    },
}

impl SeekRefusal {
    /// A stable word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Finished => "finished",
            Self::HasState => "has-state",
            Self::Waiting { .. } => "waiting",
        }
    }
}

/// What is wrong and how to go on.
impl fmt::Display for SeekRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = match self {
            Self::Waiting { what } => {
                return write!(
                    f,
                    "something else waits to be done: {what}; wait until it is, or take it back \
                        with `shardmill seek APPLICATION --cancel` or `shardmill state import \
                        APPLICATION --cancel`"
                );
            }
            Self::Unknown => "there is no such shard in the lease table or in the stream",
            Self::Finished => {
                "it was read to its end; --reopen reads it again, and its children after it from \
                    their beginning"
            }
            Self::HasState => {
                "the plugin has a state that belongs to the old place; --state keep or --state \
                    drop says what becomes of it"
            }
        };
        f.write_str(told)
    }
}

/// What the seek does to each shard it concerns, parents before children: that is the order in
/// which to do it. A child that went to its beginning before its parent is open again would start
/// without waiting for it.
pub fn plan_seek(request: &SeekRequest<'_>) -> Vec<ShardSeek> {
    let seeking = Seeking::of(request);
    let order = seeking.parents_first();
    order.into_iter().map(|shard| seeking.plan(shard)).collect()
}

struct Seeking<'a> {
    request: &'a SeekRequest<'a>,
    rows: BTreeMap<ShardId, &'a Lease>,
    listed: BTreeMap<&'a ShardId, &'a Shard>,
    concerned: BTreeSet<ShardId>,
}

impl<'a> Seeking<'a> {
    fn of(request: &'a SeekRequest<'a>) -> Self {
        let rows = request.rows.iter();
        let listed = request.listed.iter();
        let mut seeking = Self {
            request,
            rows: rows.map(|row| (row.key.shard_id(), row)).collect(),
            listed: listed.map(|shard| (&shard.id, shard)).collect(),
            concerned: BTreeSet::new(),
        };
        seeking.concerned = seeking.chosen();
        if request.reopens_finished {
            seeking.add_descendants();
        }
        seeking
    }

    /// Those that were named; or all that are not finished, and, if finished ones are opened again,
    /// those that may hold records from the place on.
    fn chosen(&self) -> BTreeSet<ShardId> {
        if let Some(only) = self.request.only {
            return only.clone();
        }
        let open = self.rows.iter().filter(|(_, row)| !row.is_finished());
        let mut chosen: BTreeSet<ShardId> = open.map(|(id, _)| id.clone()).collect();
        if self.request.reopens_finished {
            let listed = self.listed.values();
            chosen.extend(listed.map(|shard| shard.id.clone()));
        }
        chosen
    }

    /// What comes after a shard that is read again is read again as well.
    fn add_descendants(&mut self) {
        loop {
            let all = self.rows.keys().chain(self.listed.keys().copied());
            let more: Vec<ShardId> = all
                .filter(|id| !self.concerned.contains(*id) && self.follows_concerned(id))
                .cloned()
                .collect();
            if more.is_empty() {
                return;
            }
            self.concerned.extend(more);
        }
    }

    fn parents(&self, shard: &ShardId) -> &'a [ShardId] {
        let row = self.rows.get(shard).map(|row| row.parents.as_slice());
        let listed = self.listed.get(shard).map(|shard| shard.parents.as_slice());
        row.filter(|parents| !parents.is_empty())
            .or(listed)
            .unwrap_or_default()
    }

    fn follows_concerned(&self, shard: &ShardId) -> bool {
        let mut parents = self.parents(shard).iter();
        parents.any(|parent| self.concerned.contains(parent))
    }

    /// Shards without a concerned parent first, and so on. Rows are anybody's: in a circle of
    /// parents, those that are left come in the order of their ids.
    fn parents_first(&self) -> Vec<&ShardId> {
        let mut order = Vec::new();
        let mut left: BTreeSet<&ShardId> = self.concerned.iter().collect();
        while !left.is_empty() {
            let waits = |shard: &&ShardId| {
                let mut parents = self.parents(shard).iter();
                parents.any(|parent| left.contains(parent))
            };
            let mut ready: Vec<&ShardId> = left.iter().copied().filter(|id| !waits(id)).collect();
            if ready.is_empty() {
                ready = left.iter().copied().collect();
            }
            for shard in &ready {
                left.remove(shard);
            }
            order.extend(ready);
        }
        order
    }

    fn plan(&self, shard: &ShardId) -> ShardSeek {
        let to = self.place_of(shard);
        let row = self.rows.get(shard).copied();
        ShardSeek {
            shard: shard.clone(),
            from: row.map(|row| row.checkpoint.clone()),
            step: match row.and_then(waiting_in) {
                Some(what) => SeekStep::Refuse(SeekRefusal::Waiting { what }),
                None => self.step(shard, row, &to),
            },
            to,
        }
    }

    fn step(&self, shard: &ShardId, row: Option<&Lease>, to: &Place) -> SeekStep {
        match row {
            Some(row) if self.is_refused_for_state(row) => SeekStep::Refuse(SeekRefusal::HasState),
            Some(row) if !row.is_finished() => self.direct(row, to),
            Some(_) | None if !self.request.reopens_finished => SeekStep::Refuse(match row {
                Some(_) => SeekRefusal::Finished,
                None if self.listed.contains_key(shard) => SeekRefusal::Finished,
                None => SeekRefusal::Unknown,
            }),
            Some(row) => SeekStep::Reopen(Box::new(row.clone())),
            None => match self.listed.get(shard) {
                Some(listed) => SeekStep::Create(Box::new(Lease::fresh(listed, to.checkpoint()))),
                None => SeekStep::Refuse(SeekRefusal::Unknown),
            },
        }
    }

    /// A shard that begins where one that is read again ends is read from its beginning.
    fn place_of(&self, shard: &ShardId) -> Place {
        if self.follows_concerned(shard) {
            return Place::Horizon;
        }
        self.request.to.clone()
    }

    fn is_refused_for_state(&self, row: &Lease) -> bool {
        self.request.state.is_none() && self.request.with_state.contains(&row.key)
    }

    /// Whether records are only left out. A child of a shard that is read again goes to the oldest
    /// record, wherever its parent was sent.
    fn leaves_out_only(&self, row: &Lease, to: &Place) -> bool {
        let way = Direction::to(to, &row.checkpoint, row.settled_arrival_ms);
        let is_ahead = self.request.is_ahead && *to != Place::Horizon;
        way == Some(Direction::Forward) || is_ahead
    }

    fn direct(&self, row: &Lease, to: &Place) -> SeekStep {
        let seek = Seek {
            to: to.clone(),
            only_forward: self.leaves_out_only(row, to),
            state: self.request.state.unwrap_or(SeekState::Absent),
            asked: self.request.asked.clone(),
        };
        let next = row.directives.changed(|next| next.seek = Some(seek));
        SeekStep::Direct {
            seen: Box::new(row.clone()),
            next: Box::new(next),
        }
    }
}

/// What waits to be done, of a shard that has not ended: nobody does it after that.
fn waiting_in(row: &Lease) -> Option<String> {
    if row.is_finished() {
        return None;
    }
    row.directives.waiting()
}

#[cfg(test)]
#[path = "seek_plan_tests.rs"]
mod tests;
