use super::*;
use crate::lease::Sought;

fn sync(
    leases: &[ObservedLease],
    shards: &[Shard],
    is_bootstrapped: bool,
    limits: &PlanLimits,
) -> Plan {
    sync_with_gone(leases, shards, &[], is_bootstrapped, limits)
}

fn sync_with_gone(
    leases: &[ObservedLease],
    shards: &[Shard],
    gone: &[u32],
    is_bootstrapped: bool,
    limits: &PlanLimits,
) -> Plan {
    let gone = GoneShards {
        confirmed: gone.iter().map(|n| id(*n)).collect(),
        ..GoneShards::default()
    };
    let list = ShardList {
        shards,
        gone: &gone,
        before_start: None,
    };
    plan(
        &FleetView {
            me: &worker("me"),
            leases,
            workers: &[],
            shards: Some(list),
            is_bootstrapped,
        },
        limits,
    )
}

/// With Kinesis' word on which shards were closed before the application began.
fn sync_since(
    leases: &[ObservedLease],
    shards: &[Shard],
    before: &[u32],
    is_bootstrapped: bool,
) -> Plan {
    let before: BTreeSet<_> = before.iter().map(|n| id(*n)).collect();
    let list = ShardList {
        shards,
        gone: &GoneShards::default(),
        before_start: Some(&before),
    };
    plan(
        &FleetView {
            me: &worker("me"),
            leases,
            workers: &[],
            shards: Some(list),
            is_bootstrapped,
        },
        &LATEST,
    )
}

fn created(plan: &Plan) -> Vec<(ShardId, Checkpoint)> {
    let create = |step: &Step| match step {
        Step::Create { lease, .. } => Some((lease.key.shard_id(), lease.checkpoint.clone())),
        Step::Delete { .. }
        | Step::Take { .. }
        | Step::Claim { .. }
        | Step::Release { .. }
        | Step::HandOver { .. } => None,
    };
    plan.steps.iter().filter_map(create).collect()
}

fn deleted(plan: &Plan) -> Vec<ShardId> {
    of_kind(plan, "delete")
        .into_iter()
        .map(|(shard, _)| shard)
        .collect()
}

/// A finished row with the children that it names.
fn ended(shard: &Shard, children: &[u32]) -> ObservedLease {
    let mut observed = lease(shard, Checkpoint::ShardEnd);
    observed.lease.children = children.iter().map(|n| id(*n)).collect();
    observed
}

const LATEST: PlanLimits = PlanLimits {
    initial_position: InitialPosition::Latest,
    ..LIMITS
};

#[test]
fn an_empty_table_gets_a_row_for_every_shard_parents_first() {
    let shards = [shard(3, &[1]), closed(1, &[]), shard(2, &[1])];
    let all = [1, 2, 3].map(|n| (id(n), Checkpoint::TrimHorizon));
    assert_eq!(created(&sync(&[], &shards, false, &LIMITS)), all);
}

#[test]
fn a_first_sync_that_was_cut_short_is_completed_as_it_began() {
    let shards = [closed(1, &[]), shard(2, &[1]), shard(3, &[1])];
    let begun = [lease(&shards[0], Checkpoint::TrimHorizon)];
    assert_eq!(created(&sync(&begun, &shards, false, &LIMITS)).len(), 2);
    let open = [lease(&shards[1], Checkpoint::Latest)];
    assert_eq!(
        created(&sync(&open, &shards, false, &LATEST)),
        [(id(3), Checkpoint::Latest)]
    );
}

#[test]
fn a_start_at_a_moment_leaves_out_what_was_closed_before_and_nothing_that_was_closed_since() {
    let shards = [closed(1, &[]), closed(2, &[1]), shard(3, &[2])];
    let at_start = |n| (id(n), Checkpoint::Latest);
    assert_eq!(
        created(&sync_since(&[], &shards, &[1, 2], false)),
        [at_start(3)]
    );
    assert_eq!(
        created(&sync_since(&[], &shards, &[1], false)),
        [at_start(2), at_start(3)]
    );
    // A row that a first sync made, and its child's that is still to be made.
    let begun = [lease(&shards[1], Checkpoint::Latest)];
    assert_eq!(
        created(&sync_since(&begun, &shards, &[1], false)),
        [at_start(3)]
    );
}

