use std::collections::BTreeSet;
use std::time::Duration;

use super::*;
use crate::fleet::{Incarnation, LeaderRow, WorkerRow};
use crate::lease::{Checkpoint, LeaseCounter, LeaseObserver, Pulse, WorkerId};
use crate::plan::{Balance, FleetView, GoneShards, Outlook, PlanLimits, ShardList, plan};
use crate::ports::BadRow;
use crate::stream::{HashKeyRange, InitialPosition, LeaseKey, Position, SequenceNumber, Shard};
use crate::time::Moment;

const LEASE: Duration = Duration::from_secs(10);
const LIMITS: PlanLimits = PlanLimits {
    initial_position: InitialPosition::TrimHorizon,
    max_leases: usize::MAX,
    balance: Balance::Count,
    shared_with_kcl: false,
    overdue_after: Duration::from_secs(30),
    finished_rows_stay: Duration::ZERO,
};

/// A table that is read twice, `watched` apart.
struct Scene {
    leases: Vec<Lease>,
    /// Rows that differ at the first look.
    earlier: Vec<Lease>,
    bad_rows: Vec<BadRow>,
    /// The workers, and whether the heart of each beats between the looks.
    workers: Vec<(WorkerRow, bool)>,
    leader: Option<LeaderRow>,
    shards: Option<Vec<Shard>>,
    gone: GoneShards,
    is_bootstrapped: bool,
    watched: Duration,
}

impl Scene {
    fn of(leases: Vec<Lease>) -> Self {
        Self {
            leases,
            earlier: Vec::new(),
            bad_rows: Vec::new(),
            workers: vec![(registered("a"), true), (registered("b"), true)],
            leader: None,
            shards: None,
            gone: GoneShards::default(),
            is_bootstrapped: true,
            watched: Duration::from_secs(11),
        }
    }

    fn explain(&self, n: u32) -> Option<Explanation> {
        let mut earlier = self.leases.clone();
        for row in &self.earlier {
            earlier
                .iter_mut()
                .filter(|lease| lease.key == row.key)
                .for_each(|lease| *lease = row.clone());
        }
        let first = Moment::from_origin(Duration::from_secs(100));
        let now = first + self.watched;
        let mut observer = LeaseObserver::default();
        let mut workers: Vec<_> = self.workers.iter().map(|(row, _)| row.clone()).collect();
        observer.observe_workers(&workers, first);
        observer.observe(&earlier, first);
        for (row, (_, beats)) in workers.iter_mut().zip(&self.workers) {
            row.beat += u64::from(*beats);
        }
        observer.observe_workers(&workers, now);
        observer.observe(&self.leases, now);
        let list = self.shards.as_deref();
        explain(
            &id(n),
            &Evidence {
                asker: &worker("whoever asks"),
                observer: &observer,
                now,
                wall_ms: 60_000,
                watched_for: self.watched,
                earlier: &earlier,
                leases: &self.leases,
                bad_rows: &self.bad_rows,
                leader: self.leader.as_ref(),
                shards: list.map(|shards| ShardList {
                    shards,
                    gone: &self.gone,
                    before_start: None,
                }),
                is_bootstrapped: self.is_bootstrapped,
                limits: LIMITS,
                lease_duration: LEASE,
            },
        )
    }

    fn words(&self, n: u32) -> Vec<&'static str> {
        self.explain(n)
            .unwrap()
            .causes
            .iter()
            .map(Cause::code)
            .collect()
    }

    fn says(&self, n: u32) -> String {
        self.explain(n)
            .unwrap()
            .causes
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("; ")
    }

    fn opinions(&self, n: u32) -> Vec<String> {
        let opinions = self.explain(n).unwrap().opinions;
        opinions
            .iter()
            .map(|opinion| format!("{} {}", opinion.worker, opinion.intent))
            .collect()
    }
}

fn id(n: u32) -> ShardId {
    ShardId::new(format!("shardId-{n:012}")).unwrap()
}

fn worker(name: &str) -> WorkerId {
    WorkerId::new(name).unwrap()
}

fn registered(name: &str) -> WorkerRow {
    WorkerRow {
        lease_duration: LEASE,
        ..WorkerRow::beating(name)
    }
}

fn shard(n: u32, parents: &[u32]) -> Shard {
    let parents = parents.iter().map(|n| id(*n)).collect();
    Shard {
        id: id(n),
        parents,
        hash_range: HashKeyRange::FULL,
        ending_sequence: None,
    }
}

