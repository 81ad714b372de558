//! `GetRecords`, answered from the emulator's store: with lag, children and the 10 MiB limit, and
//! at a fraction of the emulator's own cost. The emulator answers everything that is not a plain
//! success, because it knows the errors.

use axum::response::Response;
use ferrokinesis::sequence::{SeqObj, increment_sequence, parse_sequence, resolve_shard_id};
use ferrokinesis::shard_iterator::{create_shard_iterator, decode_shard_iterator};
use ferrokinesis::store::Store;
use ferrokinesis::types::{
    EpochSeconds, HashKeyRange, ResponseRecord, Shard, StoredRecord, Stream,
};
use ferrokinesis::util::current_time_ms;
use serde::{Deserialize, Serialize, Serializer};

use super::keeper::shard_keys;
use super::replies;
use super::speech::{self, Speech};

/// Of one reply (AWS limit).
const REPLY_MAX: Limits = Limits {
    records: 10_000,
    bytes: 10 * 1024 * 1024 / 3 * 4,
};
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

struct ShardIterator {
    made_at_ms: u64,
    stream: String,
    shard: String,
    shard_index: usize,
    sequence: String,
    /// The same sequence number, parsed.
    start: SeqObj,
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

/// Where a read begins.
#[derive(Clone, Copy)]
pub(super) struct ReadFrom<'a> {
    pub(super) stream: &'a str,
    pub(super) shard_index: usize,
    /// The first sequence number that is read.
    pub(super) sequence: &'a str,
}

/// How much is read at once.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    pub(super) records: usize,
    /// Data in base64; the last record may go beyond.
    pub(super) bytes: usize,
}

/// The records that a read found.
#[derive(Default)]
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
    /// Whether `shard` is closed, and the page has its last record.
    pub(super) fn is_end_of(&self, shard: &Shard) -> bool {
        !self.has_more && shard.sequence_number_range.ending_sequence_number.is_some()
    }

    pub(super) fn last_sequence(&self) -> Option<&str> {
        self.records.last().map(|(key, _)| sequence(key))
    }
}

/// `None` if the emulator should answer.
pub(super) async fn answer(store: &Store, body: &[u8], speech: Speech) -> Option<Response> {
    let request: Request = serde_json::from_slice(body).ok()?;
    let now = current_time_ms();
    let limits = Limits {
        records: request.limit.unwrap_or(REPLY_MAX.records),
        ..REPLY_MAX
    };
    if limits.records == 0 || limits.records > REPLY_MAX.records {
        return None;
    }
    let iterator = ShardIterator::parse(&request.shard_iterator)?;
    if iterator.has_expired(store, now) {
        return None;
    }
    let stream = store.get_stream(&iterator.stream).await.ok()?;
    let shard = stream.shards.get(iterator.shard_index)?;
    let page = read(store, iterator.position(), limits).await;
    let mut reply = Reply {
        millis_behind_latest: lag(&page, now),
        next_shard_iterator: None,
        child_shards: Vec::new(),
        records: Records {
            records: unexpired(&stream, &page, now).collect(),
            speech,
        },
    };
    if page.is_end_of(shard) {
        reply.child_shards = children(&stream, &shard.shard_id);
    } else {
        reply.next_shard_iterator = Some(iterator.after(&page, now));
    }
    Some(replies::ok(speech, &reply))
}

impl ShardIterator {
    fn parse(text: &str) -> Option<Self> {
        let (made_at_ms, stream, shard, sequence) = decode_shard_iterator(text).ok()?;
        let (_, index) = resolve_shard_id(&shard).ok()?;
        Some(Self {
            made_at_ms,
            stream,
            shard_index: usize::try_from(index).ok()?,
            shard,
            start: parse_sequence(&sequence).ok()?,
            sequence,
        })
    }

    fn has_expired(&self, store: &Store, now: u64) -> bool {
        let lifetime_ms = store.options.iterator_ttl_seconds.saturating_mul(1_000);
        let age_ms = now.checked_sub(self.made_at_ms);
        self.made_at_ms == 0 || age_ms.is_none_or(|age_ms| age_ms > lifetime_ms)
    }

    fn position(&self) -> ReadFrom<'_> {
        ReadFrom {
            stream: &self.stream,
            shard_index: self.shard_index,
            sequence: &self.sequence,
        }
    }

    /// The iterator after the last record of `page`. After an empty page, it has the same position
    /// with a newer time, as the emulator does it.
    fn after(&self, page: &Page, now: u64) -> String {
        let last = page
            .last_sequence()
            .and_then(|last| parse_sequence(last).ok());
        let next = if let Some(last) = last {
            increment_sequence(&last, None)
        } else {
            // A clock that stepped back must not move the reader back.
            let time = self.start.seq_time.unwrap_or(0).max(now);
            increment_sequence(&self.start, Some(time))
        };
        create_shard_iterator(&self.stream, &self.shard, &next, now)
    }
}

/// Reads until a limit is reached, but at least one record.
pub(super) async fn read(store: &Store, from: ReadFrom<'_>, limits: Limits) -> Page {
    let (shard, end) = shard_keys(from.shard_index);
    let mut start = format!("{shard}{}", from.sequence);
    let mut page = Page::default();
    let mut bytes = 0;
    loop {
        let room = limits.records - page.records.len();
        // Beyond the limits, only whether there is one more.
        let is_full = room == 0 || bytes >= limits.bytes;
        let wanted = if is_full { 1 } else { room.min(CHUNK_RECORDS) };
        let chunk = store
            .get_records_range_limited(from.stream, &start, &end, wanted)
            .await;
        if is_full {
            page.has_more = !chunk.is_empty();
            return page;
        }
        let is_last = chunk.len() < wanted;
        for (key, record) in chunk {
            if bytes >= limits.bytes {
                page.has_more = true;
                return page;
            }
            bytes += record.data.len();
            start = format!("{key}\0");
            page.records.push((key, record));
        }
        if is_last {
            return page;
        }
    }
}

/// How far the end of `page` is behind the tip, in milliseconds.
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

/// The records of `page` that the stream still keeps.
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
    let mut children = Vec::new();
    for shard in &stream.shards {
        let parent_shards = parents(shard);
        if parent_shards.contains(&parent) {
            children.push(ChildShard {
                shard_id: &shard.shard_id,
                parent_shards,
                hash_key_range: &shard.hash_key_range,
            });
        }
    }
    children
}

fn parents(shard: &Shard) -> Vec<&str> {
    [&shard.parent_shard_id, &shard.adjacent_parent_shard_id]
        .into_iter()
        .flatten()
        .map(String::as_str)
        .collect()
}

fn sequence(key: &str) -> &str {
    key.split_once('/').map_or("", |(_, sequence)| sequence)
}
