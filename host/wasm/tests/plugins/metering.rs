//! Metered by fuel, a run is the same each time: what is counted, what is stopped, and what a guest
//! sees of the world.

use crate::support::{batch, instance, plugin, tight_limits};
use shardmill_core::plugin::{GuestLimits, InstanceFate, ProcessorError};
use shardmill_wasm::{Metering, Runtime, RuntimeOptions};

const FUEL: u64 = 50_000_000;
const BY_FUEL: Metering = Metering::Fuel {
    per_call: FUEL,
    wall_ms: Metering::NO_REAL_TIME_MS,
};

fn runtime(metering: Metering) -> Runtime {
    Runtime::new(RuntimeOptions {
        metering,
        limits: GuestLimits::default(),
        ..RuntimeOptions::default()
    })
    .unwrap()
}

/// What `evil` answers to a batch when it misbehaves so, and the fuel that its calls took, on an
/// engine of its own.
async fn run(how: &str, metering: Metering) -> (Result<(), ProcessorError>, u64) {
    let runtime = runtime(metering);
    let plugin = plugin(&runtime, "evil").await;
    let mut evil = instance(&plugin, &[("misbehave", how)]).await.unwrap();
    let result = evil.process(batch(10)).await.map(drop);
    (result, runtime.fuel_used())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_takes_more_fuel_than_it_may_is_stopped_and_the_instance_is_dead() {
    let (result, used) = run("loop", BY_FUEL).await;
    let error = result.unwrap_err();
    assert_eq!(
        error,
        ProcessorError::LimitExceeded {
            what: "fuel in one call",
            limit: FUEL
        }
    );
    assert_eq!((error.fate(), used), (InstanceFate::Dead, FUEL));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_call_takes_the_same_fuel_and_sees_the_same_time_and_chance_in_each_run() {
    let first = run("time-and-chance", BY_FUEL).await;
    let second = run("time-and-chance", BY_FUEL).await;
    assert_eq!(first, second);
    let told = first.0.unwrap_err().to_string();
    assert!(told.contains("946684800"), "time starts in 2000: {told}");
    assert!((1..FUEL).contains(&first.1), "{}", first.1);
}

#[tokio::test(flavor = "multi_thread")]
async fn time_starts_where_it_is_set_to_start() {
    let at_failure = Metering::Fuel {
        per_call: FUEL,
        wall_ms: 1_700_000_000_000,
    };
    let told = run("time-and-chance", at_failure).await.0.unwrap_err();
    assert!(told.to_string().contains("1700000000"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_fuel_nothing_is_counted_and_chance_is_chance() {
    let first = run("time-and-chance", Metering::Deadline).await;
    let second = run("time-and-chance", Metering::Deadline).await;
    assert_ne!(first.0, second.0);
    assert_eq!((first.1, second.1), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_that_waits_in_the_host_is_stopped_by_its_deadline_though_it_is_metered_by_fuel() {
    let metering = BY_FUEL;
    let options = RuntimeOptions {
        metering,
        limits: tight_limits(),
        ..RuntimeOptions::default()
    };
    let plugin = plugin(&Runtime::new(options).unwrap(), "evil").await;
    let mut evil = instance(&plugin, &[("misbehave", "sleep")]).await.unwrap();
    let error = evil.process(batch(1)).await.unwrap_err();
    assert!(
        matches!(
            error,
            ProcessorError::DeadlineExceeded {
                call: "process",
                ..
            }
        ),
        "{error}"
    );
}
