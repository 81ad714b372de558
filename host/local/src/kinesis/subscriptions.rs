//! `SubscribeToShard`, pushed from the emulator's store: by the rules of the real service, and
//! never ahead of the journal.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use ferrokinesis::actions::{Operation, dispatch};
use ferrokinesis::event_stream::{
    encode_exception, encode_initial_response, encode_subscribe_event,
};
use ferrokinesis::sequence::{increment_sequence, parse_sequence, resolve_shard_id};
use ferrokinesis::shard_iterator::decode_shard_iterator;
use ferrokinesis::store::Store;
use ferrokinesis::types::{ConsumerStatus, Stream};
use ferrokinesis::util::current_time_ms;
use serde::Serialize;
use serde_json::{Map, Value};
use tokio::io::{AsyncWriteExt, DuplexStream, duplex};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::io::ReaderStream;
use tokio_util::sync::CancellationToken;

use super::get_records::{self, ChildShard, Limits, Page, ReadFrom, Records};
use super::kept_store::KeptStore;
use super::speech::Speech;
use super::{replies, requests};

/// A subscription's life (AWS limit).
const LIFETIME: Duration = Duration::from_mins(5);
/// A subscription that is made sooner after another one is refused; later, it takes over (AWS
/// limit).
const TAKES_OVER_AFTER: Duration = Duration::from_secs(5);
/// An event without records is due after so long a silence.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// How often a shard is looked at: near the 70 ms that AWS gives as the time from put to push.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Of one event: as many records as in a reply of `GetRecords`, and data in base64. A shard's
/// second of fan-out is 2 MB (AWS limit).
const EVENT_MAX: Limits = Limits {
    records: 10_000,
    bytes: 2 * 1024 * 1024 / 3 * 4,
};
/// Bytes on their way to a subscriber: with more than that, the subscription waits for it.
const PIPE_BYTES: usize = 256 * 1024;

/// All subscriptions to shards of a store.
pub(super) struct Subscriptions {
    kept: Arc<KeptStore>,
    closing: CancellationToken,
    newest: Mutex<HashMap<Subscriber, Newest>>,
    tasks: Mutex<JoinSet<()>>,
}

/// A consumer on one shard: only its newest subscription runs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Subscriber {
    consumer: String,
    shard_id: String,
}

/// A subscriber's newest subscription.
struct Newest {
    made_at: Instant,
    taken_over: CancellationToken,
}

/// One subscription, and how far it is.
struct Subscription {
    speech: Speech,
    subscriber: Subscriber,
    stream: String,
    shard_index: usize,
    /// The next record is at or after this sequence number.
    from: String,
    /// The sequence number that the subscriber gets to continue at.
    continuation: String,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Event<'a> {
    records: Records<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    continuation_sequence_number: Option<&'a str>,
    millis_behind_latest: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    child_shards: Vec<ChildShard<'a>>,
}

/// What one look found.
enum Found {
    Nothing,
    Event(Vec<u8>),
    /// The last event: of a closed shard, or of a consumer that is gone.
    Last(Vec<u8>),
}

impl Subscriptions {
    /// No subscriptions yet; `closing` ends those to come.
    pub(super) fn new(kept: Arc<KeptStore>, closing: CancellationToken) -> Self {
        Self {
            kept,
            closing,
            newest: Mutex::default(),
            tasks: Mutex::default(),
        }
    }

    /// Answers a request that the emulator has found to be good; `None` if it should answer itself.
    pub(super) async fn answer(&self, body: &[u8], speech: Speech) -> Option<Response> {
        let request: Map<String, Value> = serde_json::from_slice(body).ok()?;
        let subscription = self.subscription(&request, speech).await?;
        let Some(taken_over) = self.take_over(subscription.subscriber.clone()) else {
            let message =
                "another subscription with this consumer was made less than five seconds ago";
            return Some(replies::refusal("ResourceInUseException", message));
        };
        let (ours, theirs) = duplex(PIPE_BYTES);
        self.spawn(subscription, ours, taken_over);
        let content_type = [(header::CONTENT_TYPE, "application/vnd.amazon.eventstream")];
        let events = Body::from_stream(ReaderStream::new(theirs));
        Some((StatusCode::OK, content_type, events).into_response())
    }

