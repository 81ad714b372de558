//! Standalone hosts come and go, and leave nothing behind for long.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use harness::fake_standalone_hosts::FakeStandaloneHosts;
use shardmill_core::fleet::{Restart, StandaloneHost, StandalonePolicy};
use shardmill_core::lease::WorkerId;
use shardmill_core::ports::{Clock, Raced, StandaloneHosts};
use shardmill_core::time::Moment;
use shardmill_worker::Standalone;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

const HOUR: Duration = Duration::from_hours(1);
/// What each host writes.
const ROWS: usize = 100;

/// Wall time that goes with the paused clock, off by some time.
struct TestClock {
    began: Instant,
    ahead_ms: u64,
}

impl Clock for TestClock {
    fn now(&self) -> Moment {
        Moment::from_origin(self.began.elapsed())
    }

    fn wall_ms(&self) -> u64 {
        1_700_000_000_000 + self.ahead_ms + millis(self.began.elapsed())
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap()
}

/// Hosts of one application.
struct Fleet {
    list: Arc<FakeStandaloneHosts>,
    policy: StandalonePolicy,
    clock: Arc<TestClock>,
    tasks: Vec<(WorkerId, JoinSet<()>)>,
}

impl Fleet {
    fn new(policy: StandalonePolicy) -> Self {
        Self {
            list: Arc::default(),
            policy,
            clock: Arc::new(TestClock {
                began: Instant::now(),
                ahead_ms: 0,
            }),
            tasks: Vec::new(),
        }
    }

    /// A process that serves the plugin for the first time.
    async fn start(&mut self, name: &str) {
        let clock = Arc::clone(&self.clock);
        self.start_by(name, clock).await;
    }

    async fn start_by(&mut self, name: &str, clock: Arc<TestClock>) {
        let id = WorkerId::new(name).unwrap();
        let hosts = Arc::clone(&self.list) as Arc<dyn StandaloneHosts>;
        let standalone = Standalone::new(hosts, self.policy, Arc::new(AtomicBool::new(false)));
        standalone.begin(&id, clock.as_ref()).await.unwrap();
        self.list.start(&id, ROWS);
        let mut task = JoinSet::new();
        task.spawn(standalone.keep(id.clone(), clock));
        self.tasks.push((id, task));
    }

    /// As a kill does: nothing is told to anybody.
    fn kill(&mut self, index: usize) -> WorkerId {
        let (id, _task) = self.tasks.remove(index);
        self.list.stop(&id);
        id
    }

    fn living(&self) -> BTreeSet<WorkerId> {
        self.tasks.iter().map(|(id, _)| id.clone()).collect()
    }

