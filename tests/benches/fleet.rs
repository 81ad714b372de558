//! What a fleet costs in DynamoDB units and how fast it settles, counted on the paused clock: the
//! real worker on fakes that count units by the size of the real items, beside what a KCL 2.x of
//! that size costs by its own rules.
//!
//! Prints a table; nothing here but the times of a pass depends on the speed of the machine.
//! `SHARDMILL_MINUTES` is how long a settled fleet is counted, 5 unless set; `SHARDMILL_HOSTS` runs
//! one size only, `SHARDMILL_SHARDS` another number of shards. With `SHARDMILL_AT_ONCE=1` all hosts
//! start at once on empty tables, and only that is measured.

#![allow(clippy::print_stdout, reason = "a benchmark prints")]

use std::fmt;
use std::time::Duration;

use harness::fake_lease_store::StoreOp;
use harness::fleet::{TestFleet, TestHost};
use harness::native::NativePlugin;
use harness::units::{Hottest, Units};
use shardmill_aws::dynamodb::row_size;
use shardmill_core::lease::{Checkpoint, Lease, LeaseCounter, WorkerId};
use shardmill_core::stream::{HashKeyRange, Position, SequenceNumber, Shard, ShardId};
use tokio::time::Instant;

/// KCL 2.x: each lease is renewed every 3.308 s, and each worker scans all leases every 20.05 s.
const KCL_RENEWS_EVERY: f64 = 3.308;
const KCL_SCANS_EVERY: f64 = 20.05;
const HOUR: f64 = 3_600.0;
/// Hosts that join at once, in fleets large enough.
const JOINING: usize = 100;

/// What happened while hosts joined.
struct Joined {
    settled_after: Duration,
    rounds: usize,
    hottest: Hottest,
    leases: Hottest,
    spent: Units,
}

impl fmt::Display for Joined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "even after {:.0} s, {} rounds, {:.0} units; hottest partition key {:.0} RRU/s, {:.0} \
                WRU/s; scans {:.0} RRU/s",
            self.settled_after.as_secs_f64(),
            self.rounds,
            self.spent.sum(),
            self.hottest.read.0.max(self.leases.read.0),
            self.hottest.written.0.max(self.leases.written.0),
            self.leases.scanned,
        )
    }
}

struct Bench {
    fleet: TestFleet,
    running: Vec<TestHost>,
    shards: usize,
}

impl Bench {
    fn new(shards: u32) -> Self {
        let mut fleet = TestFleet::new(shards);
        // Reads of the stream are not what is counted.
        fleet.options.reads.idle_every = Duration::from_mins(1);
        fleet.options.reads.idle_max = Duration::from_mins(1);
        Self {
            fleet,
            running: Vec::new(),
            shards: shards as usize,
        }
    }

    fn units(&self) -> Units {
        self.fleet.store.meter.units() + self.fleet.coordinator.meter.units()
    }

    /// The most and the fewest leases that one host holds.
    fn spread(&self) -> (usize, usize, usize) {
        let mut counts = vec![0; self.running.len()];
        for row in self.fleet.store.rows() {
            let owner = row
                .owner
                .as_ref()
                .and_then(|owner| owner.as_str().strip_prefix("host-")?.parse::<usize>().ok());
            if let Some(owner) = owner {
                counts[owner] += 1;
            }
        }
        let sum = counts.iter().sum();
        (
            counts.iter().copied().max().unwrap_or(0),
            counts.iter().copied().min().unwrap_or(0),
            sum,
        )
    }

    fn is_even(&self) -> bool {
        let (most, fewest, sum) = self.spread();
        most - fewest <= 1 && sum == self.shards
    }

    /// Starts hosts until there are `hosts`, and waits until all hold equal shares.
    async fn join(&mut self, hosts: usize) -> Joined {
        let (units, since) = (self.units(), Instant::now());
        let _ = (
            self.fleet.coordinator.meter.take_hottest(),
            self.fleet.store.meter.take_hottest(),
        );
        for n in self.running.len()..hosts {
            self.running.push(
                self.fleet
                    .start(&format!("host-{n}"), NativePlugin::no_op(1).unwatched()),
            );
        }
        let (mut rounds, mut claims) = (0, self.fleet.store.calls(StoreOp::Claim));
        while !self.is_even() && since.elapsed() < Duration::from_mins(20) {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let now = self.fleet.store.calls(StoreOp::Claim);
            rounds += usize::from(now > claims);
            claims = now;
        }
        Joined {
            settled_after: since.elapsed(),
            rounds,
            hottest: self.fleet.coordinator.meter.take_hottest(),
            leases: self.fleet.store.meter.take_hottest(),
            spent: self.units() - units,
        }
    }
}

fn number(variable: &str) -> Option<u32> {
    std::env::var(variable).ok()?.parse().ok()
}

