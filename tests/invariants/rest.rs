//! S12 and S13: rows stay while they are needed, and cover all hash keys.

use crate::history::{Checkpoint, Event, Row, What, Write, WriteKind};
use crate::violation::{Invariant, Report};
use crate::world::{World, is_unfinished};

pub(crate) fn judge(world: &World, event: &Event, report: &mut Report) {
    let What::Written(write) = &event.what else {
        return;
    };
    match (write.kind, &write.before, &write.after) {
        (WriteKind::Delete, Some(before), _) => {
            report.add_all(Invariant::S12, still_needed(world, write, before));
        }
        (WriteKind::Create, _, Some(after)) => {
            let actual = world.stream.shard(&write.key).and_then(|shard| shard.range);
            if let (Some(actual), Some(range)) = (actual, after.range)
                && actual != range
            {
                let what = format!(
                    "{} was created for keys {range:?}, but holds {actual:?}",
                    write.key
                );
                report.add(Invariant::S13, what);
            }
            let has_ended = world
                .table
                .ended
                .contains(&(world.stream.generation, write.key.clone()));
            if has_ended && write.before.is_none() {
                report.add(
                    Invariant::S12,
                    format!("{} was created again after its end", write.key),
                );
            }
        }
        _ => {}
    }
}

/// The ranges of unfinished rows cover everything: a finished shard's children have rows, or nobody
/// reads its keys.
pub(crate) fn judge_end(world: &World, report: &mut Report) {
    let mut is_listed = false;
    let mut ranges = Vec::new();
    for (id, shard) in world.stream.current() {
        is_listed |= !shard.is_gone && shard.range.is_some();
        let row = world
            .table
            .row(id)
            .filter(|row| is_unfinished(&row.checkpoint));
        ranges.extend(row.and_then(|row| row.range.or(shard.range)));
    }
    ranges.sort_unstable();
    let mut next = Some(0_u128);
    for (low, high) in ranges {
        match next {
            Some(from) if low <= from && high >= from => next = high.checked_add(1),
            _ => {}
        }
    }
    if let (Some(from), true) = (next, is_listed) {
        report.add(
            Invariant::S13,
            format!("no unfinished lease covers hash key {from}"),
        );
    }
}

fn still_needed(world: &World, write: &Write, before: &Row) -> Option<String> {
    let key = &write.key;
    let shard = world.stream.shard(key).filter(|shard| !shard.is_gone)?;
    // A row that a stream of the same name left behind says nothing of this one.
    if world
        .table
        .rows
        .get(key)
        .is_some_and(|facts| facts.checkpoint_generation != world.stream.generation)
    {
        return None;
    }
    if before.checkpoint != Checkpoint::End {
        return Some(format!(
            "{key} was deleted at {:?} while its shard is listed",
            before.checkpoint
        ));
    }
    // An operator may have set it back to its beginning since its parent's row was looked at.
    let has_begun = |child: &String| match world.table.rows.get(child) {
        Some(facts) => facts.has_begun,
        None => world
            .table
            .ended
            .contains(&(world.stream.generation, child.clone())),
    };
    let waiting: Vec<_> = shard
        .children
        .iter()
        .filter(|child| !has_begun(child))
        .collect();
    if !waiting.is_empty() {
        return Some(format!(
            "{key} was deleted while its children {waiting:?} had not begun"
        ));
    }
    let parent = before
        .parents
        .iter()
        .find(|parent| world.table.row(parent).is_some())?;
    Some(format!(
        "{key} was deleted before its parent {parent}, whose row then stays for ever"
    ))
}
