//! Whether a run was right: every invariant holds of its history, and everything is settled in the
//! end.

use std::collections::BTreeSet;
use std::time::Duration;

use shardmill_core::pipeline::{self, Order};
use shardmill_core::plan::Balance;
use shardmill_core::stream;
use shardmill_invariants::history::{
    Call, CallResult, Checkpoint, Event, HostChange, Micros, What, WriteKind,
};
use shardmill_invariants::policy::{GiveUp, Policy};
use shardmill_invariants::{Bounds, InitialPosition, Invariant, Limits, Violation, check};
use shardmill_worker::LeaseOptions;

use crate::host::DRAIN_LIMIT;
use crate::past;
use crate::plugin::{HOPELESS_FROM, HOPELESS_VERSIONS, digest_of};
use crate::plugins::PluginPlan;
use crate::schedule::Schedule;
use crate::weather::Fault;
use crate::world::World;

/// Waits that began under faults go on into the healed phase: the longest back-off (30 s), and a
/// call that hangs in it.
pub const SLOW_START: Duration = Duration::from_secs(40);
/// The longest that a shard makes no progress and shows nothing: a call that is stuck (30 s), one
/// after the other, and a subscription that is silent before it is seen to be (20 s).
const SHOWN_WITHIN: Duration = Duration::from_secs(90);
/// The longest that a record waits for those of other keys: while it is not read yet, for those
/// that have been read before it, and when it has been, for a try (20 s) of a key that fails each
/// time, and twice as much to be sure.
const PACED_WITHIN: Duration = Duration::from_mins(2);
/// The longest that a call which got no answer before the healing takes.
const CALL_MAX: Duration = Duration::from_secs(5);

/// The stream tells its time in whole seconds, rounded down.
const STREAM_CLOCK: Duration = Duration::from_secs(1);
/// The longest that a call of Kinesis takes, with its second try.
const LISTING_MAX: Duration = Duration::from_secs(65);

/// What can be judged where two processes have one name, by which the judge knows them: what the
/// tables were told and what became of each record, whoever did it.
const JUDGED_OF_TWINS: [Invariant; 9] = [
    Invariant::S1,
    Invariant::S3,
    Invariant::S4,
    Invariant::S5,
    Invariant::S6,
    Invariant::S19,
    Invariant::S20,
    Invariant::S21,
    Invariant::NoLoss,
];

/// How long after the last disturbance leases are even and stay: after a slow start, a lease that
/// was given up is avoided for three lease durations and a claim waits for two.
pub fn balanced_within(schedule: &Schedule) -> Duration {
    SLOW_START + schedule.options.leases.duration * 6
}

/// How long after the last disturbance each lease has an owner that reads it, if somebody may hold
/// it.
pub fn retaken_within(schedule: &Schedule) -> Duration {
    SLOW_START + schedule.options.leases.duration * 4
}

/// What keeps the fleet from being settled: a line for each shard that is not.
pub fn unsettled(world: &World, alive: &BTreeSet<String>) -> Vec<String> {
    let rows = world.tables.leases();
    let mut missing = Vec::new();
    let start = world.tables.start();
    for (shard, truth) in world
        .stream
        .shards()
        .iter()
        .filter(|(_, truth)| !truth.is_gone)
    {
        let last = truth.last_due(start);
        let Some(row) = rows.get(shard) else {
            // A finished row is removed in time, and what was closed before the start gets none;
            // whether all of the shard was settled before is for the invariants.
            let is_read = last.is_none()
                || rows
                    .values()
                    .any(|row| row.checkpoint != Checkpoint::Initial);
            if truth.is_closed && is_read {
                continue;
            }
            missing.push(format!("{shard} has no row"));
            continue;
        };
        let is_settled = match &row.checkpoint {
            Checkpoint::End => truth.is_closed,
            Checkpoint::At(at) => !truth.is_closed && last.is_none_or(|last| at >= last),
            Checkpoint::Initial => !truth.is_closed && last.is_none(),
        };
        let is_owned = truth.is_closed
            || row
                .owner
                .as_ref()
                .is_some_and(|owner| alive.contains(owner));
        if !(is_settled && is_owned) {
            missing.push(format!(
                "{shard}: closed {}, owner {:?}, counter {}, checkpoint {:?}, last record \
                    {last:?}, parents {:?}",
                truth.is_closed, row.owner, row.counter, row.checkpoint, row.parents
            ));
        }
    }
    missing
}

