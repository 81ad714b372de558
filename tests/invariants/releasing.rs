//! S9: a lease is given up, so that what is settled may repeat, only if its shard made no progress.

use crate::history::{Event, Micros, What, WriteKind};
use crate::holding::Holding;
use crate::limits::Limits;
use crate::violation::{Invariant, Report};
use crate::world::World;

/// From its decision to its release a host tells its pipeline, and waits for a write that is on its
/// way.
const OVERTAKES_WITHIN: Micros = 1_000_000;

pub(crate) fn judge(
    world: &World,
    holding: &Holding,
    event: &Event,
    limits: &Limits,
    report: &mut Report,
) {
    let What::Written(write) = &event.what else {
        return;
    };
    let (WriteKind::GiveUp, Some(bound)) = (write.kind, limits.given_up_after) else {
        return;
    };
    let Some(facts) = world.table.rows.get(&write.key) else {
        return;
    };
    // A row keeps what it says of a trouble, also if it is given back for another reason: a host
    // that lost the lease, or never heard that it has it, has it by name.
    let is_sure = |host: &String| holding.surely_holds(host, &write.key, write.sent_at, limits);
    if world.is_by_name(write) || !write.by.as_ref().is_some_and(is_sure) {
        return;
    }
    // Nothing of what never went out comes again.
    let tenure = world.grant_of_write(write);
    let Some(tenure) = tenure.filter(|tenure| tenure.has_delivered) else {
        return;
    };
    let waited = |since: Micros| write.sent_at.saturating_sub(since);
    // Writes that come through while the host already gives up do not stop it.
    let unwritten_since = facts.raised_by(write.sent_at.saturating_sub(OVERTAKES_WITHIN));
    // A holder makes progress by writing the lease's row, and by settling records. With parallel keys
    // a call that does not return holds the shard, while records of other keys are settled above it.
    let settled_at = world
        .stream
        .shard(&write.key)
        .map_or(0, |shard| shard.last_settled_at);
    let settled_at = tenure
        .waits_for_call_since()
        .filter(|_| limits.policy.parallelism > 1)
        .map_or(settled_at, |called_at| settled_at.min(called_at));
    let (unwritten, unsettled) = (
        waited(unwritten_since),
        waited(facts.taken_at.max(settled_at)),
    );
    if unwritten.max(unsettled) < bound {
        let what = format!(
            "{:?} gave {} up {unwritten} us after a write to its row and {unsettled} us after its last record",
            write.by, write.key
        );
        report.add(Invariant::S9, what);
    }
}
