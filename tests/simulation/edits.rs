//! Lease rows that somebody edits or removes by hand, while hosts run.

use shardmill_core::lease::{Checkpoint, LeaseCounter, WorkerId};
use shardmill_core::stream::{LeaseKey, Position, SequenceNumber};
use shardmill_fakes::lease_rows::LeaseRows;
use shardmill_invariants::history::Place;

use crate::driver::Driver;

/// What is done to a row.
#[derive(Debug, Clone)]
pub enum Edit {
    /// It has no owner any more.
    Free,
    /// It names an owner that nobody knows.
    GiveToNobody,
    /// It is free, and its checkpoint is an earlier one; the oldest record if `None`.
    SetBack(Option<Position>),
    /// It is removed.
    Remove,
}

impl Edit {
    /// Does it.
    pub fn apply(&self, rows: &mut LeaseRows, key: &LeaseKey) {
        if matches!(self, Self::Remove) {
            return drop(rows.remove(key));
        }
        let Some(mut row) = rows.get(key).cloned() else {
            return;
        };
        match self {
            Self::Remove => {}
            Self::Free => row.owner = None,
            Self::GiveToNobody => row.owner = WorkerId::new("nobody-knows-me"),
            Self::SetBack(to) => {
                row.owner = None;
                row.counter = LeaseCounter(row.counter.0 + 1);
                row.checkpoint = to.clone().map_or(Checkpoint::TrimHorizon, Checkpoint::At);
            }
        }
        rows.put(row);
    }
}

fn position_of(place: &Place) -> Option<Position> {
    let sequence = SequenceNumber::parse(&format!("{:?}", place.sequence)).ok()?;
    Some(Position {
        sub_sequence: place.sub,
        ..Position::plain(sequence)
    })
}

impl Driver {
    /// Somebody edits the row of an open shard.
    pub(crate) fn edit_row(&mut self) {
        let world = self.any_world();
        let open = world.stream.open_shards();
        let shard = &open[self.dice.usize(..open.len())];
        let rows = world.tables.leases();
        let Some(row) = rows.get(shard) else { return };
        // What a plugin has in its state is not undone by a row.
        let kinds = if world.plan.options.keeps_state { 2 } else { 3 };
        let edit = match self.dice.u32(..kinds) {
            0 => Edit::Free,
            1 => Edit::GiveToNobody,
            _ => {
                let shards = world.stream.shards();
                let is_settled = |place: &&Place| {
                    row.checkpoint
                        >= shardmill_invariants::history::Checkpoint::At((*place).clone())
                };
                let settled: Vec<_> = shards[shard].places.iter().filter(is_settled).collect();
                let place = settled.get(self.dice.usize(..=settled.len()));
                Edit::SetBack(place.and_then(|place| position_of(place)))
            }
        };
        self.run.count(match edit {
            Edit::Free => "fault: row freed by hand",
            Edit::GiveToNobody => "fault: row given to nobody by hand",
            Edit::SetBack(_) => "fault: row set back by hand",
            Edit::Remove => "fault: row removed by hand",
        });
        world.tables.edit(&world, shard, &edit);
    }

    /// Somebody removes a row: of an open shard, of one that is read to its end, or of one that is
    /// not.
    pub(crate) fn delete_row(&mut self) {
        let world = self.any_world();
        let rows: Vec<String> = world.tables.leases().into_keys().collect();
        if rows.is_empty() {
            return;
        }
        self.run.count("fault: row removed by hand");
        world
            .tables
            .edit(&world, &rows[self.dice.usize(..rows.len())], &Edit::Remove);
    }
}
