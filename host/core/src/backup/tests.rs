//! What belongs together in a backup, and what a restore does to each shard.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;

use super::*;
use crate::control::{Asked, Directives, Pause, Seek, SeekState};
use crate::fleet::{ApplicationStart, FleetRows, StreamIdentity, StreamRow};
use crate::lease::{Checkpoint, Lease, Sought, WorkerId};
use crate::ports::SavedState;
use crate::stream::{
    HashKeyRange, InitialPosition, LeaseKey, SequenceNumber, Shard, ShardId, StreamName,
};

const MINUTE_MS: u64 = 60_000;
/// When the backup was made.
const AT_MS: u64 = 100 * MINUTE_MS;
const ARN: &str = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders";

fn id(number: u32) -> ShardId {
    ShardId::new(format!("shardId-{number:012}")).unwrap()
}

fn key(number: u32) -> LeaseKey {
    LeaseKey::of_shard(&id(number))
}

fn at(number: &str) -> Checkpoint {
    Checkpoint::parse(number, 0).unwrap()
}

/// A half, or all, of the hash keys.
fn range(part: &str) -> HashKeyRange {
    let half = u128::MAX / 2;
    match part {
        "low" => HashKeyRange::new(0, half).unwrap(),
        "high" => HashKeyRange::new(half + 1, u128::MAX).unwrap(),
        _ => HashKeyRange::FULL,
    }
}

fn shard(number: u32, part: &str, parents: &[u32]) -> Shard {
    Shard {
        id: id(number),
        parents: parents.iter().map(|parent| id(*parent)).collect(),
        hash_range: range(part),
        ending_sequence: None,
    }
}

fn closed(shard: Shard) -> Shard {
    Shard {
        ending_sequence: SequenceNumber::parse("900").ok(),
        ..shard
    }
}

fn state(checkpoint: &Checkpoint, bytes: &'static [u8]) -> SavedState {
    SavedState {
        bytes: Bytes::from_static(bytes),
        checkpoint: checkpoint.clone(),
        plugin_digest: None,
    }
}

/// A shard in a backup. `minutes`: when the record of its checkpoint arrived.
fn kept(shard: &Shard, checkpoint: Checkpoint, minutes: Option<u64>) -> BackedUpShard {
    BackedUpShard {
        lease: Lease {
            settled_arrival_ms: minutes.map(|minutes| minutes * MINUTE_MS),
            owner: WorkerId::new("a"),
            held_since_ms: Some(7),
            ..Lease::fresh(shard, checkpoint)
        },
        state: None,
        read_at_ms: AT_MS,
    }
}

fn with_state(mut shard: BackedUpShard) -> BackedUpShard {
    shard.state = Some(state(&shard.lease.checkpoint, b"12 of AA"));
    shard
}

struct Scene {
    backup: Backup,
    name: StreamName,
    arn: &'static str,
    created_at_ms: u64,
    shards: Vec<Shard>,
    closed_before: BTreeSet<ShardId>,
    rows: Vec<Lease>,
    states: BTreeMap<LeaseKey, SavedState>,
    fleet: FleetRows,
    policy: RestorePolicy,
}

impl Scene {
    fn new(kept: Vec<BackedUpShard>, shards: Vec<Shard>) -> Self {
        let name = StreamName::new("orders").unwrap();
        Self {
            backup: Backup {
                application: "totals".to_owned(),
                at_ms: AT_MS,
                stream: BackedUpStream {
                    row: stream_row(&name, 5_000),
                    arn: Some(ARN.to_owned()),
                },
                start: began(3),
                pause: None,
                deploy: None,
                quarantined: Vec::new(),
                shards: kept,
            },
            name,
            arn: ARN,
            created_at_ms: 5_000,
            shards,
            closed_before: BTreeSet::new(),
            rows: Vec::new(),
            states: BTreeMap::new(),
            fleet: FleetRows::default(),
            policy: RestorePolicy {
                overwrites: false,
                skips: false,
                states: StatesKept::All,
                from_ms: None,
                margin: MARGIN_DEFAULT,
            },
        }
    }

    /// The same on the stream of another region.
    fn elsewhere(mut self) -> Self {
        self.arn = "arn:aws:kinesis:us-east-1:123456789012:stream/orders";
        self
    }

