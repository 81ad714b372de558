//! The memory that all instances share: who is denied some is told whose it was, and gives all
//! back.

use std::time::Duration;

use shardmill_core::plugin::{GuestLimits, InstanceFate, ProcessorError};
use shardmill_core::ports::CloseReason;
use shardmill_wasm::{LoadError, Plugin, Runtime, RuntimeOptions};

use crate::support::corpus::counts;
use crate::support::{ask, batch, batch_of, guest, instance, name, plugin};

const BUDGET: usize = 12 << 20;

fn runtime() -> Runtime {
    let limits = GuestLimits::default();
    let options = RuntimeOptions {
        limits,
        instances_memory_bytes: BUDGET,
        ..RuntimeOptions::default()
    };
    Runtime::new(options).unwrap()
}

fn is_dead_for_want_of_memory(error: &ProcessorError) -> bool {
    *error
        == ProcessorError::HostMemory {
            limit: BUDGET as u64,
        }
        && error.fate() == InstanceFate::Dead
        && error.is_hosts()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_within_its_own_limit_is_told_that_the_hosts_memory_is_spent() {
    let plugin = plugin(&runtime(), "evil").await;
    let mut greedy = instance(&plugin, &[("misbehave", "memory")]).await.unwrap();
    let error = greedy.process(batch(1)).await.unwrap_err();
    assert!(is_dead_for_want_of_memory(&error), "{error}");
    drop(greedy);
    // All of it is back: the next one has as much.
    assert!(instance(&plugin, &[]).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn records_are_not_blamed_for_memory_that_the_host_did_not_have() {
    let plugin = plugin(&runtime(), "evil").await;
    let config = [("misbehave", "hoard-politely")];
    let (mut first, mut second) = (
        instance(&plugin, &config).await.unwrap(),
        instance(&plugin, &config).await.unwrap(),
    );
    assert!(first.process(batch(1)).await.is_ok());
    let error = second.process(batch(1)).await.unwrap_err();
    assert!(
        is_dead_for_want_of_memory(&error),
        "its rejections count for nothing: {error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_instance_makes_room_for_one_that_waits() {
    let plugin = plugin(&runtime(), "evil").await;
    let config = [("misbehave", "hoard-politely")];
    let (mut idle, mut second) = (
        instance(&plugin, &config).await.unwrap(),
        instance(&plugin, &config).await.unwrap(),
    );
    assert!(idle.process(batch(1)).await.is_ok());
    assert!(!idle.gives_room(), "nobody waits");
    assert!(second.process(batch(1)).await.is_err());
    drop(second);
    // The next instance for the shard asks for what the last one lacked, before it starts.
    let again = instance(&plugin, &config);
    let give = async {
        idle.asked_for_room().await;
        assert!(idle.gives_room());
        idle.close(CloseReason::Reload).await.unwrap();
    };
    let (again, ()) = tokio::join!(again, give);
    assert!(again.unwrap().process(batch(1)).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_engine_keeps_of_an_instance_outside_of_its_memories_is_taken_of_the_budget_and_comes_back()
 {
    let plugin = runtime()
        .load(name("heavy"), counts::of_7_mib().into())
        .await
        .unwrap();
    let mut first = instance(&plugin, &[]).await.unwrap();
    first.process(batch(1)).await.unwrap();
    let denied = instance(&plugin, &[])
        .await
        .err()
        .expect("two of them do not fit");
    assert!(is_dead_for_want_of_memory(&denied), "{denied}");
    drop(first);
    assert!(instance(&plugin, &[]).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_call_emits_is_taken_of_the_budget_until_the_next_call() {
    let runtime = runtime();
    let (echo, flood) = (
        plugin(&runtime, "echo").await,
        plugin(&runtime, "evil").await,
    );
    let mut echo = instance(&echo, &[]).await.unwrap();
    let half_a_mebibyte = batch_of(&["x".repeat(1 << 19)]);
    for _ in 0..2 * (BUDGET >> 19) {
        assert_eq!(
            echo.process(half_a_mebibyte.clone())
                .await
                .unwrap()
                .emitted
                .len(),
            1
        );
    }
    drop(echo);
    let mut flood = instance(&flood, &[("misbehave", "many-emits")])
        .await
        .unwrap();
    let error = flood.process(batch(1)).await.unwrap_err();
    // Two plugins share the budget: the limit that is told is what one of them may have.
    assert!(
        matches!(error, ProcessorError::HostMemory { .. }) && error.is_hosts(),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_instance_emits_when_it_is_closed_is_taken_of_the_budget_until_it_is_stored() {
    let plugin = plugin(&runtime(), "evil").await;
    let last = instance(&plugin, &[("misbehave", "emit-in-close")]);
    let last = last.await.unwrap().close(CloseReason::Shutdown).await;
    let last = last.unwrap();
    assert_eq!((last.emitted.len(), last.charges.len()), (12, 1));
    let hoarding = async || {
        let mut other = instance(&plugin, &[("misbehave", "hoard-politely")]).await?;
        other.process(batch(1)).await
    };
    // 6 MiB are half of the budget.
    let error = hoarding().await.unwrap_err();
    assert!(is_dead_for_want_of_memory(&error), "{error}");
    drop(last);
    assert!(hoarding().await.is_ok());
}

/// What fills a handle, and with how many bytes.
const KEPT: [(&str, usize); 14] = [
    ("methods", 64),
    ("schemes", 64),
    ("authorities", 1 << 10),
    ("paths", 16_000),
    ("lists", 7_000),
    ("set", 7_000),
    ("appended", 7_000),
    ("copies", 7_000),
    ("headers", 0),
    ("trailers", 7_000),
    ("answers", 0),
    ("options", 0),
    ("futures", 0),
    ("timers", 0),
];

#[tokio::test(flavor = "multi_thread")]
async fn what_the_host_keeps_behind_handles_is_taken_of_the_budget_and_comes_back() {
    // A handle each is more than the budget, even of those that keep nothing.
    let limits = GuestLimits {
        handles: 16 << 10,
        // Thousands of handles take seconds on a busy machine.
        process_deadline: Duration::from_mins(2),
        ..GuestLimits::default()
    };
    let budget = 6 << 20;
    let options = RuntimeOptions {
        limits,
        instances_memory_bytes: budget,
        ..RuntimeOptions::default()
    };
    let plugin = plugin(&Runtime::new(options).unwrap(), "asking").await;
    for (what, bytes) in KEPT {
        let mut hostile = instance(&plugin, &[]).await.unwrap();
        let error = ask(&mut *hostile, &format!("keep {what} {bytes}"))
            .await
            .expect_err(what);
        assert_eq!(
            error,
            ProcessorError::HostMemory {
                limit: budget as u64
            },
            "{what}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_request_is_made_of_has_a_length_that_requests_have() {
    let plugin = plugin(&runtime(), "asking").await;
    for (what, bytes) in [
        ("methods", 65),
        ("methods", 1 << 20),
        ("schemes", 65),
        ("authorities", (1 << 10) + 1),
        ("authorities", 1 << 20),
        ("paths", 16 << 10),
        ("paths", 1 << 20),
    ] {
        let mut client = instance(&plugin, &[]).await.unwrap();
        let answer = ask(&mut *client, &format!("keep {what} {bytes}"))
            .await
            .unwrap();
        assert_eq!(answer, "refused after 0", "{what} of {bytes} bytes");
    }
}

/// A version of the plugin `name` on a host whose versions may take that much code.
async fn load(runtime: &Runtime, plugin: &str) -> Result<Plugin, LoadError> {
    runtime.load(name(plugin), guest("evil").into()).await
}

fn with_code_memory(code_memory_bytes: usize) -> Runtime {
    let options = RuntimeOptions {
        code_memory_bytes,
        ..RuntimeOptions::default()
    };
    Runtime::new(options).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn code_of_versions_is_held_to_one_sum_and_comes_back_with_the_version() {
    let refused = load(&with_code_memory(1), "one").await.err().unwrap();
    let LoadError::CodeMemory { needed, .. } = refused else {
        panic!("{refused}");
    };
    assert!(refused.is_hosts(), "the bytes are tried again");
    assert!(
        refused.to_string().contains("host.code-memory"),
        "{refused}"
    );
    let runtime = with_code_memory(2 * needed);
    let one = load(&runtime, "one").await.unwrap();
    let _two = load(&runtime, "two").await.unwrap();
    let refused = load(&runtime, "three").await.err().unwrap();
    assert!(matches!(refused, LoadError::CodeMemory { .. }), "{refused}");
    drop(one);
    load(&runtime, "three").await.unwrap();
}
