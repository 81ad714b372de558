//! What the product decides of a heartbeat and of a lost answer, put into this model's terms.

use std::time::Duration;

use shardmill_core::lease::{
    Checkpoint, ConflictVerdict, Generation, Heartbeat, Hold, Lease, LeaseCounter, WorkerId,
    judge_conflict,
};
use shardmill_core::stream::{HashKeyRange, Shard, ShardId};
use shardmill_core::time::Moment;

use super::state::{Heart, Name, Row, Tenure};

/// The holder's or the watcher's clock at this moment: each step is looked at by itself.
pub(super) const NOW: Duration = Duration::from_secs(1_000);
pub(super) const TICK: Duration = Duration::from_secs(1);

/// So many ticks from now.
pub(super) fn in_ticks(ticks: u8) -> Moment {
    Moment::from_origin(NOW + TICK * ticks.into())
}

pub(super) fn worker_id(name: Name) -> WorkerId {
    let id = match name {
        Name::Holder => "holder",
        Name::Watcher => "watcher",
    };
    WorkerId::new(id).unwrap()
}

pub(super) fn lease(row: Row) -> Lease {
    let id = ShardId::new("shardId-000000000000").unwrap();
    let shard = Shard {
        id,
        parents: Vec::new(),
        hash_range: HashKeyRange::FULL,
        ending_sequence: None,
    };
    let (owner, counter) = (row.owner.map(worker_id), LeaseCounter(row.counter.into()));
    Lease {
        owner,
        counter,
        ..Lease::fresh(&shard, Checkpoint::TrimHorizon)
    }
}

/// What the row says of the holder's write that asked for `expected`.
pub(super) fn verdict(expected: u8, met: Row) -> ConflictVerdict {
    let written = Row {
        owner: Some(Name::Holder),
        counter: expected,
    };
    judge_conflict(
        &lease(written).token(worker_id(Name::Holder)),
        Some(&lease(met)),
    )
}

/// A heart as the product has it, and its last three generations, the newest first.
struct Rebuilt {
    heartbeat: Heartbeat,
    generations: [Generation; 3],
}

impl Rebuilt {
    fn new(heart: &Heart) -> Self {
        let mut heartbeat = Heartbeat::new(in_ticks(heart.left_before));
        let oldest = heartbeat.generation();
        heartbeat.row_gone();
        heartbeat.beaten(in_ticks(heart.left_before), Moment::default());
        let before = heartbeat.generation();
        heartbeat.row_gone();
        if !heart.is_row_gone {
            heartbeat.beaten(in_ticks(heart.left), Moment::default());
        }
        Self {
            heartbeat,
            generations: [heartbeat.generation(), before, oldest],
        }
    }

    /// Ticks until a lease must be let go that its own row holds for `left`.
    fn ticks_left(&self, left: u8, generation: Generation) -> u8 {
        let deadline = self.heartbeat.deadline(Hold {
            until: in_ticks(left),
            generation,
        });
        u8::try_from(deadline.since(in_ticks(0)).as_secs()).unwrap()
    }

    /// Writes the heart down again; tells whether a generation began.
    fn note(&self, heart: &mut Heart) -> bool {
        let newest = self.heartbeat.generation();
        let has_begun = newest != self.generations[0];
        let before = if has_begun {
            self.generations[0]
        } else {
            self.generations[1]
        };
        heart.left = self.ticks_left(0, newest);
        heart.left_before = self.ticks_left(0, before);
        has_begun
    }
}

/// Ticks until the holder must let its lease go.
pub(super) fn deadline(heart: &Heart, tenure: Tenure) -> u8 {
    let rebuilt = Rebuilt::new(heart);
    rebuilt.ticks_left(
        tenure.left,
        rebuilt.generations[usize::from(tenure.generations)],
    )
}

/// A heartbeat was applied that holds for `left` ticks. Whether a generation began.
pub(super) fn beaten(heart: &mut Heart, left: u8) -> bool {
    let mut rebuilt = Rebuilt::new(heart);
    rebuilt.heartbeat.beaten(in_ticks(left), in_ticks(0));
    heart.is_row_gone = false;
    rebuilt.note(heart)
}

/// The host's row was found gone. Whether a generation began.
pub(super) fn row_gone(heart: &mut Heart) -> bool {
    let mut rebuilt = Rebuilt::new(heart);
    rebuilt.heartbeat.row_gone();
    heart.is_row_gone = true;
    rebuilt.note(heart)
}