    fn plan(&self) -> RestorePlan {
        let stream = StreamNow {
            name: &self.name,
            arn: Some(self.arn),
            identity: StreamIdentity {
                created_at_ms: self.created_at_ms,
            },
            shards: &self.shards,
            closed_before: &self.closed_before,
        };
        let tables = TablesNow {
            rows: &self.rows,
            states: &self.states,
            fleet: &self.fleet,
        };
        plan_restore(&RestoreRequest {
            backup: &self.backup,
            stream: &stream,
            tables: &tables,
            policy: self.policy,
        })
    }
}

fn stream_row(name: &StreamName, created_at_ms: u64) -> StreamRow {
    StreamRow {
        name: name.clone(),
        identity: StreamIdentity { created_at_ms },
        is_bootstrapped: true,
    }
}

fn began(looked_at_ms: u64) -> ApplicationStart {
    ApplicationStart {
        position: InitialPosition::Latest,
        looked_at_ms,
        found_leases: false,
    }
}

/// Each shard's step, and where it starts.
fn steps(plan: &RestorePlan) -> Vec<(&'static str, &'static str, Option<Checkpoint>)> {
    let one = |shard: &ShardRestore| {
        let row = shard.step.row().map(|row| row.lease.checkpoint.clone());
        (shard.step.code(), shard.why.code(), row)
    };
    plan.shards.iter().map(one).collect()
}

fn since(minutes: u64) -> Checkpoint {
    Checkpoint::Sought(Sought::Time(minutes * MINUTE_MS))
}

#[test]
fn a_row_and_a_state_belong_together_if_the_state_is_that_of_its_checkpoint() {
    let whole = shard(0, "all", &[]);
    let row = |number: &str| Lease::fresh(&whole, at(number));
    let (early, late) = (row("10"), row("20"));
    let of = |number: &str| Some(state(&at(number), b"x"));
    assert_eq!(
        pair(&early, of("10"), &late),
        Some((early.clone(), of("10")))
    );
    assert_eq!(
        pair(&early, of("20"), &late),
        Some((late.clone(), of("20")))
    );
    assert_eq!(
        pair(&early, of("15"), &late),
        None,
        "a checkpoint came between"
    );
    assert_eq!(pair(&early, None, &early), Some((early.clone(), None)));
    let ended = Lease::fresh(&whole, Checkpoint::ShardEnd);
    assert_eq!(
        pair(&early, None, &ended),
        None,
        "the state went with the end: the row of before had one"
    );
}

#[test]
fn a_parent_that_was_read_before_its_child_began_is_read_again() {
    let (parent, child) = (shard(0, "all", &[]), shard(1, "low", &[0]));
    let unfinished = kept(&parent, at("10"), None);
    let waits = kept(&child, Checkpoint::TrimHorizon, None);
    let began = kept(&child, at("30"), None);
    assert!(torn([unfinished.clone(), waits].iter()).is_empty());
    let found = torn([unfinished, began.clone()].iter());
    assert_eq!(found, BTreeSet::from([key(0)]));
    let ended = kept(&parent, Checkpoint::ShardEnd, None);
    assert!(torn([ended, began].iter()).is_empty());
}

#[test]
fn on_its_own_stream_each_shard_goes_on_after_its_checkpoint_with_its_state() {
    let (parent, child) = (closed(shard(0, "all", &[])), shard(1, "low", &[0]));
    let sibling = shard(2, "high", &[0]);
    let mut ended = kept(&parent, Checkpoint::ShardEnd, Some(90));
    ended.lease.children = vec![id(1), id(2)];
    let works = with_state(kept(&child, at("70"), Some(99)));
    let scene = Scene::new(vec![ended, works], vec![parent, child, sibling]);
    let plan = scene.plan();
    assert_eq!(plan.relation, StreamRelation::Same);
    assert_eq!(
        plan.start, scene.backup.start,
        "LATEST in a row means the same moment"
    );
    assert_eq!(
        steps(&plan),
        [
            ("create", "finished", Some(Checkpoint::ShardEnd)),
            ("create", "continues", Some(at("70"))),
            ("leave", "by-hosts", None),
        ]
    );
    let RestoreStep::Create(row) = &plan.shards[1].step else {
        panic!("{plan:?}");
    };
    assert_eq!(row.state.as_ref().unwrap().bytes, "12 of AA");
    assert_eq!((&row.lease.owner, row.lease.held_since_ms), (&None, None));
    let RestoreStep::Create(row) = &plan.shards[0].step else {
        panic!("{plan:?}");
    };
    assert_eq!(
        row.lease.children,
        [id(1), id(2)],
        "or its row would never be removed"
    );
}

