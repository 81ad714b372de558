//! Guests run on threads of their own number: whatever they do, the host keeps some for itself, and
//! each plugin its share.

use std::time::Duration;

use shardmill_core::plugin::GuestLimits;
use shardmill_core::ports::RecordProcessor;
use shardmill_wasm::{Plugin, Runtime, RuntimeOptions};
use tokio::task::JoinSet;

use crate::support::{batch, instance, plugin};

/// As the binary has them, with fewer of each.
const CALLS: usize = 16;
const HOSTS_OWN: usize = 4;
/// Far longer than anything else here takes.
const SLEEP: Duration = Duration::from_mins(5);
/// Far longer than anything takes that does not wait for a sleeper.
const PATIENCE: Duration = Duration::from_mins(1);

async fn sleepers(plugin: &Plugin, count: usize) -> JoinSet<()> {
    let mut instances: Vec<Box<dyn RecordProcessor>> = Vec::new();
    for _ in 0..count {
        instances.push(instance(plugin, &[("misbehave", "sleep")]).await.unwrap());
    }
    let mut asleep = JoinSet::new();
    for mut instance in instances {
        asleep.spawn(async move { drop(instance.process(batch(1)).await) });
    }
    asleep
}

#[test]
fn a_plugin_whose_calls_all_sleep_leaves_threads_to_the_host_and_to_other_plugins() {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let tokio = builder
        .enable_all()
        .max_blocking_threads(CALLS + HOSTS_OWN)
        .build()
        .unwrap();
    tokio.block_on(async {
        let limits = GuestLimits {
            process_deadline: SLEEP,
            ..GuestLimits::default()
        };
        let options = RuntimeOptions {
            limits,
            calls_max: CALLS,
            ..RuntimeOptions::default()
        };
        let runtime = Runtime::new(options).unwrap();
        let (sleeping, other) = (
            plugin(&runtime, "evil").await,
            plugin(&runtime, "noop").await,
        );
        let mut asleep = sleepers(&sleeping, 3 * CALLS).await;
        // Once all of its threads sleep, it cannot even start an instance.
        let is_started = async || {
            tokio::time::timeout(Duration::from_secs(1), instance(&sleeping, &[]))
                .await
                .is_ok()
        };
        tokio::time::timeout(PATIENCE, async { while is_started().await {} })
            .await
            .expect("all of them sleep");
        let own = tokio::task::spawn_blocking(|| ());
        tokio::time::timeout(PATIENCE, own)
            .await
            .expect("the host has threads")
            .unwrap();
        let work = async {
            let mut works = instance(&other, &[]).await.unwrap();
            works.process(batch(1)).await.unwrap();
        };
        tokio::time::timeout(PATIENCE, work)
            .await
            .expect("another plugin has its share");
        assert!(asleep.try_join_next().is_none(), "all of them sleep still");
    });
    tokio.shutdown_background();
}
