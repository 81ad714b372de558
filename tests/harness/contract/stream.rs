//! The promises of a stream.

use shardmill_core::ports::{Fetched, PortFuture, ReadError, ShardIterator, StreamReader};
use shardmill_core::stream::{ReadFrom, Record, SequenceNumber, Shard, ShardId};
use shardmill_fakes::fake_stream::FakeStream;

/// A stream of two shards that can be changed.
pub trait StreamControl: Send + Sync {
    /// The reader under test.
    fn reader(&self) -> &dyn StreamReader;

    /// Puts one record by hash key.
    fn put<'a>(
        &'a self,
        hash_key: u128,
        key: &'a str,
        data: &'a str,
    ) -> PortFuture<'a, (ShardId, SequenceNumber)>;

    /// Splits a shard, the second child starting at `at`.
    fn split<'a>(&'a self, shard: &'a ShardId, at: u128) -> PortFuture<'a, ()>;

    /// Merges two adjacent shards.
    fn merge<'a>(&'a self, left: &'a ShardId, right: &'a ShardId) -> PortFuture<'a, ()>;

    /// Milliseconds since the Unix epoch, on the stream's own clock, later than all that was put
    /// and earlier than all that will be.
    fn timestamp(&self) -> PortFuture<'_, u64>;
}

impl StreamControl for FakeStream {
    fn reader(&self) -> &dyn StreamReader {
        self
    }

    fn put<'a>(
        &'a self,
        hash_key: u128,
        key: &'a str,
        data: &'a str,
    ) -> PortFuture<'a, (ShardId, SequenceNumber)> {
        Box::pin(async move { self.put_at(hash_key, key, data.to_owned()) })
    }

    fn split<'a>(&'a self, shard: &'a ShardId, at: u128) -> PortFuture<'a, ()> {
        Box::pin(async move { drop(FakeStream::split(self, shard, at)) })
    }

    fn merge<'a>(&'a self, left: &'a ShardId, right: &'a ShardId) -> PortFuture<'a, ()> {
        Box::pin(async move { drop(FakeStream::merge(self, left, right)) })
    }

    fn timestamp(&self) -> PortFuture<'_, u64> {
        Box::pin(async move {
            let now = self.advance_ms(1);
            self.advance_ms(1);
            now
        })
    }
}

/// More than any test here reads.
const LIMIT: u32 = 1_000;
/// Replies to wait for; a real stream may give some empty ones.
const FETCHES_MAX: usize = 50;

async fn shards(stream: &dyn StreamControl) -> Vec<Shard> {
    let mut shards = stream.reader().list_shards().await.expect("a listing");
    shards.sort_by(|a, b| a.id.cmp(&b.id));
    shards
}

async fn iterator(stream: &dyn StreamControl, shard: &ShardId, from: ReadFrom) -> ShardIterator {
    stream
        .reader()
        .iterator(shard, &from)
        .await
        .expect("an iterator")
}

/// Reads until `count` records are there or the shard has ended.
async fn read(
    stream: &dyn StreamControl,
    from: ShardIterator,
    count: usize,
    limit: u32,
) -> (Vec<Record>, Fetched) {
    let (mut next, mut records) = (from, Vec::new());
    for _ in 0..FETCHES_MAX {
        let mut fetched = stream.reader().fetch(&next, limit).await.expect("a reply");
        assert!(fetched.records.len() <= limit as usize);
        records.append(&mut fetched.records);
        match &fetched.next {
            Some(following) if records.len() < count => next = following.clone(),
            Some(_) | None => return (records, fetched),
        }
    }
    panic!(
        "{} of {count} records after {FETCHES_MAX} replies",
        records.len()
    );
}

async fn data(
    stream: &dyn StreamControl,
    shard: &ShardId,
    from: ReadFrom,
    count: usize,
) -> Vec<String> {
    let iterator = iterator(stream, shard, from).await;
    let (records, _) = read(stream, iterator, count, LIMIT).await;
    records
        .iter()
        .map(|record| String::from_utf8_lossy(&record.data).into_owned())
        .collect()
}

/// The open shards leave no hole and do not overlap.
pub async fn shards_cover_the_hash_key_space(stream: &dyn StreamControl) {
    let mut ranges: Vec<_> = shards(stream)
        .await
        .iter()
        .map(|shard| shard.hash_range)
        .collect();
    ranges.sort_by_key(|range| range.start());
    assert_eq!(ranges.len(), 2);
    assert_eq!((ranges[0].start(), ranges[1].end()), (0, u128::MAX));
    assert_eq!(ranges[0].end() + 1, ranges[1].start());
}