    async fn subscription(
        &self,
        request: &Map<String, Value>,
        speech: Speech,
    ) -> Option<Subscription> {
        let store = self.kept.store();
        let consumer = request.get("ConsumerARN")?.as_str()?;
        let (stream_arn, _) = consumer.split_once("/consumer/")?;
        let stream = store.stream_name_from_arn(stream_arn)?;
        let (shard_id, index) = resolve_shard_id(request.get("ShardId")?.as_str()?).ok()?;
        let position = request.get("StartingPosition")?;
        let from = start(store, &stream, &shard_id, position).await?;
        Some(Subscription {
            speech,
            subscriber: Subscriber {
                consumer: consumer.to_owned(),
                shard_id,
            },
            stream,
            shard_index: usize::try_from(index).ok()?,
            continuation: from.clone(),
            from,
        })
    }

    /// Ends the subscription before this one; `None` if that is too young to be taken over.
    fn take_over(&self, subscriber: Subscriber) -> Option<CancellationToken> {
        let mut newest = lock(&self.newest);
        newest.retain(|_, subscription| subscription.made_at.elapsed() < LIFETIME);
        if let Some(before) = newest.get(&subscriber) {
            if before.made_at.elapsed() < TAKES_OVER_AFTER {
                return None;
            }
            before.taken_over.cancel();
        }
        let subscription = Newest {
            made_at: Instant::now(),
            taken_over: CancellationToken::new(),
        };
        let taken_over = subscription.taken_over.clone();
        newest.insert(subscriber, subscription);
        Some(taken_over)
    }

    fn spawn(&self, subscription: Subscription, pipe: DuplexStream, taken_over: CancellationToken) {
        let kept = Arc::clone(&self.kept);
        let closing = self.closing.clone();
        let shard = subscription.subscriber.shard_id.clone();
        let mut tasks = lock(&self.tasks);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            let pushed = tokio::select! {
                pushed = subscription.run(&kept, pipe, taken_over) => pushed,
                () = closing.cancelled() => Ok(()),
            };
            if let Err(error) = pushed {
                tracing::debug!(shard, %error, "a subscriber went away");
            }
        });
    }
}

impl Subscription {
    /// Pushes events into `pipe` until the subscription ends or another one takes over.
    async fn run(
        mut self,
        kept: &KeptStore,
        mut pipe: DuplexStream,
        taken_over: CancellationToken,
    ) -> io::Result<()> {
        tokio::select! {
            pushed = self.push(kept, &mut pipe) => pushed,
            () = taken_over.cancelled() => {
                // In the middle of an event, the subscriber sees a cut connection instead, which
                // means the same to it.
                let message = "another subscription took over";
                pipe.write_all(&encode_exception("ResourceInUseException", message)).await
            }
        }
    }

    async fn push(&mut self, kept: &KeptStore, pipe: &mut DuplexStream) -> io::Result<()> {
        let made_at = Instant::now();
        let mut pushed_at = made_at;
        pipe.write_all(&encode_initial_response()).await?;
        while made_at.elapsed() < LIFETIME {
            match self.look(kept, pushed_at.elapsed() >= HEARTBEAT).await {
                Found::Nothing => tokio::time::sleep(LOOK_EVERY).await,
                Found::Event(event) => {
                    pipe.write_all(&event).await?;
                    pushed_at = Instant::now();
                }
                Found::Last(event) => return pipe.write_all(&event).await,
            }
        }
        Ok(())
    }

