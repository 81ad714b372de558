//! Leases whose rows name a host that does not serve them: its heart holds them, so that nobody
//! else may take them, and in a large fleet it looks at all rows once in minutes or hours. It looks
//! at theirs at once.

use std::time::Duration;

use harness::fake_coordinator::CoordinatorOp;
use harness::fake_lease_store::StoreOp;
use harness::faults::Fault;
use harness::fleet::{TestHost, until};
use harness::native::NativePlugin;
use shardmill_worker::ShardState;
use tokio::time::Instant;

use crate::many::Many;

/// Where most hosts heed, and look for themselves after about two minutes.
const HOSTS: usize = 64;
const SHARDS: u32 = 1_024;

impl Many {
    /// Shards that a pipeline of a running host serves.
    fn served(&self) -> usize {
        let processing = |(_, host): &(String, TestHost)| {
            let shards = host.status.snapshot().shards;
            shards
                .values()
                .filter(|shard| shard.state == ShardState::Processing)
                .count()
        };
        self.hosts.iter().map(processing).sum()
    }

    async fn all_served(&self) -> Duration {
        let since = Instant::now();
        until("all are served", || self.served() == self.shards).await;
        since.elapsed()
    }
}

#[tokio::test(start_paused = true)]
async fn leases_whose_takes_got_no_answer_are_served_as_soon_as_the_table_answers() {
    let mut many = Many::settled(HOSTS, SHARDS).await;
    let victim = many.heeding();
    many.fleet
        .store
        .faults
        .draw_from(|op| (op == StoreOp::Take).then_some(Fault::UnknownApplied));
    drop(many.remove(&victim));
    until("all are taken", || {
        many.counts().iter().sum::<usize>() == many.shards
    })
    .await;
    many.fleet.store.faults.clear();
    assert!(many.served() < many.shards);
    let took = many.all_served().await;
    assert!(took < Duration::from_secs(3), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_host_of_a_large_fleet_that_starts_again_under_its_name_serves_its_leases_at_once() {
    let mut many = Many::settled(HOSTS, SHARDS).await;
    let victim = many.heeding();
    drop(many.remove(&victim));
    let again = many
        .fleet
        .start(&victim, NativePlugin::no_op(1).unwatched());
    many.hosts.push((victim, again));
    let took = many.all_served().await;
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn after_an_outage_of_both_tables_all_leases_are_served_within_a_lease_duration() {
    let many = Many::settled(HOSTS, SHARDS).await;
    let lease = many.fleet.options.leases.duration;
    many.fleet
        .coordinator
        .faults
        .draw_from(|_: CoordinatorOp| Some(Fault::Throttle));
    many.fleet
        .store
        .faults
        .draw_from(|_: StoreOp| Some(Fault::Throttle));
    until("all are lost", || many.served() == 0).await;
    tokio::time::sleep(lease * 6).await;
    many.fleet.coordinator.faults.clear();
    many.fleet.store.faults.clear();
    let took = many.all_served().await;
    assert!(took < lease + Duration::from_secs(5), "{took:?}");
}
