//! `GetRecords`, answered from the emulator's store: with lag, children and the 10 MiB limit, and
//! at a fraction of the emulator's own cost. Whatever is not a plain success is left to the
//! emulator, which knows the errors.

use axum::response::Response;
use ferrokinesis::sequence::{SeqObj, increment_sequence, parse_sequence, resolve_shard_id};
use ferrokinesis::shard_iterator::{create_shard_iterator, decode_shard_iterator};
use ferrokinesis::store::Store;
use ferrokinesis::types::{EpochSeconds, HashKeyRange, ResponseRecord, StoredRecord, Stream};
use ferrokinesis::util::current_time_ms;
use serde::{Deserialize, Serialize, Serializer};

use super::keeper::shard_keys;
use super::replies;
use super::speech::{self, Speech};

/// Records of one reply (AWS limit).
const REPLY_RECORDS_MAX: usize = 10_000;
/// Data of one reply (AWS limit), in base64.
const REPLY_BYTES_MAX: usize = 10 * 1024 * 1024 / 3 * 4;
/// Records copied out of the store at once, so that the byte limit is not overshot by much.
const CHUNK_RECORDS: usize = 1_000;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Request {
    shard_iterator: String,
    limit: Option<usize>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Reply<'a> {
    millis_behind_latest: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_shard_iterator: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    child_shards: Vec<ChildShard<'a>>,
    records: Records<'a>,
}

/// The records of a reply or of an event, and the format that they are written in.
pub(super) struct Records<'a> {
    pub(super) records: Vec<ResponseRecord<'a>>,
    pub(super) speech: Speech,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct ChildShard<'a> {
    shard_id: &'a str,
    parent_shards: Vec<&'a str>,
    hash_key_range: &'a HashKeyRange,
}

/// What lies at and after an iterator.
pub(super) struct Page {
    pub(super) records: Vec<(String, StoredRecord)>,
    pub(super) has_more: bool,
}

impl Serialize for Records<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        speech::records(&self.records, self.speech, serializer)
    }
}

impl Page {
    pub(super) fn last_sequence(&self) -> Option<&str> {
        self.records.last().map(|(key, _)| sequence(key))
    }
}

/// `None` if the emulator should answer.
pub(super) async fn answer(store: &Store, body: &[u8], speech: Speech) -> Option<Response> {
    let request: Request = serde_json::from_slice(body).ok()?;
    let limit = request.limit.unwrap_or(REPLY_RECORDS_MAX);
    if !(1..=REPLY_RECORDS_MAX).contains(&limit) {
        return None;
    }
    let (made_at, stream_name, shard_id, from) =
        decode_shard_iterator(&request.shard_iterator).ok()?;
    let now = current_time_ms();
    let ttl_ms = store.options.iterator_ttl_seconds.saturating_mul(1_000);
    if made_at == 0 || made_at > now || now - made_at > ttl_ms {
        return None;
    }
    let position = parse_sequence(&from).ok()?;
    let stream = store.get_stream(&stream_name).await.ok()?;
    let (_, index) = resolve_shard_id(&shard_id).ok()?;
    let index = usize::try_from(index).ok()?;
    let shard = stream.shards.get(index)?;
    let page = read(store, &stream_name, index, &from, (limit, REPLY_BYTES_MAX)).await;
    let is_over = !page.has_more && shard.sequence_number_range.ending_sequence_number.is_some();
    let next = next_position(&page, &position, now);
    let reply = Reply {
        millis_behind_latest: lag(&page, now),
        next_shard_iterator: (!is_over)
            .then(|| create_shard_iterator(&stream_name, &shard_id, &next, now)),
        child_shards: if is_over {
            children(&stream, &shard.shard_id)
        } else {
            Vec::new()
        },
        records: Records {
            records: unexpired(&stream, &page, now).collect(),
            speech,
        },
    };
    Some(replies::ok(speech, &reply))
}

/// At most as many records as the first limit says, and as many bytes in base64 as the second, but
/// at least one record.
pub(super) async fn read(
    store: &Store,
    stream: &str,
    index: usize,
    from: &str,
    (limit, bytes_max): (usize, usize),
) -> Page {
    let (shard, end) = shard_keys(index);
    let mut start = format!("{shard}{from}");
    let (mut records, mut bytes) = (Vec::new(), 0);
    loop {
        let room = limit - records.len();
        if room == 0 || bytes >= bytes_max {
            let has_more = !store
                .get_records_range_limited(stream, &start, &end, 1)
                .await
                .is_empty();
            return Page { records, has_more };
        }
        let chunk = store
            .get_records_range_limited(stream, &start, &end, room.min(CHUNK_RECORDS))
            .await;
        let is_last = chunk.len() < room.min(CHUNK_RECORDS);
        for (key, record) in chunk {
            if bytes >= bytes_max {
                return Page {
                    records,
                    has_more: true,
                };
            }
            bytes += record.data.len();
            start = format!("{key}\0");
            records.push((key, record));
        }
        if is_last {
            return Page {
                records,
                has_more: false,
            };
        }
    }
}

/// After the last record read, or at the same place with a newer time, as the emulator does it.
fn next_position(page: &Page, position: &SeqObj, now: u64) -> String {
    let last = page
        .last_sequence()
        .and_then(|last| parse_sequence(last).ok());
    match last {
        Some(last) => increment_sequence(&last, None),
        // A clock that stepped back must not move the reader back.
        None => increment_sequence(position, Some(position.seq_time.unwrap_or(0).max(now))),
    }
}

pub(super) fn lag(page: &Page, now: u64) -> u64 {
    match page.records.last() {
        Some((_, last)) if page.has_more => {
            // Whole seconds since the epoch, never negative: the cast is exact.
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "see above"
            )]
            let arrived_ms = last.approximate_arrival_timestamp as u64 * 1_000;
            now.saturating_sub(arrived_ms)
        }
        Some(_) | None => 0,
    }
}

pub(super) fn unexpired<'a>(
    stream: &Stream,
    page: &'a Page,
    now: u64,
) -> impl Iterator<Item = ResponseRecord<'a>> {
    let retention_ms = u64::from(stream.retention_period_hours) * 3_600_000;
    let oldest_kept = (now.saturating_sub(retention_ms) / 1_000) as f64;
    let kept = page
        .records
        .iter()
        .filter(move |(_, record)| record.approximate_arrival_timestamp >= oldest_kept);
    kept.map(|(key, record)| ResponseRecord {
        partition_key: &record.partition_key,
        data: &record.data,
        approximate_arrival_timestamp: EpochSeconds(record.approximate_arrival_timestamp),
        sequence_number: sequence(key),
    })
}

pub(super) fn children<'a>(stream: &'a Stream, parent: &str) -> Vec<ChildShard<'a>> {
    let parents = |shard: &'a ferrokinesis::types::Shard| {
        [&shard.parent_shard_id, &shard.adjacent_parent_shard_id]
            .into_iter()
            .flatten()
            .map(String::as_str)
    };
    let of_parent = stream
        .shards
        .iter()
        .filter(|shard| parents(shard).any(|id| id == parent));
    of_parent
        .map(|shard| ChildShard {
            shard_id: &shard.shard_id,
            parent_shards: parents(shard).collect(),
            hash_key_range: &shard.hash_key_range,
        })
        .collect()
}

fn sequence(key: &str) -> &str {
    key.split_once('/').map_or("", |(_, sequence)| sequence)
}
