//! Hostile plugins: each is stopped within its limit, by the error that names the limit, while a well-behaved instance
//! goes on.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{CONTRACT_IN_TEXT, DEADLINE, batch, context, instance, name, plugin, runtime, tight_limits};
use shardmill_core::plugin::{GuestLimits, InstanceFate, ProcessorError};
use shardmill_core::ports::{CloseReason, InstanceContext, Processed, ProcessorFactory};
use shardmill_wasm::Plugin;

/// Runs one misbehaviour, and meanwhile a well-behaved instance of the same version; both share the runtime, so a
/// hostile guest that held anything shared would show.
async fn misbehave(how: &str, limits: GuestLimits) -> Result<Processed, ProcessorError> {
    let runtime = runtime(limits);
    let plugin = plugin(&runtime, "evil").await;
    let mut evil = instance(&plugin, &[("misbehave", how)]).await?;
    let attack = evil.process(batch(2));
    let result = while_others_work(&plugin, attack).await;
    if result.as_ref().is_err_and(|error| error.fate() == InstanceFate::Dead) {
        let again = evil.process(batch(1)).await;
        assert!(matches!(again, Err(ProcessorError::Host { .. })), "a dead instance is never entered again");
    }
    assert!(instance(&plugin, &[]).await.is_ok(), "a new instance can be made");
    result
}

