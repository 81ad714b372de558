use super::*;
use crate::lease::Checkpoint;
use crate::stream::{HashKeyRange, Shard, ShardId};

const DURATION: Duration = Duration::from_secs(10);

fn at(seconds: u64) -> Moment {
    Moment::from_origin(Duration::from_secs(seconds))
}

fn worker(name: &str) -> WorkerId {
    WorkerId::new(name).unwrap()
}

fn row(owner: &str, counter: u64) -> Lease {
    let id = ShardId::new("shardId-000000000000").unwrap();
    let shard = Shard {
        id,
        parents: Vec::new(),
        hash_range: HashKeyRange::FULL,
        ending_sequence: None,
    };
    let mut lease = Lease::fresh(&shard, Checkpoint::TrimHorizon);
    lease.owner = Some(worker(owner));
    lease.counter = LeaseCounter(counter);
    lease
}

fn claimed(claimant: Option<&str>) -> Lease {
    Lease {
        claimant: claimant.map(worker),
        ..row("owner", 1)
    }
}

fn registered(name: &str, run: &str, beat: u64) -> WorkerRow {
    WorkerRow {
        incarnation: Incarnation::new(run).unwrap(),
        beat,
        ..WorkerRow::beating(name)
    }
}

/// An observer that saw these rows one after the other, each at its second.
fn after(sightings: &[(u64, Lease)]) -> LeaseObserver {
    let mut observer = LeaseObserver::default();
    for (second, lease) in sightings {
        observer.observe(std::slice::from_ref(lease), at(*second));
    }
    observer
}

#[test]
fn a_claim_is_as_old_as_the_first_sight_of_its_claimant() {
    let lease = claimed(Some("a"));
    let waited =
        |sightings: &[(u64, Lease)]| after(sightings).claimed_for(&lease, at(112)).as_secs();
    let (none, other) = (claimed(None), claimed(Some("b")));
    assert_eq!(
        waited(&[(100, lease.clone()), (108, lease.clone())]),
        12,
        "seen again, not claimed again"
    );
    assert_eq!(
        waited(&[(100, none), (105, lease.clone()), (108, lease.clone())]),
        7
    );
    assert_eq!(
        waited(&[(100, other), (105, lease.clone())]),
        7,
        "what another waited counts for nobody"
    );
    assert_eq!(waited(&[]), 0, "a row that was never seen is no old claim");
}

#[test]
fn a_row_is_finished_since_it_was_first_seen_so() {
    let finished = Lease {
        checkpoint: Checkpoint::ShardEnd,
        ..row("owner", 1)
    };
    let renewed = Lease {
        counter: LeaseCounter(2),
        ..finished.clone()
    };
    let for_seconds = |sightings: &[(u64, Lease)]| {
        let observer = after(sightings);
        observer.finished_for(&finished, at(112)).as_secs()
    };
    assert_eq!(for_seconds(&[(100, row("owner", 1))]), 0, "not finished");
    assert_eq!(
        for_seconds(&[(100, row("owner", 1)), (105, finished.clone())]),
        7
    );
    assert_eq!(
        for_seconds(&[(100, finished.clone()), (105, renewed)]),
        12,
        "a KCL renews it"
    );
    assert_eq!(
        for_seconds(&[
            (100, finished.clone()),
            (103, row("owner", 2)),
            (106, finished.clone())
        ]),
        6,
        "somebody set it back"
    );
}

#[test]
fn a_counter_has_moved_only_if_it_was_seen_to_move_under_one_owner() {
    let moved = |sightings: &[(u64, Lease)], second| {
        let (_, last) = sightings.last().unwrap();
        after(sightings).has_counter_moved(last, at(second), DURATION)
    };
    let first = (100, row("kcl", 1));
    let second = (103, row("kcl", 2));
    assert!(
        !moved(std::slice::from_ref(&first), 100),
        "seen once, it may have stood still for years"
    );
    assert!(!moved(&[first.clone(), (103, row("kcl", 1))], 103));
    assert!(
        !moved(&[first.clone(), (103, row("other", 2))], 103),
        "whoever takes a lease moves its counter once"
    );
    assert!(
        moved(&[first.clone(), second.clone()], 113),
        "a whole lease duration ago is lately enough"
    );
    assert!(
        !moved(&[first.clone(), second.clone()], 114),
        "longer ago is not"
    );
    assert!(
        moved(&[first.clone(), second.clone(), (108, row("kcl", 2))], 113),
        "a still look in between changes nothing"
    );
    assert!(
        !moved(&[first, second, (108, row("other", 3))], 108),
        "the new owner's counter was not seen to move"
    );
    assert!(!LeaseObserver::default().has_counter_moved(&row("kcl", 1), at(0), DURATION));
}

#[test]
fn a_worker_that_left_is_remembered_for_its_lease_duration_however_often_one_looks() {
    let mut observer = LeaseObserver::default();
    observer.observe_workers(
        &[registered("a", "run", 1), registered("b", "run", 1)],
        at(100),
    );
    assert!(
        !observer.has_left(&worker("a"), at(100)) && !observer.has_left(&worker("never"), at(100))
    );
    observer.observe_workers(&[registered("b", "run", 2)], at(105));
    observer.observe_workers(&[registered("b", "run", 3)], at(109));
    assert!(observer.has_left(&worker("a"), at(115)) && !observer.has_left(&worker("b"), at(115)));
    assert!(!observer.has_left(&worker("a"), at(116)));
}

