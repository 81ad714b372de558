use super::*;

fn idle(n: u32, seconds: u64) -> ObservedLease {
    ObservedLease {
        idle_for: Duration::from_secs(seconds),
        ..free(n)
    }
}

#[test]
fn what_is_this_workers_by_name_goes_before_what_is_free() {
    let mut leases: Vec<_> = (0..6).map(free).collect();
    leases.extend([6, 7].map(|n| owned(n, "me", Availability::Held)));
    let two = PlanLimits {
        max_leases: 2,
        ..LIMITS
    };
    let taken: BTreeSet<_> = taken(&plan_of(&leases, &[], &two))
        .into_iter()
        .map(|(shard, _)| shard)
        .collect();
    assert_eq!(taken, BTreeSet::from([id(6), id(7)]));
}

#[test]
fn what_this_host_asked_for_counts_to_its_share_and_what_others_asked_for_does_not() {
    let of_b = [
        owned(0, "b", Availability::Held),
        owned(1, "b", Availability::Held),
    ];
    let taken_beside = |asked: [ObservedLease; 2]| {
        let leases: Vec<_> = asked.into_iter().chain([free(2), free(3)]).collect();
        taken(&plan_of(&leases, &["b"], &LIMITS)).len()
    };
    assert_eq!(taken_beside(of_b.clone()), 2);
    assert_eq!(
        taken_beside(of_b.clone().map(|lease| claimed(lease, "me"))),
        0
    );
    assert_eq!(
        taken_beside(of_b.clone().map(|lease| claimed(lease, "c"))),
        2
    );
    let void = of_b.map(|lease| ObservedLease {
        is_claim_fresh: false,
        ..claimed(lease, "me")
    });
    assert_eq!(
        taken_beside(void),
        2,
        "a claim that its owner did not meet brings nothing"
    );
}

#[test]
fn what_a_host_takes_as_its_own_leaves_less_room_for_what_is_free() {
    // After a restart under its name: three of its own, three free, and another host that holds
    // none.
    let mut leases: Vec<_> = (0..3).map(|n| owned(n, "me", Availability::Held)).collect();
    leases.extend((3..6).map(free));
    let taken_of = |leases: &[ObservedLease]| -> BTreeSet<ShardId> {
        taken(&plan_of(leases, &["b"], &LIMITS))
            .into_iter()
            .map(|(shard, _)| shard)
            .collect()
    };
    assert_eq!(taken_of(&leases), BTreeSet::from([id(0), id(1), id(2)]));
    // The same for what was handed over to it.
    let handed_over = (0..3).map(|n| claimed(free(n), "me"));
    let leases: Vec<_> = handed_over.chain((3..6).map(free)).collect();
    assert_eq!(taken_of(&leases), BTreeSet::from([id(0), id(1), id(2)]));
}

#[test]
fn a_void_claim_gives_no_right_above_the_share() {
    let void = ObservedLease {
        is_claim_fresh: false,
        ..claimed(free(1), "me")
    };
    let plan = plan_of(&[mine(0), void], &["b"], &LIMITS);
    assert_eq!(
        (taken(&plan), held_back(&plan, 1)),
        (vec![], Some(Reason::HasFairShare { fair_share: 1 }))
    );
}

#[test]
fn a_lease_is_overdue_only_after_the_whole_wait() {
    let share = Reason::HasFairShare { fair_share: 1 };
    assert_eq!(
        held_back(&plan_of(&[mine(0), idle(1, 30)], &["b"], &LIMITS), 1),
        Some(share)
    );
    assert_eq!(
        taken(&plan_of(&[mine(0), idle(1, 31)], &["b"], &LIMITS)),
        [(id(1), Reason::Overdue)]
    );
}

#[test]
fn a_child_follows_its_parents_row_whatever_is_known_of_hash_keys() {
    let mut rows = [
        lease(&closed(1, &[]), numeric("5")),
        lease(&shard(2, &[1]), Checkpoint::TrimHorizon),
    ];
    for row in &mut rows {
        row.lease.hash_range = None;
    }
    let planned = |rows: &[ObservedLease], is_bootstrapped| {
        let view = FleetView {
            me: &worker("me"),
            leases: rows,
            workers: &[],
            shards: None,
            is_bootstrapped,
        };
        plan(&view, &LIMITS)
    };
    assert_eq!(
        held_back(&planned(&rows, true), 2),
        Some(Reason::WaitsForParents {
            parents: vec![id(1)]
        })
    );
    rows[0].lease.checkpoint = Checkpoint::ShardEnd;
    assert_eq!(
        taken(&planned(&rows, false)).len(),
        1,
        "all parents have rows, so no other is still to come"
    );
}

#[test]
fn a_host_takes_what_is_free_in_portions_that_grow_with_what_it_holds() {
    let in_portion = |held: u32, free_ones: u32| {
        let mut leases: Vec<_> = (0..held).map(mine).collect();
        leases.extend((held..held + free_ones).map(free));
        let plan = plan_of(&leases, &[], &LIMITS);
        let later = plan
            .held_back
            .iter()
            .filter(|(_, reason)| *reason == Reason::NextPortion);
        (taken(&plan).len(), later.count())
    };
    assert_eq!(in_portion(0, 64), (64, 0));
    assert_eq!(in_portion(0, 65), (64, 1), "the rest in the next pass");
    assert_eq!(in_portion(64, 100), (64, 36));
    assert_eq!(in_portion(100, 300), (100, 200), "as many as it holds");
}

#[test]
fn what_is_a_hosts_own_is_taken_whatever_the_portion() {
    let own: Vec<_> = (0..100)
        .map(|n| owned(n, "me", Availability::Held))
        .collect();
    assert_eq!(taken(&plan_of(&own, &[], &LIMITS)).len(), 100);
}

#[test]
fn a_plan_whose_takes_are_withheld_says_so_of_each_and_does_the_rest() {
    let mut plan = plan_of(&[free(1), owned(2, "me", Availability::Held)], &[], &LIMITS);
    assert_eq!(taken(&plan).len(), 2);
    assert!(!plan.withholds_takes());
    plan.withhold_takes();
    assert!(taken(&plan).is_empty() && plan.withholds_takes());
    for n in [1, 2] {
        assert_eq!(held_back(&plan, n), Some(Reason::NotKnownAlive));
    }
}