/// Whether `host` has nothing to give back of a row that names it: a run of it before this one
/// owned it, its last call about it had no answer, or was a take sent before the healing, which the
/// SDK sent again until it came too late to hold anything, or its heart was silent for so long
/// afterwards that the lease was lost.
pub fn is_in_doubt(
    history: &[Event],
    key: &str,
    host: &str,
    schedule: &Schedule,
    healed_at: Micros,
) -> bool {
    let is_start = |event: &Event| matches!(&event.what, What::Host { host: of, change: HostChange::Started } if of == host);
    let this_run = &history[history.iter().rposition(is_start).unwrap_or_default()..];
    let of_row = |event: &Event| match &event.what {
        What::Called(call) if call.key == key && call.host == host => Some(call.clone()),
        _ => None,
    };
    let Some(last) = this_run.iter().rev().find_map(of_row) else {
        return true;
    };
    let is_old_take = matches!(last.kind, Some(WriteKind::Take { .. })) && last.sent_at < healed_at;
    // What was refused holds nothing.
    let is_applied_write = |call: &Call| call.kind.is_some() && call.result == CallResult::Ok;
    let Some(held_by) = this_run
        .iter()
        .rev()
        .filter_map(of_row)
        .find(is_applied_write)
    else {
        return true;
    };
    last.result == CallResult::Unknown
        || is_old_take
        || was_silent(this_run, &held_by, host, schedule)
}

/// Whether no heartbeat of `host` was answered in time to hold, at some time after `call`.
fn was_silent(history: &[Event], call: &Call, host: &str, schedule: &Schedule) -> bool {
    // A clock that runs fast gives up earlier.
    let hold_for = micros(
        schedule
            .options
            .leases
            .hold_for()
            .mul_f64(1.0 - schedule.clock_error_max),
    );
    let mut held_until = call.sent_at + hold_for;
    for event in history {
        match &event.what {
            What::Heartbeat(beat) if beat.host == host && beat.result == CallResult::Ok => {
                if event.at > held_until && event.at > call.sent_at {
                    return true;
                }
                held_until = held_until.max(beat.sent_at + hold_for);
            }
            What::Host {
                host: of,
                change: HostChange::Stopping,
            } if of == host => return event.at > held_until,
            _ => {}
        }
    }
    false
}

/// Where hosts of the run are configured to begin, in the judge's words.
fn initial_positions(schedule: &Schedule) -> Vec<InitialPosition> {
    let judged = schedule.positions.iter().map(|position| match position {
        stream::InitialPosition::TrimHorizon => InitialPosition::Oldest,
        stream::InitialPosition::Latest => InitialPosition::Latest,
        stream::InitialPosition::AtTimestamp(ms) => InitialPosition::At(past::micros_of(*ms)),
    });
    judged.collect()
}

/// How many records no checkpoint covers.
pub fn behind(world: &World) -> usize {
    let rows = world.tables.leases();
    let shards = world.stream.shards();
    let uncovered =
        shards.iter().map(
            |(shard, truth)| match rows.get(shard).map(|row| &row.checkpoint) {
                Some(Checkpoint::End) => 0,
                None | Some(Checkpoint::Initial) => truth.places.len(),
                Some(Checkpoint::At(at)) => {
                    truth.places.len() - truth.places.partition_point(|place| place <= at)
                }
            },
        );
    uncovered.sum()
}

