use super::*;
use crate::plan::{Outlook, alive_workers, observed_workers};

const DURATION: Duration = Duration::from_secs(20);

fn at(seconds: u64) -> Moment {
    Moment::from_origin(Duration::from_secs(seconds))
}

fn beating(name: &str, is_draining: bool) -> WorkerRow {
    WorkerRow {
        lease_duration: DURATION,
        is_draining,
        max_leases: 5,
        ..WorkerRow::beating(name)
    }
}

/// What host "me" makes of `row` at a second, if it saw `earlier` at second 100, and "a" is alive.
fn seen(earlier: &Lease, row: &Lease, second: u64) -> ObservedLease {
    let mut observer = LeaseObserver::default();
    observer.observe(std::slice::from_ref(earlier), at(100));
    let alive = BTreeSet::from([worker("a")]);
    let me = worker("me");
    let outlook = Outlook {
        me: &me,
        observer: &observer,
        alive: &alive,
        lease_duration: DURATION,
        now: at(second),
    };
    outlook.lease(row, false, false)
}

fn asked(owner: Option<&str>, claimant: &str) -> Lease {
    let mut lease = free(0).lease;
    lease.owner = owner.map(worker);
    lease.claimant = Some(worker(claimant));
    lease
}

#[test]
fn a_lease_is_idle_only_once_it_is_not_held() {
    let held = owned(0, "other", Availability::Held).lease;
    assert_eq!(seen(&held, &held, 120).idle_for, Duration::ZERO);
    assert_eq!(seen(&held, &held, 121).idle_for, Duration::from_secs(21));
    let free = free(0).lease;
    assert_eq!(seen(&free, &free, 103).idle_for, Duration::from_secs(3));
}

#[test]
fn a_claim_counts_while_its_claimant_lives_and_its_owner_may_still_meet_it() {
    let fresh = |lease: &Lease, second| seen(lease, lease, second).is_claim_fresh;
    for claimant in ["a", "me"] {
        let claim = asked(Some("other"), claimant);
        assert!(fresh(&claim, 139), "{claimant}");
        assert!(!fresh(&claim, 140), "{claimant}: two lease durations");
    }
    assert!(!fresh(&asked(Some("other"), "dead"), 100));
    assert!(
        !fresh(&owned(0, "other", Availability::Held).lease, 100),
        "nobody asked"
    );
}

#[test]
fn a_lease_that_was_given_back_is_kept_for_its_claimant_for_a_quarter_of_the_duration() {
    let kept = |second| seen(&asked(None, "a"), &asked(None, "a"), second).is_claim_fresh;
    assert!(kept(104));
    assert!(!kept(105));
}

#[test]
fn a_moving_counter_of_a_worker_that_never_registered_is_a_kcls() {
    let found = |row: &Lease, later: &Lease| {
        let mut observer = LeaseObserver::default();
        observer.observe_workers(
            &[beating("registered", false), beating("gone", false)],
            at(99),
        );
        observer.observe(std::slice::from_ref(row), at(100));
        observer.observe_workers(&[beating("registered", false)], at(101));
        observer.observe(std::slice::from_ref(later), at(102));
        let (me, alive) = (worker("me"), BTreeSet::new());
        let outlook = Outlook {
            me: &me,
            observer: &observer,
            alive: &alive,
            lease_duration: DURATION,
            now: at(102),
        };
        outlook
            .foreign(std::slice::from_ref(later), &[beating("registered", false)])
            .is_some()
    };
    let still = |owner: &str| owned(0, owner, Availability::Held).lease;
    let moving = |owner: &str| Lease {
        counter: LeaseCounter(1),
        ..still(owner)
    };
    assert!(found(&still("kcl"), &moving("kcl")));
    assert!(
        !found(&still("kcl"), &still("kcl")),
        "the row of a host long gone"
    );
    for ours in ["me", "registered", "gone"] {
        assert!(!found(&still(ours), &moving(ours)), "{ours}");
    }
    let finished = Lease {
        checkpoint: Checkpoint::ShardEnd,
        ..moving("kcl")
    };
    assert!(!found(&still("kcl"), &finished), "nobody reads it any more");
    assert!(!found(
        &free(0).lease,
        &Lease {
            counter: LeaseCounter(1),
            ..free(0).lease
        }
    ));
}

