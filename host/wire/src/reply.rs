//! A reply of `GetRecords`, and an event of `SubscribeToShard`: both carry records of a shard, what
//! comes after them, and at the end of a shard its children.

use bytes::Bytes;
use shardmill_core::ports::REPLY_RECORDS_MAX;
use shardmill_core::stream::{
    HashKeyRange, InvalidName, Position, Record, SequenceNumber, Shard, ShardId,
};

use crate::cbor::Cbor;
use crate::format::Format;
use crate::json::Json;
use crate::reader::{Read, Reader, Unreadable};

/// What Kinesis gave of a shard.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reply {
    /// The records, in the order of the reply.
    pub records: Vec<Record>,
    /// `NextShardIterator`, of `GetRecords` alone.
    pub next: Option<String>,
    /// `ContinuationSequenceNumber`, of an event alone; may be empty.
    pub continuation: Option<String>,
    /// `MillisBehindLatest`, as it came.
    pub millis_behind_latest: Option<i64>,
    /// The shards that follow a shard that ended.
    pub children: Vec<Shard>,
}

/// Reads a reply of `GetRecords`, in whichever format it is. Data of its records are slices of
/// `body`, unless that is so large that it is better not kept, or is JSON.
pub fn read_reply(body: &Bytes) -> Result<Reply, Unreadable> {
    match Format::of(body) {
        Format::Json => read(Json::new(body)),
        Format::Cbor => read(Cbor::new(body)),
    }
}

/// Reads an event of `SubscribeToShard`, in whichever format it is.
pub fn read_event(payload: &[u8]) -> Result<Reply, Unreadable> {
    match Format::of(payload) {
        Format::Json => read(Json::new(payload)),
        Format::Cbor => read(Cbor::copying(payload)),
    }
}

/// A child as the last reply of its parent shows it: open, as far as that reply can know.
///
/// # Errors
///
/// If one of the ids is none.
pub fn child_shard(
    id: &str,
    parents: &[String],
    hash_range: HashKeyRange,
) -> Result<Shard, InvalidName> {
    Ok(Shard {
        id: ShardId::new(id)?,
        parents: parents.iter().map(ShardId::new).collect::<Result<_, _>>()?,
        hash_range,
        ending_sequence: None,
    })
}

fn read<'a, R: Reader<'a>>(mut reader: R) -> Read<Reply> {
    let (mut records, mut children) = (None, None);
    let mut reply = Reply::default();
    reader.object(|reader, name| match name {
        b"Records" => {
            let read = list(reader, REPLY_RECORDS_MAX as usize, record)?;
            reader.once(&mut records, read)
        }
        b"NextShardIterator" => {
            let text = reader.optional_text()?;
            set(reader, &mut reply.next, text)
        }
        b"ContinuationSequenceNumber" => {
            let text = reader.optional_text()?;
            set(reader, &mut reply.continuation, text)
        }
        b"MillisBehindLatest" => {
            let ms = if reader.null()? {
                None
            } else {
                Some(reader.integer()?)
            };
            set(reader, &mut reply.millis_behind_latest, ms)
        }
        b"ChildShards" if reader.null()? => Ok(()),
        b"ChildShards" => {
            let read = list(reader, 0, child)?;
            reader.once(&mut children, read)
        }
        _ => reader.skip(),
    })?;
    reader.end()?;
    reply.records = records.unwrap_or_default();
    reply.children = children.unwrap_or_default();
    Ok(reply)
}

fn set<'a, R: Reader<'a>, T>(reader: &R, member: &mut Option<T>, value: Option<T>) -> Read<()> {
    match value {
        Some(value) => reader.once(member, value),
        None => Ok(()),
    }
}

/// A list whose elements are about as large as its first: room is made once, for at most
/// `expected_max`.
fn list<'a, R: Reader<'a>, T>(
    reader: &mut R,
    expected_max: usize,
    element: impl Fn(&mut R) -> Read<T>,
) -> Read<Vec<T>> {
    let mut elements = Vec::new();
    reader.array(|reader| {
        let left = reader.left();
        let read = element(reader)?;
        if elements.is_empty() {
            let size = left.saturating_sub(reader.left()).max(1);
            elements.reserve((left / size + 1).min(expected_max));
        }
        elements.push(read);
        Ok(())
    })?;
    Ok(elements)
}

fn record<'a, R: Reader<'a>>(reader: &mut R) -> Read<Record> {
    let (mut sequence, mut data, mut key, mut arrived, mut encryption) =
        (None, None, None, None, None);
    reader.object(|reader, name| match name {
        b"SequenceNumber" => {
            let number = SequenceNumber::parse(&reader.text()?)
                .map_err(|_| reader.expected("a sequence number before this place"))?;
            reader.once(&mut sequence, number)
        }
        b"Data" => {
            let bytes = reader.blob()?;
            reader.once(&mut data, bytes)
        }
        b"PartitionKey" => {
            let text = reader.optional_text()?;
            set(reader, &mut key, text)
        }
        b"ApproximateArrivalTimestamp" => {
            let ms = if reader.null()? {
                None
            } else {
                Some(reader.time_ms()?)
            };
            set(reader, &mut arrived, ms)
        }
        // Checked, since the SDK checks it, and of no use here.
        b"EncryptionType" if reader.null()? => Ok(()),
        b"EncryptionType" => {
            reader.text()?;
            reader.once(&mut encryption, ())
        }
        _ => reader.skip(),
    })?;
    let (Some(sequence), Some(data)) = (sequence, data) else {
        return Err(reader.expected("a sequence number and data in the record before this place"));
    };
    Ok(Record {
        data,
        // Optional in the API since producers may leave it out; nothing is read from it but text.
        partition_key: key.unwrap_or_default(),
        explicit_hash_key: None,
        position: Position::plain(sequence),
        arrival_ms: arrived.and_then(|ms| u64::try_from(ms).ok()).unwrap_or(0),
    })
}

fn child<'a, R: Reader<'a>>(reader: &mut R) -> Read<Shard> {
    let (mut id, mut parents, mut range) = (None, None, None);
    reader.object(|reader, name| match name {
        b"ShardId" => {
            let text = reader.text()?.into_owned();
            reader.once(&mut id, text)
        }
        b"ParentShards" => {
            let read = list(reader, 0, |reader| Ok(reader.text()?.into_owned()))?;
            reader.once(&mut parents, read)
        }
        b"HashKeyRange" => {
            let read = hash_keys(reader)?;
            reader.once(&mut range, read)
        }
        _ => reader.skip(),
    })?;
    let wrong = || reader.expected("a child shard before this place");
    let range = range.ok_or_else(wrong)?;
    child_shard(&id.unwrap_or_default(), &parents.unwrap_or_default(), range).map_err(|_| wrong())
}

fn hash_keys<'a, R: Reader<'a>>(reader: &mut R) -> Read<HashKeyRange> {
    let (mut start, mut end) = (None, None);
    reader.object(|reader, name| match name {
        b"StartingHashKey" => {
            let text = reader.text()?.into_owned();
            reader.once(&mut start, text)
        }
        b"EndingHashKey" => {
            let text = reader.text()?.into_owned();
            reader.once(&mut end, text)
        }
        _ => reader.skip(),
    })?;
    HashKeyRange::parse(&start.unwrap_or_default(), &end.unwrap_or_default())
        .map_err(|_| reader.expected("a range of hash keys before this place"))
}
