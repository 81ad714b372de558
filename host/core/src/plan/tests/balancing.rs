use super::*;

fn fleet_of(counts: &[(&str, u32)]) -> Vec<ObservedLease> {
    let mut next = 0;
    let mut leases = Vec::new();
    for (owner, count) in counts {
        for _ in 0..*count {
            leases.push(owned(next, owner, Availability::Held));
            next += 1;
        }
    }
    leases
}

fn claims_of(
    me: &str,
    leases: &[ObservedLease],
    names: &[&str],
    limits: &PlanLimits,
) -> Vec<(ShardId, Reason)> {
    of_kind(&moves_of(me, leases, names, limits), "claim")
}

fn moves_of(me: &str, leases: &[ObservedLease], names: &[&str], limits: &PlanLimits) -> Plan {
    let mut leases = leases.to_vec();
    for lease in &mut leases {
        lease.is_mine = lease.lease.owner.as_ref() == Some(&worker(me));
    }
    let workers: Vec<_> = names.iter().map(|name| registered(name)).collect();
    plan(
        &FleetView {
            me: &worker(me),
            leases: &leases,
            workers: &workers,
            shards: None,
            is_bootstrapped: true,
        },
        limits,
    )
}

#[test]
fn hosts_of_every_build_ask_for_and_take_leases_in_the_same_order() {
    let asked = claims_of("b", &fleet_of(&[("a", 8), ("b", 0)]), &["a", "b"], &LIMITS);
    assert_eq!(
        asked
            .into_iter()
            .map(|(shard, _)| shard)
            .collect::<Vec<_>>(),
        [7, 4, 6, 2].map(id)
    );
    let free: Vec<_> = (0..6).map(free).collect();
    let view = FleetView {
        me: &worker("a"),
        leases: &free,
        workers: &[],
        shards: None,
        is_bootstrapped: true,
    };
    let taken = taken(&plan(&view, &LIMITS));
    assert_eq!(
        taken
            .into_iter()
            .map(|(shard, _)| shard)
            .collect::<Vec<_>>(),
        [0, 3, 4, 5, 2, 1].map(id)
    );
}

/// Performs all claims of all hosts, as hand-overs would, until nobody claims anything; returns the
/// rounds it took.
fn settle(leases: &mut [ObservedLease], names: &[&str], limits: &PlanLimits) -> usize {
    for round in 0..100 {
        let all: Vec<_> = names
            .iter()
            .flat_map(|name| {
                claims_of(name, leases, names, limits)
                    .into_iter()
                    .map(move |(shard, _)| (shard, *name))
            })
            .collect();
        if all.is_empty() {
            return round;
        }
        let distinct: BTreeSet<_> = all.iter().map(|(shard, _)| shard).collect();
        assert_eq!(
            distinct.len(),
            all.len(),
            "two hosts ask for the same lease"
        );
        for (shard, name) in all {
            let lease = leases
                .iter_mut()
                .find(|lease| lease.lease.key.shard_id() == shard)
                .unwrap();
            lease.lease.owner = Some(worker(name));
        }
    }
    panic!("the fleet never settles");
}

fn counts(leases: &[ObservedLease], names: &[&str]) -> Vec<usize> {
    let held = |name: &str| {
        leases
            .iter()
            .filter(|lease| lease.lease.owner == Some(worker(name)))
            .count()
    };
    names.iter().map(|name| held(name)).collect()
}

#[test]
fn a_fleet_of_any_size_settles_within_a_few_rounds_and_then_nothing_moves() {
    for (start, names) in [
        (vec![("a", 10)], vec!["a", "b"]),
        (vec![("a", 1000)], vec!["a", "b"]),
        (vec![("a", 7), ("b", 2), ("c", 0)], vec!["a", "b", "c"]),
        (
            vec![("a", 500), ("b", 500)],
            vec!["a", "b", "c", "d", "e", "f", "g"],
        ),
    ] {
        let mut leases = fleet_of(&start);
        let rounds = settle(&mut leases, &names, &LIMITS);
        assert!(rounds <= 8, "{start:?}: {rounds} rounds");
        let counts = counts(&leases, &names);
        assert!(
            counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1,
            "{counts:?}"
        );
    }
}

#[test]
fn a_lead_of_one_moves_nothing() {
    let leases = fleet_of(&[("a", 3), ("b", 2)]);
    for name in ["a", "b"] {
        assert_eq!(claims_of(name, &leases, &["a", "b"], &LIMITS), []);
    }
}

