//! S1 to S3: every write by itself, against the row it met.

use crate::history::{Event, Row, What, Write};
use crate::rules;
use crate::violation::{Invariant, Report};
use crate::world::{RowFacts, World};

pub(crate) fn judge(world: &World, event: &Event, report: &mut Report) {
    let What::Written(write) = &event.what else {
        return;
    };
    let facts = world.table.rows.get(&write.key);
    report.add_all(Invariant::S1, hole(write, facts));
    report.add_all(Invariant::S1, rules::counter(write));
    report.add_all(Invariant::S3, rules::monotone(write));
    let fenced = rules::fence(write, row_epoch(facts), sender_epoch(world, write, facts))
        .or_else(|| facts.and_then(|facts| rules::foreknown(write, facts.counter_at)));
    let is_known = fenced.is_some();
    report.add_all(Invariant::S2, fenced);
    if !is_known {
        report.add_all(Invariant::S2, rules::shape(write));
    }
}

/// Somebody changed the row without an event: whatever follows is not to be trusted.
fn hole(write: &Write, facts: Option<&RowFacts>) -> Option<String> {
    let fields = |row: &Row| (row.owner.clone(), row.counter, row.checkpoint.clone());
    let (left, met) = (fields(&facts?.row), write.before.as_ref().map(fields));
    (met.as_ref() != Some(&left))
        .then(|| format!("{} was left as {left:?} but met as {met:?}", write.key))
}

/// Nothing is known of a row that existed before the history, or that an operator gave to a host.
fn row_epoch(facts: Option<&RowFacts>) -> Option<u64> {
    facts.and_then(|facts| facts.epoch)
}

fn sender_epoch(world: &World, write: &Write, facts: Option<&RowFacts>) -> Option<u64> {
    match row_epoch(facts) {
        Some(_) => world.tenure_of_write(write).map(|tenure| tenure.key.epoch),
        None => None,
    }
}
