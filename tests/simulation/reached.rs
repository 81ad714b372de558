//! Rare states that a history has reached: counted, so that nobody believes in tests that never got
//! there.

use std::collections::{BTreeMap, BTreeSet};

use shardmill_invariants::history::{
    Checkpoint, Delivery, Event, Outcome, Place, What, Write, WriteKind,
};

/// What is remembered of a history.
#[derive(Default)]
struct Seen {
    holdings: BTreeMap<(String, u64), Last>,
    produced: BTreeMap<String, BTreeSet<Place>>,
}

/// What is remembered of a holding's last delivery.
struct Last {
    delivery: Delivery,
    outcome: Option<Outcome>,
    failed: usize,
}

/// Counts what the history shows.
pub fn count(history: &[Event], mut count: impl FnMut(&str)) {
    let mut seen = Seen::default();
    for event in history {
        match &event.what {
            What::Produced { shard, at, .. } => {
                seen.produced
                    .entry(shard.clone())
                    .or_default()
                    .insert(at.clone());
            }
            What::DeliveryStarted(delivery) => {
                let holding = (delivery.shard.clone(), delivery.epoch);
                let last = seen.holdings.get(&holding);
                if last.is_some_and(|last| last.outcome.is_none()) {
                    count("reached: calls for one shard at a time");
                }
                match last {
                    Some(last) => followed(last, delivery, &mut count),
                    None if begins_inside(delivery) => {
                        count("reached: resumed inside an aggregate");
                    }
                    None => {}
                }
                seen.holdings.insert(
                    holding,
                    Last {
                        delivery: delivery.clone(),
                        outcome: None,
                        failed: 0,
                    },
                );
            }
            What::DeliveryEnded {
                id,
                outcome,
                failed,
            } => {
                if let Some(last) = seen
                    .holdings
                    .values_mut()
                    .find(|last| last.delivery.id == *id)
                {
                    (last.outcome, last.failed) = (Some(*outcome), failed.len());
                }
            }
            What::DeadLettered { .. } => count("reached: dead letter written"),
            What::Written(write) if seen.ends_inside(write) => {
                count("reached: checkpoint inside an aggregate");
            }
            _ => {}
        }
    }
}

impl Seen {
    fn ends_inside(&self, write: &Write) -> bool {
        let Some(Checkpoint::At(at)) = write.after.as_ref().map(|row| &row.checkpoint) else {
            return false;
        };
        let next = Place {
            sub: at.sub.saturating_add(1),
            ..at.clone()
        };
        write.kind == WriteKind::Checkpoint
            && self
                .produced
                .get(&write.key)
                .is_some_and(|produced| produced.contains(&next))
    }
}

fn begins_inside(delivery: &Delivery) -> bool {
    delivery.places.first().is_some_and(|first| first.sub > 0)
}

fn followed(last: &Last, next: &Delivery, count: &mut impl FnMut(&str)) {
    let (before, after) = (&last.delivery.places, &next.places);
    let is_whole = matches!(last.outcome, Some(Outcome::Error | Outcome::Trap));
    if is_whole && before.len() > 1 && before[..before.len() / 2] == after[..] {
        count("reached: batch cut in two");
    }
    let has_failed = is_whole || last.failed > 0;
    if has_failed && after.first() > before.last() {
        count("reached: another key flows while one waits");
    }
}