#[test]
fn nothing_is_asked_for_while_something_is_free() {
    let mut leases = fleet_of(&[("a", 6)]);
    leases.push(free(6));
    assert_eq!(claims_of("b", &leases, &["a", "b"], &LIMITS), []);
}

#[test]
fn a_claim_under_way_counts_for_its_claimant_and_is_not_asked_for_twice() {
    let mut leases = fleet_of(&[("a", 4)]);
    let first = claims_of("b", &leases, &["a", "b"], &LIMITS);
    assert_eq!(first.len(), 2);
    for lease in &mut leases {
        if first
            .iter()
            .any(|(shard, _)| *shard == lease.lease.key.shard_id())
        {
            *lease = claimed(lease.clone(), "b");
        }
    }
    assert_eq!(claims_of("b", &leases, &["a", "b"], &LIMITS), []);
    assert_eq!(claims_of("c", &leases, &["a", "b", "c"], &LIMITS).len(), 1);
}

#[test]
fn a_claim_that_its_owner_did_not_meet_is_void_and_not_repeated_by_the_same_host() {
    let mut leases = fleet_of(&[("a", 4)]);
    for lease in &mut leases {
        *lease = ObservedLease {
            is_claim_fresh: false,
            ..claimed(lease.clone(), "b")
        };
    }
    assert_eq!(claims_of("b", &leases, &["a", "b"], &LIMITS), []);
    // Others may try: two hosts of three get one each, and one of them is not b.
    assert_eq!(claims_of("c", &leases, &["a", "b", "c"], &LIMITS).len(), 1);
}

#[test]
fn the_owner_hands_over_what_a_live_worker_asked_for() {
    let leases = [
        claimed(mine(0), "b"),
        mine(1),
        ObservedLease {
            is_claim_fresh: false,
            ..claimed(mine(2), "dead")
        },
    ];
    let plan = plan_of(&leases, &["b"], &LIMITS);
    assert_eq!(
        of_kind(&plan, "hand over"),
        [(id(0), Reason::AskedFor { by: worker("b") })]
    );
}

#[test]
fn a_lease_given_up_for_a_claimant_is_kept_for_it() {
    let leases = [claimed(free(0), "b"), claimed(free(1), "me")];
    let plan = plan_of(&leases, &["b"], &LIMITS);
    assert_eq!(taken(&plan), [(id(1), Reason::HandedOver)]);
    assert_eq!(
        held_back(&plan, 0),
        Some(Reason::KeptFor {
            claimant: worker("b")
        })
    );
    // What an earlier run of this worker was asked for is not: nobody would give it up.
    let inherited = claimed(owned(2, "me", Availability::Held), "b");
    assert_eq!(
        taken(&plan_of(&[inherited], &["b"], &LIMITS)),
        [(id(2), Reason::OwnByName)]
    );
    // Once the claimant is gone or has slept too long, it is free for all.
    let void = ObservedLease {
        is_claim_fresh: false,
        ..claimed(free(0), "b")
    };
    assert_eq!(taken(&plan_of(&[void], &[], &LIMITS)).len(), 1);
}

#[test]
fn a_lease_asked_for_is_taken_when_its_owner_dies_instead_of_giving_it_up() {
    let leases = [
        mine(0),
        claimed(owned(1, "dead", Availability::Expired), "me"),
    ];
    assert_eq!(
        taken(&plan_of(&leases, &["b"], &LIMITS)),
        [(id(1), Reason::HandedOver)]
    );
}

#[test]
fn a_worker_without_registration_knows_no_claims_and_loses_one_lease_at_a_time() {
    let leases = fleet_of(&[("kcl", 10)]);
    // Without a KCL about, it may be a host that registered a moment ago: left alone.
    assert_eq!(taken(&plan_of(&leases, &[], &LIMITS)), []);
    let plan = plan_of(
        &leases,
        &[],
        &PlanLimits {
            shared_with_kcl: true,
            ..LIMITS
        },
    );
    assert_eq!(taken(&plan).len(), 1);
    assert_eq!(of_kind(&plan, "claim"), []);
}

#[test]
fn what_a_row_says_is_anothers_is_not_taken_back_while_a_pipeline_of_this_host_still_reads_it() {
    let mut leases = fleet_of(&[("kcl", 4)]);
    let limits = PlanLimits {
        shared_with_kcl: true,
        ..LIMITS
    };
    assert_eq!(taken(&plan_of(&leases, &[], &limits)).len(), 1);
    for lost in &mut leases {
        lost.is_mine = true;
    }
    assert_eq!(taken(&plan_of(&leases, &[], &limits)), []);
}

