//! S20: what a plugin emitted is stored before a checkpoint covers the record that it came of.

use std::collections::{BTreeMap, BTreeSet};

use crate::history::{Event, Micros, Output, Place, What, Write, WriteKind};
use crate::violation::{Invariant, Report};
use crate::world::{TenureKey, World};

/// Outputs on their way.
#[derive(Debug, Default)]
pub(crate) struct Outputs {
    /// Emitted under each tenure and not yet covered by a checkpoint of it.
    emitted: BTreeMap<TenureKey, BTreeMap<Place, BTreeSet<u64>>>,
    /// When the sink stored what.
    stored: BTreeMap<u64, Micros>,
}

impl Outputs {
    pub(crate) fn judge(&mut self, world: &World, event: &Event, report: &mut Report) {
        match &event.what {
            What::Emitted {
                host,
                shard,
                epoch,
                outputs,
            } => {
                let key = TenureKey {
                    host: host.clone(),
                    shard: shard.clone(),
                    epoch: *epoch,
                };
                self.emitted(key, outputs);
            }
            What::Stored { output } => {
                self.stored.entry(*output).or_insert(event.at);
            }
            What::Written(write) => {
                report.add_all(Invariant::S20, self.covered(world, write));
                self.taken(write);
            }
            _ => {}
        }
    }

    /// A record that is delivered again emits again: what came of it before is not waited for any
    /// more.
    fn emitted(&mut self, key: TenureKey, outputs: &[Output]) {
        let of_grant = self.emitted.entry(key).or_default();
        for output in outputs {
            of_grant.remove(&output.of);
        }
        for output in outputs {
            of_grant
                .entry(output.of.clone())
                .or_default()
                .insert(output.id);
        }
    }

    /// Where a row was removed and made again, an epoch comes again too.
    fn taken(&mut self, write: &Write) {
        if let (WriteKind::Take { .. }, Some(host), Some(after)) =
            (write.kind, &write.by, &write.after)
        {
            let key = TenureKey {
                host: host.clone(),
                shard: write.key.clone(),
                epoch: after.counter,
            };
            self.emitted.remove(&key);
        }
    }

    fn covered(&mut self, world: &World, write: &Write) -> Option<String> {
        if !matches!(write.kind, WriteKind::Checkpoint | WriteKind::End) {
            return None;
        }
        let (after, tenure) = (write.after.as_ref()?, world.tenure_of_write(write)?);
        let of_grant = self.emitted.get_mut(&tenure.key)?;
        let is_covered = |place: &Place| after.checkpoint.covers(place);
        let is_stored = |id: &u64| {
            self.stored
                .get(id)
                .is_some_and(|stored_at| *stored_at <= write.sent_at)
        };
        let mut covered = of_grant.iter().filter(|(place, _)| is_covered(place));
        let missing = covered
            .find(|(_, ids)| !ids.iter().all(is_stored))
            .map(|(place, _)| place.clone());
        of_grant.retain(|place, _| !is_covered(place));
        let place = missing?;
        let (key, to) = (&write.key, &after.checkpoint);
        Some(format!(
            "{key} was checkpointed to {to:?}, but what came of {place:?} was not stored"
        ))
    }
}
