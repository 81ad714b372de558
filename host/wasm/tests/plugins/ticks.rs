//! The optional export `ticker` of a real component.

use std::sync::Arc;

use shardmill_core::plugin::{InstanceFate, Lack, ProcessorError};
use shardmill_core::ports::{
    HeldBack, InstanceContext, ProcessorFactory, RecordProcessor, StartPosition, TickTime, Ticked,
};
use shardmill_core::stream::{Position, SequenceNumber};

use shardmill_wasm::LoadError;

use crate::support::corpus::contract::{self, place};
use crate::support::{batch, context, instance, name, plugin, runtime, tight_limits};

const TIME: TickTime = TickTime {
    now_ms: 1_000,
    delivered_until_ms: Some(900),
};

async fn ticking(what: &str) -> Box<dyn RecordProcessor> {
    let ticking = plugin(&runtime(tight_limits()), "ticking").await;
    assert!(ticking.ticks());
    instance(&ticking, &[("tick", what)]).await.unwrap()
}

async fn tick(what: &str) -> Result<Ticked, ProcessorError> {
    ticking(what).await.tick(TIME).await
}

fn lines(ticked: &Ticked) -> Vec<String> {
    let pieces = ticked.emitted.iter();
    let lines = pieces.map(|piece| String::from_utf8(piece.data.to_vec()).unwrap());
    lines.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tick_is_told_the_time_and_may_emit_and_commit() {
    let mut emitting = ticking("emit").await;
    let first = emitting.tick(TIME).await.unwrap();
    assert_eq!(lines(&first), ["1000 Some(900)"]);
    assert_eq!(first.held_back, HeldBack::Keep);
    emitting.process(batch(2)).await.unwrap();
    let unknown = TickTime {
        now_ms: u64::MAX,
        delivered_until_ms: None,
    };
    let second = emitting.tick(unknown).await.unwrap();
    assert_eq!(lines(&second), ["18446744073709551615 None"]);
    let committed = tick("commit").await.unwrap();
    assert_eq!(committed.held_back, HeldBack::Commit);
    assert_eq!(committed.emitted, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tick_that_fails_emits_nothing_and_says_whether_the_instance_lives() {
    for (what, fate, word) in [
        ("error", InstanceFate::Usable, "1000"),
        ("panic", InstanceFate::Dead, "trapped"),
        ("loop", InstanceFate::Dead, "did not return from tick"),
    ] {
        let mut failing = ticking(what).await;
        let error = failing.tick(TIME).await.unwrap_err();
        assert_eq!(error.fate(), fate, "{error}");
        assert!(error.to_string().contains(word), "{error}");
        assert_eq!(
            failing.process(batch(1)).await.is_ok(),
            fate == InstanceFate::Usable
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tick_that_emits_to_no_sink_is_a_mistake_of_the_configuration() {
    let error = tick("unknown").await.unwrap_err();
    assert_eq!(error.lack(), Some(Lack::Configuration), "{error}");
    assert!(error.to_string().contains("nowhere"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_component_without_the_export_takes_no_ticks() {
    let echo = plugin(&runtime(tight_limits()), "echo").await;
    assert!(!echo.ticks());
    let mut echo = instance(&echo, &[]).await.unwrap();
    assert!(echo.tick(TIME).await.is_err());
    assert!(echo.process(batch(1)).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_is_told_where_its_records_begin() {
    let ticking = plugin(&runtime(tight_limits()), "ticking").await;
    let number = || SequenceNumber::parse("42").unwrap();
    let after = StartPosition::After(Position {
        sequence: number(),
        sub_sequence: 3,
    });
    for (start, told) in [
        (StartPosition::Oldest, "StartPosition::Oldest"),
        (StartPosition::Time(7), "StartPosition::Time(7)"),
        (StartPosition::At(number()), "StartPosition::At(\"42\")"),
        (
            after,
            "StartPosition::After(Place { sequence-number: \"42\", sub-sequence-number: 3 })",
        ),
    ] {
        let context = InstanceContext {
            start,
            ..InstanceContext::clone(&context(&[("tick", "start")]))
        };
        let instance = ticking.instantiate(Arc::new(context), None).await;
        let ticked = instance.unwrap().tick(TIME).await.unwrap();
        assert_eq!(lines(&ticked), [told]);
    }
}

#[tokio::test]
async fn a_ticker_of_another_type_is_refused_at_load() {
    let field = "(func (export \"tick\") (param i64) (result i32) (i32.const 1024))";
    let export = r#"
      (func $tick (param "now-ms" u64) (result (result bool (error $error)))
        (canon lift (core func $i "tick") (memory $memory) (realloc (core func $realloc))
          (post-return (core func $i "post"))))
      (instance $ticker (export "tick" (func $tick)))
      (export "shardmill:processor/ticker@0.1.0" (instance $ticker))"#;
    let bytes = contract::with(&[(place::FIELDS, field), (place::EXPORTS, export)]);
    let loaded = runtime(tight_limits())
        .load(name("plugin"), bytes.into())
        .await;
    let error = loaded.unwrap_err();
    assert!(matches!(error, LoadError::Mismatch { .. }), "{error}");
    assert!(error.to_string().contains("function tick"), "{error}");
}
