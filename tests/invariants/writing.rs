//! S1 to S3, and the half of S10 that binds takers: every write by itself, against the row it met.

use crate::history::{Event, Row, What, Write, WriteKind};
use crate::limits::Limits;
use crate::rules;
use crate::violation::{Invariant, Report};
use crate::world::{RowFacts, World};

pub(crate) fn judge(world: &World, event: &Event, limits: &Limits, report: &mut Report) {
    let What::Written(write) = &event.what else { return };
    let facts = world.table.rows.get(&write.key);
    report.add_all(Invariant::S1, hole(write, facts));
    report.add_all(Invariant::S1, rules::counter(write));
    report.add_all(Invariant::S3, rules::monotone(write));
    let fenced = rules::fence(write, row_epoch(facts), sender_epoch(world, write, facts))
        .or_else(|| facts.and_then(|facts| rules::foreknown(write, facts.raised_at)));
    let is_known = fenced.is_some();
    report.add_all(Invariant::S2, fenced);
    if !is_known {
        report.add_all(Invariant::S2, rules::shape(write));
        report.add_all(Invariant::S10, facts.and_then(|facts| live_take(world, write, facts, limits)));
    }
}

/// Somebody changed the row without an event: whatever follows is not to be trusted.
fn hole(write: &Write, facts: Option<&RowFacts>) -> Option<String> {
    let fields = |row: &Row| (row.owner.clone(), row.counter, row.checkpoint.clone());
    let (left, met) = (fields(&facts?.row), write.before.as_ref().map(fields));
    (met.as_ref() != Some(&left)).then(|| format!("{} was left as {left:?} but met as {met:?}", write.key))
}

/// Nothing is known of a row that existed before the history, or that an operator gave to a host.
fn row_epoch(facts: Option<&RowFacts>) -> Option<u64> {
    facts.and_then(|facts| facts.epoch)
}

fn sender_epoch(world: &World, write: &Write, facts: Option<&RowFacts>) -> Option<u64> {
    match row_epoch(facts) {
        Some(_) => world.grant_of_write(write).map(|grant| grant.key.epoch),
        None => None,
    }
}

fn live_take(world: &World, write: &Write, facts: &RowFacts, limits: &Limits) -> Option<String> {
    let WriteKind::Take { .. } = write.kind else { return None };
    let owner = facts.row.owner.as_ref().filter(|owner| write.by.as_ref() != Some(owner))?;
    let beat = world.hosts.get(owner).and_then(|host| host.heartbeat_sent_at);
    let moved_at = beat.map_or(facts.raised_at, |beat| beat.max(facts.raised_at));
    (!rules::may_expire(moved_at, write.sent_at, limits)).then(|| {
        format!(
            "{:?} took {} from {owner}, who was alive {} us before",
            write.by,
            write.key,
            write.sent_at.saturating_sub(moved_at)
        )
    })
}
