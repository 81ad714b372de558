//! The optional exports of a real component.

use std::sync::Arc;

use bytes::Bytes;
use shardmill_core::plugin::{GuestLimits, ProcessorError};
use shardmill_core::ports::{ProcessorFactory, RecordProcessor};
use shardmill_core::stream::Batch;

use crate::support::{context, plugin, record, runtime};

const UA: &str = r#"{"carrier":"UA","dep_delay":3}"#;

fn flights(count: usize) -> Batch {
    let records = (0..count).map(|number| record(number, UA)).collect();
    Batch {
        records: Arc::new(records),
        attempt: 1,
        millis_behind_latest: 0,
        trace: None,
    }
}

fn saved(flights: u64) -> Bytes {
    let minutes = flights * 3;
    format!(r#"{{"UA":{{"flights":{flights},"with_delay":{flights},"delay_minutes":{minutes}}}}}"#)
        .into()
}

async fn totals(
    limits: GuestLimits,
    state: Option<Bytes>,
) -> Result<Box<dyn RecordProcessor>, ProcessorError> {
    let totals = plugin(&runtime(limits), "totals").await;
    assert!(totals.saves_state());
    totals.instantiate(context(&[]), state).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_goes_on_where_the_saved_state_of_another_ends() {
    let mut first = totals(GuestLimits::default(), None).await.unwrap();
    first.process(flights(2)).await.unwrap();
    assert_eq!(first.save().await.unwrap(), saved(2));
    first.process(flights(5)).await.unwrap();
    let state = first.save().await.unwrap();
    assert_eq!(state, saved(7));
    let mut second = totals(GuestLimits::default(), Some(state)).await.unwrap();
    second.process(flights(1)).await.unwrap();
    assert_eq!(second.save().await.unwrap(), saved(8));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_that_the_component_cannot_read_is_refused_with_its_words() {
    let error = totals(GuestLimits::default(), Some(Bytes::from_static(b"\xff")))
        .await
        .err()
        .unwrap();
    assert!(matches!(error, ProcessorError::State { .. }), "{error}");
    let message = error.to_string();
    assert!(
        message.contains("this version refuses it")
            && message.contains("this state is not of totals"),
        "{message}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_above_the_limit_is_not_taken_and_the_instance_lives() {
    let limits = GuestLimits {
        state_bytes: saved(9).len(),
        ..GuestLimits::default()
    };
    let mut totals = totals(limits, None).await.unwrap();
    totals.process(flights(9)).await.unwrap();
    assert_eq!(
        totals.save().await.unwrap(),
        saved(9),
        "the limit is inclusive"
    );
    totals.process(flights(1)).await.unwrap();
    let error = totals.save().await.unwrap_err();
    let message = error.to_string();
    assert!(
        message.contains("more than the limit of") && message.contains("limits.state"),
        "{message}"
    );
    totals.process(flights(1)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_component_without_the_exports_keeps_no_state() {
    let echo = plugin(&runtime(GuestLimits::default()), "echo").await;
    assert!(!echo.saves_state());
    let mut echo = echo.instantiate(context(&[]), None).await.unwrap();
    assert!(matches!(
        echo.save().await,
        Err(ProcessorError::State { .. })
    ));
    assert!(echo.process(flights(1)).await.is_ok());
}