#[test]
fn a_shard_that_retention_took_is_restored_so_that_the_hosts_report_the_gap() {
    let gone = kept(&shard(0, "all", &[]), at("10"), Some(1));
    let plan = Scene::new(vec![gone], vec![shard(4, "all", &[3])]).plan();
    assert_eq!(
        steps(&plan),
        [
            ("create", "gone", Some(at("10"))),
            ("leave", "by-hosts", None)
        ]
    );
}

#[test]
fn a_restore_that_runs_again_writes_nothing_and_what_hosts_did_since_is_kept_unless_told() {
    let whole = shard(0, "all", &[]);
    let works = with_state(kept(&whole, at("70"), Some(99)));
    let mut scene = Scene::new(vec![works], vec![whole.clone()]);
    let first = scene.plan();
    let row = first.shards[0].step.row().unwrap().clone();
    scene.rows = vec![row.lease.clone()];
    scene.states.insert(key(0), row.state.clone().unwrap());
    assert_eq!(steps(&scene.plan()), [("keep", "continues", None)]);

    scene.rows[0].held_since_ms = Some(AT_MS + 1);
    scene.states.insert(key(0), state(&at("70"), b"13 of AA"));
    assert_eq!(
        steps(&scene.plan())[0].0,
        "refuse",
        "another state at the same place"
    );
    for other in [at("80"), Checkpoint::ShardEnd] {
        scene.rows[0].checkpoint = other.clone();
        let plan = scene.plan();
        assert!(plan.is_refused(), "{other}");
        let RestoreStep::Refuse { why, to } = &plan.shards[0].step else {
            panic!("{plan:?}");
        };
        assert_eq!((why.code(), to), ("has-progress", &at("70")));
        scene.policy.overwrites = true;
        assert_eq!(
            steps(&scene.plan()),
            [("replace", "continues", Some(at("70")))]
        );
        scene.policy.overwrites = false;
    }
    scene.rows[0] = Lease::fresh(&whole, Checkpoint::TrimHorizon);
    scene.states.clear();
    assert_eq!(
        steps(&scene.plan())[0].0,
        "replace",
        "nobody ever held it: nothing is lost"
    );
}

#[test]
fn no_place_goes_forward_over_undelivered_records_unless_the_operator_asks_for_that() {
    let whole = shard(0, "all", &[]);
    let minutes = |minutes: u64| minutes * MINUTE_MS;
    // Where it is, when that arrived, where the backup has it, and whether that is forward.
    let time = |ms: u64| Checkpoint::Sought(Sought::Time(ms));
    let record =
        |number: &str| Checkpoint::Sought(Sought::Sequence(SequenceNumber::parse(number).unwrap()));
    for (now, arrived, then, is_forward) in [
        (at("60"), None, at("70"), true),
        (at("80"), None, at("70"), false),
        (at("60"), None, Checkpoint::ShardEnd, true),
        (Checkpoint::Sought(Sought::Horizon), None, at("70"), true),
        (Checkpoint::TrimHorizon, None, at("70"), true),
        (at("80"), None, Checkpoint::TrimHorizon, false),
        (at("80"), None, Checkpoint::Sought(Sought::Horizon), false),
        (at("80"), Some(90), time(minutes(80)), false),
        (at("80"), Some(90), time(minutes(91)), true),
        (at("80"), None, time(minutes(80)), true),
        (time(minutes(98)), None, at("70"), true),
        (time(minutes(100)), None, at("70"), false),
        (record("70"), None, at("70"), true),
        (record("71"), None, at("70"), false),
        (at("80"), Some(90), Checkpoint::Latest, false),
        (
            Checkpoint::Sought(Sought::Horizon),
            None,
            Checkpoint::Latest,
            true,
        ),
    ] {
        let works = kept(&whole, then.clone(), Some(99));
        let mut scene = Scene::new(vec![works], vec![closed(whole.clone())]);
        scene.rows = vec![Lease {
            held_since_ms: Some(AT_MS),
            settled_arrival_ms: arrived.map(minutes),
            ..Lease::fresh(&whole, now.clone())
        }];
        scene.policy.overwrites = true;
        let plan = scene.plan();
        let case = format!("{now} to {then}");
        if is_forward {
            let RestoreStep::Refuse { why, to } = &plan.shards[0].step else {
                panic!("{case}: {plan:?}");
            };
            assert_eq!((why.code(), to), ("forward", &then), "{case}");
            assert!(why.to_string().contains("--forward"), "{why}");
            assert!(plan.is_refused(), "{case}");
        } else {
            assert_eq!(steps(&plan)[0].0, "replace", "{case}");
        }
        scene.policy.skips = true;
        let step = if is_forward { "forward" } else { "replace" };
        assert_eq!(steps(&scene.plan())[0].0, step, "{case}");
        scene.policy.overwrites = false;
        assert!(scene.plan().is_refused(), "a host has served it: {case}");
    }
}