async fn while_others_work<T>(plugin: &Plugin, attack: impl Future<Output = T>) -> T {
    let mut good = instance(plugin, &[]).await.unwrap();
    let mut batches = 0_u32;
    let mut attack = std::pin::pin!(attack);
    let result = loop {
        tokio::select! {
            biased;
            processed = good.process(batch(10)) => { processed.unwrap(); batches += 1; }
            result = &mut attack, if batches > 0 => break result,
        }
    };
    assert!(batches > 0);
    result
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endless_loop_in_process_is_stopped_at_the_deadline() {
    let error = misbehave("loop", tight_limits()).await.unwrap_err();
    assert_eq!(error, ProcessorError::DeadlineExceeded { call: "process", limit: DEADLINE });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_that_sleeps_inside_the_host_is_stopped_at_the_deadline() {
    let error = misbehave("sleep", tight_limits()).await.unwrap_err();
    assert_eq!(error, ProcessorError::DeadlineExceeded { call: "process", limit: DEADLINE });
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endless_loop_in_init_is_stopped_at_the_deadline() {
    let runtime = runtime(tight_limits());
    let plugin = plugin(&runtime, "evil").await;
    let config = [("misbehave", "loop-in-init")];
    let attack = instance(&plugin, &config);
    let error = while_others_work(&plugin, attack).await.err().unwrap();
    assert_eq!(error, ProcessorError::DeadlineExceeded { call: "init", limit: DEADLINE });
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endless_loop_in_close_is_stopped_at_the_deadline() {
    let runtime = runtime(tight_limits());
    let plugin = plugin(&runtime, "evil").await;
    let evil = instance(&plugin, &[("misbehave", "loop-in-close")]).await.unwrap();
    let error = while_others_work(&plugin, evil.close(CloseReason::Shutdown)).await.unwrap_err();
    assert_eq!(error, ProcessorError::DeadlineExceeded { call: "close", limit: DEADLINE });
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endless_loop_at_instantiation_is_stopped_at_the_deadline() {
    let runtime = runtime(tight_limits());
    let loops = runtime.load(name("loops-at-start"), crate::support::looping_at_start().into()).await.unwrap();
    let good = plugin(&runtime, "evil").await;
    let attack = loops.instantiate(context(&[]), None);
    let error = while_others_work(&good, attack).await.err().unwrap();
    assert_eq!(error, ProcessorError::DeadlineExceeded { call: "init", limit: DEADLINE });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_memory_bomb_is_stopped_at_the_memory_limit() {
    let limits = GuestLimits { memory_bytes: 32 << 20, process_deadline: Duration::from_mins(1), ..tight_limits() };
    let error = misbehave("memory", limits).await.unwrap_err();
    assert_eq!(error, ProcessorError::LimitExceeded { what: "memory bytes", limit: 32 << 20 });
}

#[tokio::test(flavor = "multi_thread")]
async fn deep_recursion_is_stopped() {
    let error = misbehave("recursion", patient()).await.unwrap_err();
    // Rust guests keep their stack in linear memory, before its start: they run out of bounds before the host's stack.
    assert!(matches!(error, ProcessorError::Trapped { .. } | ProcessorError::LimitExceeded { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_big_from_the_start_is_refused_by_its_limit() {
    let (memories, tables) = ("(memory 0)".repeat(8), "(table 0 funcref)".repeat(33));
    let cases = [
        ("(func $start (call $start)) (start $start)", "stack bytes", 512 << 10),
        ("(memory 600) (memory 600)", "memory bytes", 64 << 20),
        ("(table 60000 funcref) (table 60000 funcref)", "table elements", 100_000),
        (&memories, "memories", 8),
        (&tables, "tables", 32),
    ];
    let runtime = runtime(patient());
    let good = plugin(&runtime, "evil").await;
    for (fields, what, limit) in cases {
        let bomb = runtime.load(name("bomb"), crate::support::starting_with(fields).into()).await.unwrap();
        let attack = bomb.instantiate(context(&[]), None);
        let error = while_others_work(&good, attack).await.err().unwrap();
        assert_eq!(error, ProcessorError::LimitExceeded { what, limit });
    }
}

/// A component that fits the contract, with these fields behind the instance of its module.
fn followed_by(fields: &str) -> Vec<u8> {
    const INSTANCE: &str = "(core instance $i (instantiate $m))";
    wat::parse_str(CONTRACT_IN_TEXT.replace(INSTANCE, &format!("{INSTANCE} {fields}"))).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_taken_from_the_host_in_numbers_is_refused_by_its_limit() {
    let instances = format!("(core module $empty) {}", "(core instance (instantiate $empty))".repeat(64));
    let handles = r#"
      (import "wasi:io/error@0.2.0" (instance $errors (export "error" (type (sub resource)))))
      (alias export $errors "error" (type $error-resource))
      (import "wasi:io/streams@0.2.0" (instance $streams
        (alias outer 1 $error-resource (type $e)) (export "error" (type (eq $e)))
        (export "output-stream" (type (sub resource)))))
      (alias export $streams "output-stream" (type $stream))
      (import "wasi:cli/stdout@0.2.0" (instance $stdout
        (alias outer 1 $stream (type $s)) (export "output-stream" (type $o (eq $s)))
        (export "get-stdout" (func (result (own $o))))))
      (alias export $stdout "get-stdout" (func $get))
      (core func $lowered (canon lower (func $get)))
      (core module $hoard (import "h" "get" (func $get (result i32)))
        (func $start (loop (drop (call $get)) (br 0))) (start $start))
      (core instance (instantiate $hoard (with "h" (instance (export "get" (func $lowered))))))"#;
    let random = r#"
      (import "wasi:random/random@0.2.0" (instance $random
        (export "get-random-bytes" (func (param "len" u64) (result (list u8))))))
      (alias export $random "get-random-bytes" (func $get))
      (core func $lowered (canon lower (func $get) (memory (core memory $i "memory")) (realloc (core func $i "realloc"))))
      (core module $ask (import "h" "get" (func $get (param i64 i32)))
        (func $start (call $get (i64.const 65537) (i32.const 0))) (start $start))
      (core instance (instantiate $ask (with "h" (instance (export "get" (func $lowered))))))"#;
    let cases = [
        (instances.as_str(), "core instances", 64),
        (handles, "handles", 1_024),
        (random, "random bytes in one call", 64 << 10),
    ];
    let runtime = runtime(patient());
    let good = plugin(&runtime, "evil").await;
    for (fields, what, limit) in cases {
        let greedy = runtime.load(name("greedy"), followed_by(fields).into()).await.unwrap();
        let error = while_others_work(&good, greedy.instantiate(context(&[]), None)).await.err().unwrap();
        assert_eq!(error, ProcessorError::LimitExceeded { what, limit });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_is_told_with_its_message() {
    let error = misbehave("trap", patient()).await.unwrap_err();
    let ProcessorError::Trapped { message } = error else { panic!("{error}") };
    assert!(message.contains("process panics as asked"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trap_in_init_makes_no_instance() {
    let runtime = runtime(patient());
    let plugin = plugin(&runtime, "evil").await;
    let error = instance(&plugin, &[("misbehave", "trap-in-init")]).await.err().unwrap();
    assert!(matches!(error, ProcessorError::Trapped { .. }), "{error}");
    let error = instance(&plugin, &[("misbehave", "error-in-init")]).await.err().unwrap();
    assert!(matches!(error, ProcessorError::Reported { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_giant_emit_is_stopped_at_the_limit_on_one_call() {
    let error = misbehave("giant-emit", patient()).await.unwrap_err();
    let what = "bytes passed to the host in one call";
    assert_eq!(error, ProcessorError::LimitExceeded { what, limit: 16 << 20 });
}

#[tokio::test(flavor = "multi_thread")]
async fn emitting_more_than_a_batch_may_is_an_error_of_the_call_and_the_guest_lives() {
    let error = misbehave("many-emits", patient()).await.unwrap_err();
    assert!(matches!(&error, ProcessorError::Reported { message } if message.contains("too much")), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn emitting_more_pieces_than_a_batch_may_is_an_error_of_the_call_too() {
    let error = misbehave("many-pieces", patient()).await.unwrap_err();
    assert!(matches!(&error, ProcessorError::Reported { message } if message.contains("100000 pieces")), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn emitting_to_an_unknown_destination_names_the_known_ones() {
    let error = misbehave("emit-nowhere", patient()).await.unwrap_err();
    assert!(matches!(&error, ProcessorError::Reported { message } if message.contains("known: stdout")), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn giant_results_are_stopped_or_cut() {
    // What an exported call returns is held to the same limit as what a guest passes to the host.
    let error = misbehave("many-failures", patient()).await.unwrap_err();
    let what = "bytes passed to the host in one call";
    assert_eq!(error, ProcessorError::LimitExceeded { what, limit: 16 << 20 });
    let processed = misbehave("giant-message", patient()).await.unwrap();
    assert!(processed.outcome.failures[0].message.len() <= 1_030);
}

#[tokio::test(flavor = "multi_thread")]
async fn outcomes_that_make_no_sense_are_refused() {
    for how in ["bad-index", "unsorted", "commit-beyond"] {
        let error = misbehave(how, patient()).await.unwrap_err();
        assert!(matches!(error, ProcessorError::InvalidOutcome { .. }), "{how}: {error}");
        assert_eq!(error.fate(), InstanceFate::Usable);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_metric_flood_harms_nobody() {
    misbehave("metric-flood", patient()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_world_behind_wasi_is_empty() {
    let error = misbehave("probe-world", patient()).await.unwrap_err();
    let message = "env=0 args=0 file=false folder=false written=false denied=true bound=false name=false".to_owned();
    assert_eq!(error, ProcessorError::Reported { message });
}

/// For guests that are not stopped by time.
fn patient() -> GuestLimits {
    let long = Duration::from_mins(2);
    GuestLimits { process_deadline: long, init_deadline: long, ..GuestLimits::default() }
}

#[tokio::test]
async fn an_instance_has_the_limits_of_its_context() {
    let plugin = plugin(&runtime(GuestLimits::default()), "evil").await;
    let context = |limits| {
        let general = context(&[]);
        Arc::new(InstanceContext { limits, ..InstanceContext::clone(&general) })
    };
    assert!(plugin.instantiate(context(None), None).await.is_ok());
    let tight = GuestLimits { memory_bytes: 1 << 16, ..GuestLimits::default() };
    let refused = plugin.instantiate(context(Some(tight)), None).await.err().expect("it does not fit");
    assert!(refused.to_string().contains("memory"), "{refused}");
}
