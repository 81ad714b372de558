use std::time::Duration;

use super::*;
use crate::lease::{Checkpoint, Lease, LeaseCounter, LeaseObserver, Standing, WorkerId};
use crate::stream::{HashKeyRange, InitialPosition, Position, SequenceNumber, Shard, ShardId};
use crate::time::Moment;

const LIMITS: PlanLimits = PlanLimits { initial_position: InitialPosition::TrimHorizon, max_leases: usize::MAX };

fn id(n: u32) -> ShardId {
    ShardId::new(format!("shardId-{n:012}")).unwrap()
}

fn worker(name: &str) -> WorkerId {
    WorkerId::new(name).unwrap()
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
    Shard { ending_sequence: Some(SequenceNumber::parse("9").unwrap()), ..shard(n, parents) }
}

fn lease(shard: &Shard, checkpoint: Checkpoint) -> ObservedLease {
    ObservedLease { lease: Lease::fresh(shard, checkpoint), standing: Standing::Free, is_mine: false }
}

fn owned(n: u32, owner: &str, standing: Standing) -> ObservedLease {
    let mut observed = lease(&shard(n, &[]), Checkpoint::TrimHorizon);
    observed.lease.owner = Some(worker(owner));
    observed.standing = standing;
    observed
}

fn plan_for(leases: &[ObservedLease], shards: Option<&[Shard]>, phase: Phase, limits: &PlanLimits) -> Plan {
    plan(&FleetView { me: &worker("me"), leases, shards, phase }, limits)
}

fn created(plan: &Plan) -> Vec<(ShardId, Checkpoint)> {
    let create = |step: &Step| match step {
        Step::Create { lease, .. } => Some((lease.key.shard_id(), lease.checkpoint.clone())),
        Step::Take { .. } => None,
    };
    plan.steps.iter().filter_map(create).collect()
}

fn taken(plan: &Plan) -> Vec<(ShardId, Reason)> {
    let take = |step: &Step| match step {
        Step::Take { seen, reason } => Some((seen.key.shard_id(), reason.clone())),
        Step::Create { .. } => None,
    };
    plan.steps.iter().filter_map(take).collect()
}

fn numeric(text: &str) -> Checkpoint {
    Checkpoint::At(Position::plain(SequenceNumber::parse(text).unwrap()))
}

#[test]
fn an_empty_table_gets_a_row_for_every_shard_parents_first() {
    let shards = [shard(3, &[1]), closed(1, &[]), shard(2, &[1])];
    let plan = plan_for(&[], Some(&shards), Phase::Start, &LIMITS);
    let all = [1, 2, 3].map(|n| (id(n), Checkpoint::TrimHorizon));
    assert_eq!(created(&plan), all);
}

#[test]
fn latest_starts_with_open_shards_only_and_timestamp_with_all() {
    let shards = [closed(1, &[]), shard(2, &[1])];
    let latest = PlanLimits { initial_position: InitialPosition::Latest, ..LIMITS };
    assert_eq!(created(&plan_for(&[], Some(&shards), Phase::Start, &latest)), [(id(2), Checkpoint::Latest)]);
    let time = PlanLimits { initial_position: InitialPosition::AtTimestamp(7), ..LIMITS };
    assert_eq!(created(&plan_for(&[], Some(&shards), Phase::Start, &time)).len(), 2);
}

#[test]
fn a_child_whose_parents_ended_starts_at_the_oldest_record_whatever_is_configured() {
    let latest = PlanLimits { initial_position: InitialPosition::Latest, ..LIMITS };
    let shards = [closed(1, &[]), shard(2, &[1])];
    let ended = lease(&shards[0], Checkpoint::ShardEnd);
    let plan = plan_for(&[ended], Some(&shards), Phase::Steady, &latest);
    assert_eq!(created(&plan), [(id(2), Checkpoint::TrimHorizon)]);
}

#[test]
fn a_child_of_an_unfinished_parent_is_left_to_whoever_ends_the_parent() {
    let shards = [closed(1, &[]), closed(2, &[]), shard(3, &[1, 2])];
    let leases = [lease(&shards[0], Checkpoint::ShardEnd), lease(&shards[1], numeric("5"))];
    assert_eq!(created(&plan_for(&leases, Some(&shards), Phase::Steady, &LIMITS)), []);
}

#[test]
fn a_listing_with_a_cycle_of_parents_ends_and_creates_no_duplicate() {
    let shards = [shard(1, &[2]), shard(2, &[1])];
    assert_eq!(created(&plan_for(&[], Some(&shards), Phase::Start, &LIMITS)).len(), 2);
}

#[test]
fn a_row_deleted_by_hand_is_made_again_at_the_configured_start() {
    let shards = [shard(1, &[]), shard(2, &[])];
    let plan = plan_for(&[lease(&shards[0], numeric("5"))], Some(&shards), Phase::Steady, &LIMITS);
    assert_eq!(created(&plan), [(id(2), Checkpoint::TrimHorizon)]);
}

#[test]
fn without_a_listing_nothing_is_created() {
    assert_eq!(plan_for(&[], None, Phase::Steady, &LIMITS), Plan::default());
}

