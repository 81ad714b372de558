//! S7 and S8 where records wait only for those of their own partition key, also with parallel keys.

use std::collections::BTreeSet;

use crate::delivering::Broken;
use crate::history::{Checkpoint, Delivery, Place};
use crate::violation::Invariant;
use crate::world::{Shard, Tenure};

/// S7: no record goes out while an earlier one of its key waits for its next attempt, unless both
/// go together, or retention took the earlier one: whoever no longer has it in memory cannot try it
/// again.
pub(crate) fn passes_pending(tenure: &Tenure, shard: &Shard, delivery: &Delivery) -> Broken {
    if tenure.pending.is_empty() {
        return None;
    }
    let batch: BTreeSet<&Place> = delivery.places.iter().collect();
    let is_trimmed = |place: &Place| shard.trimmed_through.as_ref() >= Some(place);
    let waits = |place: &Place| {
        earlier_of_its_key(tenure, shard, place)
            .find(|earlier| !batch.contains(earlier) && !is_trimmed(earlier))
    };
    let (place, earlier) = delivery
        .places
        .iter()
        .find_map(|place| Some((place, waits(place)?)))?;
    Some((
        Invariant::S7,
        format!("{place:?} goes out while {earlier:?} of its key must be tried again"),
    ))
}

/// S8: a record that this tenure passes over, although nothing of its key must be tried again
/// before.
pub(crate) fn left_out(tenure: &Tenure, shard: &Shard, delivery: &Delivery) -> Broken {
    // What failed goes again when it is due, whatever waits meanwhile.
    if delivery
        .places
        .iter()
        .all(|place| tenure.pending.contains(place))
    {
        return None;
    }
    let last = delivery.places.last()?;
    let batch: BTreeSet<&Place> = delivery.places.iter().collect();
    let may_wait = |place: &Place| {
        tenure.is_done_with(place)
            || tenure.pending.contains(place)
            || earlier_of_its_key(tenure, shard, place).next().is_some()
    };
    let mut due = shard.due(&tenure.frontier(), &Checkpoint::At(last.clone()));
    let place = due.find(|place| !batch.contains(place) && !may_wait(place))?;
    Some((Invariant::S8, format!("{place:?} was left out")))
}

/// S7 with parallel keys: a record goes out while an earlier one of its key is neither done nor
/// goes with it: it is in another delivery, or was not delivered yet. Records without a key have no
/// order, and that none is left out is judged by what is checkpointed.
pub(crate) fn passes_its_key(tenure: &Tenure, shard: &Shard, delivery: &Delivery) -> Broken {
    let last = delivery.places.last()?;
    let batch: BTreeSet<&Place> = delivery.places.iter().collect();
    let keys: BTreeSet<&String> = delivery
        .places
        .iter()
        .filter_map(|it| shard.keys.get(it))
        .collect();
    let mut due = shard.due(&tenure.frontier(), &Checkpoint::At(last.clone()));
    let passed = due.find(|place| {
        let key = shard.keys.get(place).filter(|key| !key.is_empty());
        let is_of_key = |other: &Place| other > *place && shard.keys.get(other) == key;
        key.is_some_and(|key| keys.contains(key))
            && !batch.contains(place)
            && !tenure.is_done_with(place)
            && delivery.places.iter().any(is_of_key)
    })?;
    Some((
        Invariant::S7,
        format!("{passed:?} of the same key comes before and is not done"),
    ))
}

fn earlier_of_its_key<'a>(
    tenure: &'a Tenure,
    shard: &'a Shard,
    place: &Place,
) -> impl Iterator<Item = &'a Place> {
    let key = shard.keys.get(place);
    tenure
        .pending
        .range::<Place, _>(..place)
        .filter(move |earlier| shard.keys.get(*earlier) == key)
}
