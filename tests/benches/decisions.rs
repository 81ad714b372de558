//! The planner on large fleets.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use shardmill_core::lease::{Checkpoint, Lease, Standing, WorkerId};
use shardmill_core::plan::{FleetView, ObservedLease, Phase, PlanLimits, plan};
use shardmill_core::stream::{HashKeyRange, InitialPosition, Shard, ShardId};

fn shards(count: usize) -> Vec<Shard> {
    let id = |n| ShardId::new(format!("shardId-{n:012}")).expect("valid");
    (0..count)
        .map(|n| Shard { id: id(n), parents: Vec::new(), hash_range: HashKeyRange::FULL, ending_sequence: None })
        .collect()
}

fn passes(c: &mut Criterion) {
    let me = WorkerId::new("me").expect("not empty");
    let other = WorkerId::new("other");
    let limits = PlanLimits { initial_position: InitialPosition::TrimHorizon, max_leases: usize::MAX };
    let mut group = c.benchmark_group("plan");
    for count in [16, 256, 4096] {
        let shards = shards(count);
        let observed = |(n, shard): (usize, &Shard)| {
            let mut lease = Lease::fresh(shard, Checkpoint::TrimHorizon);
            let is_held = n % 2 == 0;
            lease.owner = other.clone().filter(|_| is_held);
            let standing = if is_held { Standing::Held } else { Standing::Free };
            ObservedLease { lease, standing, is_mine: false }
        };
        let leases: Vec<_> = shards.iter().enumerate().map(observed).collect();
        group.bench_with_input(BenchmarkId::new("half held by another", count), &leases, |b, leases| {
            b.iter(|| {
                let view = FleetView { me: &me, leases, shards: Some(&shards), phase: Phase::Steady };
                black_box(plan(&view, &limits))
            });
        });
        group.bench_with_input(BenchmarkId::new("empty table", count), &shards, |b, shards| {
            b.iter(|| {
                let view = FleetView { me: &me, leases: &[], shards: Some(shards), phase: Phase::Start };
                black_box(plan(&view, &limits))
            });
        });
    }
    group.finish();
}

criterion_group!(benches, passes);
criterion_main!(benches);
