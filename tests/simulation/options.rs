//! The settings of the hosts of a run: the product's own, with batches small enough that much
//! happens.

use std::time::Duration;

use shardmill_core::backoff::Backoff;
use shardmill_core::lease::WorkerId;
use shardmill_core::pipeline::{CheckpointPolicy, FailurePolicy, Parallelism, TickInterval};
use shardmill_core::plan::Balance;
use shardmill_core::plugin::PluginName;
use shardmill_core::rollout::RolloutPolicy;
use shardmill_core::stream::{InitialPosition, StreamName};
use shardmill_worker::{BatchLimits, LeaseOptions, ReadLimits, Retrieval, WorkerOptions};

/// The application, and so the lease table.
pub const APPLICATION: &str = "simulated";
/// The fan-out consumer, if there is one.
pub const CONSUMER: &str = "simulated";
/// The stream.
pub const STREAM: &str = "stream";

/// What a seed says about every host of its run.
pub fn draw(dice: &mut fastrand::Rng, later: &mut fastrand::Rng) -> WorkerOptions {
    let duration = Duration::from_secs(dice.u64(5..=12));
    WorkerOptions {
        plugin: PluginName::new("plugin").expect("valid"),
        application: APPLICATION.to_owned(),
        stream: StreamName::new(STREAM).expect("valid"),
        worker: WorkerId::new("unnamed").expect("valid"),
        initial_position: InitialPosition::TrimHorizon,
        leases: LeaseOptions {
            duration,
            renew_every: duration / 3,
            scan_every: Duration::from_millis(dice.u64(800..2_500)),
            shard_sync_every: Duration::from_secs(dice.u64(5..60)),
            balance: if later.u32(0..8) == 0 {
                Balance::Throughput
            } else {
                Balance::Count
            },
            shared_with_kcl: later.u32(0..8) == 0,
            ..LeaseOptions::default()
        },
        reads: ReadLimits {
            records_per_call: dice.u32(1..=200),
            idle_every: Duration::from_millis(dice.u64(800..2_500)),
            idle_max: Duration::from_secs(3),
            ..ReadLimits::default()
        },
        retrieval: Retrieval::Polling,
        filter: None,
        parallelism: Parallelism::ONE,
        batches: BatchLimits {
            records: dice.usize(1..=40),
            bytes: 4 << 20,
            window: if dice.bool() {
                Duration::ZERO
            } else {
                Duration::from_millis(dice.u64(1..2_000))
            },
        },
        checkpoints: CheckpointPolicy {
            records: dice.u64(1..100),
            bytes: 1 << 20,
            age: Duration::from_millis(dice.u64(100..5_000)),
        },
        backoff: Backoff::standard(),
        failure: FailurePolicy::default(),
        destinations: vec!["out".to_owned()],
        config: Vec::new(),
        limits: None,
        keeps_state: false,
        tick: TickInterval::default(),
        permissions: std::sync::Arc::default(),
        // Writes that nothing depends on would only move the dice.
        records_own_deeds: false,
        rollout: RolloutPolicy::off(),
    }
}
