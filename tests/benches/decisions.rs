//! The planner on large fleets.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use shardmill_core::lease::{Availability, Checkpoint, Lease, WorkerId};
use shardmill_core::plan::{
    Balance, FleetView, GoneShards, ObservedLease, ObservedWorker, PlanLimits, ShardList, plan,
};
use shardmill_core::stream::{HashKeyRange, InitialPosition, Shard, ShardId};

const LIMITS: PlanLimits = PlanLimits {
    initial_position: InitialPosition::TrimHorizon,
    max_leases: usize::MAX,
    balance: Balance::Count,
    shared_with_kcl: false,
    overdue_after: Duration::from_secs(30),
    finished_rows_stay: Duration::from_secs(20),
};

fn shards(count: usize) -> Vec<Shard> {
    let id = |n| ShardId::new(format!("shardId-{n:012}")).expect("valid");
    (0..count)
        .map(|n| Shard {
            id: id(n),
            parents: Vec::new(),
            hash_range: HashKeyRange::FULL,
            ending_sequence: None,
        })
        .collect()
}

fn worker(n: usize) -> WorkerId {
    WorkerId::new(&format!("worker-{n}")).expect("not empty")
}

fn workers(count: usize) -> Vec<ObservedWorker> {
    let registered = |id| ObservedWorker {
        id,
        is_alive: true,
        is_draining: false,
        max_leases: usize::MAX,
    };
    (0..count).map(|n| registered(worker(n))).collect()
}

/// Leases held by `owner_of`; `None` is free.
fn leases(shards: &[Shard], owner_of: impl Fn(usize) -> Option<usize>) -> Vec<ObservedLease> {
    let observe = |(n, shard): (usize, &Shard)| {
        let mut lease = Lease::fresh(shard, Checkpoint::TrimHorizon);
        lease.owner = owner_of(n).map(worker);
        ObservedLease {
            availability: if lease.owner.is_some() {
                Availability::Held
            } else {
                Availability::Free
            },
            lease,
            idle_for: Duration::ZERO,
            is_mine: false,
            is_claim_fresh: false,
            has_owner_left: false,
            is_owner_new: false,
            finished_for: Duration::ZERO,
            is_avoided: false,
        }
    };
    shards.iter().enumerate().map(observe).collect()
}

fn passes(c: &mut Criterion) {
    let mut group = c.benchmark_group("plan");
    for (lease_count, worker_count) in [(256, 4), (1_000, 64), (10_000, 500)] {
        let size = format!("{lease_count} leases, {worker_count} workers");
        let shards = shards(lease_count);
        let workers = workers(worker_count);
        let me = worker(0);
        let mut bench = |name: &str, leases: &[ObservedLease], is_leader: bool| {
            let gone = GoneShards::default();
            group.bench_function(BenchmarkId::new(name, &size), |b| {
                b.iter(|| {
                    let list = ShardList {
                        shards: &shards,
                        gone: &gone,
                        before_start: None,
                    };
                    let view = FleetView {
                        me: &me,
                        leases,
                        workers: &workers,
                        shards: is_leader.then_some(list),
                        is_bootstrapped: true,
                    };
                    black_box(plan(&view, &LIMITS))
                });
            });
        };
        bench("even", &leases(&shards, |n| Some(n % worker_count)), false);
        bench(
            "half free",
            &leases(&shards, |n| (n % 2 == 0).then_some(n % worker_count)),
            false,
        );
        // Half of the fleet has just joined and holds nothing.
        bench(
            "half the hosts are new",
            &leases(&shards, |n| Some(worker_count / 2 + n % (worker_count / 2))),
            false,
        );
        bench(
            "even, and leading",
            &leases(&shards, |n| Some(n % worker_count)),
            true,
        );
    }
    group.finish();
}

criterion_group!(benches, passes);
criterion_main!(benches);
