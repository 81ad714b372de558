use std::collections::BTreeSet;
use std::time::Duration;

use super::*;
use crate::fleet::{Incarnation, WorkerRow};
use crate::lease::{Availability, Checkpoint, Lease, LeaseCounter, LeaseObserver, WorkerId};
use crate::stream::{HashKeyRange, InitialPosition, Position, SequenceNumber, Shard, ShardId};
use crate::time::Moment;

mod balancing;
mod checking;
mod heeding;
mod observing;
mod syncing;
mod taking;
mod unowned;

const LIMITS: PlanLimits = PlanLimits {
    initial_position: InitialPosition::TrimHorizon,
    max_leases: usize::MAX,
    balance: Balance::Count,
    shared_with_kcl: false,
    overdue_after: Duration::from_secs(30),
    finished_rows_stay: Duration::from_secs(20),
};

fn id(n: u32) -> ShardId {
    ShardId::new(format!("shardId-{n:012}")).unwrap()
}

fn worker(name: &str) -> WorkerId {
    WorkerId::new(name).unwrap()
}

fn registered(name: &str) -> ObservedWorker {
    ObservedWorker {
        id: worker(name),
        is_alive: true,
        is_draining: false,
        max_leases: usize::MAX,
    }
}

fn shard(n: u32, parents: &[u32]) -> Shard {
    Shard {
        id: id(n),
        parents: parents.iter().map(|n| id(*n)).collect(),
        hash_range: HashKeyRange::FULL,
        ending_sequence: None,
    }
}

fn closed(n: u32, parents: &[u32]) -> Shard {
    Shard {
        ending_sequence: Some(SequenceNumber::parse("9").unwrap()),
        ..shard(n, parents)
    }
}

fn observed(lease: Lease, availability: Availability) -> ObservedLease {
    let idle_for = Duration::ZERO;
    ObservedLease {
        lease,
        availability,
        idle_for,
        is_mine: false,
        is_claim_fresh: false,
        has_owner_left: false,
        is_owner_new: false,
        finished_for: LIMITS.finished_rows_stay,
        is_avoided: false,
    }
}

fn lease(shard: &Shard, checkpoint: Checkpoint) -> ObservedLease {
    observed(Lease::fresh(shard, checkpoint), Availability::Free)
}

fn owned(n: u32, owner: &str, availability: Availability) -> ObservedLease {
    let mut observed = lease(&shard(n, &[]), Checkpoint::TrimHorizon);
    observed.lease.owner = Some(worker(owner));
    observed.availability = availability;
    observed
}

fn mine(n: u32) -> ObservedLease {
    ObservedLease {
        is_mine: true,
        ..owned(n, "me", Availability::Held)
    }
}

fn claimed(mut observed: ObservedLease, by: &str) -> ObservedLease {
    observed.lease.claimant = Some(worker(by));
    observed.is_claim_fresh = true;
    observed
}

fn free(n: u32) -> ObservedLease {
    lease(&shard(n, &[]), Checkpoint::TrimHorizon)
}

/// A pass of a host that does not lead.
fn plan_of(leases: &[ObservedLease], others: &[&str], limits: &PlanLimits) -> Plan {
    let mut workers: Vec<_> = others.iter().map(|name| registered(name)).collect();
    workers.push(registered("me"));
    plan(
        &FleetView {
            me: &worker("me"),
            leases,
            workers: &workers,
            shards: None,
            is_bootstrapped: true,
        },
        limits,
    )
}

fn taken(plan: &Plan) -> Vec<(ShardId, Reason)> {
    of_kind(plan, "take")
}

fn of_kind(plan: &Plan, verb: &str) -> Vec<(ShardId, Reason)> {
    let steps = plan.steps.iter().filter(|step| step.code() == verb);
    steps
        .map(|step| (step.key().shard_id(), step.reason().clone()))
        .collect()
}

fn held_back(plan: &Plan, n: u32) -> Option<Reason> {
    plan.held_back
        .iter()
        .find(|(key, _)| key.shard_id() == id(n))
        .map(|(_, reason)| reason.clone())
}

fn numeric(text: &str) -> Checkpoint {
    Checkpoint::At(Position::plain(SequenceNumber::parse(text).unwrap()))
}