#[test]
fn only_a_pause_of_what_operators_wanted_is_restored_and_versions_of_it_go_on() {
    let whole = shard(0, "all", &[]);
    let asked = Asked {
        by: "ops".to_owned(),
        why: "incident".to_owned(),
        at_ms: 1,
    };
    let pause = Pause {
        asked: asked.clone(),
        until_ms: None,
    };
    let mut works = kept(&whole, at("70"), Some(99));
    works.lease.directives = Directives {
        version: 9,
        pause: Some(pause.clone()),
        seek: Some(Seek {
            to: crate::control::Place::Horizon,
            only_forward: false,
            state: SeekState::Keep,
            asked,
        }),
        ..Directives::default()
    };
    let mut scene = Scene::new(vec![works], vec![whole.clone()]);
    let fresh = scene.plan().shards[0]
        .step
        .row()
        .unwrap()
        .lease
        .directives
        .clone();
    assert_eq!(
        (fresh.version, fresh.pause, fresh.seek),
        (1, Some(pause.clone()), None)
    );
    scene.rows = vec![Lease {
        directives: Directives {
            version: 40,
            ..Directives::default()
        },
        ..Lease::fresh(&whole, at("80"))
    }];
    let over = scene.plan().shards[0]
        .step
        .row()
        .unwrap()
        .lease
        .directives
        .clone();
    assert_eq!((over.version, over.pause), (41, Some(pause)));
}

#[test]
fn streams_of_one_name_created_in_the_same_second_are_told_apart_by_their_arns() {
    let whole = shard(0, "all", &[]);
    let works = kept(&whole, at("70"), Some(99));
    let mut scene = Scene::new(vec![works], vec![whole]);
    assert_eq!(scene.plan().relation, StreamRelation::Same);
    scene.created_at_ms = 5_400;
    assert_eq!(scene.plan().relation, StreamRelation::Same);
    let mut scene = scene.elsewhere();
    assert_eq!(scene.plan().relation, StreamRelation::OtherArn);
    scene.created_at_ms = 7_000;
    assert_eq!(scene.plan().relation, StreamRelation::Recreated);
    scene.name = StreamName::new("orders2").unwrap();
    assert_eq!(scene.plan().relation, StreamRelation::OtherName);
}

#[test]
fn on_another_stream_each_shard_begins_a_little_before_its_place_with_its_state() {
    let (low, high) = (shard(0, "low", &[]), shard(1, "high", &[]));
    let kept = vec![
        with_state(kept(&low, at("70"), Some(98))),
        kept(&high, at("80"), Some(50)),
    ];
    let (low, high) = (shard(6, "low", &[]), shard(7, "high", &[]));
    let plan = Scene::new(kept, vec![low, high]).elsewhere().plan();
    assert!(!plan.is_refused(), "{plan:?}");
    assert_eq!(
        steps(&plan),
        [
            ("create", "by-time", Some(since(97))),
            ("create", "by-time", Some(since(49))),
        ],
        "the ids of shards mean nothing there"
    );
    let row = plan.shards[0].step.row().unwrap();
    let state = row.state.as_ref().unwrap();
    assert_eq!(
        state.checkpoint, row.lease.checkpoint,
        "or no host would take it"
    );
    assert_eq!(
        plan.start.position,
        InitialPosition::AtTimestamp(49 * MINUTE_MS),
        "shards that come later begin no later"
    );
    assert!(!plan.start.found_leases);
}

