//! S6 to S9 and S16: which records a tenure delivers, and in which order.

use std::collections::{BTreeMap, BTreeSet};

use crate::history::{Checkpoint, Delivery, Event, Micros, Outcome, Place, Start, What};
use crate::lanes;
use crate::limits::Limits;
use crate::violation::{Invariant, Report};
use crate::world::{Shard, Tenure, TenureKey, World, is_unfinished};

/// Counts repeats.
#[derive(Debug, Default)]
pub(crate) struct Delivering {
    repeats: BTreeMap<TenureKey, u64>,
}

impl Delivering {
    pub(crate) fn judge(
        &mut self,
        world: &World,
        event: &Event,
        limits: &Limits,
        report: &mut Report,
    ) {
        match &event.what {
            What::DeliveryStarted(delivery) => {
                // Without a tenure the host does not hold the lease, which is said there.
                let Some(tenure) = world.tenure_of(delivery) else {
                    return;
                };
                started(world, (tenure, delivery), limits, report);
            }
            What::DeliveryEnded {
                id,
                outcome: Outcome::Ok,
                failed,
            } => {
                if let Some(delivery) = world.in_flight.get(id) {
                    self.handled(world, delivery, failed, limits, report);
                }
            }
            _ => {}
        }
    }

    /// Counts records that an earlier tenure settled too.
    fn handled(
        &mut self,
        world: &World,
        delivery: &Delivery,
        failed: &[Place],
        limits: &Limits,
        report: &mut Report,
    ) {
        let shard = world
            .tenure_of(delivery)
            .and_then(|tenure| world.shard_of(tenure));
        let Some(shard) = shard.filter(|_| world.is_held(delivery)) else {
            return;
        };
        let by_others = |place: &&Place| {
            let settled = shard.settled.get(*place).and_then(|settled| settled.epoch);
            // What was held back must come again, however much it is.
            let is_other = |epoch| {
                epoch != delivery.epoch && world.was_committed(&delivery.shard, epoch, place)
            };
            settled.is_some_and(is_other) && !failed.contains(place)
        };
        let count = delivery.places.iter().filter(by_others).count() as u64;
        let repeats = self.repeats.entry(TenureKey::of(delivery)).or_default();
        let was_within = *repeats <= limits.repeats_max;
        *repeats += count;
        if was_within && *repeats > limits.repeats_max {
            let what = format!(
                "{} of {} repeats more than {} records",
                delivery.host, delivery.shard, limits.repeats_max
            );
            report.add(Invariant::S9, what);
        }
    }
}

fn started(
    world: &World,
    (tenure, delivery): (&Tenure, &Delivery),
    limits: &Limits,
    report: &mut Report,
) {
    if let Some(what) = of_namesake(world, tenure, delivery) {
        report.add(Invariant::S16, what);
        return;
    }
    let Some(shard) = world.shard_of(tenure) else {
        return;
    };
    if !tenure.has_delivered {
        report.add_all(Invariant::S6, unended_parent(world, tenure, shard, limits));
    }
    let is_by_key = limits.policy.by_key;
    let is_parallel = limits.policy.parallelism > 1;
    let broken = out_of_order(tenure, delivery, limits)
        .or_else(|| {
            if is_by_key {
                return lanes::passes_pending(tenure, shard, delivery);
            }
            passes_pending(tenure, delivery)
        })
        .or_else(|| before_start(tenure, delivery))
        .or_else(|| given_up(tenure, delivery, limits))
        .or_else(|| repeat(tenure, shard, delivery))
        .or_else(|| {
            if is_parallel {
                return lanes::passes_its_key(tenure, shard, delivery);
            }
            if is_by_key {
                return lanes::left_out(tenure, shard, delivery);
            }
            left_out(tenure, shard, delivery)
        });
    if let Some((invariant, what)) = broken {
        report.add(
            invariant,
            format!(
                "{} delivers {:?} of {}: {what}",
                delivery.host, delivery.places, delivery.shard
            ),
        );
    }
}

/// S16: records of today's stream, by a tenure whose place is one of yesterday's.
fn of_namesake(world: &World, tenure: &Tenure, delivery: &Delivery) -> Option<String> {
    let generation = world.stream.generation;
    let reads_new =
        tenure.generation == generation || world.stream.is_of_current(delivery, tenure.generation);
    let came_from_old =
        tenure.start != Checkpoint::Initial && tenure.start_generation != generation;
    let went_on = tenure.generation != generation && tenure.has_delivered;
    (reads_new && (came_from_old || went_on)).then(|| {
        format!(
            "{} goes on in {} from {:?} of the stream before",
            delivery.host,
            delivery.shard,
            tenure.frontier()
        )
    })
}

/// S6: a parent that somebody still reads, or will.
fn unended_parent(
    world: &World,
    tenure: &Tenure,
    shard: &Shard,
    limits: &Limits,
) -> Option<String> {
    let table = &world.table;
    // An application that begins at a moment has nothing to read in what was closed before.
    let is_wanted = |parent: &str| {
        let due = |shard: &Shard| {
            shard
                .due(&Checkpoint::Initial, &Checkpoint::End)
                .next()
                .is_some()
        };
        world.stream.start == Some(Start::Oldest) || world.stream.shard(parent).is_some_and(due)
    };
    let blocks = |parent: &&String| {
        if table
            .ended
            .contains(&(tenure.generation, (*parent).clone()))
        {
            return false;
        }
        if let Some(row) = table.row(parent) {
            return is_unfinished(&row.checkpoint)
                && !is_remade_since_look(world, tenure, parent, limits);
        }
        // Removed by an operator, not listed any more, or closed before the application's first
        // start.
        let is_listed = world
            .stream
            .shard(parent)
            .is_some_and(|parent| !parent.is_gone);
        is_listed && !table.created_at.contains_key(*parent) && is_wanted(parent)
    };
    let parent = shard.parents.iter().find(blocks)?;
    Some(format!(
        "{} is delivered while its parent {parent} has not ended",
        tenure.key.shard
    ))
}

