//! How many hosts are wanted: real workers measure their load, their leader says how many are
//! wanted, and an autoscaler follows it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use harness::fleet::{TestFleet, TestHost, until};
use harness::native::NativePlugin;
use shardmill_core::scaling::ScalingPolicy;
use shardmill_worker::{ProcessLoad, Scaling, ShardState};
use tokio::task::JoinSet;
use tokio::time::Instant;

const SHARDS: u32 = 8;
/// What a record costs.
const COST: Duration = Duration::from_millis(20);
/// Records a second of all shards: a third of a core.
const USUAL: u32 = 16;
/// How long a host takes to start.
const START: Duration = Duration::from_secs(30);
/// How often the autoscaler asks.
const POLL_SECONDS: u64 = 15;
/// Some shard is behind.
const BEHIND_MS: u64 = 10_000;

const POLICY: ScalingPolicy = ScalingPolicy {
    hosts_min: 1,
    hosts_max: usize::MAX,
    catch_up: Duration::from_mins(1),
    settle: Duration::from_mins(3),
};

/// One core, which calls use one after the other.
struct Core {
    free_at: Mutex<Instant>,
    used_micros: AtomicU64,
}

impl Core {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            free_at: Mutex::new(Instant::now()),
            used_micros: AtomicU64::new(0),
        })
    }

    /// How long a call takes that begins now, and has to wait for those before it.
    fn call(&self, records: usize) -> Duration {
        let work = COST * u32::try_from(records).unwrap();
        let micros = u64::try_from(work.as_micros()).unwrap();
        self.used_micros.fetch_add(micros, Ordering::Relaxed);
        let now = Instant::now();
        let mut free_at = self.free_at.lock().unwrap();
        *free_at = now.max(*free_at) + work;
        *free_at - now
    }

    fn as_process(self: &Arc<Self>) -> ProcessLoad {
        let core = Arc::clone(self);
        ProcessLoad::new(1.0, move || {
            Duration::from_micros(core.used_micros.load(Ordering::Relaxed))
        })
    }
}

/// Hosts of one core each, and what starts and stops them.
struct Cluster {
    fleet: TestFleet,
    hosts: VecDeque<TestHost>,
    starting: VecDeque<Instant>,
    stopping: JoinSet<()>,
    started: u32,
    second: u64,
    put: u32,
    figures: Vec<usize>,
}

impl Cluster {
    fn new() -> Self {
        // Waits vary a little. With others each time, a bound that a run meets by seconds would now
        // and then be missed.
        fastrand::seed(1);
        let mut cluster = Self {
            fleet: TestFleet::new(SHARDS),
            hosts: VecDeque::new(),
            starting: VecDeque::new(),
            stopping: JoinSet::new(),
            started: 0,
            second: 0,
            put: 0,
            figures: Vec::new(),
        };
        cluster.start_host();
        cluster
    }

    fn start_host(&mut self) {
        let core = Core::new();
        self.fleet.scaling = Some(Scaling {
            policy: POLICY,
            process: core.as_process(),
            is_standalone: false,
        });
        self.started += 1;
        let plugin = NativePlugin::echo(1).unwatched();
        let plugin = plugin.taking_by(move |batch| core.call(batch.records.len()));
        let host = self
            .fleet
            .start(&format!("host-{:03}", self.started), plugin);
        self.hosts.push_back(host);
    }

    /// What the newest host says is wanted: it is never the leader, unless it is alone.
    fn wanted(&self) -> Option<usize> {
        let said = self.hosts.iter().rev().map(|host| {
            let status = host.status.snapshot();
            status.hosts_wanted.map(|status| status.wanted)
        });
        said.flatten().next()
    }

    fn lag_ms(&self) -> u64 {
        let of_host = |host: &TestHost| {
            let shards = host.status.snapshot().shards;
            let held = shards.into_values();
            let held = held.filter(|shard| shard.state == ShardState::Processing);
            held.filter_map(|shard| shard.lag_ms).max()
        };
        self.hosts.iter().filter_map(of_host).max().unwrap_or(0)
    }

    /// A second with so many records, in which the autoscaler wants what `wanted` says or, without
    /// it, what the hosts say.
    async fn second(&mut self, records: u32, wanted: Option<usize>) {
        self.second += 1;
        let now_ms = self.second * 1_000;
        self.fleet.stream.set_now_ms(now_ms);
        self.fleet.wall_ms.store(now_ms, Ordering::Relaxed);
        self.fleet.put(self.put..self.put + records);
        self.put += records;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let said = self.wanted();
        if let Some(figure) = said
            && self.figures.last() != Some(&figure)
        {
            assert!(figure <= SHARDS as usize, "never above the shards");
            self.figures.push(figure);
        }
        while self
            .starting
            .front()
            .is_some_and(|at| *at <= Instant::now())
        {
            self.starting.pop_front();
            self.start_host();
        }
        if wanted.is_some() || self.second.is_multiple_of(POLL_SECONDS) {
            self.scale(wanted.or(said).unwrap_or(1));
        }
    }

