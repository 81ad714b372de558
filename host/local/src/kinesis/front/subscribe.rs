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
use ferrokinesis::types::ConsumerStatus;
use ferrokinesis::util::current_time_ms;
use serde::Serialize;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncWriteExt, DuplexStream, duplex};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::io::ReaderStream;
use tokio_util::sync::CancellationToken;

use super::Front;
use crate::kinesis::get_records::{self, ChildShard, Records};
use crate::kinesis::speech::Speech;
use crate::kinesis::{replies, requests};

/// A subscription's life (AWS limit).
const LIFETIME: Duration = Duration::from_mins(5);
/// A subscription made sooner after another one is refused, later it takes over (AWS limit).
const TAKES_OVER_AFTER: Duration = Duration::from_secs(5);
/// An event without records is due after so long a silence.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// How often a shard is looked at: near the 70 ms that AWS gives as the time from put to push.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Data of one event, in base64: a shard's second of fan-out is 2 MB (AWS limit).
const EVENT_BYTES_MAX: usize = 2 * 1024 * 1024 / 3 * 4;
/// Records of one event, as in a reply of `GetRecords`.
const EVENT_RECORDS_MAX: usize = 10_000;
/// Bytes on their way to a subscriber: more than that, and the subscription waits for it.
const PIPE_BYTES: usize = 256 * 1024;

/// The subscriptions that run.
#[derive(Default)]
pub(super) struct Running {
    by_shard: Mutex<HashMap<(String, String), Newest>>,
    tasks: Mutex<JoinSet<()>>,
}

/// The newest subscription of a consumer to a shard.
struct Newest {
    made_at: Instant,
    taken_over: CancellationToken,
}

