//! S19: where an application begins to read is chosen once, as it was configured, and kept.

use crate::history::{Checkpoint, Delivery, Event, HostChange, Micros, Start, What};
use crate::limits::{InitialPosition, Limits};
use crate::violation::{Invariant, Report};
use crate::world::World;

/// What the choice is judged by.
#[derive(Debug, Default)]
pub(crate) struct Starting {
    /// When the first host started.
    first_host_at: Option<Micros>,
    /// The stream that the last choice was made for.
    chosen_for: Option<usize>,
}

impl Starting {
    pub(crate) fn judge(
        &mut self,
        world: &World,
        event: &Event,
        limits: &Limits,
        report: &mut Report,
    ) {
        match &event.what {
            What::Host {
                change: HostChange::Started,
                ..
            } => {
                self.first_host_at.get_or_insert(event.at);
            }
            What::StartChosen(start) => {
                report.add_all(Invariant::S19, self.chosen_again(world, *start));
                if !self.is_configured(*start, event.at, limits) {
                    let configured = &limits.initial_positions;
                    report.add(
                        Invariant::S19,
                        format!("{start:?} was chosen, hosts are configured with {configured:?}"),
                    );
                }
                self.chosen_for = Some(world.stream.generation);
            }
            What::DeliveryStarted(delivery) => {
                report.add_all(Invariant::S19, elsewhere(world, delivery));
            }
            _ => {}
        }
    }

    /// Only an empty table, or another stream, is a new beginning.
    fn chosen_again(&self, world: &World, start: Start) -> Option<String> {
        let is_same_stream = self.chosen_for == Some(world.stream.generation);
        let before = world
            .stream
            .start
            .filter(|before| is_same_stream && *before != start)?;
        (!world.table.rows.is_empty())
            .then(|| format!("{start:?} was chosen, although {before:?} was before"))
    }

    fn is_configured(&self, start: Start, now: Micros, limits: &Limits) -> bool {
        limits
            .initial_positions
            .iter()
            .any(|position| match (position, start) {
                (InitialPosition::Oldest, Start::Oldest) => true,
                (InitialPosition::At(configured), Start::At(moment)) => *configured == moment,
                // What arrives once the start is written down is not skipped.
                (InitialPosition::Latest, Start::At(moment)) => {
                    let earliest = self
                        .first_host_at
                        .unwrap_or_default()
                        .saturating_sub(limits.latest_error);
                    (earliest..=now).contains(&moment)
                }
                _ => false,
            })
    }
}

/// A delivery without a checkpoint to start from that does not begin at the start either.
fn elsewhere(world: &World, delivery: &Delivery) -> Option<String> {
    let tenure = world
        .tenure_of(delivery)
        .filter(|tenure| tenure.start == Checkpoint::Initial)?;
    let Delivery { host, shard, .. } = delivery;
    let moment = match world.stream.start {
        Some(Start::Oldest) => return None,
        Some(Start::At(moment)) => moment,
        None => {
            return Some(format!(
                "{host} delivers {shard} before it was chosen where to begin"
            ));
        }
    };
    let truth = world
        .shard_of(tenure)
        .filter(|truth| !truth.is_interfered)?;
    let is_before =
        |place: &&crate::history::Place| truth.arrivals.get(*place).is_some_and(|at| *at < moment);
    let early = delivery.places.iter().find(is_before)?;
    Some(format!(
        "{host} delivers {early:?} of {shard}, which arrived before the start at {moment}"
    ))
}