    /// Reads what comes next; an event without records only if one `is_due`.
    async fn look(&mut self, kept: &KeptStore, is_due: bool) -> Found {
        // Not held while the event is on its way: a subscriber that does not read must not delay
        // puts.
        let _shared = kept.share().await;
        let store = kept.store();
        if !self.has_consumer(store).await {
            let message = "the consumer was deregistered";
            return Found::Last(encode_exception("ResourceNotFoundException", message));
        }
        let Ok(stream) = store.get_stream(&self.stream).await else {
            return Found::Nothing;
        };
        let Some(shard) = stream.shards.get(self.shard_index) else {
            return Found::Nothing;
        };
        let from = ReadFrom {
            stream: &self.stream,
            shard_index: self.shard_index,
            sequence: &self.from,
        };
        let page = get_records::read(store, from, EVENT_MAX).await;
        let is_over = page.is_end_of(shard);
        if page.records.is_empty() && !is_over && !is_due {
            return Found::Nothing;
        }
        if let Some(last) = page.last_sequence() {
            self.advance(last);
        }
        let children = if is_over {
            get_records::children(&stream, &shard.shard_id)
        } else {
            Vec::new()
        };
        match self.event(&stream, &page, is_over, children) {
            None => Found::Nothing,
            Some(event) if is_over => Found::Last(event),
            Some(event) => Found::Event(event),
        }
    }

    async fn has_consumer(&self, store: &Store) -> bool {
        let consumer = store.get_consumer(&self.subscriber.consumer).await;
        consumer.is_some_and(|consumer| consumer.consumer_status != ConsumerStatus::Deleting)
    }

    fn advance(&mut self, last: &str) {
        last.clone_into(&mut self.continuation);
        if let Ok(last) = parse_sequence(last) {
            self.from = increment_sequence(&last, None);
        }
    }

    fn event(
        &self,
        stream: &Stream,
        page: &Page,
        is_over: bool,
        child_shards: Vec<ChildShard<'_>>,
    ) -> Option<Vec<u8>> {
        let now = current_time_ms();
        let event = Event {
            records: Records {
                records: get_records::unexpired(stream, page, now).collect(),
                speech: self.speech,
            },
            continuation_sequence_number: (!is_over).then_some(self.continuation.as_str()),
            millis_behind_latest: get_records::lag(page, now),
            child_shards,
        };
        let payload = self.speech.write(&event)?;
        Some(encode_subscribe_event(&payload, self.speech.content_type()))
    }
}

/// The sequence number that reading starts at, corrected as for iterators.
async fn start(store: &Store, stream: &str, shard: &str, position: &Value) -> Option<String> {
    let kind = position.get("Type")?.as_str()?;
    if !matches!(kind, "AT_SEQUENCE_NUMBER" | "AFTER_SEQUENCE_NUMBER") {
        let timestamp = position.get("Timestamp");
        return start_by_iterator(store, stream, shard, kind, timestamp).await;
    }
    let sequence = position.get("SequenceNumber")?.as_str()?;
    let parsed = parse_sequence(sequence).ok()?;
    Some(if kind == "AT_SEQUENCE_NUMBER" {
        sequence.to_owned()
    } else {
        increment_sequence(&parsed, None)
    })
}

async fn start_by_iterator(
    store: &Store,
    stream: &str,
    shard: &str,
    kind: &str,
    timestamp: Option<&Value>,
) -> Option<String> {
    let names = ["StreamName", "ShardId", "ShardIteratorType"].map(str::to_owned);
    let values = [stream, shard, kind].map(Value::from);
    let mut request: Map<String, Value> = names.into_iter().zip(values).collect();
    if let Some(timestamp) = timestamp.filter(|timestamp| !timestamp.is_null()) {
        request.insert("Timestamp".to_owned(), timestamp.clone());
    }
    requests::correct_start(store, &mut request).await;
    let asked = dispatch(store, Operation::GetShardIterator, Value::Object(request));
    let reply = asked.await.ok()??;
    let iterator = reply.get("ShardIterator")?.as_str()?;
    let (_, _, _, from) = decode_shard_iterator(iterator).ok()?;
    Some(from)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