#[test]
fn all_free_leases_are_taken_in_one_pass_up_to_the_fair_share() {
    let leases: Vec<_> = (0..7).map(|n| lease(&shard(n, &[]), Checkpoint::TrimHorizon)).collect();
    assert_eq!(taken(&plan_for(&leases, None, Phase::Steady, &LIMITS)).len(), 7);
    let mut with_other = leases.clone();
    with_other[0] = owned(0, "other", Standing::Held);
    // Seven leases for two hosts: four each.
    assert_eq!(taken(&plan_for(&with_other, None, Phase::Steady, &LIMITS)).len(), 4);
    let few = PlanLimits { max_leases: 2, ..LIMITS };
    assert_eq!(taken(&plan_for(&leases, None, Phase::Steady, &few)).len(), 2);
}

/// The truth table that one of our predecessors has the wrong way round.
#[test]
fn only_free_and_expired_leases_of_others_are_taken() {
    for (observed, expected) in [
        (owned(0, "other", Standing::Held), false),
        (owned(0, "other", Standing::Expired), true),
        (owned(0, "me", Standing::Held), false),
        (lease(&shard(0, &[]), Checkpoint::TrimHorizon), true),
        (lease(&shard(0, &[]), Checkpoint::ShardEnd), false),
    ] {
        let plan = plan_for(std::slice::from_ref(&observed), None, Phase::Steady, &LIMITS);
        assert_eq!(!taken(&plan).is_empty(), expected, "{observed:?}");
    }
}

#[test]
fn a_restart_with_the_same_id_resumes_its_leases_at_once_but_a_twin_does_not_fight() {
    let leases = [owned(0, "me", Standing::Held), owned(1, "me", Standing::Held)];
    let at_start = taken(&plan_for(&leases, None, Phase::Start, &LIMITS));
    assert!(at_start.iter().all(|(_, reason)| *reason == Reason::HeldBeforeRestart));
    assert_eq!(at_start.len(), 2);
    assert_eq!(taken(&plan_for(&leases, None, Phase::Steady, &LIMITS)), []);
}

#[test]
fn the_first_pass_leaves_half_to_hosts_that_start_at_the_same_time() {
    let leases: Vec<_> = (0..5).map(|n| lease(&shard(n, &[]), Checkpoint::TrimHorizon)).collect();
    let plan = plan_for(&leases, None, Phase::Start, &LIMITS);
    assert_eq!(taken(&plan).len(), 3);
    assert_eq!(plan.held_back.iter().filter(|(_, reason)| *reason == Reason::LeftForOthersAtStart).count(), 2);
    assert_eq!(taken(&plan_for(&leases[..1], None, Phase::Start, &LIMITS)).len(), 1);
}

#[test]
fn a_child_waits_for_both_parents_of_a_merge() {
    let merged = shard(3, &[1, 2]);
    let child = lease(&merged, Checkpoint::TrimHorizon);
    let parents = |a, b| [lease(&closed(1, &[]), a), lease(&closed(2, &[]), b), child.clone()];
    let takes_child = |leases: &[ObservedLease]| {
        taken(&plan_for(leases, None, Phase::Steady, &LIMITS)).iter().any(|(shard, _)| *shard == id(3))
    };
    assert!(!takes_child(&parents(Checkpoint::ShardEnd, numeric("5"))));
    assert!(!takes_child(&parents(numeric("5"), Checkpoint::ShardEnd)));
    assert!(takes_child(&parents(Checkpoint::ShardEnd, Checkpoint::ShardEnd)));
    // Parents without rows were finished and removed, or never belonged to this application.
    assert!(takes_child(std::slice::from_ref(&child)));
}

#[test]
fn finished_leases_count_for_nobodys_share() {
    let mut leases: Vec<_> = (0..4).map(|n| lease(&closed(n, &[]), Checkpoint::ShardEnd)).collect();
    leases.push(lease(&shard(4, &[]), Checkpoint::TrimHorizon));
    leases.push(owned(5, "other", Standing::Held));
    assert_eq!(taken(&plan_for(&leases, None, Phase::Steady, &LIMITS)).len(), 1);
}

#[test]
fn hosts_prefer_different_leases_and_each_decides_the_same_again() {
    let leases: Vec<_> = (0..8).map(|n| lease(&shard(n, &[]), Checkpoint::TrimHorizon)).collect();
    let limits = PlanLimits { max_leases: 4, ..LIMITS };
    let order = |name: &str| {
        let me = worker(name);
        let view = FleetView { me: &me, leases: &leases, shards: None, phase: Phase::Steady };
        assert_eq!(plan(&view, &limits), plan(&view, &limits));
        taken(&plan(&view, &limits)).into_iter().map(|(shard, _)| shard).collect::<Vec<_>>()
    };
    assert_ne!(order("a"), order("b"));
}

#[test]
fn a_lease_expires_by_our_own_clock_and_only_after_a_full_duration_unseen() {
    let duration = Duration::from_secs(10);
    let at = |seconds| Moment::from_origin(Duration::from_secs(seconds));
    let mut row = owned(0, "other", Standing::Held).lease;
    let mut observer = LeaseObserver::default();
    observer.observe(std::slice::from_ref(&row), at(100));
    assert_eq!(observer.standing(&row, at(110), duration), Standing::Held);
    assert_eq!(observer.standing(&row, at(111), duration), Standing::Expired);
    row.counter = LeaseCounter(1);
    observer.observe(std::slice::from_ref(&row), at(109));
    observer.observe(std::slice::from_ref(&row), at(118));
    assert_eq!(observer.standing(&row, at(119), duration), Standing::Held);
    assert_eq!(observer.standing(&row, at(120), duration), Standing::Expired);
    row.owner = None;
    assert_eq!(observer.standing(&row, at(109), duration), Standing::Free);
}
