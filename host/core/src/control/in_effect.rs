use std::time::Duration;

use super::{Direction, Directives, Pause, Seek, Skip, StateEdit, Stays};
use crate::lease::Checkpoint;
use crate::seeded_bug::SeededBug;

/// Everything that is wanted of one shard, as its holder has read it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Directed {
    /// In the lease's row.
    pub own: Directives,
    /// The pause of all shards, from the control row; `None` if there is none.
    pub fleet_pause: Option<Pause>,
}

/// How far a shard is, as its holder knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reached {
    /// Everything up to here is settled.
    pub checkpoint: Checkpoint,
    /// When the last settled record arrived, in milliseconds since the Unix epoch; `None` if that
    /// is not known.
    pub arrival_ms: Option<u64>,
    /// Whether there is nothing after it for now.
    pub is_all_read: bool,
}

/// What the holder does next to obey, between two batches.
#[derive(Debug, PartialEq, Eq)]
pub enum NextStep<'a> {
    /// Nothing: it delivers.
    GoOn,
    /// It goes to another place, also while the shard is paused.
    Seek(&'a Seek),
    /// It stays where it is, and takes the seek out of the row.
    EndSeek(&'a Seek, Stays),
    /// It replaces or removes the plugin's state, also while the shard is paused.
    EditState(&'a StateEdit),
    /// It takes the directive out of the row: the checkpoint is past the records.
    EndSkip(&'a Skip),
    /// It delivers nothing, until it is told otherwise or the pause ends.
    StayPaused(&'a Pause),
}

impl Directed {
    /// What to do next, on a shard that has come this far.
    pub fn next_step(&self, reached: &Reached, wall_ms: u64) -> NextStep<'_> {
        if let Some(seek) = &self.own.seek {
            if seek.is_passed(reached) && !SeededBug::ForwardSeekGoesBack.is_on() {
                return NextStep::EndSeek(seek, Stays::IsPast);
            }
            return NextStep::Seek(seek);
        }
        let edit = self.own.state.as_ref();
        if let Some(edit) = edit.filter(|edit| edit.is_waiting()) {
            return NextStep::EditState(edit);
        }
        if let Some(skip) = &self.own.skip
            && is_past(reached, skip)
        {
            return NextStep::EndSkip(skip);
        }
        match self.pause_in_effect(wall_ms) {
            Some(pause) if !SeededBug::PauseIsForgotten.is_on() => NextStep::StayPaused(pause),
            _ => NextStep::GoOn,
        }
    }

    /// The pause that holds the shard, its own before the fleet's.
    fn pause_in_effect(&self, wall_ms: u64) -> Option<&Pause> {
        let pauses = [&self.own.pause, &self.fleet_pause];
        let mut pauses = pauses.into_iter().flatten();
        pauses.find(|pause| pause.is_in_effect(wall_ms))
    }

    /// How long until the pause that is in effect ends by itself; `None` if it does not.
    pub fn pause_ends_in(&self, wall_ms: u64) -> Option<Duration> {
        let until = self.pause_in_effect(wall_ms)?.until_ms?;
        Some(Duration::from_millis(until.saturating_sub(wall_ms)))
    }

    /// Takes over what a look at the row showed, unless that is older than what is known.
    /// Whether it is news.
    pub fn see(&mut self, seen: &Directives) -> bool {
        let is_news = seen.version > self.own.version;
        if is_news {
            self.own = seen.clone();
        }
        is_news
    }
}

impl Seek {
    /// Whether a shard that was to go forward has come past the place.
    fn is_passed(&self, reached: &Reached) -> bool {
        let way = Direction::to(&self.to, &reached.checkpoint, reached.arrival_ms);
        self.only_forward && way == Some(Direction::Back)
    }
}

/// Whether everything up to the last of the records, packed ones included, is settled. A checkpoint
/// at that record may be in the middle of what was packed into it.
fn is_past(reached: &Reached, skip: &Skip) -> bool {
    let last = skip.records.last();
    match &reached.checkpoint {
        Checkpoint::ShardEnd => true,
        Checkpoint::At(position) => {
            position.sequence > *last || reached.is_all_read && position.sequence == *last
        }
        Checkpoint::AtTimestamp
        | Checkpoint::Sought(_)
        | Checkpoint::TrimHorizon
        | Checkpoint::Latest => false,
    }
}

#[cfg(test)]
#[path = "in_effect_tests.rs"]
mod tests;