#[test]
fn a_state_fits_only_a_shard_with_the_same_hash_keys() {
    let whole = with_state(kept(&shard(0, "all", &[]), at("70"), Some(98)));
    let halves = vec![shard(0, "low", &[]), shard(1, "high", &[])];
    let mut scene = Scene::new(vec![whole], halves).elsewhere();
    let plan = scene.plan();
    assert_eq!(
        plan.refusals,
        [RestoreRefusal::StatesFitNowhere(vec![id(0)])]
    );
    let told = plan.refusals[0].to_string();
    assert!(told.contains("--states fitting"), "{told}");
    scene.policy.states = StatesKept::Fitting;
    let plan = scene.plan();
    assert!(!plan.is_refused());
    assert_eq!(plan.dropped, [id(0)]);
    let places: Vec<_> = steps(&plan).into_iter().map(|(_, _, to)| to).collect();
    assert_eq!(places, [Some(since(97)), Some(since(97))]);
}

#[test]
fn a_state_that_covers_a_shard_together_with_another_fits_no_merged_one() {
    let kept = vec![
        with_state(kept(&shard(0, "low", &[]), at("70"), Some(98))),
        kept(&shard(1, "high", &[]), at("70"), Some(60)),
    ];
    let plan = Scene::new(kept, vec![shard(0, "all", &[])])
        .elsewhere()
        .plan();
    assert!(matches!(
        plan.refusals[..],
        [RestoreRefusal::StatesFitNowhere(_)]
    ));
    assert_eq!(
        steps(&plan)[0].2,
        Some(since(59)),
        "from the earlier of both"
    );
}

#[test]
fn no_states_are_kept_if_none_are_wanted() {
    let whole = shard(0, "all", &[]);
    let works = with_state(kept(&whole, at("70"), Some(98)));
    for is_elsewhere in [false, true] {
        let mut scene = Scene::new(vec![works.clone()], vec![whole.clone()]);
        scene.policy.states = StatesKept::None;
        let scene = if is_elsewhere {
            scene.elsewhere()
        } else {
            scene
        };
        let plan = scene.plan();
        assert!(!plan.is_refused());
        assert_eq!(plan.dropped, [id(0)]);
        assert_eq!(plan.shards[0].step.row().unwrap().state, None);
    }
}

#[test]
fn a_place_without_a_time_is_read_from_the_oldest_record() {
    let whole = shard(0, "all", &[]);
    let scene = Scene::new(vec![kept(&whole, at("70"), None)], vec![whole.clone()]);
    let mut scene = scene.elsewhere();
    let plan = scene.plan();
    let horizon = Some(Checkpoint::Sought(Sought::Horizon));
    assert_eq!(steps(&plan), [("create", "from-oldest", horizon)]);
    assert_eq!(plan.start.position, InitialPosition::TrimHorizon);
    scene.policy.from_ms = Some(5 * MINUTE_MS);
    assert_eq!(
        steps(&scene.plan()),
        [("create", "by-time", Some(since(5)))],
        "no margin"
    );
}

#[test]
fn a_shard_that_was_not_begun_counts_from_when_its_parents_ended_or_the_application_began() {
    let (parent, child) = (shard(0, "all", &[]), shard(1, "low", &[0]));
    let ended = kept(&parent, Checkpoint::ShardEnd, Some(40));
    let sibling = kept(&shard(2, "high", &[0]), at("70"), Some(98));
    let waits = kept(&child, Checkpoint::TrimHorizon, None);
    let halves = vec![shard(0, "low", &[]), shard(1, "high", &[])];
    let kept_shards = vec![ended, waits, sibling];
    let plan = Scene::new(kept_shards, halves.clone()).elsewhere().plan();
    let places: Vec<_> = steps(&plan).into_iter().map(|(_, _, to)| to).collect();
    assert_eq!(places, [Some(since(39)), Some(since(97))]);

    let unfinished = kept(&parent, at("10"), Some(30));
    let waits = kept(&child, Checkpoint::TrimHorizon, None);
    let plan = Scene::new(vec![unfinished, waits], halves.clone());
    let plan = plan.elsewhere().plan();
    let places: Vec<_> = steps(&plan).into_iter().map(|(_, _, to)| to).collect();
    assert_eq!(
        places,
        [Some(since(29)), Some(since(29))],
        "what the parent has left comes first"
    );

    let latest = kept(&parent, Checkpoint::Latest, None);
    let mut scene = Scene::new(vec![latest], halves).elsewhere();
    scene.backup.start = began(20 * MINUTE_MS);
    assert_eq!(
        steps(&scene.plan())[0].2,
        Some(since(19)),
        "LATEST is that moment"
    );
}