/// Bytes, key and sequence number, including an empty record.
pub async fn records_come_back_in_order_with_all_they_were_put_with(stream: &dyn StreamControl) {
    let mut put = Vec::new();
    for data in ["first", "", "third \u{1f980}"] {
        let (shard, sequence) = stream.put(0, "the key", data).await;
        put.push((shard, sequence, data));
    }
    let shard = put[0].0.clone();
    let start = iterator(stream, &shard, ReadFrom::TrimHorizon).await;
    let (records, _) = read(stream, start, put.len(), LIMIT).await;
    assert_eq!(records.len(), put.len());
    for (record, (_, sequence, data)) in records.iter().zip(&put) {
        assert_eq!(&record.data[..], data.as_bytes());
        assert_eq!(
            (record.partition_key.as_str(), &record.position.sequence),
            ("the key", sequence)
        );
        assert_eq!(record.position.sub_sequence, 0);
        assert!(record.arrival_ms > 0);
    }
    assert!(put.is_sorted_by(|a, b| a.1 < b.1));
}

/// No records is not the end: only a missing iterator is.
pub async fn an_empty_shard_is_not_at_its_end(stream: &dyn StreamControl) {
    let shard = shards(stream).await.remove(0);
    let mut next = iterator(stream, &shard.id, ReadFrom::TrimHorizon).await;
    for _ in 0..3 {
        let fetched = stream.reader().fetch(&next, LIMIT).await.expect("a reply");
        assert!(fetched.records.is_empty() && fetched.children.is_empty());
        assert_eq!(fetched.millis_behind_latest, Some(0));
        next = fetched.next.expect("an open shard goes on");
    }
}

/// Whether from the start or from the tip.
pub async fn reading_on_after_an_empty_reply_finds_what_was_put_since(stream: &dyn StreamControl) {
    for (from, data) in [(ReadFrom::TrimHorizon, "a"), (ReadFrom::Latest, "b")] {
        let shard = shards(stream).await.remove(0);
        let start = iterator(stream, &shard.id, from).await;
        let (_, fetched) = read(stream, start, 0, LIMIT).await;
        stream.put(0, "key", data).await;
        let (records, _) = read(
            stream,
            fetched.next.expect("an open shard goes on"),
            1,
            LIMIT,
        )
        .await;
        assert_eq!(&records[0].data[..], data.as_bytes());
        assert_eq!(records.len(), 1);
    }
}

/// `TRIM_HORIZON`, `LATEST`, and `AT_TIMESTAMP` before, between and after the records.
pub async fn every_initial_position_starts_where_it_says(stream: &dyn StreamControl) {
    let before = stream.timestamp().await;
    let (shard, _) = stream.put(0, "key", "a").await;
    let between = stream.timestamp().await;
    stream.put(0, "key", "b").await;
    let after = stream.timestamp().await;
    let tips = [
        iterator(stream, &shard, ReadFrom::Latest).await,
        iterator(stream, &shard, ReadFrom::AtTimestamp(after)).await,
    ];
    stream.put(0, "key", "c").await;
    assert_eq!(
        data(stream, &shard, ReadFrom::TrimHorizon, 3).await,
        ["a", "b", "c"]
    );
    assert_eq!(
        data(stream, &shard, ReadFrom::AtTimestamp(before), 3).await,
        ["a", "b", "c"]
    );
    assert_eq!(
        data(stream, &shard, ReadFrom::AtTimestamp(between), 2).await,
        ["b", "c"]
    );
    for tip in tips {
        let (records, _) = read(stream, tip, 1, LIMIT).await;
        assert_eq!((records.len(), &records[0].data[..]), (1, &b"c"[..]));
    }
}

/// What the moment of a start rests on.
pub async fn what_arrives_after_the_streams_time_was_told_is_read_from_that_time(
    stream: &dyn StreamControl,
) {
    stream.put(0, "key", "long before").await;
    stream.timestamp().await;
    let now = stream
        .reader()
        .now_ms()
        .await
        .expect("an answer")
        .expect("a stream that tells its time");
    let (shard, _) = stream.put(0, "key", "after").await;
    assert_eq!(
        data(stream, &shard, ReadFrom::AtTimestamp(now), 1).await,
        ["after"]
    );
}

/// A shard may be named though it was closed before, and never left out though it was closed later.
pub async fn shards_closed_since_a_time_are_told_from_those_closed_before(
    stream: &dyn StreamControl,
) {
    let before = shards(stream).await;
    let (left, right) = (&before[0].id, &before[1].id);
    stream.split(left, 1_000).await;
    // A split takes its time, after which its children are there.
    stream.timestamp().await;
    let between = stream.timestamp().await;
    stream.split(right, u128::MAX - 1_000).await;
    let listed = stream
        .reader()
        .list_shards_since(between)
        .await
        .expect("a listing")
        .expect("it is told");
    let is_listed = |id: &ShardId| listed.iter().any(|shard| shard.id == *id);
    assert!(!is_listed(left), "closed before");
    assert!(is_listed(right), "closed since");
    assert_eq!(listed.iter().filter(|shard| shard.is_open()).count(), 4);
}

