//! S9: a lease is given up, so that what is settled may repeat, only if its shard made no progress.

use std::collections::BTreeMap;

use crate::history::{Call, CallResult, Event, HostChange, Micros, What, Write, WriteKind};
use crate::holding::Holding;
use crate::limits::Limits;
use crate::violation::{Invariant, Report};
use crate::world::World;

/// From its decision to its release a host tells its pipeline, and waits for a write that is on its
/// way.
const OVERTAKES_WITHIN: Micros = 1_000_000;

/// Which writes to lease rows fail.
#[derive(Debug, Default)]
pub(crate) struct Releasing {
    /// By host and key: when the first of the writes was sent that have failed in a row.
    failing_since: BTreeMap<(String, String), Micros>,
}

impl Releasing {
    pub(crate) fn judge(
        &mut self,
        world: &World,
        holding: &Holding,
        event: &Event,
        limits: &Limits,
        report: &mut Report,
    ) {
        match &event.what {
            What::Called(call) => self.called(call),
            What::Host {
                host,
                change: HostChange::Started,
            } => self.failing_since.retain(|(of, _), _| of != host),
            What::Written(write) => self.written(world, holding, write, limits, report),
            _ => {}
        }
    }

    fn called(&mut self, call: &Call) {
        let of = (call.host.clone(), call.key.clone());
        match (call.kind, call.result) {
            // What a host gave back it may have given up with all its leases.
            (None | Some(WriteKind::Release | WriteKind::GiveUp), _) => {}
            (Some(_), CallResult::NotApplied | CallResult::Unknown) => {
                self.failing_since.entry(of).or_insert(call.sent_at);
            }
            (Some(_), CallResult::Ok | CallResult::Conflict) => {
                self.failing_since.remove(&of);
            }
        }
    }

    /// Whether the host could not write another row for `bound`: then it leaves with all its
    /// leases, also with those whose rows it could not write for less long.
    fn leaves(&self, host: &str, key: &str, at: Micros, bound: Micros) -> bool {
        let mut failing = self.failing_since.iter();
        failing.any(|((of, other), since)| of == host && other != key && since + bound <= at)
    }

    fn written(
        &self,
        world: &World,
        holding: &Holding,
        write: &Write,
        limits: &Limits,
        report: &mut Report,
    ) {
        let (WriteKind::GiveUp, Some(bound)) = (write.kind, limits.given_up_after) else {
            return;
        };
        let Some(facts) = world.table.rows.get(&write.key) else {
            return;
        };
        // A row keeps what it says of a trouble, also if it is given back for another reason: a
        // host that lost the lease, or never heard that it has it, has it by name.
        let is_sure = |host: &String| holding.surely_holds(host, &write.key, write.sent_at, limits);
        if world.is_by_name(write) || !write.by.as_ref().is_some_and(is_sure) {
            return;
        }
        // Nothing of what never went out comes again.
        let tenure = world.tenure_of_write(write);
        let Some(tenure) = tenure.filter(|tenure| tenure.has_delivered) else {
            return;
        };
        let waited = |since: Micros| write.sent_at.saturating_sub(since);
        // Writes that come through while the host already gives up do not stop it.
        let unwritten_since = facts.raised_by(write.sent_at.saturating_sub(OVERTAKES_WITHIN));
        // A holder makes progress by writing the lease's row, and by settling records. With
        // parallel keys a call that does not return holds the shard, while records of other keys
        // are settled above it.
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
        let leaves = write.by.as_ref().is_some_and(|host| {
            self.leaves(host, &write.key, write.sent_at, bound)
                || cuts_off(world, host, write.sent_at, limits)
        });
        if unwritten.max(unsettled) < bound && !leaves {
            let what = format!(
                "{:?} gave {} up {unwritten} us after a write to its row and {unsettled} us after its last record",
                write.by, write.key
            );
            report.add(Invariant::S9, what);
        }
    }
}

/// Whether the host was told to stop so long ago that it cuts off what is not finished.
fn cuts_off(world: &World, host: &str, at: Micros, limits: &Limits) -> bool {
    let stopping_since = world.hosts.get(host).and_then(|facts| facts.stopping_since);
    let drained_within = limits.drained_within.zip(stopping_since);
    drained_within.is_some_and(|(limit, since)| since + limit <= at)
}