fn row(n: u32, parents: &[u32]) -> Lease {
    Lease {
        hash_range: None,
        ..Lease::fresh(&shard(n, parents), Checkpoint::TrimHorizon)
    }
}

fn held(n: u32, owner: &str) -> Lease {
    Lease {
        owner: Some(worker(owner)),
        held_since_ms: Some(20_000),
        ..row(n, &[])
    }
}

fn finished(n: u32) -> Lease {
    Lease {
        checkpoint: Checkpoint::ShardEnd,
        ..row(n, &[])
    }
}

#[test]
fn a_shard_is_named_by_its_id_or_its_number() {
    assert_eq!(shard_named("3").unwrap(), id(3));
    assert_eq!(shard_named("shardId-000000000003").unwrap(), id(3));
    assert_eq!(shard_named("000000000003").unwrap(), id(3));
    assert!(shard_named("").is_err() && shard_named("a b").is_err());
}

#[test]
fn a_shard_that_nobody_knows_has_no_explanation() {
    assert_eq!(Scene::of(vec![row(0, &[])]).explain(7), None);
}

#[test]
fn nothing_is_in_the_way_of_a_shard_whose_owner_lives() {
    let at = |n: &str| Checkpoint::At(Position::plain(SequenceNumber::parse(n).unwrap()));
    let now = Lease {
        checkpoint: at("9"),
        ..held(0, "a")
    };
    let scene = Scene {
        earlier: vec![Lease {
            checkpoint: at("8"),
            ..now.clone()
        }],
        ..Scene::of(vec![now])
    };
    let explanation = scene.explain(0).unwrap();
    assert_eq!(explanation.causes, []);
    let status = explanation.status.unwrap();
    assert_eq!(status.held_for, Some(Duration::from_secs(40)));
    assert_eq!(status.has_advanced, Some(true));
    assert_eq!(status.holder.unwrap().to_string(), "run run, alive");
    assert_eq!(scene.opinions(0), ["a keeps it", "b leaves it alone"]);
}

#[test]
fn the_holders_own_words_come_first() {
    let stuck = Lease {
        stuck: Some("attempt 8 failed: no route".to_owned()),
        ..held(0, "a")
    };
    let scene = Scene::of(vec![stuck]);
    assert_eq!(
        scene.says(0),
        "its holder makes no progress: attempt 8 failed: no route"
    );
    assert_eq!(
        scene.explain(0).unwrap().status.unwrap().has_advanced,
        Some(false)
    );
}

#[test]
fn an_owner_that_cannot_write_rows_is_named_with_its_reason() {
    let troubled = WorkerRow {
        cannot_write: Some("AccessDenied".to_owned()),
        ..registered("a")
    };
    let scene = Scene {
        workers: vec![(troubled.clone(), true)],
        ..Scene::of(vec![held(0, "a")])
    };
    assert_eq!(scene.words(0), ["owner-cannot-write"]);
    let says =
        "a cannot write lease rows, and releases its leases if another host can: AccessDenied";
    assert_eq!(scene.says(0), says);
    // A silent one reports nothing any more.
    let scene = Scene {
        workers: vec![(troubled, false)],
        ..Scene::of(vec![held(0, "a")])
    };
    assert!(
        !scene.words(0).contains(&"owner-cannot-write"),
        "{:?}",
        scene.words(0)
    );
}

#[test]
fn a_child_waits_for_its_lineage_up_to_the_one_that_is_in_trouble() {
    let stuck = Lease {
        stuck: Some("boom".to_owned()),
        ..held(0, "a")
    };
    let scene = Scene::of(vec![
        stuck,
        row(1, &[0]),
        row(2, &[1]),
        finished(3),
        row(4, &[2, 3]),
    ]);
    assert_eq!(
        scene.says(4),
        format!(
            "waits for parent {} to end, so that records stay in order",
            id(2)
        )
    );
    let lineage = scene.explain(4).unwrap().lineage;
    let of = |up: &Ancestor| {
        (
            up.depth,
            up.status.lease.key.shard_id(),
            up.status.causes[0].code(),
        )
    };
    let told: Vec<_> = lineage.iter().map(of).collect();
    let expected = [
        (1, id(2), "waits-for-parents"),
        (2, id(1), "waits-for-parents"),
        (3, id(0), "stuck"),
    ];
    assert_eq!(told, expected);
    assert_eq!(scene.opinions(4), [] as [String; 0]);
    // The walk ends even if the parents in the rows form a cycle.
    assert_eq!(
        Scene::of(vec![row(0, &[1]), row(1, &[0])])
            .explain(0)
            .unwrap()
            .lineage
            .len(),
        2
    );
}