#[test]
fn closed_ancestors_that_the_application_chose_not_to_read_get_no_rows_in_later_syncs() {
    let shards = [closed(1, &[]), closed(2, &[1]), shard(3, &[2])];
    for sentinel in [Checkpoint::Latest, Checkpoint::AtTimestamp] {
        let quiet = [lease(&shards[2], sentinel)];
        let time = PlanLimits {
            initial_position: InitialPosition::AtTimestamp(7),
            ..LIMITS
        };
        for limits in [LATEST, time, LIMITS] {
            for is_bootstrapped in [true, false] {
                assert_eq!(
                    created(&sync(&quiet, &shards, is_bootstrapped, &limits)),
                    [],
                    "{limits:?}"
                );
            }
        }
    }
    // Where Kinesis says when they were closed, that counts, and not what rows are there.
    let quiet = [lease(&shards[2], Checkpoint::Latest)];
    assert_eq!(created(&sync_since(&quiet, &shards, &[1, 2], true)), []);
    assert_eq!(
        created(&sync_since(&quiet, &shards, &[1], true)).len(),
        1,
        "its row was deleted by hand"
    );
}

#[test]
fn no_parent_of_a_merge_is_read_whose_child_was_chosen_to_start_at_the_tip() {
    // 1 and 2 were merged into 3, which was split into 4 and 5; only 4 is quiet.
    let shards = [
        closed(1, &[]),
        closed(2, &[]),
        closed(3, &[1, 2]),
        shard(4, &[3]),
        shard(5, &[3]),
    ];
    let leases = [
        lease(&shards[3], Checkpoint::Latest),
        lease(&shards[4], numeric("5")),
    ];
    assert_eq!(created(&sync(&leases, &shards, true, &LATEST)), []);
}

#[test]
fn a_child_whose_parents_ended_starts_at_the_oldest_record_whatever_is_configured() {
    let shards = [closed(1, &[]), shard(2, &[1])];
    let plan = sync(&[ended(&shards[0], &[2])], &shards, true, &LATEST);
    assert_eq!(created(&plan), [(id(2), Checkpoint::TrimHorizon)]);
}

#[test]
fn a_child_of_an_unfinished_parent_is_left_to_whoever_ends_the_parent() {
    let shards = [closed(1, &[]), closed(2, &[]), shard(3, &[1, 2])];
    let leases = [ended(&shards[0], &[3]), lease(&shards[1], numeric("5"))];
    assert_eq!(created(&sync(&leases, &shards, true, &LIMITS)), []);
}

#[test]
fn a_listing_with_a_cycle_of_parents_ends_and_creates_no_duplicate() {
    let shards = [shard(1, &[2]), shard(2, &[1])];
    assert_eq!(created(&sync(&[], &shards, false, &LIMITS)).len(), 2);
}

#[test]
fn a_row_deleted_by_hand_is_made_again_at_the_configured_start() {
    let shards = [shard(1, &[]), shard(2, &[])];
    let plan = sync(&[lease(&shards[0], numeric("5"))], &shards, true, &LATEST);
    assert_eq!(created(&plan), [(id(2), Checkpoint::Latest)]);
    assert_eq!(of_kind(&plan, "create"), [(id(2), Reason::RowMissing)]);
}

#[test]
fn a_host_that_does_not_lead_creates_and_deletes_nothing() {
    let leases = [
        ended(&closed(1, &[]), &[2]),
        lease(&shard(2, &[1]), numeric("5")),
    ];
    let plan = plan_of(&leases, &["other"], &LIMITS);
    assert_eq!(
        (of_kind(&plan, "create"), of_kind(&plan, "delete")),
        (vec![], vec![])
    );
}