/// What a KCL 2.x spends in an hour: renewals and scans. Its rows have the attributes that it
/// writes itself.
fn kcl(hosts: usize, leases: usize) -> Units {
    let shard = Shard {
        id: ShardId::new("shardId-000000000001").expect("valid"),
        parents: Vec::new(),
        hash_range: HashKeyRange::FULL,
        ending_sequence: None,
    };
    let sequence = SequenceNumber::parse(&"4".repeat(56)).expect("digits");
    let row = Lease {
        owner: WorkerId::new("ip-10-0-0-1.ec2.internal:6f0a9b0e-4f7b-4d57-9d0e-1f2a3b4c5d6e"),
        counter: LeaseCounter(1_000_000),
        ..Lease::fresh(&shard, Checkpoint::At(Position::plain(sequence)))
    };
    let bytes = row_size::lease_row(&row);
    let scan = (bytes * leases).div_ceil(4_096) as f64 / 2.0;
    Units {
        read: hosts as f64 * HOUR / KCL_SCANS_EVERY * scan,
        written: leases as f64 * HOUR / KCL_RENEWS_EVERY * bytes.div_ceil(1_024) as f64,
    }
}

async fn measure(hosts: usize, shards: u32) {
    let mut bench = Bench::new(shards);
    bench.join(hosts.min(3)).await;
    tokio::time::sleep(Duration::from_secs(15)).await;
    let joining = if hosts > 2 * JOINING {
        JOINING
    } else {
        hosts.saturating_sub(3)
    };
    if hosts - joining > 3 {
        bench.join(hosts - joining).await;
        tokio::time::sleep(Duration::from_mins(1)).await;
    }
    let joined = bench.join(hosts).await;
    tokio::time::sleep(Duration::from_mins(2)).await;
    let taken = bench.fleet.store.calls(StoreOp::Take);
    let _ = (
        bench.fleet.coordinator.meter.take_hottest(),
        bench.fleet.store.meter.take_hottest(),
    );
    let (before, started) = (bench.units(), std::time::Instant::now());
    let minutes = number("SHARDMILL_MINUTES").unwrap_or(5);
    tokio::time::sleep(Duration::from_mins(u64::from(minutes))).await;
    let spent = bench.units() - before;
    let an_hour = 60.0 / f64::from(minutes);
    let ours = Units {
        read: spent.read * an_hour,
        written: spent.written * an_hour,
    };
    let theirs = kcl(hosts, bench.shards);
    let steady = bench.fleet.coordinator.meter.take_hottest();
    println!(
        "{hosts:>5} | {:>9.0} | {:>8.0} | {:>5.2} | {:>10.0} | {:>10.0} | {:>6.2} | {:>5.1} | \
            {:>5.1} | {:>5.0} | {:>5.0} | {:>5.0}",
        ours.read,
        ours.written,
        ours.dollars(),
        theirs.read,
        theirs.written,
        theirs.dollars(),
        theirs.sum() / ours.sum(),
        theirs.dollars() / ours.dollars(),
        steady.read.0,
        steady.written.0,
        bench.fleet.store.meter.take_hottest().scanned,
    );
    println!(
        "      {joining} joined at once: {joined}; moved since: {}; {:.1} s of this machine for \
            {minutes} minutes",
        bench.fleet.store.calls(StoreOp::Take) - taken,
        started.elapsed().as_secs_f64(),
    );
}

/// A fleet that is started for the first time, all of it at once.
async fn measure_first_start(hosts: usize, shards: u32) {
    let mut bench = Bench::new(shards);
    let started = std::time::Instant::now();
    let joined = bench.join(hosts).await;
    println!(
        "{hosts:>5} hosts started at once on empty tables: {joined}; {} takes; {:.1} s of this machine",
        bench.fleet.store.calls(StoreOp::Take),
        started.elapsed().as_secs_f64(),
    );
}

fn main() {
    let shards = number("SHARDMILL_SHARDS").unwrap_or(10_000);
    println!(
        "{shards} idle shards, settled, an hour; KCL 2.x by its own rules; the hottest partition \
            key and the scans, a second"
    );
    println!(
        "hosts |       RRU |      WRU |     $ |    KCL RRU |    KCL WRU |  KCL $ | units | \
            dollars | RRU/s | WRU/s | scans"
    );
    let only = number("SHARDMILL_HOSTS").and_then(|hosts| usize::try_from(hosts).ok());
    let is_first_start = number("SHARDMILL_AT_ONCE").is_some();
    for hosts in [1, 16, 64, 256, 1_000]
        .into_iter()
        .filter(|hosts| only.is_none_or(|only| *hosts == only))
    {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build();
        let runtime = runtime.expect("a runtime");
        if is_first_start {
            runtime.block_on(measure_first_start(hosts, shards));
        } else {
            runtime.block_on(measure(hosts, shards));
        }
    }
}