/// Asserts that the planner's reason to hold the shard back is also its cause.
fn assert_cause_is_the_planners(scene: &Scene, n: u32, kind: &str) {
    let explanation = scene.explain(n).unwrap();
    let [Cause::Planned(cause)] = &explanation.causes[..] else {
        panic!("{:?}", explanation.causes)
    };
    assert_eq!(cause.code(), kind);
    let (me, rows) = (worker("joins"), scene.leases.iter());
    let (observer, alive) = (LeaseObserver::default(), BTreeSet::new());
    let outlook = Outlook {
        me: &me,
        observer: &observer,
        alive: &alive,
        lease_duration: LEASE,
        now: Moment::default(),
    };
    let leases = outlook.leases_if_running(rows);
    let is_bootstrapped = scene.is_bootstrapped;
    let view = FleetView {
        me: &me,
        leases: &leases,
        workers: &[],
        shards: None,
        is_bootstrapped,
    };
    let held_back = plan(&view, &LIMITS).held_back;
    let (_, planned) = held_back
        .iter()
        .find(|(key, _)| key.shard_id() == id(n))
        .unwrap();
    assert_eq!(planned, cause);
}

#[test]
fn a_child_of_a_merge_says_that_it_waits_for_an_older_shard_over_its_hash_keys() {
    // 0 is split into 1 and 2 and is still read; 2 is merged with 3, which has ended, into 4.
    let range = |lease, start, end| Lease {
        hash_range: HashKeyRange::new(start, end),
        ..lease
    };
    let merged = range(row(4, &[2, 3]), 50, 199);
    let scene = Scene::of(vec![
        range(held(0, "a"), 0, 99),
        range(finished(3), 100, 199),
        merged,
    ]);
    assert_cause_is_the_planners(&scene, 4, "waits-for-older");
    assert!(
        scene
            .says(4)
            .starts_with(&format!("waits for {} to end, an older shard", id(0))),
        "{}",
        scene.says(4)
    );
    let lineage = scene.explain(4).unwrap().lineage;
    assert_eq!(
        lineage
            .iter()
            .map(|up| up.status.lease.key.shard_id())
            .collect::<Vec<_>>(),
        [id(0)]
    );
}

#[test]
fn a_child_whose_parent_has_no_row_yet_says_that_the_first_sync_is_not_over() {
    let scene = Scene {
        is_bootstrapped: false,
        ..Scene::of(vec![finished(1), row(2, &[0, 1])])
    };
    assert_cause_is_the_planners(&scene, 2, "first-sync");
}

#[test]
fn a_finished_shard_shows_its_children() {
    let parent = Lease {
        children: vec![id(1), id(2)],
        ..finished(0)
    };
    let scene = Scene::of(vec![parent, held(1, "a")]);
    assert_eq!(scene.words(0), ["finished"]);
    let relatives = scene.explain(0).unwrap().relatives;
    let told: Vec<_> = relatives
        .iter()
        .map(|r| (r.relation, r.shard.clone(), r.status.is_some()))
        .collect();
    assert_eq!(
        told,
        [
            (Relation::Child, id(1), true),
            (Relation::Child, id(2), false)
        ]
    );
}

#[test]
fn kin_on_the_same_hash_keys_are_named_once_and_finished_shards_beside_it_not_at_all() {
    let on_all_keys = |row: Lease| Lease {
        hash_range: Some(HashKeyRange::FULL),
        ..row
    };
    let scene = Scene::of(vec![
        on_all_keys(row(0, &[])),
        on_all_keys(row(1, &[0])),
        on_all_keys(row(2, &[1])),
        on_all_keys(row(3, &[])),
        on_all_keys(finished(4)),
    ]);
    let relatives = scene.explain(1).unwrap().relatives;
    let named: Vec<_> = relatives
        .iter()
        .map(|relative| (relative.relation, relative.shard.clone()))
        .collect();
    assert_eq!(
        named,
        [
            (Relation::Parent, id(0)),
            (Relation::Child, id(2)),
            (Relation::SameHashKeys, id(3)),
        ]
    );
}