#[test]
fn what_a_kcl_holds_and_does_not_read_before_the_parents_end_is_not_taken_from_it() {
    let parent = owned(1, "kcl", Availability::Held);
    let mut children = [2, 3, 4].map(|n| lease(&shard(n, &[1]), Checkpoint::TrimHorizon));
    for child in &mut children {
        child.lease.owner = Some(worker("kcl"));
        child.availability = Availability::Held;
    }
    let mut leases = vec![parent];
    leases.extend(children);
    let limits = PlanLimits {
        shared_with_kcl: true,
        ..LIMITS
    };
    let shards: Vec<_> = taken(&plan_of(&leases, &[], &limits))
        .into_iter()
        .map(|(shard, _)| shard)
        .collect();
    assert_eq!(shards, [id(1)]);
    leases[0].lease.checkpoint = Checkpoint::ShardEnd;
    assert_eq!(
        taken(&plan_of(&leases, &[], &limits)).len(),
        1,
        "they are read now"
    );
}

#[test]
fn a_kcl_worker_that_holds_finished_leases_only_is_left_its_share() {
    let mut finished = owned(0, "kcl", Availability::Held);
    finished.lease.checkpoint = Checkpoint::ShardEnd;
    let leases = [finished, free(1), free(2), free(3), free(4)];
    let shared = PlanLimits {
        shared_with_kcl: true,
        ..LIMITS
    };
    assert_eq!(taken(&plan_of(&leases, &[], &shared)).len(), 2);
    // Without a KCL about it is the row of a host that has left.
    assert_eq!(taken(&plan_of(&leases, &[], &LIMITS)).len(), 4);
}

#[test]
fn a_host_at_its_most_leases_asks_for_nothing_and_others_make_up_for_it() {
    let leases = fleet_of(&[("a", 9)]);
    let few = PlanLimits {
        max_leases: 1,
        ..LIMITS
    };
    assert_eq!(claims_of("me", &leases, &["a", "me"], &few).len(), 1);
}

#[test]
fn by_throughput_the_bytes_are_shared_out_and_small_differences_are_left_alone() {
    let limits = PlanLimits {
        balance: Balance::Throughput,
        ..LIMITS
    };
    let mut leases = fleet_of(&[("a", 4), ("b", 4)]);
    for (n, lease) in leases.iter_mut().enumerate() {
        // a's shards carry a MiB a second each, b's next to nothing.
        lease.lease.bytes_per_second = Some(if n < 4 { 1 << 20 } else { 1 << 10 });
    }
    assert!(settle(&mut leases, &["a", "b"], &limits) <= 3);
    let load = |name| -> u64 {
        let of = leases
            .iter()
            .filter(|lease| lease.lease.owner == Some(worker(name)));
        of.filter_map(|lease| lease.lease.bytes_per_second).sum()
    };
    assert_eq!(load("a") >> 20, 2);
    assert_eq!(load("b") >> 20, 2);
    for lease in &mut leases {
        lease.lease.bytes_per_second = lease.lease.bytes_per_second.map(|rate| rate + rate / 20);
    }
    assert_eq!(settle(&mut leases, &["a", "b"], &limits), 0);
}

#[test]
fn hosts_that_read_the_rows_in_another_order_compute_the_same_exchange() {
    let names = ["a", "b", "c"];
    let leases = fleet_of(&[("a", 30)]);
    let reversed: Vec<_> = leases.iter().rev().cloned().collect();
    let asked = |name, leases: &[ObservedLease]| {
        let claims = claims_of(name, leases, &names, &LIMITS);
        claims
            .into_iter()
            .map(|(shard, _)| shard)
            .collect::<BTreeSet<_>>()
    };
    for name in ["b", "c"] {
        assert_eq!(asked(name, &leases), asked(name, &reversed), "{name}");
    }
    assert!(asked("b", &leases).is_disjoint(&asked("c", &reversed)));
}

/// Held leases that weigh so much by throughput, in KiB a second; 8 is an idle shard.
fn weighing(weights: &[(&str, &[u64])]) -> Vec<ObservedLease> {
    let idle = 8;
    let owners = weights
        .iter()
        .flat_map(|(owner, weights)| weights.iter().map(move |weight| (*owner, *weight)));
    let lease = |(n, (owner, weight)): (u32, (&str, u64))| {
        let mut lease = owned(n, owner, Availability::Held);
        lease.lease.bytes_per_second = (weight > idle).then_some((weight - idle) * 1024);
        lease
    };
    (0..).zip(owners).map(lease).collect()
}