#[test]
fn all_free_leases_are_taken_in_one_pass_up_to_the_fair_share() {
    let leases: Vec<_> = (0..7).map(free).collect();
    assert_eq!(taken(&plan_of(&leases, &[], &LIMITS)).len(), 7);
    // Seven leases for two hosts: four each. The other is seen by its registration, though it holds
    // nothing yet.
    assert_eq!(taken(&plan_of(&leases, &["other"], &LIMITS)).len(), 4);
    let few = PlanLimits {
        max_leases: 2,
        ..LIMITS
    };
    let limited = plan_of(&leases, &[], &few);
    assert_eq!(taken(&limited).len(), 2);
    assert_eq!(
        limited
            .held_back
            .iter()
            .filter(|(_, reason)| *reason == Reason::AtMaxLeases)
            .count(),
        5
    );
}

#[test]
fn a_host_on_its_way_out_and_a_dead_one_count_for_nobodys_share() {
    let leases: Vec<_> = (0..6).map(free).collect();
    let view = |other| {
        let workers = [other, registered("me")];
        let view = FleetView {
            me: &worker("me"),
            leases: &leases,
            workers: &workers,
            shards: None,
            is_bootstrapped: true,
        };
        taken(&plan(&view, &LIMITS)).len()
    };
    assert_eq!(view(registered("other")), 3);
    assert_eq!(
        view(ObservedWorker {
            is_draining: true,
            ..registered("other")
        }),
        6
    );
    assert_eq!(
        view(ObservedWorker {
            is_alive: false,
            ..registered("other")
        }),
        6
    );
    assert_eq!(
        view(ObservedWorker {
            max_leases: 1,
            ..registered("other")
        }),
        5
    );
}

/// The truth table that one of our predecessors has the wrong way round.
#[test]
fn only_free_and_expired_leases_of_others_are_taken() {
    for (observed, expected) in [
        (owned(0, "other", Availability::Held), false),
        (owned(0, "other", Availability::Expired), true),
        (mine(0), false),
        (free(0), true),
        (lease(&shard(0, &[]), Checkpoint::ShardEnd), false),
    ] {
        let plan = plan_of(std::slice::from_ref(&observed), &[], &LIMITS);
        assert_eq!(!taken(&plan).is_empty(), expected, "{observed:?}");
    }
}

#[test]
fn what_is_this_workers_by_name_is_taken_at_once_whatever_its_share() {
    let leases = [
        owned(0, "me", Availability::Held),
        owned(1, "me", Availability::Held),
        owned(2, "other", Availability::Held),
    ];
    let taken: BTreeSet<_> = taken(&plan_of(&leases, &["other"], &LIMITS))
        .into_iter()
        .map(|(shard, _)| shard)
        .collect();
    assert_eq!(taken, BTreeSet::from([id(0), id(1)]));
}

#[test]
fn a_lease_that_nobody_takes_for_long_is_taken_above_the_share() {
    let mut leases = vec![
        mine(0),
        mine(1),
        free(2),
        owned(3, "dead", Availability::Expired),
    ];
    // Two live hosts and four leases: this one has its share.
    assert_eq!(taken(&plan_of(&leases, &["other"], &LIMITS)), []);
    for lease in &mut leases {
        lease.idle_for = Duration::from_secs(31);
    }
    let plan = plan_of(&leases, &["other"], &LIMITS);
    assert!(
        taken(&plan)
            .iter()
            .all(|(_, reason)| *reason == Reason::Overdue)
    );
    assert_eq!(taken(&plan).len(), 2);
}

#[test]
fn a_lease_this_host_gave_up_lately_is_left_to_others() {
    let avoided = ObservedLease {
        is_avoided: true,
        ..free(0)
    };
    let plan = plan_of(&[avoided], &[], &LIMITS);
    assert_eq!(
        (taken(&plan), held_back(&plan, 0)),
        (vec![], Some(Reason::GaveUpLately))
    );
}

#[test]
fn a_child_waits_for_both_parents_of_a_merge() {
    let merged = shard(3, &[1, 2]);
    let child = lease(&merged, Checkpoint::TrimHorizon);
    let parents = |a, b| {
        [
            lease(&closed(1, &[]), a),
            lease(&closed(2, &[]), b),
            child.clone(),
        ]
    };
    let takes_child = |leases: &[ObservedLease]| {
        taken(&plan_of(leases, &[], &LIMITS))
            .iter()
            .any(|(shard, _)| *shard == id(3))
    };
    assert!(!takes_child(&parents(Checkpoint::ShardEnd, numeric("5"))));
    assert!(!takes_child(&parents(numeric("5"), Checkpoint::ShardEnd)));
    assert!(takes_child(&parents(
        Checkpoint::ShardEnd,
        Checkpoint::ShardEnd
    )));
    // Parents without rows were finished and removed, or never belonged to this application.
    assert!(takes_child(std::slice::from_ref(&child)));
}

