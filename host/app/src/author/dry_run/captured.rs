//! A stream that holds captured records, each with its own shard, sequence number and arrival time.
//!
//! It replaces only the reading: leases, checkpoints and everything behind the reader are the same
//! as in any host.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use shardmill_core::fleet::StreamIdentity;
use shardmill_core::ports::{Fetched, PortFuture, ReadError, ShardIterator, StreamReader};
use shardmill_core::stream::{
    HashKeyRange, ReadFrom, Record, SequenceNumber, Shard, ShardId, StreamName,
};
use shardmill_sinks::Captured;

/// Bytes of one reply, as of Kinesis (AWS limit).
const REPLY_BYTES_MAX: usize = 10 << 20;

/// Records of one stream. A record has arrived once it is released.
#[derive(Debug)]
pub(crate) struct CapturedStream {
    name: StreamName,
    shards: BTreeMap<ShardId, Vec<Record>>,
    /// Never held across an await.
    arrived: Mutex<Arrived>,
    /// The shards of the records in the order in which they were captured.
    order: Vec<ShardId>,
}

/// How far the records have arrived.
#[derive(Debug, Default)]
struct Arrived {
    /// Whether nothing more comes.
    is_ended: bool,
    /// Records of the file.
    taken: usize,
    /// Records of each shard.
    released: BTreeMap<ShardId, usize>,
}

/// Captured records that no stream can have held.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CapturedError {
    /// No record.
    #[error("there are no captured records in it")]
    Empty,
    /// Records of more than one stream.
    #[error("there are records of {0} and of {1}: a test takes records of one stream")]
    SeveralStreams(StreamName, StreamName),
}

impl CapturedStream {
    /// Sorts them by shard and position; a record that was captured twice is kept once.
    pub(crate) fn new(captured: Vec<Captured>) -> Result<Self, CapturedError> {
        let name = captured.first().ok_or(CapturedError::Empty)?.stream.clone();
        if let Some(other) = captured.iter().find(|one| one.stream != name) {
            return Err(CapturedError::SeveralStreams(name, other.stream.clone()));
        }
        let mut shards = BTreeMap::<ShardId, Vec<Record>>::new();
        let mut order = Vec::with_capacity(captured.len());
        for Captured { shard, record, .. } in captured {
            order.push(shard.clone());
            shards.entry(shard).or_default().push(record);
        }
        for records in shards.values_mut() {
            records.sort_by(|one, other| one.position.cmp(&other.position));
            records.dedup_by(|later, earlier| later.position == earlier.position);
        }
        Ok(Self {
            name,
            shards,
            arrived: Mutex::default(),
            order,
        })
    }

    /// The stream that they were captured from.
    pub(crate) fn name(&self) -> &StreamName {
        &self.name
    }

    /// Records in all.
    pub(crate) fn count(&self) -> usize {
        self.shards.values().map(Vec::len).sum()
    }

    /// Lets `count` more records arrive, in the order of the file, and the rest of each Kinesis record
    /// of which one arrived. Returns the last sequence number of each shard.
    pub(crate) fn release(&self, count: usize) -> BTreeMap<ShardId, SequenceNumber> {
        let mut arrived = self.arrived();
        arrived.taken = arrived.taken.saturating_add(count).min(self.order.len());
        let mut released = BTreeMap::<ShardId, usize>::new();
        for shard in &self.order[..arrived.taken] {
            *released.entry(shard.clone()).or_default() += 1;
        }
        let mut last = BTreeMap::new();
        for (shard, released) in &mut released {
            let records = self.records(shard);
            *released = whole_kinesis_records(records, *released);
            if let Some(record) = records[..*released].last() {
                last.insert(shard.clone(), record.position.sequence.clone());
            }
        }
        arrived.released = released;
        last
    }

    /// Ends all shards, behind their last record. Nothing follows them.
    pub(crate) fn end(&self) {
        self.arrived().is_ended = true;
    }

    fn records(&self, shard: &ShardId) -> &[Record] {
        self.shards.get(shard).map_or(&[], Vec::as_slice)
    }