#[test]
fn workers_are_reported_in_order_each_with_how_long_its_heart_was_silent() {
    let mut observer = LeaseObserver::default();
    observer.observe_workers(
        &[registered("b", "run", 1), registered("a", "run", 1)],
        at(100),
    );
    observer.observe_workers(
        &[registered("b", "again", 1), registered("a", "run", 1)],
        at(104),
    );
    let told = |observer: &LeaseObserver, second| {
        let workers = observer.workers(at(second));
        workers
            .map(|(row, silent)| (row.worker.to_string(), silent.as_secs()))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        told(&observer, 107),
        [("a".into(), 7), ("b".into(), 3)],
        "another run is another heart"
    );
    observer.observe_workers(&[registered("b", "again", 2)], at(107));
    assert_eq!(told(&observer, 107), [("b".into(), 0)]);
}

#[test]
fn a_lease_is_idle_since_its_row_or_its_owners_heart_moved_last() {
    let lease = row("owner", 1);
    let mut observer = after(&[(100, lease.clone())]);
    assert_eq!(observer.idle_for(&lease, at(107)).as_secs(), 7);
    observer.observe_workers(
        &[registered("owner", "run", 1), registered("other", "run", 1)],
        at(103),
    );
    observer.observe_workers(
        &[registered("owner", "run", 1), registered("other", "run", 2)],
        at(106),
    );
    assert_eq!(observer.idle_for(&lease, at(107)).as_secs(), 4);
    observer.observe(&[row("owner", 2)], at(105));
    assert_eq!(observer.idle_for(&lease, at(107)).as_secs(), 2);
    assert_eq!(
        LeaseObserver::default().idle_for(&lease, at(107)),
        Duration::ZERO
    );
}

#[test]
fn a_second_look_finds_any_sign_of_life_since_the_first() {
    let mut observer = LeaseObserver::default();
    observer.observe_workers(&[registered("owner", "run", 5)], at(100));
    let run = Incarnation::new("run").unwrap();
    let again = Incarnation::new("again").unwrap();
    let moved = |name, row| observer.has_moved(&worker(name), row);
    assert!(!moved("owner", Some((&run, 5))));
    assert!(moved("owner", Some((&run, 6))));
    assert!(moved("owner", Some((&again, 5))), "started again");
    assert!(moved("other", Some((&run, 1))), "registered since");
    assert!(!moved("other", None));
}

#[test]
fn a_row_that_vanished_since_the_first_look_is_no_proof_of_death_unless_its_worker_left_or_was_silent()
 {
    let first = registered("owner", "run", 5);
    let vanished = |row: &WorkerRow, looks: &[u64]| {
        let mut observer = LeaseObserver::default();
        for second in looks {
            observer.observe_workers(std::slice::from_ref(row), at(*second));
        }
        observer.has_moved(&worker("owner"), None)
    };
    assert!(
        vanished(&first, &[100]),
        "this host has not looked for long"
    );
    assert!(vanished(&first, &[100, 105, 110]));
    assert!(
        !vanished(&first, &[100, 105, 110, 111]),
        "silent for more than its lease duration"
    );
    assert!(
        vanished(&first, &[100, 105, 116]),
        "this host was suspended in the middle of its last look"
    );
    assert!(!vanished(&first, &[100, 105, 116, 126, 127]));
    let leaving = WorkerRow {
        is_draining: true,
        ..first
    };
    assert!(!vanished(&leaving, &[100]), "it said that it leaves");
}

#[test]
fn a_second_look_that_finds_a_row_which_the_first_missed_has_found_a_sign_of_life() {
    let mut observer = LeaseObserver::default();
    observer.observe_workers(&[registered("owner", "run", 5)], at(100));
    observer.observe_workers(&[], at(101));
    let run = Incarnation::new("run").unwrap();
    assert!(
        observer.has_moved(&worker("owner"), Some((&run, 5))),
        "the look that missed it was older than the first"
    );
    assert!(!observer.has_moved(&worker("owner"), None));
    observer.observe_workers(&[registered("owner", "run", 5)], at(102));
    assert!(
        !observer.has_moved(&worker("owner"), Some((&run, 5))),
        "it is there again, and as it was seen"
    );
}

#[test]
fn a_heart_that_nobody_watched_was_not_seen_to_stand_still() {
    let mut observer = LeaseObserver::default();
    let row = WorkerRow::beating("a");
    for second in [100, 105, 110, 115] {
        observer.observe_workers(std::slice::from_ref(&row), at(second));
    }
    assert_eq!(
        observer.watched_silence(&row.worker, at(115)),
        Some(Duration::from_secs(15))
    );
    // The machine was suspended. The other one may have been suspended too, and wake at the same
    // moment.
    observer.observe_workers(std::slice::from_ref(&row), at(8_000));
    assert_eq!(
        observer.watched_silence(&row.worker, at(8_000)),
        Some(Duration::ZERO)
    );
    observer.observe_workers(std::slice::from_ref(&row), at(8_010));
    assert_eq!(
        observer.watched_silence(&row.worker, at(8_010)),
        Some(Duration::from_secs(10))
    );
    assert_eq!(
        LeaseObserver::default().watched_silence(&row.worker, at(0)),
        None
    );
}
