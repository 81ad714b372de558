//! What a well-behaved plugin gets and gives.

use crate::support::{batch, context, guest, instance, name, plugin, record, runtime};
use shardmill_core::plugin::{GuestLimits, InstanceFate, Lack, ProcessorError};
use shardmill_core::ports::{CloseReason, FailureKind, Outcome, ProcessorFactory};

#[tokio::test(flavor = "multi_thread")]
async fn every_record_arrives_whole_and_in_order() {
    let runtime = runtime(GuestLimits::default());
    let mut echo = instance(&plugin(&runtime, "echo").await, &[])
        .await
        .unwrap();
    let mut batch = batch(3);
    std::sync::Arc::make_mut(&mut batch.records).push(record(3, vec![0_u8, 255, 10, 13]));
    std::sync::Arc::make_mut(&mut batch.records).push(record(4, Vec::new()));

    let processed = echo.process(batch.clone()).await.unwrap();
    assert_eq!(processed.outcome, Outcome::default());
    assert_eq!(processed.emitted.len(), 5);
    for (emitted, record) in processed.emitted.iter().zip(batch.records.iter()) {
        assert_eq!(emitted.data, record.data);
        assert_eq!(
            emitted.key,
            format!("shardId-000000000000/{}/0", record.position.sequence)
        );
        assert_eq!(emitted.destination, "stdout");
    }
    let last = echo.close(CloseReason::ShardEnded).await.unwrap();
    assert_eq!(
        last.emitted.len(),
        1,
        "what is emitted in close comes back too"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ten_mebibyte_record_and_a_batch_of_ten_thousand_pass() {
    let runtime = runtime(GuestLimits::default());
    let plugin = plugin(&runtime, "echo").await;
    let mut echo = instance(&plugin, &[]).await.unwrap();
    let big = shardmill_core::stream::Batch {
        records: std::sync::Arc::new(vec![record(1, vec![7_u8; 10 << 20])]),
        attempt: 1,
        millis_behind_latest: 0,
        trace: None,
    };
    assert_eq!(
        echo.process(big).await.unwrap().emitted[0].data.len(),
        10 << 20
    );
    assert_eq!(
        echo.process(batch(10_000)).await.unwrap().emitted.len(),
        10_000
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_keeps_the_instance_and_drops_what_it_emitted() {
    let runtime = runtime(GuestLimits::default());
    let plugin = plugin(&runtime, "evil").await;
    let mut evil = instance(&plugin, &[("misbehave", "fail-times"), ("times", "2")])
        .await
        .unwrap();
    for left in [1, 0] {
        let error = evil.process(batch(1)).await.unwrap_err();
        let message = format!("unavailable: {left} more failures to come");
        assert_eq!(
            error,
            ProcessorError::NotReady {
                lack: Lack::Service,
                message
            }
        );
    }
    assert!(evil.process(batch(1)).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destination_that_does_not_exist_is_named_and_never_a_records_fault_whatever_the_plugin_makes_of_it()
 {
    let runtime = runtime(GuestLimits::default());
    let plugin = plugin(&runtime, "evil").await;
    for (misbehave, name, fate) in [
        ("emit-nowhere", "nowhere", InstanceFate::Usable),
        ("emit-nowhere-and-panic", "alerts", InstanceFate::Dead),
    ] {
        let mut evil = instance(&plugin, &[("misbehave", misbehave)])
            .await
            .unwrap();
        let error = evil.process(batch(2)).await.unwrap_err();
        assert_eq!(
            (error.lack(), error.fate()),
            (Some(Lack::Configuration), fate),
            "{error}"
        );
        let told = format!("emitted to \"{name}\", which is not one of its destinations (stdout)");
        assert!(error.to_string().contains(&told), "{error}");
    }
    for (misbehave, kind) in [
        ("emit-nowhere-and-retry", FailureKind::Misconfigured),
        ("emit-nowhere-and-reject", FailureKind::Reject),
    ] {
        let mut evil = instance(&plugin, &[("misbehave", misbehave)])
            .await
            .unwrap();
        let failure = evil
            .process(batch(2))
            .await
            .unwrap()
            .outcome
            .failures
            .remove(0);
        assert_eq!(
            failure.kind, kind,
            "only the plugin's own word gives a record up"
        );
        assert_eq!(
            failure.message.contains("emitted to \"alerts\""),
            kind == FailureKind::Misconfigured
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_can_ask_which_destinations_there_are() {
    let runtime = runtime(GuestLimits::default());
    let mut evil = instance(
        &plugin(&runtime, "evil").await,
        &[("misbehave", "ask-destinations")],
    )
    .await
    .unwrap();
    let error = evil.process(batch(1)).await.unwrap_err();
    assert_eq!(
        error,
        ProcessorError::Reported {
            message: "stdout".to_owned()
        }
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_example_filters_real_input_and_rejects_what_it_cannot_read() {
    let runtime = runtime(GuestLimits::default());
    let earthquakes = runtime
        .load(name("earthquakes"), guest("earthquakes").into())
        .await
        .unwrap();
    let mut earthquakes = earthquakes
        .instantiate(context(&[("min-magnitude", "5")]), None)
        .await
        .unwrap();
    let sample = include_str!("../../../../examples/earthquakes/sample.ndjson");
    let mut records: Vec<_> = sample
        .lines()
        .enumerate()
        .map(|(n, line)| record(n, line))
        .collect();
    records.push(record(records.len(), "not json"));
    let batch = shardmill_core::stream::Batch {
        records: std::sync::Arc::new(records),
        attempt: 1,
        millis_behind_latest: 0,
        trace: None,
    };
    let processed = earthquakes.process(batch.clone()).await.unwrap();
    assert!(!processed.emitted.is_empty());
    assert!(processed.emitted.len() < 20, "only the strong ones");
    assert_eq!(processed.outcome.failures.len(), 1);
    assert_eq!(
        processed.outcome.failures[0].index as usize,
        batch.records.len() - 1
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn configuration_that_makes_no_sense_is_refused_at_init() {
    let runtime = runtime(GuestLimits::default());
    let earthquakes = runtime
        .load(name("earthquakes"), guest("earthquakes").into())
        .await
        .unwrap();
    let error = earthquakes
        .instantiate(context(&[("min-magnitude", "strong")]), None)
        .await
        .err()
        .unwrap();
    assert!(
        matches!(&error, ProcessorError::NotReady { lack: Lack::Configuration, message } if message.starts_with("misconfigured:")),
        "{error}"
    );
}
