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

/// What is wrong with the removal of shard 0's row, by a leader that sees these rows and knows of
/// shard 0 what `gone` says. Kinesis lists 1, and 0 as long as it `lists` it.
fn wrong_with_removal(leases: &[ObservedLease], gone: &[u32], lists: bool) -> Option<String> {
    let listed = [shard(0, &[]), shard(1, &[0])];
    let gone = GoneShards {
        confirmed: gone.iter().map(|n| id(*n)).collect(),
        ..GoneShards::default()
    };
    let view = FleetView {
        me: &worker("me"),
        leases,
        workers: &[registered("me")],
        shards: Some(ShardList {
            shards: if lists { &listed } else { &listed[1..] },
            gone: &gone,
            before_start: None,
        }),
        is_bootstrapped: true,
    };
    let step = Step::Delete {
        seen: Box::new(leases[0].lease.clone()),
        reason: Reason::ChildrenStarted,
    };
    let plan = Plan {
        steps: vec![step],
        held_back: Vec::new(),
    };
    broken_rule(&plan, &view, &LIMITS)
}

/// Shard 0, read to its end a while ago, and its child 1, which is being read.
fn parent_and_child() -> [ObservedLease; 2] {
    let mut parent = lease(&shard(0, &[]), Checkpoint::ShardEnd);
    parent.lease.children = vec![id(1)];
    parent.finished_for = LIMITS.finished_rows_stay;
    let child = lease(&shard(1, &[0]), Checkpoint::ShardEnd);
    [parent, child]
}

/// The same of rows whose shards Kinesis lists.
fn wrong_with_finished(leases: &[ObservedLease]) -> Option<String> {
    wrong_with_removal(leases, &[], true)
}

fn deletes_though(why: &str) -> String {
    format!("would delete shardId-000000000000 though {why}")
}

#[test]
fn a_row_is_removed_only_when_nothing_rests_on_it() {
    let [parent, child] = parent_and_child();
    assert_eq!(wrong_with_finished(&[parent.clone(), child.clone()]), None);

    let mut recent = parent.clone();
    recent.finished_for = Duration::ZERO;
    assert_eq!(
        wrong_with_finished(&[recent, child.clone()]),
        Some(deletes_though("it was finished a short while ago"))
    );
    let mut waits = child.clone();
    waits.lease.checkpoint = Checkpoint::TrimHorizon;
    for child in [waits, free(7)] {
        assert_eq!(
            wrong_with_finished(&[parent.clone(), child]),
            Some(deletes_though("a child may still start by it"))
        );
    }
    let mut childless = parent.clone();
    childless.lease.children.clear();
    assert_eq!(
        wrong_with_finished(&[childless, child.clone()]),
        Some(deletes_though("a child may still start by it"))
    );
    let mut grandchild = parent.clone();
    grandchild.lease.parents = vec![id(8)];
    assert_eq!(
        wrong_with_finished(&[grandchild, child.clone(), free(8)]),
        Some(deletes_though("a parent still has a row"))
    );
    let mut unread = parent;
    unread.lease.checkpoint = Checkpoint::TrimHorizon;
    assert_eq!(
        wrong_with_finished(&[unread, child]),
        Some(deletes_though("its shard is not read to the end"))
    );
}

#[test]
fn the_row_of_a_shard_that_is_gone_is_removed_unless_kinesis_lists_the_shard() {
    let unread = [free(0)];
    assert_eq!(wrong_with_removal(&unread, &[0], false), None);
    assert_eq!(
        wrong_with_removal(&unread, &[0], true).as_deref(),
        Some("would delete shardId-000000000000 though Kinesis lists its shard")
    );
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
