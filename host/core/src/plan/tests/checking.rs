//! What makes a plan unsound is noticed, one rule after another.

use super::super::check::broken_rule;
use super::*;
use crate::stream::LeaseKey;

/// What is wrong with these steps of a host that holds lease 0, sees 1 free, 2 held by a KCL
/// worker, 3 held by a registered one and 4 finished, and may hold two leases.
fn wrong_with(steps: Vec<Step>) -> Option<String> {
    let finished = lease(&shard(4, &[]), Checkpoint::ShardEnd);
    let leases = [
        mine(0),
        free(1),
        owned(2, "kcl", Availability::Held),
        owned(3, "other", Availability::Held),
        finished,
    ];
    let limits = PlanLimits {
        max_leases: 2,
        ..LIMITS
    };
    let view = FleetView {
        me: &worker("me"),
        leases: &leases,
        workers: &[registered("me"), registered("other")],
        shards: None,
        is_bootstrapped: true,
    };
    let plan = Plan {
        steps,
        held_back: Vec::new(),
    };
    broken_rule(&plan, &view, &limits)
}

fn uneven() -> Reason {
    Reason::Uneven {
        from: worker("kcl"),
        lead: 2,
    }
}

fn take(seen: ObservedLease, reason: Reason) -> Step {
    let seen = Box::new(seen.lease);
    Step::Take { seen, reason }
}

fn claim(seen: ObservedLease) -> Step {
    Step::Claim {
        seen: Box::new(seen.lease),
        reason: uneven(),
    }
}

fn release(seen: ObservedLease) -> Step {
    Step::Release {
        seen: Box::new(seen.lease),
        reason: Reason::AtMaxLeases,
    }
}

fn hand_over(n: u32) -> Step {
    Step::HandOver {
        key: LeaseKey::of_shard(&id(n)),
        reason: Reason::AskedFor {
            by: worker("other"),
        },
    }
}

fn create(n: u32) -> Step {
    Step::Create {
        lease: Box::new(free(n).lease),
        reason: Reason::NewShard,
    }
}

#[test]
fn sound_steps_break_no_rule() {
    assert_eq!(wrong_with(Vec::new()), None);
    assert_eq!(
        wrong_with(vec![take(free(1), Reason::Overdue), hand_over(0)]),
        None
    );
    assert_eq!(
        wrong_with(vec![take(owned(2, "kcl", Availability::Held), uneven())]),
        None
    );
    assert_eq!(
        wrong_with(vec![claim(owned(3, "other", Availability::Held))]),
        None
    );
}

#[test]
fn each_rule_is_reported_when_it_is_broken() {
    let cases = [
        (
            vec![take(free(1), Reason::Overdue), claim(free(1))],
            "would do two things to shardId-000000000001",
        ),
        (
            vec![create(9)],
            "would create shardId-000000000009 without a list of the shards",
        ),
        (
            vec![hand_over(3)],
            "would hand over shardId-000000000003 though it is not read here",
        ),
        (
            vec![take(owned(3, "other", Availability::Held), uneven())],
            "would take shardId-000000000003 though its owner holds it",
        ),
        (
            vec![take(owned(2, "kcl", Availability::Held), Reason::Overdue)],
            "would take shardId-000000000002 though its owner holds it",
        ),
        (
            vec![take(mine(0), Reason::Overdue)],
            "would take shardId-000000000000 though it is read here",
        ),
        (
            vec![take(owned(1, "late", Availability::Free), Reason::Overdue)],
            "would take shardId-000000000001 by a row that was not seen",
        ),
        (
            vec![take(free(7), Reason::Overdue)],
            "would take shardId-000000000007 though no row of it was seen",
        ),
        (
            vec![take(
                lease(&shard(4, &[]), Checkpoint::ShardEnd),
                Reason::Overdue,
            )],
            "would take shardId-000000000004 though it is finished",
        ),
        (
            vec![claim(owned(2, "kcl", Availability::Held))],
            "would claim shardId-000000000002 though its owner knows nothing of claims",
        ),
        (
            vec![release(owned(3, "other", Availability::Held))],
            "would release shardId-000000000003 though it is another's",
        ),
        (
            vec![
                take(free(1), Reason::Overdue),
                take(owned(2, "kcl", Availability::Held), uneven()),
            ],
            "would take 2 leases besides 1, and may hold 2",
        ),
    ];
    for (steps, told) in cases {
        assert_eq!(wrong_with(steps).as_deref(), Some(told));
    }
}
