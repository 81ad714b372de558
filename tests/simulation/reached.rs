//! Rare states that a history has reached: counted, so that nobody believes in tests that never got there.

use std::collections::BTreeMap;

use shardmill_invariants::history::{Delivery, Event, Outcome, What};

/// What is remembered of a grant's last delivery.
struct Last {
    delivery: Delivery,
    outcome: Option<Outcome>,
    failed: usize,
}

/// Counts what the history shows.
pub fn count(history: &[Event], mut count: impl FnMut(&str)) {
    let mut grants: BTreeMap<(String, u64), Last> = BTreeMap::new();
    for event in history {
        match &event.what {
            What::DeliveryStarted(delivery) => {
                let grant = (delivery.shard.clone(), delivery.epoch);
                if let Some(last) = grants.get(&grant) {
                    followed(last, delivery, &mut count);
                }
                grants.insert(grant, Last { delivery: delivery.clone(), outcome: None, failed: 0 });
            }
            What::DeliveryEnded { id, outcome, failed } => {
                if let Some(last) = grants.values_mut().find(|last| last.delivery.id == *id) {
                    (last.outcome, last.failed) = (Some(*outcome), failed.len());
                }
            }
            What::DeadLettered { .. } => count("reached: dead letter written"),
            _ => {}
        }
    }
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
