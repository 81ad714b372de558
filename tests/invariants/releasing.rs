//! S9: a lease is given up, so that what is settled may repeat, only if its shard did not get on.

use crate::history::{Event, Micros, What, WriteKind};
use crate::limits::Limits;
use crate::violation::{Invariant, Report};
use crate::world::World;

pub(crate) fn judge(world: &World, event: &Event, limits: &Limits, report: &mut Report) {
    let What::Written(write) = &event.what else { return };
    let (WriteKind::GiveUp, Some(bound)) = (write.kind, limits.given_up_after) else { return };
    let Some(facts) = world.table.rows.get(&write.key) else { return };
    // What an earlier run of the host took is its own by name only, and keeps what its row says of a trouble.
    let started_at = write.by.as_ref().and_then(|by| world.hosts.get(by)).map(|host| host.started_at);
    if started_at.is_some_and(|started_at| facts.taken_at < started_at) {
        return;
    }
    let waited = |since: Micros| write.sent_at.saturating_sub(since);
    // Whoever holds a lease gets on by writing its row, and by settling records.
    let settled_at = world.stream.shard(&write.key).map_or(0, |shard| shard.last_settled_at);
    let (unwritten, unsettled) = (waited(facts.raised_at), waited(facts.taken_at.max(settled_at)));
    if unwritten.max(unsettled) < bound {
        let what = format!(
            "{:?} gave {} up {unwritten} us after a write to its row and {unsettled} us after its last record",
            write.by, write.key
        );
        report.add(Invariant::S9, what);
    }
}