#[test]
fn a_child_waits_for_an_ancestor_whose_children_have_no_rows_yet() {
    // 0 is split into 1 and 2 and is still read; 2 is merged with 3, which has ended, into 4.
    let range = |start, end| HashKeyRange::new(start, end).unwrap();
    let ranged = |n, parents: &[u32], (start, end), checkpoint| {
        lease(
            &Shard {
                hash_range: range(start, end),
                ..shard(n, parents)
            },
            checkpoint,
        )
    };
    let rows = |of_0| {
        [
            ranged(0, &[], (0, 99), of_0),
            ranged(3, &[], (100, 199), Checkpoint::ShardEnd),
            ranged(4, &[2, 3], (50, 199), Checkpoint::TrimHorizon),
            ranged(9, &[8], (200, 299), Checkpoint::TrimHorizon),
        ]
    };
    let early = plan_of(&rows(numeric("5")), &[], &LIMITS);
    assert_eq!(
        held_back(&early, 4),
        Some(Reason::WaitsForOlder { older: id(0) })
    );
    assert_eq!(held_back(&early, 9), None);
    assert_eq!(
        held_back(&plan_of(&rows(Checkpoint::ShardEnd), &[], &LIMITS), 4),
        None
    );
}

#[test]
fn a_parent_without_a_row_ended_only_if_all_shards_got_rows_before() {
    // 0 and 1 were merged into 2 while 0's row was still on its way to the table.
    let rows = [
        lease(&closed(1, &[]), Checkpoint::ShardEnd),
        lease(&shard(2, &[0, 1]), Checkpoint::TrimHorizon),
    ];
    let planned = |leases: &[ObservedLease], is_bootstrapped| {
        let view = FleetView {
            me: &worker("me"),
            leases,
            workers: &[],
            shards: None,
            is_bootstrapped,
        };
        plan(&view, &LIMITS)
    };
    let early = planned(&rows, false);
    assert_eq!(
        (taken(&early), held_back(&early, 2)),
        (vec![], Some(Reason::FirstSync))
    );
    assert_eq!(taken(&planned(&rows, true)).len(), 1);
    let started = [rows[0].clone(), lease(&shard(2, &[0, 1]), numeric("5"))];
    assert_eq!(
        taken(&planned(&started, false)).len(),
        1,
        "somebody knew that it may be read"
    );
}

#[test]
fn finished_leases_count_for_nobodys_share() {
    let mut leases: Vec<_> = (0..4)
        .map(|n| lease(&closed(n, &[]), Checkpoint::ShardEnd))
        .collect();
    leases.push(free(4));
    leases.push(owned(5, "other", Availability::Held));
    assert_eq!(taken(&plan_of(&leases, &["other"], &LIMITS)).len(), 1);
}

#[test]
fn hosts_prefer_different_leases_and_each_decides_the_same_again() {
    let leases: Vec<_> = (0..8).map(free).collect();
    let limits = PlanLimits {
        max_leases: 4,
        ..LIMITS
    };
    let order = |name: &str| {
        let me = worker(name);
        let view = FleetView {
            me: &me,
            leases: &leases,
            workers: &[],
            shards: None,
            is_bootstrapped: true,
        };
        assert_eq!(plan(&view, &limits), plan(&view, &limits));
        taken(&plan(&view, &limits))
            .into_iter()
            .map(|(shard, _)| shard)
            .collect::<Vec<_>>()
    };
    assert_ne!(order("a"), order("b"));
}

#[test]
fn a_lease_expires_by_our_own_clock_and_only_after_a_full_duration_unseen() {
    let duration = Duration::from_secs(10);
    let at = |seconds| Moment::from_origin(Duration::from_secs(seconds));
    let mut row = owned(0, "other", Availability::Held).lease;
    let mut observer = LeaseObserver::default();
    observer.observe(std::slice::from_ref(&row), at(100));
    assert_eq!(
        observer.availability(&row, at(110), duration),
        Availability::Held
    );
    assert_eq!(
        observer.availability(&row, at(111), duration),
        Availability::Expired
    );
    row.counter = LeaseCounter(1);
    observer.observe(std::slice::from_ref(&row), at(109));
    observer.observe(std::slice::from_ref(&row), at(118));
    assert_eq!(
        observer.availability(&row, at(119), duration),
        Availability::Held
    );
    assert_eq!(
        observer.availability(&row, at(120), duration),
        Availability::Expired
    );
    row.owner = None;
    assert_eq!(
        observer.availability(&row, at(109), duration),
        Availability::Free
    );
}