#[test]
fn what_each_live_worker_thinks_of_a_free_shard_is_shown() {
    let draining = WorkerRow {
        is_draining: true,
        ..registered("d")
    };
    let full = WorkerRow {
        max_leases: 1,
        ..registered("c")
    };
    let workers = vec![
        (registered("a"), true),
        (full, true),
        (draining, true),
        (registered("e"), false),
    ];
    let scene = Scene {
        workers,
        ..Scene::of(vec![held(0, "a"), held(1, "c"), held(2, "a"), row(3, &[])])
    };
    assert_eq!(scene.says(3), "it has no owner");
    assert_eq!(
        scene.opinions(3),
        [
            "a would take it: free, and below the fair share of 3",
            "c would leave it: this host holds the most leases it may (leases.max)"
        ]
    );
    let shares = Scene::of(vec![held(0, "a"), held(1, "a"), held(2, "b"), row(3, &[])]);
    let opinions = shares.opinions(3);
    assert_eq!(
        opinions[0],
        "a would leave it: this host has its fair share of 2"
    );
    assert_eq!(
        opinions[1],
        "b would take it: free, and below the fair share of 2"
    );
}

#[test]
fn a_free_shard_of_a_fleet_that_is_gone_says_that_nobody_is_alive() {
    let given_up = Lease {
        stuck: Some("the reader hangs".to_owned()),
        ..row(0, &[])
    };
    let scene = Scene {
        workers: vec![(registered("a"), false)],
        ..Scene::of(vec![given_up])
    };
    assert_eq!(scene.words(0), ["free", "nobody-alive", "given-up"]);
    // A KCL's worker shows by its rows.
    let kcl = held(1, "kcl");
    let moved = Lease {
        counter: LeaseCounter(9),
        ..kcl.clone()
    };
    let scene = Scene {
        workers: vec![],
        earlier: vec![kcl],
        ..Scene::of(vec![row(0, &[]), moved])
    };
    assert_eq!(scene.words(0), ["free"]);
}

#[test]
fn a_silent_owner_expires_in_time_and_a_dead_one_has() {
    let silent = |watched: u64| Scene {
        workers: vec![(registered("a"), false), (registered("b"), true)],
        watched: Duration::from_secs(watched),
        ..Scene::of(vec![held(0, "a")])
    };
    let expected =
        "a was not seen to move for 5s; if it stays silent, others may take the lease in 5s";
    assert_eq!(silent(5).says(0), expected);
    assert_eq!(silent(11).words(0), ["owner-dead"]);
    assert_eq!(
        silent(11).opinions(0),
        ["b would take it: a stopped renewing it, and below the fair share of 1"]
    );
    // Between two heartbeats every owner is silent, and one look proves nothing.
    assert_eq!(silent(3).words(0), [] as [&str; 0]);
    assert_eq!(silent(0).words(0), [] as [&str; 0]);
    let holder = silent(0)
        .explain(0)
        .unwrap()
        .status
        .unwrap()
        .holder
        .unwrap();
    assert_eq!(holder.pulse, Pulse::Unwatched { expires_in: LEASE });
    let unregistered = Scene::of(vec![held(0, "long gone")]);
    assert_eq!(unregistered.words(0), ["owner-dead"]);
}

#[test]
fn an_owner_on_its_way_out_gives_its_leases_up() {
    let draining = WorkerRow {
        is_draining: true,
        ..registered("a")
    };
    let scene = Scene {
        workers: vec![(draining, true)],
        ..Scene::of(vec![held(0, "a")])
    };
    assert_eq!(scene.words(0), ["owner-leaves"]);
}

#[test]
fn a_claim_is_reported_with_whether_it_counts() {
    let claimed = |by: &str| Lease {
        claimant: Some(worker(by)),
        ..held(0, "a")
    };
    let scene = Scene::of(vec![claimed("b")]);
    assert_eq!(scene.says(0), "b asked for it");
    assert_eq!(scene.opinions(0)[0], "a would hand it over: b asked for it");
    assert!(
        Scene::of(vec![claimed("gone")])
            .says(0)
            .ends_with("the claim is void")
    );
    let given_up = |watched| Scene {
        watched,
        ..Scene::of(vec![Lease {
            owner: None,
            ..claimed("b")
        }])
    };
    let says = given_up(LEASE).opinions(0);
    assert!(
        says[0].starts_with("a would take it: free"),
        "b did not take what was kept for it: {says:?}"
    );
    let given_up = given_up(LEASE / 8);
    assert_eq!(given_up.words(0), ["kept-for"]);
    assert_eq!(
        given_up.opinions(0),
        [
            "a would leave it: kept for b, which asked for it",
            "b would take it: this worker asked for it and got it"
        ]
    );
}

