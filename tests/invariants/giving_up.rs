//! S17: what is given up, is given up as the policy says; and a dead letter is stored before its
//! record counts as settled.

use crate::history::{Event, What};
use crate::limits::Limits;
use crate::policy::{Cause, GiveUp};
use crate::violation::{Invariant, Report};
use crate::world::World;

pub(crate) fn judge(world: &World, event: &Event, limits: &Limits, report: &mut Report) {
    let What::GivenUp(given_up) = &event.what else {
        return;
    };
    // No policy is asked then: see S24.
    if given_up.cause == Cause::Skipped {
        return;
    }
    let (shard, at, policy) = (&given_up.shard, &given_up.at, &limits.policy);
    let mut wrong = |what: String| {
        report.add(
            Invariant::S17,
            format!("{at:?} of {shard} was given up, but {what}"),
        );
    };
    let Some(tenure) = world.tenure_of_given_up(given_up) else {
        return wrong("nobody had the lease".to_owned());
    };
    let Some(produced_at) = world
        .shard_of(tenure)
        .and_then(|shard| shard.records.get(at))
    else {
        return wrong("there is no such record".to_owned());
    };
    if policy.then != Some(given_up.how) {
        return wrong(format!("by {:?}, not {:?}", given_up.how, policy.then));
    }
    let age = event.at.saturating_sub(*produced_at);
    if let Some(why) = tenure.failures.unjustified(at, age, given_up.cause, policy) {
        return wrong(why);
    }
    if given_up.how == GiveUp::DeadLetter
        && !world.dead_letters.contains(&(shard.clone(), at.clone()))
    {
        wrong("nobody has stored it".to_owned());
    }
}