#[test]
fn a_lease_lives_as_long_as_its_owners_heart_beats_by_the_owners_own_lease_duration() {
    let at = |seconds| Moment::from_origin(Duration::from_secs(seconds));
    let row = owned(0, "other", Availability::Held).lease;
    let beat = |beat| WorkerRow {
        beat,
        lease_duration: Duration::from_secs(20),
        ..WorkerRow::beating("other")
    };
    let mut observer = LeaseObserver::default();
    observer.observe(std::slice::from_ref(&row), at(100));
    observer.observe_workers(&[beat(1)], at(100));
    observer.observe_workers(&[beat(2)], at(110));
    let availability = |observer: &LeaseObserver, seconds| {
        observer.availability(&row, at(seconds), Duration::from_secs(10))
    };
    assert_eq!(availability(&observer, 130), Availability::Held);
    assert_eq!(availability(&observer, 131), Availability::Expired);
    let run = Incarnation::new("run").unwrap();
    assert!(!observer.has_moved(&worker("other"), Some((&run, 2))));
    assert!(observer.has_moved(&worker("other"), Some((&run, 3))));
}

#[test]
fn a_worker_whose_row_vanished_while_nobody_looked_is_silent_from_then() {
    let at = |seconds| Moment::from_origin(Duration::from_secs(seconds));
    let row = owned(0, "other", Availability::Held).lease;
    let last = WorkerRow::beating("other");
    let seen_until = |seconds: u64| {
        let mut observer = LeaseObserver::default();
        observer.observe(std::slice::from_ref(&row), at(100));
        for look in 100..=seconds {
            observer.observe_workers(std::slice::from_ref(&last), at(look));
        }
        observer.observe_workers(&[], at(130));
        observer
    };
    let availability = |seen_until: &LeaseObserver, seconds| {
        seen_until.availability(&row, at(seconds), Duration::from_secs(10))
    };
    // It may have beaten until a moment ago.
    let unwatched = seen_until(101);
    assert_eq!(
        (availability(&unwatched, 130), availability(&unwatched, 140)),
        (Availability::Held, Availability::Held)
    );
    assert_eq!(availability(&unwatched, 141), Availability::Expired);
    // It was dead before.
    assert_eq!(availability(&seen_until(111), 130), Availability::Expired);
}

#[test]
fn a_worker_whose_row_vanished_is_silent_from_then_and_one_that_signed_off_is_gone_at_once() {
    let at = |seconds| Moment::from_origin(Duration::from_secs(seconds));
    let row = owned(0, "other", Availability::Held).lease;
    let run = Incarnation::new("run").unwrap();
    for is_draining in [false, true] {
        let last = WorkerRow {
            is_draining,
            ..WorkerRow::beating("other")
        };
        let mut observer = LeaseObserver::default();
        observer.observe(std::slice::from_ref(&row), at(100));
        observer.observe_workers(std::slice::from_ref(&last), at(150));
        observer.observe_workers(&[], at(151));
        let availability =
            |seconds| observer.availability(&row, at(seconds), Duration::from_secs(10));
        assert!(observer.has_left(&worker("other"), at(151)));
        assert_eq!(
            observer.workers(at(151)).count(),
            0,
            "it takes part in nothing"
        );
        if is_draining {
            assert_eq!(availability(151), Availability::Expired);
        } else {
            assert_eq!(availability(151), Availability::Held);
            // It may have beaten a last time after the last look, and goes by that.
            assert_eq!(
                (availability(161), availability(162)),
                (Availability::Held, Availability::Expired)
            );
            assert!(
                observer.has_moved(&worker("other"), Some((&run, 2))),
                "it registered again"
            );
        }
        // That it was one of ours is remembered for as long as its leases may still look alive.
        observer.observe_workers(&[], at(161));
        assert!(
            observer.has_left(&worker("other"), at(161))
                && !observer.has_left(&worker("other"), at(162))
        );
    }
}