/// Whether a parent's row may have been made after the host of `tenure` looked for it: an operator
/// sent the child back to its beginning, and the leader makes the rows of its parents again. Until
/// then a missing row means that the parent has ended, and the condition of a take is about one
/// row. A host that took the child then reads on, whatever rows are made meanwhile, also where it
/// lost the lease by silence and took it back by name, for which it reads that one row.
fn is_remade_since_look(world: &World, tenure: &Tenure, parent: &str, limits: &Limits) -> bool {
    let rows = &world.table.rows;
    let Some((child, made)) = rows.get(&tenure.key.shard).zip(rows.get(parent)) else {
        return false;
    };
    let is_sent_back = world
        .stream
        .shard(parent)
        .is_some_and(|parent| parent.is_interfered);
    // A take is sent less than a lease duration after the look.
    let looked_at = |taken_at: Micros| taken_at.saturating_sub(limits.lease_duration);
    let crosses = made.epoch.is_none() && made.counter_at >= looked_at(child.taken_at);
    // After a restart its rows are taken by a plan, which knows the parents' rows.
    let started_at = world
        .hosts
        .get(&tenure.key.host)
        .map_or(0, |host| host.started_at);
    let goes_on = child.held_since.is_some_and(|since| {
        (started_at..child.taken_at).contains(&since) && made.made_at >= looked_at(since)
    });
    is_sent_back && (crosses || goes_on)
}

pub(crate) type Broken = Option<(Invariant, String)>;

/// S7: one batch at a time, or as many as may be, each in order.
fn out_of_order(tenure: &Tenure, delivery: &Delivery, limits: &Limits) -> Broken {
    if !delivery.places.is_sorted_by(|a, b| a < b) {
        return Some((Invariant::S7, "not in order".to_owned()));
    }
    let open = tenure.open().len();
    if open >= limits.policy.parallelism.max(1) {
        let what = if open == 1 {
            "another delivery of this tenure is still running".to_owned()
        } else {
            format!("{open} deliveries of this tenure are still running")
        };
        return Some((Invariant::S7, what));
    }
    None
}

/// S7: nothing else goes out while something waits for its next attempt.
fn passes_pending(tenure: &Tenure, delivery: &Delivery) -> Broken {
    if tenure.pending.is_empty() {
        return None;
    }
    let newcomer = delivery
        .places
        .iter()
        .find(|place| !tenure.pending.contains(place))?;
    (!tenure.handled.contains_key(newcomer)).then(|| {
        (
            Invariant::S7,
            format!(
                "{newcomer:?} goes out while {:?} must be tried again",
                tenure.pending
            ),
        )
    })
}

fn before_start(tenure: &Tenure, delivery: &Delivery) -> Broken {
    let first = Checkpoint::At(delivery.places.first()?.clone());
    (first <= tenure.start).then(|| {
        (
            Invariant::S8,
            format!("the tenure started at {:?}", tenure.start),
        )
    })
}

/// S17: what was given up comes no more, and what must be given up is not tried again.
fn given_up(tenure: &Tenure, delivery: &Delivery, limits: &Limits) -> Broken {
    if let Some(place) = delivery
        .places
        .iter()
        .find(|place| tenure.failures.is_given_up(place))
    {
        return Some((Invariant::S17, format!("{place:?} was given up before")));
    }
    let place = tenure.failures.exhausted(delivery, &limits.policy)?;
    Some((
        Invariant::S17,
        format!("{place:?} has used up its attempts"),
    ))
}

/// S9: within a tenure only what failed is repeated, and says so; after a lease was given back
/// nothing is.
fn repeat(tenure: &Tenure, shard: &Shard, delivery: &Delivery) -> Broken {
    let is_handled =
        |place: &&Place| tenure.handled.contains_key(*place) && !tenure.may_repeat(place);
    if let Some(place) = delivery.places.iter().find(is_handled) {
        return Some((
            Invariant::S9,
            format!("{place:?} was handled in this tenure"),
        ));
    }
    let attempt = tenure.failures.attempt(&delivery.places);
    if delivery.attempt != attempt {
        return Some((
            Invariant::S9,
            format!(
                "it says to be attempt {} and is attempt {attempt}",
                delivery.attempt
            ),
        ));
    }
    let (epoch, through) = shard
        .given_back
        .as_ref()
        .filter(|(epoch, _)| *epoch < delivery.epoch)?;
    let place = delivery.places.first().filter(|place| *place <= through)?;
    Some((
        Invariant::S9,
        format!("{place:?} was settled before the lease was given back under epoch {epoch}"),
    ))
}

/// S8, or S7 if it was tried before: a record that this tenure passes over.
fn left_out(tenure: &Tenure, shard: &Shard, delivery: &Delivery) -> Broken {
    let last = delivery.places.last()?;
    let batch: BTreeSet<&Place> = delivery.places.iter().collect();
    let mut due = shard.due(&tenure.frontier(), &Checkpoint::At(last.clone()));
    let place = due.find(|place| !batch.contains(place) && !tenure.is_done_with(place))?;
    let invariant = if tenure.pending.contains(place) {
        Invariant::S7
    } else {
        Invariant::S8
    };
    Some((invariant, format!("{place:?} was left out")))
}