    fn arrived(&self) -> MutexGuard<'_, Arrived> {
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn released(&self, shard: &ShardId) -> usize {
        self.arrived()
            .released
            .get(shard)
            .copied()
            .unwrap_or_default()
    }

    /// Open shards that share the hash keys evenly: the hash ranges were not captured, and nothing is
    /// put here.
    fn listing(&self) -> Vec<Shard> {
        let is_ended = self.arrived().is_ended;
        let count = self.shards.len() as u128;
        let mut shards = Vec::new();
        for (index, id) in (0..).zip(self.shards.keys()) {
            shards.push(Shard {
                id: id.clone(),
                parents: Vec::new(),
                hash_range: part_of_hash_keys(index, count),
                ending_sequence: is_ended.then(|| self.last_of(id)).flatten(),
            });
        }
        shards
    }

    fn last_of(&self, shard: &ShardId) -> Option<SequenceNumber> {
        let last = self.records(shard).last()?;
        Some(last.position.sequence.clone())
    }

    fn start(&self, shard: &ShardId, from: &ReadFrom) -> usize {
        let records = self.records(shard);
        match from {
            ReadFrom::TrimHorizon => 0,
            ReadFrom::Latest => self.released(shard),
            ReadFrom::AtTimestamp(ms) => records.partition_point(|record| record.arrival_ms < *ms),
            ReadFrom::AtSequenceNumber(at) => {
                records.partition_point(|record| record.position.sequence < *at)
            }
            ReadFrom::AfterSequenceNumber(after) => {
                records.partition_point(|record| record.position.sequence <= *after)
            }
        }
    }

    fn reply(&self, iterator: &ShardIterator, limit: u32) -> Result<Fetched, ReadError> {
        let (shard, index) = parse(iterator).ok_or_else(|| ReadError::Refused {
            message: format!("not an iterator: {}", iterator.0),
        })?;
        let records = self.records(&shard);
        let released = self.released(&shard);
        let mut end = index;
        let mut bytes = 0;
        while end < released {
            let is_full = end - index >= limit as usize
                || bytes + records[end].cost_bytes() > REPLY_BYTES_MAX;
            if end > index && is_full {
                break;
            }
            let next = whole_kinesis_records(records, end + 1);
            for record in &records[end..next] {
                bytes += record.cost_bytes();
            }
            end = next;
        }
        let is_end = end >= records.len() && self.arrived().is_ended;
        let fetched = Fetched {
            records: records.get(index..end).unwrap_or_default().to_vec(),
            next: (!is_end).then(|| iterator_at(&shard, end)),
            millis_behind_latest: Some(u64::from(end < released)),
            children: Vec::new(),
        };
        fetched.in_order()
    }
}

/// The first `count` of `records`, or more, so that the user records of an aggregate are read
/// together or not at all: reading goes on by sequence number.
fn whole_kinesis_records(records: &[Record], count: usize) -> usize {
    let sequence = |index: usize| &records[index].position.sequence;
    let mut count = count.min(records.len());
    while count > 0 && count < records.len() && sequence(count - 1) == sequence(count) {
        count += 1;
    }
    count
}

fn iterator_at(shard: &ShardId, index: usize) -> ShardIterator {
    ShardIterator(format!("{shard}/{index}"))
}

fn parse(iterator: &ShardIterator) -> Option<(ShardId, usize)> {
    let (shard, index) = iterator.0.rsplit_once('/')?;
    Some((ShardId::new(shard).ok()?, index.parse().ok()?))
}

impl StreamReader for CapturedStream {
    fn identity(&self) -> PortFuture<'_, Result<Option<StreamIdentity>, ReadError>> {
        Box::pin(async { Ok(Some(StreamIdentity { created_at_ms: 1 })) })
    }

    fn list_shards(&self) -> PortFuture<'_, Result<Vec<Shard>, ReadError>> {
        Box::pin(async { Ok(self.listing()) })
    }

    /// All of it arrives after this.
    fn now_ms(&self) -> PortFuture<'_, Result<Option<u64>, ReadError>> {
        Box::pin(async { Ok(Some(0)) })
    }

    fn iterator<'a>(
        &'a self,
        shard: &'a ShardId,
        from: &'a ReadFrom,
    ) -> PortFuture<'a, Result<ShardIterator, ReadError>> {
        Box::pin(async move { Ok(iterator_at(shard, self.start(shard, from))) })
    }

    fn fetch<'a>(
        &'a self,
        iterator: &'a ShardIterator,
        limit: u32,
    ) -> PortFuture<'a, Result<Fetched, ReadError>> {
        Box::pin(async move { self.reply(iterator, limit) })
    }
}