    fn scale(&mut self, wanted: usize) {
        while self.hosts.len() + self.starting.len() < wanted {
            self.starting.push_back(Instant::now() + START);
        }
        while self.hosts.len() + self.starting.len() > wanted && self.starting.pop_back().is_some()
        {
        }
        while self.hosts.len() > wanted {
            if let Some(host) = self.hosts.pop_back() {
                self.stopping.spawn(host.stop());
            }
        }
    }

    /// Five times the load for twelve minutes. Returns after how long nothing was behind any more,
    /// and the most hosts that were wanted.
    async fn rise(&mut self, wanted: Option<usize>) -> (u64, usize) {
        let began = self.second;
        let mut behind_until = began;
        for _ in 0..720 {
            self.second(5 * USUAL, wanted).await;
            if self.lag_ms() >= BEHIND_MS {
                behind_until = self.second;
            }
        }
        let most = self.figures.iter().copied().max().unwrap_or(1);
        (behind_until - began, most)
    }
}

#[tokio::test(start_paused = true)]
async fn a_fleet_follows_its_own_figure_through_five_times_the_load_and_back_and_repeats_nothing() {
    let mut cluster = Cluster::new();
    for _ in 0..300 {
        cluster.second(USUAL, None).await;
    }
    assert_eq!(cluster.figures, [1], "a third of a core");
    let (cleared_after, most) = cluster.rise(None).await;
    for _ in 0..900 {
        cluster.second(USUAL, None).await;
    }
    assert_eq!(cluster.hosts.len(), 1, "{:?}", cluster.figures);
    let turns = cluster.figures.windows(3);
    let turns = turns.filter(|three| (three[1] > three[0]) != (three[2] > three[1]));
    assert!(turns.count() <= 3, "{:?}", cluster.figures);
    let ideal = {
        let mut knowing = Cluster::new();
        for _ in 0..300 {
            knowing.second(USUAL, None).await;
        }
        knowing.rise(Some(most)).await.0
    };
    // The autoscaler may have asked just before the load rose.
    assert!(
        cleared_after <= 2 * ideal + POLL_SECONDS,
        "{cleared_after} s instead of {ideal} s: {:?}",
        cluster.figures
    );
    let (fleet, put) = (&cluster.fleet, cluster.put);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(fleet.has_exactly(0..put), "nothing lost, nothing repeated");
    println!(
        "cleared after {cleared_after} s, ideal {ideal} s, figures {:?}",
        cluster.figures
    );
}

#[tokio::test(start_paused = true)]
async fn without_the_setting_no_row_says_anything_of_a_load() {
    let fleet = TestFleet::new(2);
    let host = fleet.start("a", NativePlugin::echo(1));
    tokio::time::sleep(Duration::from_mins(1)).await;
    let rows = fleet.coordinator.rows();
    assert!(rows.workers.iter().all(|row| row.load.is_none()));
    let service = rows.leader.unwrap().service.unwrap();
    assert_eq!(service.hosts_wanted, None);
    let status = host.status.snapshot();
    assert!(status.hosts_wanted.is_none() && !status.is_scaled);
}

#[tokio::test(start_paused = true)]
async fn a_figure_costs_no_unit_beyond_those_that_are_spent_anyway() {
    let mut spent = Vec::new();
    for is_scaled in [false, true] {
        let mut fleet = TestFleet::new(4);
        fleet.scaling = is_scaled.then(|| Scaling {
            policy: POLICY,
            process: Core::new().as_process(),
            is_standalone: false,
        });
        let _host = fleet.start("a", NativePlugin::echo(1));
        tokio::time::sleep(Duration::from_mins(10)).await;
        let units = fleet.coordinator.meter.units();
        let rows = fleet.coordinator.rows();
        let is_measured = rows.workers.iter().all(|row| row.load.is_some());
        assert_eq!(is_measured, is_scaled);
        spent.push((units.written, units.read));
    }
    let (without, with) = (spent[0], spent[1]);
    // Hosts wait for times that vary a little.
    assert!((with.0 - without.0).abs() <= without.0 * 0.05, "{spent:?}");
    assert!((with.1 - without.1).abs() <= without.1 * 0.05, "{spent:?}");
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_goes_on_with_the_figure_of_the_one_that_died() {
    let mut cluster = Cluster::new();
    // Until what had piled up at first is worked off: the figure falls with it.
    for _ in 0..720 {
        cluster.second(5 * USUAL, None).await;
    }
    let before = cluster.wanted().unwrap();
    assert!(before >= 3, "{:?}", cluster.figures);
    let leader = cluster.fleet.coordinator.rows().leader.unwrap();
    let (leader, _) = leader.holder.unwrap();
    let first = cluster.hosts.pop_front().unwrap();
    assert_eq!(leader.as_str(), "host-001");
    drop(first);
    for _ in 0..60 {
        cluster.second(5 * USUAL, Some(before)).await;
    }
    let rows = cluster.fleet.coordinator.rows();
    let row = rows.leader.unwrap();
    assert_ne!(row.holder.unwrap().0, leader);
    let wanted = row.service.unwrap().hosts_wanted.unwrap().wanted;
    assert!(wanted >= before, "{wanted} after {before}");
    let leads = |host: &TestHost| {
        let status = host.status.snapshot().hosts_wanted;
        status.is_some_and(|status| status.leads)
    };
    assert_eq!(cluster.hosts.iter().filter(|host| leads(host)).count(), 1);
}
