//! Enhanced fan-out against replies that no emulator gives.

use shardmill_core::ports::{ConsumerState, SubscribeError, Subscriptions};
use shardmill_core::stream::{
    ConsumerArn, ConsumerName, FanOutConsumer, ReadFrom, SequenceNumber, ShardId, StreamName,
};

use crate::KinesisFanOut;
use crate::transport_double::TransportDouble;

const ARN: &str = "arn:aws:kinesis:us-east-1:000000000000:stream/orders/consumer/billing:1";
const STREAM: (u16, &str) = (
    200,
    r#"{"StreamDescriptionSummary":{"StreamName":"orders","StreamARN":"arn:aws:kinesis:us-east-1:000000000000:stream/orders",
        "StreamStatus":"ACTIVE","RetentionPeriodHours":24,"StreamCreationTimestamp":1,"EnhancedMonitoring":[],
        "OpenShardCount":1}}"#,
);
const NOT_FOUND: (u16, &str) = (
    400,
    r#"{"__type":"ResourceNotFoundException","message":"not there"}"#,
);
const IN_USE: (u16, &str) = (
    400,
    r#"{"__type":"ResourceInUseException","message":"in use"}"#,
);
const LIMIT: (u16, &str) = (
    400,
    r#"{"__type":"LimitExceededException","message":"no more"}"#,
);

fn fan_out(transport: &TransportDouble) -> KinesisFanOut {
    KinesisFanOut::new(transport.kinesis(), StreamName::new("orders").unwrap())
        .on_shared_connections()
}

fn consumer(member: &str, status: &str) -> String {
    format!(
        r#"{{"{member}":{{"ConsumerName":"billing","ConsumerARN":"{ARN}","ConsumerStatus":"{status}",
            "ConsumerCreationTimestamp":1,"StreamARN":"s"}}}}"#
    )
}

fn named() -> FanOutConsumer {
    FanOutConsumer::Named(ConsumerName::new("billing").unwrap())
}

fn arn() -> ConsumerArn {
    ConsumerArn::new(ARN).unwrap()
}

#[tokio::test]
async fn a_named_consumer_is_registered_only_if_it_is_not_there() {
    let there = TransportDouble::new([STREAM, (200, &consumer("ConsumerDescription", "ACTIVE"))]);
    assert_eq!(
        fan_out(&there).ensure_consumer(&named()).await,
        Ok(ConsumerState::Active(arn()))
    );
    let missing =
        TransportDouble::new([STREAM, NOT_FOUND, (200, &consumer("Consumer", "CREATING"))]);
    assert_eq!(
        fan_out(&missing).ensure_consumer(&named()).await,
        Ok(ConsumerState::Creating)
    );
    assert!(
        missing.requests()[2].contains(r#""ConsumerName":"billing""#),
        "{:?}",
        missing.requests()
    );
    // An error that does not say that it is missing registers nothing.
    let unknown = TransportDouble::new([STREAM, (500, r#"{"__type":"InternalFailureException"}"#)]);
    assert!(matches!(
        fan_out(&unknown).ensure_consumer(&named()).await,
        Err(SubscribeError::Unavailable { .. })
    ));
    assert_eq!(unknown.requests().len(), 2);
}

#[tokio::test]
async fn of_hosts_that_register_at_once_one_does_and_the_others_wait() {
    let transport = TransportDouble::new([STREAM, NOT_FOUND, IN_USE]);
    assert_eq!(
        fan_out(&transport).ensure_consumer(&named()).await,
        Ok(ConsumerState::Creating)
    );
}

#[tokio::test]
async fn a_stream_with_all_the_consumers_it_may_have_says_what_to_do() {
    let transport = TransportDouble::new([STREAM, NOT_FOUND, LIMIT]);
    let error = fan_out(&transport)
        .ensure_consumer(&named())
        .await
        .unwrap_err();
    assert!(matches!(error, SubscribeError::ConsumerLimit { .. }));
    assert!(
        error.to_string().contains("no more") && error.to_string().contains("20 for each stream"),
        "{error}"
    );
}

#[tokio::test]
async fn a_given_consumer_is_looked_for_and_never_registered() {
    let transport = TransportDouble::new([NOT_FOUND]);
    let error = fan_out(&transport)
        .ensure_consumer(&FanOutConsumer::Given(arn()))
        .await
        .unwrap_err();
    assert!(
        matches!(error, SubscribeError::ConsumerNotFound { .. }),
        "{error}"
    );
    assert_eq!(transport.requests().len(), 1);
}

#[tokio::test]
async fn a_subscription_that_finds_something_missing_tells_a_consumer_from_a_shard() {
    let shard = ShardId::new("shardId-000000000000").unwrap();
    let from = ReadFrom::AtSequenceNumber(SequenceNumber::parse("42").unwrap());
    let active = consumer("ConsumerDescription", "ACTIVE");
    let deleting = consumer("ConsumerDescription", "DELETING");
    for (transport, is_consumer) in [
        (TransportDouble::new([NOT_FOUND, NOT_FOUND]), true),
        (TransportDouble::new([NOT_FOUND, (200, &deleting)]), true),
        (TransportDouble::new([NOT_FOUND, (200, &active)]), false),
        (TransportDouble::new([NOT_FOUND]), false),
    ] {
        let Err(error) = fan_out(&transport).subscribe(&arn(), &shard, &from).await else {
            panic!("a subscription")
        };
        assert_eq!(
            matches!(error, SubscribeError::ConsumerNotFound { .. }),
            is_consumer,
            "{error}"
        );
        assert_eq!(
            matches!(error, SubscribeError::NotFound { .. }),
            !is_consumer,
            "{error}"
        );
        let request = &transport.requests()[0];
        assert!(
            request.contains("AT_SEQUENCE_NUMBER") && request.contains("42"),
            "{request}"
        );
    }
}

#[tokio::test]
async fn a_subscription_refused_for_another_ones_sake_is_told_from_a_throttled_one() {
    let shard = ShardId::new("shardId-000000000000").unwrap();
    let subscribe = async |reply| {
        let transport = TransportDouble::new([reply]);
        fan_out(&transport)
            .subscribe(&arn(), &shard, &ReadFrom::Latest)
            .await
            .err()
            .unwrap()
    };
    assert!(matches!(
        subscribe(IN_USE).await,
        SubscribeError::InUse { .. }
    ));
    assert!(matches!(
        subscribe(LIMIT).await,
        SubscribeError::Throttled { .. }
    ));
}