/// Where a subscription is.
struct Subscription {
    speech: Speech,
    consumer: String,
    stream: String,
    shard_id: String,
    shard_index: usize,
    /// What comes next lies at or after this.
    from: String,
    /// Said to the subscriber as the place to go on at.
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

impl Front {
    /// Answers a request that the emulator has found to be good; `None` if it should answer itself.
    pub(super) async fn subscribed(
        self: &Arc<Self>,
        body: &[u8],
        speech: Speech,
    ) -> Option<Response> {
        let request: Map<String, Value> = serde_json::from_slice(body).ok()?;
        let consumer = request.get("ConsumerARN")?.as_str()?.to_owned();
        let (stream_arn, _) = consumer.split_once("/consumer/")?;
        let stream = self.store().stream_name_from_arn(stream_arn)?;
        let (shard_id, index) = resolve_shard_id(request.get("ShardId")?.as_str()?).ok()?;
        let from = start(
            self.store(),
            &stream,
            &shard_id,
            request.get("StartingPosition")?,
        )
        .await?;
        let subscription = Subscription {
            speech,
            stream,
            shard_index: usize::try_from(index).ok()?,
            continuation: from.clone(),
            from,
            shard_id: shard_id.clone(),
            consumer: consumer.clone(),
        };
        let Some(taken_over) = self.running().take_over((consumer, shard_id)) else {
            let message =
                "another subscription with this consumer was made less than five seconds ago";
            return Some(replies::refusal("ResourceInUseException", message));
        };
        let (ours, theirs) = duplex(PIPE_BYTES);
        self.running()
            .spawn(run(Arc::clone(self), subscription, ours, taken_over));
        let stream = [(header::CONTENT_TYPE, "application/vnd.amazon.eventstream")];
        Some(
            (
                StatusCode::OK,
                stream,
                Body::from_stream(ReaderStream::new(theirs)),
            )
                .into_response(),
        )
    }
}

/// The sequence number that reading starts at: as with iterators, mended where the emulator is
/// wrong.
async fn start(store: &Store, stream: &str, shard: &str, position: &Value) -> Option<String> {
    let kind = position.get("Type")?.as_str()?;
    let sequence = || {
        position
            .get("SequenceNumber")
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    match kind {
        "AT_SEQUENCE_NUMBER" => parse_sequence(&sequence()?).ok().and_then(|_| sequence()),
        "AFTER_SEQUENCE_NUMBER" => Some(increment_sequence(
            &parse_sequence(&sequence()?).ok()?,
            None,
        )),
        _ => {
            let asked = json!({
                "StreamName": stream, "ShardId": shard, "ShardIteratorType": kind,
                "Timestamp": position.get("Timestamp"),
            });
            let mut asked = asked.as_object()?.clone();
            asked.retain(|_, value| !value.is_null());
            let _was_needed = requests::mend_iterator_request(store, &mut asked).await;
            let reply = dispatch(store, Operation::GetShardIterator, Value::Object(asked))
                .await
                .ok()??;
            let (_, _, _, from) =
                decode_shard_iterator(reply.get("ShardIterator")?.as_str()?).ok()?;
            Some(from)
        }
    }
}

async fn run(
    front: Arc<Front>,
    mut place: Subscription,
    mut pipe: DuplexStream,
    taken_over: CancellationToken,
) {
    let pushed = tokio::select! {
        pushed = push(&front, &mut place, &mut pipe) => pushed,
        () = taken_over.cancelled() => {
            // In the middle of an event, this is a cut connection to the subscriber; which is as
            // good.
            let exception = encode_exception("ResourceInUseException", "another subscription took over");
            pipe.write_all(&exception).await
        }
        () = front.closing().cancelled() => Ok(()),
    };
    if let Err(error) = pushed {
        tracing::debug!(shard = place.shard_id, %error, "a subscriber went away");
    }
}

async fn push(front: &Front, place: &mut Subscription, pipe: &mut DuplexStream) -> io::Result<()> {
    let made_at = Instant::now();
    let mut pushed_at = made_at;
    pipe.write_all(&encode_initial_response()).await?;
    while made_at.elapsed() < LIFETIME {
        match look(front, place, pushed_at.elapsed() >= HEARTBEAT).await {
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

async fn look(front: &Front, place: &mut Subscription, is_due: bool) -> Found {
    // Not held while the event is on its way: a subscriber that does not read must not hold up
    // those who put.
    let _shared = front.share().await;
    let store = front.store();
    let consumer = store.get_consumer(&place.consumer).await;
    if consumer.is_none_or(|consumer| consumer.consumer_status == ConsumerStatus::Deleting) {
        return Found::Last(encode_exception(
            "ResourceNotFoundException",
            "the consumer was deregistered",
        ));
    }
    let Ok(stream) = store.get_stream(&place.stream).await else {
        return Found::Nothing;
    };
    let Some(shard) = stream.shards.get(place.shard_index) else {
        return Found::Nothing;
    };
    let limits = (EVENT_RECORDS_MAX, EVENT_BYTES_MAX);
    let page =
        get_records::read(store, &place.stream, place.shard_index, &place.from, limits).await;
    let is_over = !page.has_more && shard.sequence_number_range.ending_sequence_number.is_some();
    if page.records.is_empty() && !is_over && !is_due {
        return Found::Nothing;
    }
    let now = current_time_ms();
    if let Some(last) = page.last_sequence() {
        last.clone_into(&mut place.continuation);
        if let Ok(last) = parse_sequence(last) {
            place.from = increment_sequence(&last, None);
        }
    }
    let event = Event {
        records: Records {
            records: get_records::unexpired(&stream, &page, now).collect(),
            speech: place.speech,
        },
        continuation_sequence_number: (!is_over).then_some(place.continuation.as_str()),
        millis_behind_latest: get_records::lag(&page, now),
        child_shards: if is_over {
            get_records::children(&stream, &shard.shard_id)
        } else {
            Vec::new()
        },
    };
    let Some(payload) = place.speech.write(&event) else {
        return Found::Nothing;
    };
    let frame = encode_subscribe_event(&payload, place.speech.content_type());
    if is_over {
        Found::Last(frame)
    } else {
        Found::Event(frame)
    }
}

impl Running {
    /// Ends the subscription before this one; `None` if that is too young to be taken over.
    fn take_over(&self, key: (String, String)) -> Option<CancellationToken> {
        let mut by_shard = lock(&self.by_shard);
        by_shard.retain(|_, newest| newest.made_at.elapsed() < LIFETIME);
        if let Some(before) = by_shard.get(&key) {
            if before.made_at.elapsed() < TAKES_OVER_AFTER {
                return None;
            }
            before.taken_over.cancel();
        }
        let taken_over = CancellationToken::new();
        by_shard.insert(
            key,
            Newest {
                made_at: Instant::now(),
                taken_over: taken_over.clone(),
            },
        );
        Some(taken_over)
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = lock(&self.tasks);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
