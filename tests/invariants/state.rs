//! S18: a plugin's state is that of the checkpoint.

use crate::history::{Checkpoint, Event, Place, What};
use crate::violation::{Invariant, Report};
use crate::world::{Shard, StateBase, TenureKey, World};

pub(crate) fn judge(world: &World, event: &Event, report: &mut Report) {
    let What::StateLoaded {
        host,
        shard,
        epoch,
        counted,
    } = &event.what
    else {
        return;
    };
    let key = TenureKey {
        host: host.clone(),
        shard: shard.clone(),
        epoch: *epoch,
    };
    // One that lost the lease meanwhile, or reads another stream by now, settles nothing.
    let Some(facts) = world.table.rows.get(shard) else {
        return;
    };
    let holds = facts.row.owner.as_ref() == Some(host) && facts.epoch == Some(*epoch);
    let Some(tenure) = world
        .tenures
        .get(&key)
        .filter(|tenure| holds && tenure.generation == world.stream.generation)
    else {
        return;
    };
    let Some(truth) = world.shard_of(tenure) else {
        return;
    };
    let StateBase::From(from) = &truth.state else {
        return;
    };
    let checkpoints = (from, &facts.row.checkpoint);
    if let Some(what) = broken(world, shard, truth, checkpoints, counted) {
        report.add(
            Invariant::S18,
            format!(
                "{host} starts {shard} at {:?}: {what}",
                facts.row.checkpoint
            ),
        );
    }
}

fn broken(
    world: &World,
    shard: &str,
    truth: &Shard,
    (from, checkpoint): (&Checkpoint, &Checkpoint),
    counted: &[Place],
) -> Option<String> {
    let mut sorted: Vec<&Place> = counted.iter().collect();
    sorted.sort_unstable();
    if let Some([twice, _]) = sorted.array_windows().find(|[place, next]| place == next) {
        return Some(format!("{twice:?} counts twice"));
    }
    if let Some(place) = counted.iter().find(|place| !checkpoint.covers(place)) {
        return Some(format!("{place:?} counts already"));
    }
    if let Some(place) = counted.iter().find(|place| from.covers(place)) {
        return Some(format!("{place:?} counts, though its state was removed"));
    }
    let counts = |place: &Place| sorted.binary_search(&place).is_ok();
    let is_missing = |place: &&Place| !counts(place) && !world.was_given_up(shard, place);
    let missing = truth.due(from, checkpoint).find(is_missing)?;
    Some(format!("{missing:?} does not count"))
}
