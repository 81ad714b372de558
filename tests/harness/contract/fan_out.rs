//! The promises of enhanced fan-out: what a reader that subscribes rests on.

use std::sync::Arc;
use std::time::Duration;

use shardmill_core::ports::{
    ConsumerState, ShardEvent, SubscribeError, Subscription, Subscriptions,
};
use shardmill_core::stream::{
    ConsumerArn, ConsumerName, FanOutConsumer, ReadFrom, Record, SequenceNumber, ShardId,
};

use super::stream::StreamControl;

/// A stream with enhanced fan-out.
pub struct FanOutStream {
    /// The stream of two shards.
    pub stream: Arc<dyn StreamControl>,
    /// Fan-out on it.
    pub fan_out: Box<dyn Subscriptions>,
}

/// Far beyond what an event may take.
const EVENT_MAX: Duration = Duration::from_secs(30);
/// Events to wait for; most have no records.
const EVENTS_MAX: usize = 200;
/// AWS limit, and a little.
const TAKES_OVER_AFTER: Duration = Duration::from_millis(5_200);

fn name() -> ConsumerName {
    ConsumerName::new("billing").expect("a valid name")
}

/// Waits until the consumer is active.
async fn consumer(subject: &FanOutStream) -> ConsumerArn {
    let wanted = FanOutConsumer::Named(name());
    for _ in 0..EVENTS_MAX {
        if let ConsumerState::Active(arn) = subject
            .fan_out
            .ensure_consumer(&wanted)
            .await
            .expect("an answer")
        {
            return arn;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the consumer never became active");
}

async fn subscribe(
    subject: &FanOutStream,
    consumer: &ConsumerArn,
    shard: &ShardId,
    from: ReadFrom,
) -> Box<dyn Subscription> {
    subject
        .fan_out
        .subscribe(consumer, shard, &from)
        .await
        .expect("a subscription")
}

async fn next(
    subscription: &mut Box<dyn Subscription>,
) -> Result<Option<ShardEvent>, SubscribeError> {
    tokio::time::timeout(EVENT_MAX, subscription.next())
        .await
        .expect("an event in time")
}

/// Reads until `count` records are there, or the shard has ended; gives the last event without its
/// records.
async fn read(subscription: &mut Box<dyn Subscription>, count: usize) -> (Vec<Record>, ShardEvent) {
    let mut records = Vec::new();
    for _ in 0..EVENTS_MAX {
        let mut event = next(subscription)
            .await
            .expect("no error")
            .expect("an event");
        records.append(&mut event.records);
        if records.len() >= count || event.next.is_none() {
            return (records, event);
        }
    }
    panic!(
        "{} of {count} records after {EVENTS_MAX} events",
        records.len()
    );
}

fn data(records: &[Record]) -> Vec<String> {
    records
        .iter()
        .map(|record| String::from_utf8_lossy(&record.data).into_owned())
        .collect()
}

/// Any number of hosts may ask.
pub async fn a_consumer_is_made_once_and_found_again(subject: &FanOutStream) {
    let first = consumer(subject).await;
    assert_eq!(consumer(subject).await, first);
    assert_eq!(
        first
            .as_str()
            .split("/consumer/")
            .nth(1)
            .and_then(|rest| rest.split(':').next()),
        Some("billing")
    );
    let given = FanOutConsumer::Given(first.clone());
    assert_eq!(
        subject.fan_out.ensure_consumer(&given).await,
        Ok(ConsumerState::Active(first))
    );
}

/// It is somebody else's.
pub async fn a_given_consumer_that_is_not_there_is_not_made(subject: &FanOutStream) {
    let there = consumer(subject).await;
    let gone = ConsumerArn::new(&there.as_str().replace("billing", "gone")).expect("a valid ARN");
    let error = subject
        .fan_out
        .ensure_consumer(&FanOutConsumer::Given(gone))
        .await
        .expect_err("no such consumer");
    assert!(
        matches!(error, SubscribeError::ConsumerNotFound { .. }),
        "{error}"
    );
}

/// And what is subscribed with it ends.
pub async fn a_consumer_that_is_removed_cannot_be_subscribed_with(subject: &FanOutStream) {
    let consumer = consumer(subject).await;
    let (shard, _) = subject.stream.put(0, "key", "a").await;
    let mut subscription = subscribe(subject, &consumer, &shard, ReadFrom::TrimHorizon).await;
    read(&mut subscription, 1).await;
    subject
        .fan_out
        .remove_consumer(&name())
        .await
        .expect("removed");
    let broken = loop {
        match next(&mut subscription).await {
            Ok(Some(_)) => {}
            other => break other,
        }
    };
    assert!(
        matches!(
            broken,
            Err(SubscribeError::NotFound { .. } | SubscribeError::ConsumerNotFound { .. })
        ),
        "{broken:?}"
    );
    let Err(error) = subject
        .fan_out
        .subscribe(&consumer, &shard, &ReadFrom::TrimHorizon)
        .await
    else {
        panic!("subscribed with a consumer that was removed");
    };
    assert!(
        matches!(error, SubscribeError::ConsumerNotFound { .. }),
        "{error}"
    );
}

/// What was put before the subscription, and after it.
pub async fn records_are_pushed_in_order_with_all_they_were_put_with(subject: &FanOutStream) {
    let consumer = consumer(subject).await;
    let mut put = Vec::new();
    for data in ["first", "", "third \u{1f980}"] {
        put.push((subject.stream.put(0, "the key", data).await, data));
    }
    let shard = put[0].0.0.clone();
    let mut subscription = subscribe(subject, &consumer, &shard, ReadFrom::TrimHorizon).await;
    let (mut records, _) = read(&mut subscription, 3).await;
    for data in ["fourth", "fifth"] {
        put.push((subject.stream.put(0, "the key", data).await, data));
    }
    let (more, last) = read(&mut subscription, 2).await;
    records.extend(more);
    assert_eq!(records.len(), put.len());
    for (record, ((_, sequence), data)) in records.iter().zip(&put) {
        assert_eq!(
            (&record.data[..], &record.position.sequence),
            (data.as_bytes(), sequence)
        );
        assert_eq!(
            (record.partition_key.as_str(), record.position.sub_sequence),
            ("the key", 0)
        );
        assert!(record.arrival_ms > 0);
    }
    assert_eq!(last.millis_behind_latest, Some(0));
    assert!(last.children.is_empty());
}

/// On a shard each, since a shard takes one subscription in five seconds.
pub async fn every_start_position_starts_where_it_says(subject: &FanOutStream) {
    let consumer = consumer(subject).await;
    let mut sequences = Vec::<(ShardId, SequenceNumber)>::new();
    for data in ["a", "b", "c"] {
        subject.stream.put(0, "key", data).await;
        sequences.push(subject.stream.put(u128::MAX, "key", data).await);
    }
    let left = subject.stream.put(0, "key", "d").await.0;
    let right = sequences[0].0.clone();
    let mut latest = subscribe(subject, &consumer, &left, ReadFrom::Latest).await;
    let at = ReadFrom::AtSequenceNumber(sequences[1].1.clone());
    let mut at = subscribe(subject, &consumer, &right, at).await;
    assert_eq!(data(&read(&mut at, 2).await.0), ["b", "c"]);
    subject.stream.put(0, "key", "e").await;
    assert_eq!(data(&read(&mut latest, 1).await.0), ["e"]);
    tokio::time::sleep(TAKES_OVER_AFTER).await;
    let after = ReadFrom::AfterSequenceNumber(sequences[1].1.clone());
    let mut after = subscribe(subject, &consumer, &right, after).await;
    assert_eq!(data(&read(&mut after, 1).await.0), ["c"]);
    let mut horizon = subscribe(subject, &consumer, &left, ReadFrom::TrimHorizon).await;
    assert_eq!(
        data(&read(&mut horizon, 5).await.0),
        ["a", "b", "c", "d", "e"]
    );
}

/// So that silence means that something is broken.
pub async fn a_quiet_shard_sends_events_without_records(subject: &FanOutStream) {
    let consumer = consumer(subject).await;
    let shard = subject.stream.put(0, "key", "a").await.0;
    let mut subscription = subscribe(subject, &consumer, &shard, ReadFrom::Latest).await;
    let event = tokio::time::timeout(Duration::from_secs(15), subscription.next())
        .await
        .expect("a sign of life");
    let event = event.expect("no error").expect("an event");
    assert!(event.records.is_empty() && event.children.is_empty() && event.next.is_some());
    assert_eq!(event.millis_behind_latest, Some(0));
}

/// What a reader whose subscription ended rests on: nothing lost, at most the last record again.
pub async fn a_continuation_leads_on_without_a_gap(subject: &FanOutStream) {
    let consumer = consumer(subject).await;
    let expected: Vec<String> = (0..8).map(|index| index.to_string()).collect();
    let mut shard = None;
    for data in &expected[..5] {
        shard = Some(subject.stream.put(0, "key", data).await.0);
    }
    let shard = shard.expect("a shard");
    let mut subscription = subscribe(subject, &consumer, &shard, ReadFrom::TrimHorizon).await;
    let (before, last) = read(&mut subscription, 5).await;
    drop(subscription);
    for data in &expected[5..] {
        subject.stream.put(0, "key", data).await;
    }
    tokio::time::sleep(TAKES_OVER_AFTER).await;
    let on = ReadFrom::AtSequenceNumber(last.next.expect("an open shard goes on"));
    let mut subscription = subscribe(subject, &consumer, &shard, on).await;
    let mut after = Vec::new();
    while after.last().is_none_or(|last| last != &expected[7]) {
        after.extend(data(&read(&mut subscription, 1).await.0));
    }
    let last_before = data(&before).pop();
    if after.first() == last_before.as_ref() {
        after.remove(0);
    }
    assert_eq!([data(&before), after].concat(), expected);
}

/// What a lease that moves between hosts rests on.
pub async fn a_second_subscription_is_refused_at_first_and_takes_over_later(
    subject: &FanOutStream,
) {
    let consumer = consumer(subject).await;
    let shard = subject.stream.put(0, "key", "a").await.0;
    let mut first = subscribe(subject, &consumer, &shard, ReadFrom::TrimHorizon).await;
    let Err(error) = subject
        .fan_out
        .subscribe(&consumer, &shard, &ReadFrom::TrimHorizon)
        .await
    else {
        panic!("subscribed twice at once");
    };
    assert!(matches!(error, SubscribeError::InUse { .. }), "{error}");
    assert_eq!(data(&read(&mut first, 1).await.0), ["a"]);
    tokio::time::sleep(TAKES_OVER_AFTER).await;
    let mut second = subscribe(subject, &consumer, &shard, ReadFrom::TrimHorizon).await;
    let ended = loop {
        match next(&mut first).await {
            Ok(Some(event)) => assert!(event.records.is_empty(), "nothing new was put"),
            other => break other,
        }
    };
    assert!(
        matches!(ended, Err(SubscribeError::InUse { .. })),
        "{ended:?}"
    );
    assert_eq!(data(&read(&mut second, 1).await.0), ["a"]);
}

/// The end is said once everything was given, and with it the children; then the subscription is
/// over.
pub async fn a_closed_shard_is_pushed_to_its_end_with_its_children(subject: &FanOutStream) {
    let consumer = consumer(subject).await;
    let (shard, _) = subject.stream.put(0, "key", "a").await;
    let mut subscription = subscribe(subject, &consumer, &shard, ReadFrom::TrimHorizon).await;
    read(&mut subscription, 1).await;
    subject.stream.put(0, "key", "b").await;
    subject.stream.split(&shard, 1_000).await;
    subject.stream.put(0, "key", "of a child").await;
    let (records, mut last) = read(&mut subscription, usize::MAX).await;
    assert_eq!(data(&records), ["b"]);
    assert_eq!(last.next, None);
    last.children.sort_by(|a, b| a.id.cmp(&b.id));
    let listed = subject
        .stream
        .reader()
        .list_shards()
        .await
        .expect("a listing");
    let mut children: Vec<_> = listed
        .into_iter()
        .filter(|listed| listed.parents.contains(&shard))
        .collect();
    children.sort_by(|a, b| a.id.cmp(&b.id));
    assert_eq!((last.children.len(), last.children), (2, children));
    assert_eq!(next(&mut subscription).await, Ok(None));
}

/// Which is not the consumer's fault.
pub async fn a_subscription_to_an_unknown_shard_is_not_found(subject: &FanOutStream) {
    let consumer = consumer(subject).await;
    let unknown = ShardId::new("shardId-000000000099").expect("a valid id");
    let Err(error) = subject
        .fan_out
        .subscribe(&consumer, &unknown, &ReadFrom::TrimHorizon)
        .await
    else {
        panic!("subscribed to a shard that is not there");
    };
    assert!(matches!(error, SubscribeError::NotFound { .. }), "{error}");
}
