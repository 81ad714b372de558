//! Whether a run was right: every invariant holds of its history, and everything is settled in the end.

use std::collections::BTreeSet;
use std::time::Duration;

use shardmill_core::pipeline::{self, Order};
use shardmill_core::plan::Balance;
use shardmill_invariants::history::{CallResult, Checkpoint, Event, Micros, What, WriteKind};
use shardmill_invariants::policy::{GiveUp, Policy};
use shardmill_invariants::{Bounds, Limits, check};

use crate::host::DRAIN_LIMIT;
use crate::plugin::{HOPELESS_FROM, HOPELESS_VERSIONS, digest_of};
use crate::schedule::Schedule;
use crate::world::World;

/// Waits that began under faults go on into the healed phase: the longest back-off (30 s), and a call that hangs in it.
pub const SLOW_START: Duration = Duration::from_secs(40);
/// The longest that a call which got no answer before the healing takes.
const CALL_MAX: Duration = Duration::from_secs(5);

/// How long after the last disturbance leases are even and stay: after a slow start, a lease that was given up is avoided
/// for three lease durations and a claim waits for two.
pub fn balanced_within(schedule: &Schedule) -> Duration {
    SLOW_START + schedule.options.leases.duration * 6
}

/// What keeps the fleet from being settled: a line for each shard that is not.
pub fn unsettled(world: &World, alive: &BTreeSet<String>) -> Vec<String> {
    let rows = world.tables.leases();
    let mut missing = Vec::new();
    for (shard, truth) in world.stream.shards() {
        let Some(row) = rows.get(&shard) else {
            // A finished row is removed in time; whether all of the shard was settled before is for the invariants.
            if truth.is_closed && rows.values().any(|row| row.checkpoint != Checkpoint::Initial) {
                continue;
            }
            missing.push(format!("{shard} has no row"));
            continue;
        };
        let last = truth.places.last();
        let is_settled = match &row.checkpoint {
            Checkpoint::End => truth.is_closed,
            Checkpoint::At(at) => !truth.is_closed && last.is_some_and(|last| at >= last),
            Checkpoint::Initial => !truth.is_closed && last.is_none(),
        };
        let is_owned = truth.is_closed || row.owner.as_ref().is_some_and(|owner| alive.contains(owner));
        if !(is_settled && is_owned) {
            missing.push(format!(
                "{shard}: closed {}, owner {:?}, counter {}, checkpoint {:?}, last record {last:?}, parents {:?}",
                truth.is_closed, row.owner, row.counter, row.checkpoint, row.parents
            ));
        }
    }
    missing
}

/// Whether `host` was left in doubt about a row by faults: its last call had no answer, or was a take sent before the
/// healing, which the SDK sent again until it came too late to hold anything.
pub fn is_in_doubt(history: &[Event], key: &str, host: &str, healed_at: Micros) -> bool {
    let of_row = |event: &Event| match &event.what {
        What::Called(call) if call.key == key && call.host == host => Some(call.clone()),
        _ => None,
    };
    history.iter().rev().find_map(of_row).is_some_and(|call| {
        let is_old_take = matches!(call.kind, Some(WriteKind::Take { .. })) && call.sent_at < healed_at;
        call.result == CallResult::Unknown || is_old_take
    })
}

/// How many records no checkpoint covers.
pub fn behind(world: &World) -> usize {
    let rows = world.tables.leases();
    let shards = world.stream.shards();
    let uncovered = shards.iter().map(|(shard, truth)| match rows.get(shard).map(|row| &row.checkpoint) {
        Some(Checkpoint::End) => 0,
        None | Some(Checkpoint::Initial) => truth.places.len(),
        Some(Checkpoint::At(at)) => truth.places.iter().filter(|place| *place > at).count(),
    });
    uncovered.sum()
}

/// What the invariants say of the whole run.
pub fn broken(world: &World, schedule: &Schedule, healed_at: Micros) -> Vec<String> {
    let options = &schedule.options;
    let lease = options.leases.duration;
    let is_counted = options.leases.balance == Balance::Count;
    let bounds = Bounds {
        retaken_within: Some(micros(SLOW_START + lease * 4)),
        balanced_within: is_counted.then(|| micros(balanced_within(schedule))),
        children_within: Some(micros(SLOW_START + CALL_MAX * 2)),
        released_within: Some(micros(DRAIN_LIMIT + CALL_MAX)),
        handed_on_within: Some(micros(options.leases.scan_every * 3 + CALL_MAX)),
        ..Bounds::default()
    };
    let batch = options.batches.records as u64;
    let is_by_key = options.failure.order == Order::Key;
    let limits = Limits {
        healed_at: Some(healed_at),
        // What makes a checkpoint due, the batch that overshoots it, and the batch in flight; by key, all since the oldest
        // record that is tried again.
        repeats_max: if is_by_key { u64::MAX } else { options.checkpoints.records + 2 * batch },
        bounds,
        policy: policy(schedule),
        ..Limits::new(micros(options.leases.duration), world.now())
    };
    check(&world.history(), &limits).iter().map(ToString::to_string).collect()
}

/// The judge's own words for the hosts' policy.
fn policy(schedule: &Schedule) -> Policy {
    let policy = &schedule.options.failure;
    Policy {
        attempts: policy.attempts,
        max_age: policy.max_age.map(micros),
        bisect: policy.bisect,
        then: policy.then.as_ref().map(|then| match then {
            pipeline::GiveUp::DeadLetter(_) => GiveUp::DeadLetter,
            pipeline::GiveUp::Skip => GiveUp::Skip,
            pipeline::GiveUp::Halt => GiveUp::Halt,
        }),
        by_key: policy.order == Order::Key,
        tries_versions: schedule.options.rollout.enabled,
        hopeless: (0..HOPELESS_VERSIONS).map(|n| digest_of(HOPELESS_FROM + n).as_str().to_owned()).collect(),
        is_age_unsure: schedule.clock_error_max > 0.0,
    }
}

fn micros(duration: Duration) -> Micros {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