#[test]
fn a_shard_that_a_step_removes_is_not_also_left_for_now_or_taken() {
    let leases = [
        lease(&shard(0, &[]), numeric("5")),
        lease(&shard(1, &[0]), Checkpoint::TrimHorizon),
        lease(&shard(2, &[]), numeric("5")),
    ];
    let plan = sync_with_gone(&leases, &[shard(0, &[])], &[1, 2], true, &LIMITS);
    let steps: Vec<_> = plan
        .steps
        .iter()
        .map(|step| (step.code(), step.key().shard_id()))
        .collect();
    assert_eq!(
        steps,
        [("delete", id(1)), ("delete", id(2)), ("take", id(0))]
    );
    assert_eq!(plan.held_back, []);
}

#[test]
fn a_shard_whose_row_was_set_back_by_hand_waits_for_the_parent_whose_row_is_made_again() {
    let shards = [closed(1, &[]), shard(2, &[1])];
    let leases = [lease(&shards[1], Checkpoint::TrimHorizon)];
    let plan = sync(&leases, &shards, true, &LIMITS);
    assert_eq!(created(&plan), [(id(1), Checkpoint::TrimHorizon)]);
    assert_eq!(of_kind(&plan, "take"), []);
    let parents = vec![id(1)];
    assert_eq!(
        plan.held_back,
        [(
            leases[0].lease.key.clone(),
            Reason::WaitsForParents { parents }
        )]
    );
}

#[test]
fn a_shard_that_may_be_gone_is_not_removed_before_the_next_listing() {
    let leases = [lease(&shard(0, &[]), numeric("5"))];
    let doubtful = GoneShards {
        doubtful: BTreeSet::from([id(0)]),
        ..GoneShards::default()
    };
    let list = ShardList {
        shards: &[],
        gone: &doubtful,
        before_start: None,
    };
    let me = worker("me");
    let view = FleetView {
        me: &me,
        leases: &leases,
        workers: &[],
        shards: Some(list),
        is_bootstrapped: true,
    };
    let plan = plan(&view, &LIMITS);
    assert!(
        plan.steps.iter().all(|step| step.code() != "delete"),
        "{plan:?}"
    );
    assert_eq!(
        plan.held_back,
        [(leases[0].lease.key.clone(), Reason::GoneAfterNextListing)]
    );
}

#[test]
fn a_finished_row_goes_only_when_all_its_children_have_started_and_its_parents_rows_are_gone() {
    let shards = [closed(1, &[]), shard(2, &[1]), shard(3, &[1])];
    let rows = |two, three| {
        [
            ended(&shards[0], &[2, 3]),
            lease(&shards[1], two),
            lease(&shards[2], three),
        ]
    };
    let start = Checkpoint::TrimHorizon;
    assert_eq!(
        deleted(&sync(
            &rows(numeric("5"), start.clone()),
            &shards,
            true,
            &LIMITS
        )),
        []
    );
    assert_eq!(
        deleted(&sync(
            &rows(numeric("5"), numeric("6")),
            &shards,
            true,
            &LIMITS
        )),
        [id(1)]
    );
    assert_eq!(
        deleted(&sync(
            &rows(Checkpoint::ShardEnd, numeric("6")),
            &shards,
            true,
            &LIMITS
        )),
        [id(1)]
    );
    // A child row that is missing has not started.
    assert_eq!(
        deleted(&sync(
            &rows(numeric("5"), numeric("6"))[..2],
            &shards,
            true,
            &LIMITS
        )),
        []
    );
    let middle = [closed(1, &[]), closed(2, &[1]), shard(3, &[2])];
    let chain = [
        ended(&middle[0], &[2]),
        ended(&middle[1], &[3]),
        lease(&middle[2], numeric("5")),
    ];
    assert_eq!(deleted(&sync(&chain, &middle, true, &LIMITS)), [id(1)]);
    assert_eq!(deleted(&sync(&chain[1..], &middle, true, &LIMITS)), [id(2)]);
}