fn asked_by_throughput(me: &str, weights: &[(&str, &[u64])]) -> Vec<ShardId> {
    let limits = PlanLimits {
        balance: Balance::Throughput,
        ..LIMITS
    };
    let claims = claims_of(me, &weighing(weights), &["a", "b"], &limits);
    claims.into_iter().map(|(shard, _)| shard).collect()
}

#[test]
fn by_throughput_a_gap_of_up_to_fifteen_percent_of_the_mean_is_left_alone() {
    let ten = [100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 20];
    let of_b = |last| [100, 100, 100, 100, 100, 100, 100, 100, last];
    // 1,020 and 880: a gap of 140, and 142 are fifteen percent of 950.
    assert_eq!(
        asked_by_throughput("b", &[("a", &ten), ("b", &of_b(80))]),
        []
    );
    // 1,020 and 870: a gap of 150, and 141 are fifteen percent of 945.
    assert_eq!(
        asked_by_throughput("b", &[("a", &ten), ("b", &of_b(70))]),
        [id(10)]
    );
}

#[test]
fn by_throughput_the_lease_moves_that_closes_the_gap_best() {
    // A gap of 200: the heaviest lease of at most 100.
    assert_eq!(
        asked_by_throughput("b", &[("a", &[20, 150, 90, 110]), ("b", &[170])]),
        [id(2)]
    );
    // None of at most 90: the lightest, which still leaves the two nearer to each other.
    assert_eq!(
        asked_by_throughput("b", &[("a", &[120, 100]), ("b", &[40])]),
        [id(1)]
    );
    // A lease as heavy as the gap would only turn it round.
    assert_eq!(asked_by_throughput("b", &[("a", &[300]), ("b", &[20])]), []);
}

#[test]
fn by_throughput_an_idle_shard_weighs_little_but_not_nothing() {
    assert_eq!(
        asked_by_throughput("b", &[("a", &[8; 10]), ("b", &[])]).len(),
        5
    );
    assert_eq!(
        asked_by_throughput("a", &[("a", &[8; 10]), ("b", &[40, 40])]),
        []
    );
}

#[test]
fn a_full_host_that_gives_a_heavy_lease_has_room_for_a_light_one() {
    let leases = weighing(&[("a", &[200, 200]), ("b", &[30, 30, 30, 30])]);
    let full = PlanLimits {
        balance: Balance::Throughput,
        max_leases: 2,
        ..LIMITS
    };
    assert_eq!(claims_of("a", &leases, &["a", "b"], &full).len(), 1);
}

#[test]
fn a_full_host_takes_nothing_of_a_kcl_also_while_its_last_look_is_older_than_its_last_take() {
    let mut leases = fleet_of(&[("kcl", 4)]);
    leases[0].is_mine = true;
    let taken_with = |max_leases| {
        let limits = PlanLimits {
            shared_with_kcl: true,
            max_leases,
            ..LIMITS
        };
        taken(&plan_of(&leases, &[], &limits)).len()
    };
    assert_eq!((taken_with(1), taken_with(2)), (0, 1));
}

#[test]
fn a_host_that_was_registered_a_moment_ago_is_not_robbed_as_a_kcl_would_be() {
    let limits = PlanLimits {
        shared_with_kcl: true,
        ..LIMITS
    };
    let mut leases: Vec<_> = (0..8)
        .map(|n| owned(n, "other", Availability::Held))
        .collect();
    assert!(
        !taken(&plan_of(&leases, &[], &limits)).is_empty(),
        "a KCL knows nothing of claims"
    );
    for lease in &mut leases {
        lease.has_owner_left = true;
    }
    assert_eq!(plan_of(&leases, &[], &limits).steps, []);
}

#[test]
fn an_owner_that_may_register_again_is_not_robbed_and_keeps_its_share() {
    let limits = PlanLimits {
        shared_with_kcl: true,
        ..LIMITS
    };
    let mut leases: Vec<_> = (0..6)
        .map(|n| owned(n, "other", Availability::Held))
        .collect();
    for lease in &mut leases {
        lease.is_owner_new = true;
    }
    assert_eq!(plan_of(&leases, &[], &limits).steps, []);
    leases.extend((6..12).map(free));
    assert_eq!(
        taken(&plan_of(&leases, &[], &limits)).len(),
        6,
        "half of twelve, as beside any other"
    );
    leases.extend((12..16).map(free));
    assert_eq!(
        taken(&plan_of(&leases, &[], &limits)).len(),
        8,
        "half of sixteen"
    );
}