/// What the invariants say of the whole run, whose fleet was at rest at `rests_at`, if ever.
pub fn broken(
    world: &World,
    schedule: &Schedule,
    healed_at: Micros,
    rests_at: Option<Micros>,
) -> Vec<String> {
    let options = &world.plan.options;
    // A host that may not write is a member of the fleet that holds nothing.
    let is_counted =
        options.leases.balance == Balance::Count && !schedule.had_limits && !schedule.loses_right;
    let bounds = Bounds {
        retaken_within: Some(micros(retaken_within(schedule))),
        taken_up_within: Some(micros(retaken_within(schedule))),
        paced_within: world
            .plan
            .keeps_pace(schedule)
            .then(|| micros(PACED_WITHIN)),
        balanced_within: is_counted.then(|| micros(balanced_within(schedule))),
        children_within: (!schedule.loses_right).then(|| micros(SLOW_START + CALL_MAX * 2)),
        released_within: Some(micros(DRAIN_LIMIT + CALL_MAX)),
        shown_within: Some(micros(SHOWN_WITHIN)),
        handed_on_within: Some(micros(options.leases.scan_every * 3 + CALL_MAX)),
        ..Bounds::default()
    };
    let batch = options.batches.records as u64;
    let is_by_key = options.failure.order == Order::Key;
    // What was held back, or could not be saved, may be committed all at once.
    let is_committed_late =
        [Fault::HoldBack, Fault::SaveFails].map(|fault| schedule.weather.chance(fault) > 0.0);
    let is_unbounded = is_by_key || is_committed_late.contains(&true);
    let limits = Limits {
        healed_at: Some(healed_at),
        rests_at,
        heartbeats_hold: !options.leases.shared_with_kcl,
        initial_positions: initial_positions(schedule),
        latest_error: micros(STREAM_CLOCK),
        // What makes a checkpoint due, the batch that overshoots it, and the batch in flight; by
        // key, all since the oldest record that is tried again.
        repeats_max: if is_unbounded {
            u64::MAX
        } else {
            options.checkpoints.records + 2 * batch
        },
        given_up_after: Some(micros(given_up_after(&options.leases))),
        drained_within: Some(micros(DRAIN_LIMIT)),
        bounds,
        policy: policy(&world.plan, schedule),
        ..Limits::new(micros(options.leases.duration), world.now())
    };
    let found = check(&world.history(), &limits);
    let is_due = |violation: &&Violation| {
        // A leader whose listing began under faults takes nothing until it is answered.
        let is_untaken =
            violation.invariant == Invariant::L5 && violation.what.starts_with("nobody took");
        !is_untaken || violation.at > healed_at + micros(LISTING_MAX)
    };
    let is_judged = |violation: &&Violation| {
        schedule.storms.twins.is_none() || JUDGED_OF_TWINS.contains(&violation.invariant)
    };
    found
        .iter()
        .filter(is_due)
        .filter(is_judged)
        .map(ToString::to_string)
        .collect()
}

/// The least that a shard has not got on before its lease is given up: a row that was not written
/// for three leases' time, as its host counts it from the write's sending, or a deadline.
fn given_up_after(leases: &LeaseOptions) -> Duration {
    let deadlines = [
        leases.read_deadline,
        leases.plugin_deadline,
        leases.checkpoint_deadline,
    ];
    deadlines
        .into_iter()
        .fold(leases.duration * 2, Duration::min)
        .mul_f64(0.9)
}

/// The judge's own words for the hosts' policy.
fn policy(plan: &PluginPlan, schedule: &Schedule) -> Policy {
    let policy = &plan.options.failure;
    // While all shards are paused, a version gets through its trial without a record.
    let hopeless = if schedule.storms.commands.is_some() {
        0..0
    } else {
        0..HOPELESS_VERSIONS
    };
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
        parallelism: plan.options.parallelism.get(),
        tries_versions: plan.options.rollout.enabled,
        hopeless: hopeless
            .map(|n| digest_of(HOPELESS_FROM + n).as_str().to_owned())
            .collect(),
        is_age_unsure: schedule.clock_error_max > 0.0,
    }
}

fn micros(duration: Duration) -> Micros {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
