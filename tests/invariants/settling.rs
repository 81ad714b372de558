//! S4, S5 and `NoLoss`: what a row says is settled, is settled.

use crate::history::{Checkpoint, Event, What, Write, WriteKind};
use crate::limits::Limits;
use crate::rules;
use crate::violation::{Invariant, Report};
use crate::world::{Tenure, World};

pub(crate) fn judge(world: &World, event: &Event, report: &mut Report) {
    let What::Written(write) = &event.what else {
        return;
    };
    let Some(after) = &write.after else { return };
    match write.kind {
        WriteKind::Create if after.checkpoint != Checkpoint::Initial => {
            report.add(
                Invariant::S4,
                format!("{} was created at {:?}", write.key, after.checkpoint),
            );
        }
        // Without a tenure the write breaks the fence, which is said there.
        WriteKind::Checkpoint => {
            let tenure = world.tenure_of_write(write);
            report.add_all(
                Invariant::S4,
                tenure.and_then(|tenure| unjustified(world, tenure, write, &after.checkpoint)),
            );
        }
        WriteKind::End => {
            let tenure = world.tenure_of_write(write);
            report.add_all(
                Invariant::S5,
                tenure.and_then(|tenure| unjustified_end(world, tenure, write)),
            );
        }
        _ => {}
    }
}

/// Every record of a healed run was settled by somebody, and in time.
pub(crate) fn judge_end(world: &World, limits: &Limits, report: &mut Report) {
    let since = limits.end.saturating_sub(limits.bounds.settled_within);
    for (id, shard) in world.stream.current() {
        let due = || shard.due(&Checkpoint::Initial, &Checkpoint::End);
        let mut lost = due()
            .filter(|place| shard.records[*place] <= since && !shard.settled.contains_key(*place));
        if let Some(first) = lost.next() {
            let what = format!(
                "{} record(s) of {id} were never settled, the first {first:?}",
                1 + lost.count()
            );
            report.add(Invariant::NoLoss, what);
        }
        let (Some(healed_at), Some(bound)) = (limits.healed_at, limits.bounds.caught_up_within)
        else {
            continue;
        };
        let is_late = |place: &&crate::history::Place| {
            shard.records[*place] <= healed_at
                && shard
                    .settled
                    .get(*place)
                    .is_some_and(|settled| settled.first_at > healed_at.saturating_add(bound))
        };
        if let Some(first) = due().find(is_late) {
            report.add(
                Invariant::L4,
                format!("{id} took too long to catch up, for one at {first:?}"),
            );
        }
    }
}

fn unjustified(world: &World, tenure: &Tenure, write: &Write, to: &Checkpoint) -> Option<String> {
    let before = write.before.as_ref().map(|row| &row.checkpoint);
    let Checkpoint::At(through) = to else {
        return None;
    };
    // One that goes back, or nowhere, claims nothing new.
    if before.is_some_and(|before| to <= before) {
        return None;
    }
    let is_settled = |place: &crate::history::Place| tenure.was_settled_by(place, write.sent_at);
    let shard = world.shard_of(tenure)?;
    let unsettled = rules::unsettled(
        shard.due(&tenure.written, to),
        &tenure.written,
        to,
        is_settled,
    );
    if let Some(place) = unsettled {
        return Some(format!(
            "{} was checkpointed to {to:?}, but {place:?} was not settled",
            write.key
        ));
    }
    (!is_settled(through)).then(|| {
        format!(
            "{} was checkpointed to {to:?}, which this tenure did not settle",
            write.key
        )
    })
}

fn unjustified_end(world: &World, tenure: &Tenure, write: &Write) -> Option<String> {
    let key = &write.key;
    let shard = world.shard_of(tenure)?;
    let end = Checkpoint::End;
    let is_handled = |place: &crate::history::Place| tenure.is_done_with(place);
    if let Some(place) = rules::unsettled(
        shard.due(&tenure.written, &end),
        &tenure.written,
        &end,
        is_handled,
    ) {
        return Some(format!("{key} was ended, but {place:?} was not settled"));
    }
    if world
        .heard_end(tenure)
        .is_none_or(|said| said > write.sent_at)
    {
        return Some(format!(
            "{key} was ended before Kinesis said so to {}",
            tenure.key.host
        ));
    }
    let has_row = |child: &str| {
        world
            .table
            .created_at
            .get(child)
            .is_some_and(|created| *created <= write.sent_at)
    };
    let missing = rules::without_row(&shard.children, has_row);
    if !missing.is_empty() {
        return Some(format!(
            "{key} was ended before its children {missing:?} had rows"
        ));
    }
    let named = write.after.as_ref().map(|row| &row.children)?;
    (*named != shard.children).then(|| {
        format!(
            "{key} was ended with children {named:?}, not {:?}",
            shard.children
        )
    })
}