/// What a resume and a reconnect rest on.
pub async fn a_sequence_number_starts_at_it_or_after_it(stream: &dyn StreamControl) {
    stream.put(0, "key", "a").await;
    let (shard, sequence) = stream.put(0, "key", "b").await;
    stream.put(0, "key", "c").await;
    assert_eq!(
        data(
            stream,
            &shard,
            ReadFrom::AtSequenceNumber(sequence.clone()),
            2
        )
        .await,
        ["b", "c"]
    );
    assert_eq!(
        data(stream, &shard, ReadFrom::AfterSequenceNumber(sequence), 1).await,
        ["c"]
    );
}

/// Reading two at a time gives each record once; the lag is said while more follows.
pub async fn limited_replies_lose_and_repeat_nothing(stream: &dyn StreamControl) {
    let expected: Vec<String> = (0..7).map(|index| index.to_string()).collect();
    let mut shard = None;
    for data in &expected {
        shard = Some(stream.put(0, "key", data).await.0);
    }
    let start = iterator(stream, &shard.expect("a shard"), ReadFrom::TrimHorizon).await;
    let (records, _) = read(stream, start, expected.len(), 2).await;
    let found: Vec<_> = records
        .iter()
        .map(|record| String::from_utf8_lossy(&record.data))
        .collect();
    assert_eq!(found, expected);
}

/// The end is said once everything was given, and with it the children.
pub async fn a_closed_shard_gives_all_its_records_then_its_children_and_no_iterator(
    stream: &dyn StreamControl,
) {
    let (shard, _) = stream.put(0, "key", "a").await;
    stream.put(0, "key", "b").await;
    stream.split(&shard, 1_000).await;
    let listed = shards(stream).await;
    assert!(
        !listed
            .iter()
            .find(|listed| listed.id == shard)
            .expect("the parent")
            .is_open()
    );
    for from in [ReadFrom::TrimHorizon, ReadFrom::Latest] {
        let start = iterator(stream, &shard, from.clone()).await;
        let (records, last) = read(stream, start, usize::MAX, 1).await;
        assert_eq!(
            records.len(),
            if from == ReadFrom::TrimHorizon { 2 } else { 0 }
        );
        assert_eq!(last.next, None);
        let children = listed
            .iter()
            .filter(|listed| listed.parents.contains(&shard));
        let mut found = last.children.clone();
        found.sort_by(|a, b| a.id.cmp(&b.id));
        assert_eq!(found, children.cloned().collect::<Vec<_>>());
        assert_eq!(found.len(), 2);
        assert_eq!(found[1].hash_range.start(), 1_000);
    }
}

/// And each parent names it.
pub async fn the_child_of_a_merge_has_both_parents(stream: &dyn StreamControl) {
    let before = shards(stream).await;
    let (left, right) = (&before[0].id, &before[1].id);
    stream.merge(left, right).await;
    let after = shards(stream).await;
    assert_eq!(after.len(), 3);
    let mut parents = after[2].parents.clone();
    parents.sort();
    assert_eq!(parents, [left.clone(), right.clone()]);
    assert_eq!(
        after[2].hash_range,
        shardmill_core::stream::HashKeyRange::FULL
    );
    for parent in [left, right] {
        let start = iterator(stream, parent, ReadFrom::TrimHorizon).await;
        let (_, last) = read(stream, start, usize::MAX, LIMIT).await;
        let found: Vec<_> = last.children.iter().map(|child| &child.id).collect();
        assert_eq!(found, [&after[2].id]);
    }
}

/// A child's records are all later than its parent's.
pub async fn what_is_put_after_a_split_is_read_from_the_children(stream: &dyn StreamControl) {
    let (parent, before) = stream.put(5, "key", "before").await;
    stream.split(&parent, 3).await;
    let (left, _) = stream.put(2, "key", "left").await;
    let (right, after) = stream.put(3, "key", "right").await;
    assert!(left != parent && right != parent && left != right);
    assert!(after > before);
    assert_eq!(
        data(stream, &left, ReadFrom::TrimHorizon, 1).await,
        ["left"]
    );
    assert_eq!(
        data(stream, &right, ReadFrom::TrimHorizon, 1).await,
        ["right"]
    );
    assert_eq!(
        data(stream, &parent, ReadFrom::TrimHorizon, usize::MAX).await,
        ["before"]
    );
}

/// Which is not the end of anything.
pub async fn an_unknown_shard_is_not_found(stream: &dyn StreamControl) {
    let unknown = ShardId::new("shardId-000000000099").expect("a valid id");
    let error = stream
        .reader()
        .iterator(&unknown, &ReadFrom::TrimHorizon)
        .await
        .expect_err("no such shard");
    assert!(matches!(error, ReadError::NotFound { .. }), "{error}");
}