#[test]
fn on_another_stream_that_was_resharded_parents_are_read_first_and_what_was_closed_before_is_not() {
    let works = with_state(kept(&shard(0, "all", &[]), at("70"), Some(98)));
    let shards = vec![
        closed(shard(0, "all", &[])),
        closed(shard(1, "low", &[0])),
        closed(shard(2, "high", &[0])),
        shard(3, "all", &[1, 2]),
    ];
    let mut scene = Scene::new(vec![works], shards).elsewhere();
    let asked = closed_since(&scene.backup, &scene.shards, scene.policy);
    let all_closed = BTreeSet::from([id(0), id(1), id(2)]);
    assert_eq!(asked, BTreeMap::from([(97 * MINUTE_MS, all_closed)]));

    scene.closed_before = BTreeSet::from([id(0), id(1), id(2)]);
    assert_eq!(
        steps(&scene.plan()),
        [
            ("leave", "closed-before", None),
            ("leave", "closed-before", None),
            ("leave", "closed-before", None),
            ("create", "by-time", Some(since(97))),
        ]
    );
    assert!(
        !scene.plan().is_refused(),
        "the state fits the merged shard"
    );

    scene.closed_before = BTreeSet::from([id(0), id(1)]);
    assert_eq!(
        steps(&scene.plan()),
        [
            ("leave", "closed-before", None),
            ("create", "by-time", Some(since(97))),
            ("create", "by-time", Some(since(97))),
            ("leave", "after-parents", None),
        ],
        "both parents of a merge have rows, or the one without would be read from the beginning"
    );
    assert!(scene.plan().is_refused(), "the state fits neither half");
}

#[test]
fn an_application_that_began_elsewhere_or_reads_another_stream_is_not_restored_over() {
    let whole = shard(0, "all", &[]);
    let mut scene = Scene::new(vec![kept(&whole, at("70"), Some(99))], vec![whole.clone()]);
    scene.fleet.start = Some(began(77));
    assert!(
        !scene.plan().is_refused(),
        "no row of it is at the beginning"
    );
    scene.backup.shards[0].lease.checkpoint = Checkpoint::Latest;
    assert!(matches!(
        scene.plan().refusals[..],
        [RestoreRefusal::OtherStart { .. }]
    ));
    scene.fleet.start = Some(scene.backup.start);
    assert!(!scene.plan().is_refused());
    scene.fleet.stream = Some(stream_row(&scene.name, 99_000));
    assert!(matches!(
        scene.plan().refusals[..],
        [RestoreRefusal::OtherStream { .. }]
    ));
    let mut elsewhere = Scene::new(vec![kept(&whole, at("70"), Some(99))], vec![whole]);
    elsewhere.fleet.start = Some(began(77));
    let plan = elsewhere.elsewhere().plan();
    assert!(matches!(
        plan.refusals[..],
        [RestoreRefusal::OtherStart { .. }]
    ));
}

#[test]
fn nothing_is_restored_from_nothing_or_onto_a_stream_that_contradicts_it() {
    let whole = shard(0, "all", &[]);
    let empty = Scene::new(Vec::new(), vec![whole.clone()]).plan();
    assert_eq!(empty.refusals, [RestoreRefusal::Empty]);
    let ended = kept(&whole, Checkpoint::ShardEnd, None);
    let plan = Scene::new(vec![ended], vec![whole]).plan();
    let RestoreStep::Refuse { why, .. } = &plan.shards[0].step else {
        panic!("{plan:?}");
    };
    assert_eq!(why.code(), "finished-but-open");
}

#[test]
fn a_margin_never_goes_below_the_beginning_of_time() {
    let whole = shard(0, "all", &[]);
    let mut scene = Scene::new(vec![kept(&whole, at("70"), Some(1))], vec![whole]).elsewhere();
    scene.policy.margin = Duration::from_hours(1);
    assert_eq!(steps(&scene.plan())[0].2, Some(since(0)));
}