/// Whether "me", which looked at each of these seconds, takes the owner of a lease for one that may
/// register again. The row moved before each look of `moved`.
fn is_new(owner: &str, looks: &[u64], moved: &[u64], second: u64) -> bool {
    let registered = [beating("a", false)];
    let mut row = owned(0, owner, Availability::Held).lease;
    let mut observer = LeaseObserver::default();
    for look in looks {
        if moved.contains(look) {
            row.counter = row.counter.next();
        }
        observer.observe_workers(&registered, at(*look));
        observer.observe(std::slice::from_ref(&row), at(*look));
    }
    let (me, alive) = (worker("me"), BTreeSet::new());
    let outlook = Outlook {
        me: &me,
        observer: &observer,
        alive: &alive,
        lease_duration: DURATION,
        now: at(second),
    };
    outlook.lease(&row, false, false).is_owner_new
}

#[test]
fn a_host_that_began_to_look_a_moment_ago_takes_no_owner_for_a_kcls() {
    assert!(
        is_new("b", &[100], &[], 100) && is_new("b", &[100, 119], &[119], 119),
        "its row may have been removed, and comes back"
    );
    assert!(
        !is_new("b", &[100, 120], &[120], 120),
        "in a lease duration it would have registered again"
    );
    assert!(!is_new("a", &[100], &[], 100), "it is registered");
    assert!(
        is_new("b", &[100, 119, 140], &[119, 140], 141),
        "it may have come and gone while this host was suspended"
    );
    assert!(
        is_new("b", &[100, 119, 120], &[119, 120], 141),
        "what was read before the host was suspended says nothing of now"
    );
}

#[test]
fn only_who_writes_a_lease_duration_after_it_was_first_seen_unregistered_is_a_kcls() {
    let looks = [100, 110, 120, 130, 140, 150];
    assert!(
        is_new("b", &looks, &[110], 150),
        "it wrote while it could still have been registered, and was suspended since"
    );
    assert!(is_new("b", &looks, &[], 150), "it never wrote");
    assert!(!is_new("b", &looks, &[110, 120], 150));
    assert!(!is_new("b", &looks, &[130], 150));
}

#[test]
fn an_owner_that_was_registered_meanwhile_is_a_stranger_only_since_its_row_was_missed_again() {
    let mut row = owned(0, "a", Availability::Held).lease;
    let mut observer = LeaseObserver::default();
    let mut look = |second, is_registered: bool| {
        row.counter = row.counter.next();
        let workers = [beating("a", false)];
        let workers = if is_registered { &workers[..] } else { &[] };
        observer.observe_workers(workers, at(second));
        observer.observe(std::slice::from_ref(&row), at(second));
        observer.writes_unregistered(&worker("a"), DURATION)
    };
    assert!(!look(100, false) && !look(119, false));
    assert!(look(120, false), "a lease duration without a registration");
    assert!(!look(121, true) && !look(140, false) && !look(159, false));
    assert!(look(160, false));
}

#[test]
fn a_worker_lives_for_its_own_lease_duration_and_one_on_its_way_out_asks_for_nothing() {
    let mut observer = LeaseObserver::default();
    observer.observe_workers(&[beating("a", false), beating("leaving", true)], at(100));
    let living = |second| {
        let told = observed_workers(&observer, at(second))
            .into_iter()
            .filter(|worker| worker.is_alive);
        told.map(|worker| (worker.id.to_string(), worker.is_draining, worker.max_leases))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        living(120),
        [("a".into(), false, 5), ("leaving".into(), true, 5)]
    );
    assert_eq!(living(121), []);
    assert_eq!(
        alive_workers(&observer, at(120)),
        BTreeSet::from([worker("a")])
    );
    assert_eq!(alive_workers(&observer, at(121)), BTreeSet::new());
}