#[test]
fn a_poor_worker_says_that_it_would_ask() {
    let scene = Scene::of((0..4).map(|n| held(n, "a")).collect());
    let asked: usize = (0..4)
        .filter(|n| scene.opinions(*n)[1].starts_with("b would ask for it: a holds"))
        .count();
    assert_eq!(asked, 2);
}

#[test]
fn what_kinesis_says_of_a_shard_is_shown() {
    let scene = |gone: GoneShards| Scene {
        shards: Some(vec![shard(0, &[])]),
        gone,
        ..Scene::of(vec![held(0, "a"), held(1, "a")])
    };
    assert_eq!(scene(GoneShards::default()).words(0), [] as [&str; 0]);
    assert_eq!(
        scene(GoneShards::default()).explain(0).unwrap().listed,
        Some(Listed::Open)
    );
    assert_eq!(scene(GoneShards::default()).words(1), ["not-listed"]);
    let ids = BTreeSet::from([id(1)]);
    let doubtful = GoneShards {
        doubtful: ids.clone(),
        ..GoneShards::default()
    };
    assert_eq!(scene(doubtful).words(1), ["gone-after-next-listing"]);
    assert_eq!(
        scene(GoneShards {
            confirmed: ids,
            ..GoneShards::default()
        })
        .words(1),
        ["gone"]
    );
    assert_eq!(
        scene(GoneShards::default()).explain(1).unwrap().listed,
        Some(Listed::No)
    );
}

#[test]
fn a_shard_without_a_row_says_whether_and_why_it_gets_one() {
    let lead = |scene: Scene| {
        let run = Incarnation::new("run").unwrap();
        Scene {
            leader: Some(LeaderRow {
                holder: Some((worker("a"), run)),
                version: 1,
                service: None,
            }),
            ..scene
        }
    };
    let list = || Some(vec![shard(0, &[]), shard(1, &[0]), shard(2, &[])]);
    let scene = lead(Scene {
        shards: list(),
        ..Scene::of(vec![held(0, "a")])
    });
    let says = scene.says(1);
    assert!(
        says.contains(&format!(
            "needs none now: its row is created when {} ends",
            id(0)
        )),
        "{says}"
    );
    assert_eq!(scene.explain(1).unwrap().lineage.len(), 1);
    let says = scene.says(2);
    assert!(
        says.contains("perhaps deleted by hand") && says.contains("the leader, a, creates one"),
        "{says}"
    );
    let leaderless = Scene {
        leader: None,
        ..scene
    };
    assert!(leaderless.says(2).contains("the next leader creates one"));
}

#[test]
fn a_row_that_cannot_be_read_is_shown() {
    let bad_rows = vec![BadRow {
        key: id(5).to_string(),
        problem: "leaseCounter is missing".to_owned(),
    }];
    let scene = Scene {
        bad_rows,
        ..Scene::of(vec![])
    };
    assert_eq!(scene.words(5), ["unreadable-row"]);
}

#[test]
fn shards_on_the_same_hash_keys_are_relatives() {
    let range = |n, from, to| Lease {
        hash_range: HashKeyRange::new(from, to),
        ..held(n, "a")
    };
    let scene = Scene::of(vec![range(0, 0, 9), range(1, 5, 20), range(2, 10, 20)]);
    let relatives = scene.explain(0).unwrap().relatives;
    let told: Vec<_> = relatives
        .iter()
        .map(|relative| (relative.relation, relative.shard.clone()))
        .collect();
    assert_eq!(told, [(Relation::SameHashKeys, id(1))]);
    // Keys of the KCL's multi-stream mode end with the shard.
    let multi = Lease {
        key: LeaseKey::new(format!("1:orders:2:{}", id(8))).unwrap(),
        ..held(0, "a")
    };
    assert!(Scene::of(vec![multi]).explain(8).is_some());
}
