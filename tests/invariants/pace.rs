//! S15: while nothing is wrong but with other plugins or, in order by key, with other keys, records
//! are settled as fast as ever.

use std::collections::BTreeSet;

use crate::history::{Checkpoint, Event, Micros, Place, What};
use crate::limits::Limits;
use crate::violation::{Invariant, Report};
use crate::world::World;

/// Since when it is calm.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    calm_since: Option<Micros>,
    /// Shards and keys of which a plugin reported a record.
    failed: BTreeSet<(String, String)>,
}

impl Pace {
    pub(crate) fn judge(
        &mut self,
        world: &World,
        event: &Event,
        limits: &Limits,
        report: &mut Report,
    ) {
        match &event.what {
            What::Calm(true) => {
                self.calm_since.get_or_insert(event.at);
            }
            What::Calm(false) => self.calm_ends(world, event.at, limits, report),
            What::DeliveryEnded { id, failed, .. } if limits.policy.by_key => {
                self.note_failed(world, *id, failed);
            }
            _ => {}
        }
    }

    fn note_failed(&mut self, world: &World, id: u64, failed: &[Place]) {
        let Some(delivery) = world.in_flight.get(&id) else {
            return;
        };
        let Some(shard) = world.stream.shard(&delivery.shard) else {
            return;
        };
        let keys = failed.iter().filter_map(|place| shard.keys.get(place));
        self.failed
            .extend(keys.map(|key| (delivery.shard.clone(), key.clone())));
    }

    /// Calm is over, or the run is.
    pub(crate) fn calm_ends(
        &mut self,
        world: &World,
        at: Micros,
        limits: &Limits,
        report: &mut Report,
    ) {
        let (Some(since), Some(bound)) = (self.calm_since.take(), limits.bounds.paced_within)
        else {
            return;
        };
        for (id, shard) in world.stream.current() {
            let has_failed = |place: &Place| {
                let key = shard.keys.get(place).cloned().unwrap_or_default();
                self.failed.contains(&(id.to_owned(), key))
            };
            let is_late = |place: &&Place| {
                let due_by = shard.records[*place].max(since).saturating_add(bound);
                due_by < at
                    && shard
                        .settled
                        .get(*place)
                        .is_none_or(|settled| settled.first_at > due_by)
                    && !has_failed(place)
            };
            let mut late = shard
                .due(&Checkpoint::Initial, &Checkpoint::End)
                .filter(is_late);
            if let Some(first) = late.next() {
                let count = 1 + late.count();
                let what = format!(
                    "{count} record(s) of {id} took more than {bound} us in calm, the first {first:?}"
                );
                report.add(Invariant::S15, what);
            }
        }
    }
}
