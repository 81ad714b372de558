//! Whether a run was right: every invariant holds of its history, and everything is settled in the end.

use std::collections::BTreeSet;
use std::time::Duration;

use shardmill_invariants::history::{Checkpoint, Micros};
use shardmill_invariants::{Bounds, Limits, check};

use crate::schedule::Schedule;
use crate::world::World;

/// What keeps the fleet from being settled: a line for each shard that is not.
pub fn unsettled(world: &World, alive: &BTreeSet<String>) -> Vec<String> {
    let rows = world.tables.leases();
    let mut missing = Vec::new();
    for (shard, truth) in world.stream.shards() {
        let Some(row) = rows.get(&shard) else {
            // A finished row is removed in time; whether all of the shard was settled before is for the invariants.
            if truth.is_closed && rows.values().any(|row| row.checkpoint != Checkpoint::Initial) {
                continue;
            }
            missing.push(format!("{shard} has no row"));
            continue;
        };
        let last = truth.places.last();
        let is_settled = match &row.checkpoint {
            Checkpoint::End => truth.is_closed,
            Checkpoint::At(at) => !truth.is_closed && last.is_some_and(|last| at >= last),
            Checkpoint::Initial => !truth.is_closed && last.is_none(),
        };
        let is_owned = truth.is_closed || row.owner.as_ref().is_some_and(|owner| alive.contains(owner));
        if !(is_settled && is_owned) {
            missing.push(format!(
                "{shard}: closed {}, owner {:?}, counter {}, checkpoint {:?}, last record {last:?}, parents {:?}",
                truth.is_closed, row.owner, row.counter, row.checkpoint, row.parents
            ));
        }
    }
    missing
}

/// What the invariants say of the whole run.
pub fn broken(world: &World, schedule: &Schedule, healed_at: Micros) -> Vec<String> {
    let options = &schedule.options;
    let batch = options.batches.records as u64;
    let limits = Limits {
        healed_at: Some(healed_at),
        // What makes a checkpoint due, the batch that overshoots it, and the batch in flight.
        repeats_max: options.checkpoints.records + 2 * batch,
        bounds: Bounds::default(),
        ..Limits::new(micros(options.leases.duration), world.now())
    };
    check(&world.history(), &limits).iter().map(ToString::to_string).collect()
}

fn micros(duration: Duration) -> Micros {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