#[test]
fn a_removed_row_is_not_made_again_while_its_shard_is_still_listed() {
    let shards = [closed(1, &[]), closed(2, &[1]), shard(3, &[2])];
    let leases = [lease(&shards[2], numeric("5"))];
    assert_eq!(created(&sync(&leases, &shards, true, &LIMITS)), []);
    // Nor if an operator sent the shard that came of it elsewhere: what is finished stays finished.
    for sought in [Sought::Horizon, Sought::Time(7)] {
        let leases = [lease(&shards[2], Checkpoint::Sought(sought))];
        assert_eq!(created(&sync(&leases, &shards, true, &LIMITS)), []);
    }
    // But a closed shard whose children have not started cannot have been removed by us: somebody
    // deleted its row.
    let leases = [lease(&shards[2], Checkpoint::TrimHorizon)];
    assert_eq!(created(&sync(&leases, &shards, true, &LIMITS)).len(), 2);
}

#[test]
fn a_lineage_whose_middle_was_trimmed_goes_on_with_its_living_descendants() {
    // Shard 1 was being read; it, its child 2 and everything up to 3 were trimmed away while nobody
    // was there.
    let living = [shard(3, &[2]), shard(4, &[2])];
    let stale = [lease(&closed(1, &[]), numeric("5"))];
    // While it is not certain that 1 is gone, nothing starts beside it.
    assert_eq!(created(&sync(&stale, &living, true, &LATEST)), []);
    let plan = sync_with_gone(&stale, &living, &[1], true, &LATEST);
    assert_eq!(
        created(&plan),
        [
            (id(3), Checkpoint::TrimHorizon),
            (id(4), Checkpoint::TrimHorizon)
        ]
    );
    assert_eq!(
        of_kind(&plan, "delete"),
        [(
            id(1),
            Reason::ShardGone {
                checkpoint: numeric("5")
            }
        )]
    );
}

#[test]
fn a_finished_row_stays_until_no_request_to_create_it_can_be_on_its_way() {
    let shards = [closed(1, &[]), shard(2, &[1]), shard(3, &[1])];
    let deleted_after = |finished_for| {
        let mut rows = [
            ended(&shards[0], &[2, 3]),
            lease(&shards[1], numeric("5")),
            lease(&shards[2], numeric("6")),
        ];
        rows[0].finished_for = finished_for;
        deleted(&sync(&rows, &shards, true, &LIMITS))
    };
    let stay = LIMITS.finished_rows_stay;
    assert_eq!(
        deleted_after(stay.saturating_sub(Duration::from_millis(1))),
        []
    );
    assert_eq!(deleted_after(stay), [id(1)]);
}

#[test]
fn only_an_unfinished_row_over_its_hash_keys_keeps_a_shard_of_a_trimmed_lineage_waiting() {
    let ranged = |n, parents: &[u32], start, end| Shard {
        hash_range: HashKeyRange::new(start, end).unwrap(),
        ..shard(n, parents)
    };
    let orphan = ranged(3, &[2], 100, 199);
    for (start, end, is_created) in [
        (0, 99, true),
        (0, 100, false),
        (199, 300, false),
        (200, 300, true),
    ] {
        let other = ranged(5, &[], start, end);
        let plan = sync(
            &[lease(&other, numeric("5"))],
            &[orphan.clone(), other.clone()],
            true,
            &LIMITS,
        );
        assert_eq!(
            !created(&plan).is_empty(),
            is_created,
            "beside {start} to {end}"
        );
        assert_eq!(
            created(&sync(
                &[ended(&other, &[9])],
                &[orphan.clone(), other],
                true,
                &LIMITS
            ))
            .len(),
            1
        );
    }
}

#[test]
fn a_row_that_is_removed_is_not_handed_over_as_well() {
    let leases = [claimed(mine(1), "other"), claimed(mine(2), "other")];
    let plan = sync_with_gone(&leases, &[shard(2, &[])], &[1], true, &LIMITS);
    let shards_of = |verb| -> Vec<_> {
        of_kind(&plan, verb)
            .into_iter()
            .map(|(shard, _)| shard)
            .collect()
    };
    assert_eq!(shards_of("delete"), [id(1)]);
    assert_eq!(shards_of("hand over"), [id(2)]);
}
