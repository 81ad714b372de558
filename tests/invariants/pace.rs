//! S15: while nothing is wrong but with other plugins, records are settled as fast as ever.

use crate::history::{Checkpoint, Event, Micros, Place, What};
use crate::limits::Limits;
use crate::violation::{Invariant, Report};
use crate::world::World;

/// Since when it is calm.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    calm_since: Option<Micros>,
}

impl Pace {
    pub(crate) fn judge(&mut self, world: &World, event: &Event, limits: &Limits, report: &mut Report) {
        match event.what {
            What::Calm(true) => {
                self.calm_since.get_or_insert(event.at);
            }
            What::Calm(false) => self.calm_ends(world, event.at, limits, report),
            _ => {}
        }
    }

    /// Calm is over, or the run is.
    pub(crate) fn calm_ends(&mut self, world: &World, at: Micros, limits: &Limits, report: &mut Report) {
        let (Some(since), Some(bound)) = (self.calm_since.take(), limits.bounds.paced_within) else { return };
        for (id, shard) in world.stream.current() {
            let is_late = |place: &&Place| {
                let due_by = shard.records[*place].max(since).saturating_add(bound);
                due_by < at && shard.settled.get(*place).is_none_or(|settled| settled.first_at > due_by)
            };
            let mut late = shard.due(&Checkpoint::Initial, &Checkpoint::End).filter(is_late);
            if let Some(first) = late.next() {
                let count = 1 + late.count();
                let what = format!("{count} record(s) of {id} took more than {bound} us in calm, the first {first:?}");
                report.add(Invariant::S15, what);
            }
        }
    }
}