/// Part `index` of `count` equal ones, the last of which takes what is left.
fn part_of_hash_keys(index: u128, count: u128) -> HashKeyRange {
    let width = u128::MAX / count;
    let start = index * width;
    let end = if index + 1 == count {
        u128::MAX
    } else {
        start + width - 1
    };
    HashKeyRange::new(start, end).unwrap_or(HashKeyRange::FULL)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use shardmill_core::stream::{Position, check_listing};

    use super::*;

    fn captured(stream: &str, shard: &str, (sequence, sub_sequence): (u64, u64)) -> Captured {
        let sequence = SequenceNumber::parse(&sequence.to_string()).unwrap();
        let record = Record {
            data: Bytes::from_static(b"x"),
            partition_key: "k".to_owned(),
            explicit_hash_key: None,
            position: Position {
                sequence,
                sub_sequence,
            },
            arrival_ms: 1,
        };
        Captured {
            stream: StreamName::new(stream).unwrap(),
            shard: ShardId::new(shard).unwrap(),
            record,
        }
    }

    fn read(stream: &CapturedStream, shard: &str, from: &ReadFrom, limit: u32) -> Vec<String> {
        let shard = ShardId::new(shard).unwrap();
        let reply = stream
            .reply(&iterator_at(&shard, stream.start(&shard, from)), limit)
            .unwrap();
        reply
            .records
            .iter()
            .map(|record| record.position.to_string())
            .collect()
    }

    #[test]
    fn records_are_read_where_they_lay_and_those_of_an_aggregate_together() {
        let places = [(5, 0), (7, 0), (7, 1), (7, 2), (9, 0), (5, 0)];
        let one = places.map(|place| captured("s", "shardId-1", place));
        let stream =
            CapturedStream::new([&one[..], &[captured("s", "shardId-2", (6, 0))]].concat())
                .unwrap();
        assert_eq!(
            (stream.count(), check_listing(&stream.listing())),
            (6, Ok(()))
        );
        assert_eq!(
            read(&stream, "shardId-1", &ReadFrom::TrimHorizon, 10),
            [""; 0],
            "nothing has arrived"
        );

        let last = stream.release(2);
        assert_eq!(
            last.values()
                .map(SequenceNumber::as_str)
                .collect::<Vec<_>>(),
            ["7"]
        );
        assert_eq!(
            read(&stream, "shardId-1", &ReadFrom::TrimHorizon, 10),
            ["5", "7", "7/1", "7/2"]
        );
        assert_eq!(stream.release(usize::MAX).len(), 2);
        assert_eq!(
            read(&stream, "shardId-1", &ReadFrom::TrimHorizon, 2),
            ["5", "7", "7/1", "7/2"]
        );
        let seven = SequenceNumber::parse("7").unwrap();
        assert_eq!(
            read(
                &stream,
                "shardId-1",
                &ReadFrom::AtSequenceNumber(seven.clone()),
                1
            ),
            ["7", "7/1", "7/2"]
        );
        assert_eq!(
            read(
                &stream,
                "shardId-1",
                &ReadFrom::AfterSequenceNumber(seven),
                9
            ),
            ["9"]
        );
    }

    #[test]
    fn records_of_several_streams_and_none_are_refused() {
        let told = |captured| CapturedStream::new(captured).unwrap_err().to_string();
        let two = vec![
            captured("one", "shardId-1", (1, 0)),
            captured("two", "shardId-1", (2, 0)),
        ];
        assert!(told(two).contains("of one and of two"));
        assert!(told(Vec::new()).contains("no captured records"));
    }
}