    fn with_rows(&self) -> BTreeSet<WorkerId> {
        self.list.rows().into_keys().collect()
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_week_of_pods_that_come_and_go_only_those_of_the_last_day_have_rows() {
    const LIVING: usize = 5;
    let mut fleet = Fleet::new(StandalonePolicy::default());
    let mut random = fastrand::Rng::with_seed(7);
    for pod in 0..LIVING {
        fleet.start(&format!("pod-{pod}")).await;
    }
    let (mut gone, mut most_rows) = (Vec::new(), 0);
    for hour in 0..7 * 24 {
        sleep(HOUR).await;
        gone.push((hour, fleet.kill(random.usize(..LIVING))));
        fleet.start(&format!("pod-{}", hour + LIVING)).await;
        assert!(fleet.with_rows().is_superset(&fleet.living()));
        most_rows = most_rows.max(fleet.with_rows().len());
    }
    let last_hour = 7 * 24 - 1;
    let of_last_day = gone.iter().filter(|(hour, _)| last_hour - hour < 24);
    let mut expected = fleet.living();
    expected.extend(of_last_day.map(|(_, id)| id.clone()));
    let unexpected: Vec<_> = fleet.with_rows().difference(&expected).cloned().collect();
    // One round may be under way, and the next is within an hour.
    assert!(unexpected.len() <= 2, "{unexpected:?}");
    assert!(expected.is_subset(&fleet.with_rows()), "none too early");
    assert!(most_rows <= LIVING + 24 + 2, "{most_rows} hosts had rows");
    let living = fleet.living();
    assert!(fleet.list.cleared().iter().all(|id| !living.contains(id)));
    sleep(2 * StandalonePolicy::FORGET_AFTER_DEFAULT).await;
    assert_eq!(fleet.with_rows(), fleet.living());
}

#[tokio::test(start_paused = true)]
async fn a_living_host_is_never_removed_though_a_clock_is_a_year_ahead() {
    let mut fleet = Fleet::new(StandalonePolicy::default());
    fleet.start("right").await;
    let wrong = Arc::new(TestClock {
        began: Instant::now(),
        ahead_ms: millis(Duration::from_hours(365 * 24)),
    });
    fleet.start_by("ahead", wrong).await;
    sleep(Duration::from_hours(72)).await;
    assert!(fleet.list.cleared().is_empty());
    let dead = fleet.kill(0);
    sleep(2 * HOUR).await;
    assert_eq!(fleet.list.cleared(), [dead], "it is dead, and looks old");
}

#[tokio::test(start_paused = true)]
async fn a_host_resumes_within_the_time_and_is_a_new_one_after_it() {
    let mut fleet = Fleet::new(StandalonePolicy::default());
    fleet.start("a").await;
    fleet.start("b").await;
    let a = fleet.kill(0);
    sleep(23 * HOUR).await;
    fleet.start("a").await;
    assert!(fleet.list.cleared().is_empty(), "it goes on");
    fleet.kill(1);
    sleep(27 * HOUR).await;
    assert_eq!(fleet.list.cleared(), std::slice::from_ref(&a));
    assert!(!fleet.list.is_listed(&a));
    fleet.start("a").await;
    assert!(fleet.list.is_listed(&a));
}

#[tokio::test(start_paused = true)]
async fn a_host_that_was_forgotten_while_it_was_suspended_is_in_the_list_again() {
    let mut fleet = Fleet::new(StandalonePolicy::default());
    fleet.start("a").await;
    let a = WorkerId::new("a").unwrap();
    let entry = fleet.list.entry(&a).await.unwrap().unwrap();
    assert_eq!(fleet.list.remove(&entry).await, Ok(Raced::Applied));
    sleep(2 * HOUR).await;
    assert!(fleet.list.is_listed(&a));
}

#[tokio::test(start_paused = true)]
async fn a_host_that_starts_over_removes_what_it_left_before_it_signs() {
    let mut fleet = Fleet::new(StandalonePolicy {
        restart: Restart::StartOver,
        ..StandalonePolicy::default()
    });
    fleet.start("a").await;
    let a = fleet.kill(0);
    let at_first = fleet.list.cleared().len();
    fleet.start("a").await;
    assert_eq!(fleet.list.cleared().len(), at_first + 1);
    assert!(fleet.list.is_listed(&a));
}

#[tokio::test(start_paused = true)]
async fn a_living_host_leaves_a_removal_of_its_rows_to_who_began_it() {
    let mut fleet = Fleet::new(StandalonePolicy::default());
    fleet.start("a").await;
    let a = WorkerId::new("a").unwrap();
    let entry = fleet.list.entry(&a).await.unwrap().unwrap();
    let mark = entry.going(fleet.clock.wall_ms());
    let written = fleet.list.write(Some(&entry), &mark).await;
    assert_eq!(written, Ok(Raced::Applied));
    sleep(2 * HOUR).await;
    assert_eq!(fleet.list.entry(&a).await, Ok(Some(mark.clone())));
    assert_eq!(fleet.list.remove(&mark).await, Ok(Raced::Applied));
    sleep(2 * HOUR).await;
    assert!(fleet.list.is_listed(&a), "as a new host");
}

#[tokio::test(start_paused = true)]
async fn a_removal_that_another_host_died_over_is_finished_by_the_next_or_by_the_host_itself() {
    for returns in [false, true] {
        let mut fleet = Fleet::new(StandalonePolicy::default());
        fleet.start("b").await;
        let a = WorkerId::new("a").unwrap();
        let going = StandaloneHost {
            id: a.clone(),
            beat: 3,
            seen_ms: fleet.clock.wall_ms(),
            is_going: true,
            forget_after: StandalonePolicy::FORGET_AFTER_DEFAULT,
            keeps_state: false,
        };
        fleet.list.start(&a, ROWS);
        fleet.list.stop(&a);
        assert_eq!(fleet.list.write(None, &going).await, Ok(Raced::Applied));
        if returns {
            fleet.start("a").await;
            assert_eq!(
                fleet.list.cleared(),
                std::slice::from_ref(&a),
                "before it reads anything"
            );
            assert!(fleet.list.is_listed(&a));
        } else {
            sleep(2 * HOUR).await;
            assert_eq!(fleet.list.cleared(), std::slice::from_ref(&a));
            assert!(!fleet.list.is_listed(&a));
        }
    }
}
