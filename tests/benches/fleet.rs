//! What a fleet costs and how fast it settles, counted on the paused clock: the real worker on fakes that count calls.
//!
//! Prints a table; nothing here depends on the speed of the machine. `SHARDMILL_MINUTES` is how long a settled fleet is
//! counted, 60 unless set; `SHARDMILL_HOSTS` runs one size only.

#![allow(clippy::print_stdout, reason = "a benchmark prints")]

use std::time::Duration;

use harness::fake_coordinator::CoordinatorOp;
use harness::fake_lease_store::StoreOp;
use harness::fleet::{TestFleet, TestHost};
use harness::native::NativePlugin;
use tokio::time::Instant;

const SHARDS: u32 = 1_000;
/// KCL 2.x: a renewal every 3.308 s, and a scan of all leases every 20.05 s a worker.
const KCL_WRITES: f64 = 3_600.0 / 3.308;
const KCL_SCANS_A_WORKER: f64 = 3_600.0 / 20.05;

const STORE_OPS: [StoreOp; 9] = [
    StoreOp::List,
    StoreOp::Get,
    StoreOp::Create,
    StoreOp::Take,
    StoreOp::Claim,
    StoreOp::Delete,
    StoreOp::Renew,
    StoreOp::Checkpoint,
    StoreOp::Release,
];
const COORDINATOR_OPS: [CoordinatorOp; 9] = [
    CoordinatorOp::Fleet,
    CoordinatorOp::Worker,
    CoordinatorOp::Register,
    CoordinatorOp::Heartbeat,
    CoordinatorOp::RemoveWorker,
    CoordinatorOp::WriteLeader,
    CoordinatorOp::Announce,
    CoordinatorOp::Shards,
    CoordinatorOp::WriteShards,
];

/// Requests so far, and how many of them were scans of the lease table.
fn requests(fleet: &TestFleet) -> (usize, usize) {
    let store: usize = STORE_OPS.iter().map(|op| fleet.store.calls(*op)).sum();
    let coordinator: usize = COORDINATOR_OPS.iter().map(|op| fleet.coordinator.calls(*op)).sum();
    (store + coordinator, fleet.store.calls(StoreOp::List))
}

/// The most and the fewest leases that one of `hosts` hosts holds.
fn spread(fleet: &TestFleet, hosts: usize) -> (usize, usize) {
    let mut counts = vec![0; hosts];
    for row in fleet.store.rows() {
        let owner = row.owner.as_ref().and_then(|owner| owner.as_str().strip_prefix("host-")?.parse::<usize>().ok());
        if let Some(owner) = owner {
            counts[owner] += 1;
        }
    }
    (counts.iter().copied().max().unwrap_or(0), counts.iter().copied().min().unwrap_or(0))
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

async fn measure(hosts: usize, is_shared_with_kcl: bool) {
    let mut fleet = TestFleet::new(SHARDS);
    // Reads are not what is counted.
    fleet.options.reads.idle_every = Duration::from_secs(30);
    fleet.options.reads.idle_max = Duration::from_secs(30);
    fleet.options.leases.shared_with_kcl = is_shared_with_kcl;
    let start = |n: usize| fleet.start(&format!("host-{n}"), NativePlugin::no_op(1).unwatched());
    let mut running: Vec<TestHost> = vec![start(0)];
    while spread(&fleet, 1).0 < SHARDS as usize {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let joined_at = Instant::now();
    running.extend((1..hosts).map(start));
    let claims_before = fleet.store.calls(StoreOp::Claim);
    let (mut settled_after, mut rounds) = (Duration::ZERO, 0);
    let mut last_claims = claims_before;
    while joined_at.elapsed() < Duration::from_mins(10) {
        let (most, fewest) = spread(&fleet, hosts);
        if most - fewest <= 1 && most * hosts >= SHARDS as usize {
            settled_after = joined_at.elapsed();
            break;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        let claims = fleet.store.calls(StoreOp::Claim);
        rounds += usize::from(claims > last_claims);
        last_claims = claims;
    }
    tokio::time::sleep(Duration::from_mins(2)).await;
    let taken = fleet.store.calls(StoreOp::Take);
    let (before, scans_before) = requests(&fleet);
    let minutes = number("SHARDMILL_MINUTES").unwrap_or(60);
    tokio::time::sleep(Duration::from_mins(minutes)).await;
    let (after, scans_after) = requests(&fleet);
    let moved = fleet.store.calls(StoreOp::Take) - taken;
    let per_lease = (after - before) as f64 / f64::from(SHARDS) * 60.0 / minutes as f64;
    let kcl = KCL_WRITES + KCL_SCANS_A_WORKER * hosts as f64 / f64::from(SHARDS);
    println!(
        "{hosts:>5} | {:>6} | {:>9.1} | {rounds:>6} | {:>5} | {per_lease:>14.1} | {:>10} | {kcl:>8.1} | {:>5.3}",
        if is_shared_with_kcl { "kcl" } else { "own" },
        settled_after.as_secs_f64(),
        moved,
        (scans_after - scans_before) as u64 * 60 / minutes,
        per_lease / kcl,
    );
}

fn main() {
    println!("{SHARDS} idle shards; one host holds all, then the others join at once");
    println!("hosts | mode   | settled s | rounds | moved | req/lease-hour | scans/hour | KCL 2.x | ratio");
    let only = number("SHARDMILL_HOSTS").and_then(|hosts| usize::try_from(hosts).ok());
    let sizes = [(1, false), (4, false), (16, false), (64, false), (4, true)];
    for (hosts, is_shared_with_kcl) in sizes.into_iter().filter(|(hosts, _)| only.is_none_or(|only| *hosts == only)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        runtime.expect("a runtime").block_on(measure(hosts, is_shared_with_kcl));
    }
}
