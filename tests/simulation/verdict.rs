//! Whether a run was right: nothing lost, no checkpoint moved back, everything settled in the end.

use std::collections::{BTreeMap, BTreeSet};

use shardmill_invariants::history::{Checkpoint, Outcome, Place, What, WriteKind};

use crate::world::World;

/// What keeps the fleet from being settled: a line for each shard that is not.
pub fn unsettled(world: &World, alive: &BTreeSet<String>) -> Vec<String> {
    let rows = world.tables.leases();
    let mut missing = Vec::new();
    for (shard, truth) in world.stream.shards() {
        let Some(row) = rows.get(&shard) else {
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

/// Records that no delivery handled.
pub fn lost(world: &World) -> Vec<String> {
    let mut deliveries = BTreeMap::new();
    let mut settled: BTreeSet<(String, Place)> = BTreeSet::new();
    let mut produced = Vec::new();
    for event in world.history() {
        match event.what {
            What::Produced { shard, at, key } => produced.push((shard, at, key)),
            What::DeliveryStarted(delivery) => drop(deliveries.insert(delivery.id, delivery)),
            What::DeliveryEnded { id, outcome: Outcome::Ok, failed } => {
                let Some(delivery) = deliveries.remove(&id) else { continue };
                let handled = delivery.places.into_iter().filter(|place| !failed.contains(place));
                settled.extend(handled.map(|place| (delivery.shard.clone(), place)));
            }
            _ => {}
        }
    }
    let is_lost = |(shard, at, _): &(String, Place, String)| !settled.contains(&(shard.clone(), at.clone()));
    produced.into_iter().filter(is_lost).map(|(shard, at, key)| format!("lost: {key} at {at:?} of {shard}")).collect()
}

/// Writes that moved a checkpoint back.
pub fn unsafe_writes(world: &World) -> Vec<String> {
    let mut wrong = Vec::new();
    for event in world.history() {
        let What::Written(write) = event.what else { continue };
        let (Some(before), Some(after)) = (&write.before, &write.after) else { continue };
        if after.checkpoint < before.checkpoint && write.kind != WriteKind::Admin {
            wrong.push(format!("S3 checkpoint moved back at {}: {write:?}", event.at));
        }
    }
    wrong
}
