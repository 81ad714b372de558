//! Kinesis in memory: a fake stream, and fan-out on it.

use std::sync::Arc;
use std::time::Duration;

use shardmill_core::ports::ConsumerState;
use shardmill_core::stream::{ConsumerName, FanOutConsumer, ReadFrom, SequenceNumber, ShardId};
use shardmill_fakes::fake_fan_out::FakeFanOut;
use shardmill_fakes::fake_stream::FakeStream;
use shardmill_invariants::history::Place;

use crate::options::CONSUMER;
use crate::producer::Entry;
use crate::stream::{Listed, Stored, StreamService};
use crate::system::EPOCH;
use crate::world::{Run, World};

/// The service.
pub struct MemoryStream {
    /// The stream.
    pub(super) stream: Arc<FakeStream>,
    /// Its consumers and subscriptions.
    pub(super) fan_out: FakeFanOut,
}

/// The stream of a world that holds it in memory.
pub(super) fn memory(world: &World) -> &MemoryStream {
    match world.stream.service() {
        StreamService::Memory(memory) => memory,
        StreamService::Emulated(_) => unreachable!("a host in memory has its stream in memory"),
    }
}

/// What the stream's clock shows.
pub(super) fn wall_ms(run: &Run) -> u64 {
    let now: Duration = EPOCH + run.elapsed();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

fn id(shard: &str) -> ShardId {
    ShardId::new(shard).expect("as it was listed")
}

impl MemoryStream {
    /// A stream of so many shards.
    pub fn new(shards: u32) -> Self {
        let stream = Arc::new(FakeStream::new(shards));
        Self {
            fan_out: FakeFanOut::new(Arc::clone(&stream)),
            stream,
        }
    }

    /// Puts these records: each with where it was stored.
    pub fn put(&self, run: &Run, entries: &[Entry]) -> Vec<Option<Stored>> {
        self.stream.set_now_ms(wall_ms(run));
        let put = |entry: &Entry| {
            let (shard, sequence) = self.stream.put(&entry.key, entry.data.clone());
            Some(Stored {
                shard: shard.to_string(),
                sequence: sequence.as_str().to_owned(),
            })
        };
        entries.iter().map(put).collect()
    }

    /// Splits a shard at `middle`.
    pub fn split(&self, run: &Run, parent: &str, middle: u128) {
        self.stream.set_now_ms(wall_ms(run));
        self.stream.split(&id(parent), middle);
    }

    /// Merges two shards.
    pub fn merge(&self, run: &Run, parents: [&str; 2]) {
        self.stream.set_now_ms(wall_ms(run));
        let [left, right] = parents.map(id);
        self.stream.merge(&left, &right);
    }

    /// Forgets what is older than `retention`: shards that lost records, each with the last of
    /// them, or that are gone.
    pub fn trim(&self, run: &Run, retention: Duration) -> Vec<(String, Option<Place>)> {
        let since_ms =
            wall_ms(run).saturating_sub(u64::try_from(retention.as_millis()).unwrap_or(u64::MAX));
        let trimmed = self.stream.trim_before(since_ms);
        // With all user records inside of the last Kinesis record.
        let last_of = |last: SequenceNumber| Place {
            sub: u64::MAX,
            ..Place::plain(last.as_str())
        };
        trimmed
            .into_iter()
            .map(|(shard, last)| (shard.to_string(), last.map(last_of)))
            .collect()
    }

    /// All shards.
    pub fn list(&self) -> Vec<Listed> {
        let listed = self.stream.shards().into_iter().map(|shard| Listed {
            id: shard.id.to_string(),
            range: (shard.hash_range.start(), shard.hash_range.end()),
            is_closed: !shard.is_open(),
        });
        listed.collect()
    }

    /// Somebody deregisters the hosts' consumer; whether there was one.
    pub fn deregister(&self) -> bool {
        let was_there = self.fan_out.consumers().iter().any(|name| name == CONSUMER);
        self.fan_out.deregister(CONSUMER);
        was_there
    }

    /// Somebody else subscribes to a shard with the hosts' consumer, and leaves at once; whether
    /// that worked.
    pub fn intrude(&self, shard: &str) -> bool {
        if !self.fan_out.consumers().iter().any(|name| name == CONSUMER) {
            return false;
        }
        let consumer = FanOutConsumer::Named(ConsumerName::new(CONSUMER).expect("valid"));
        let Ok(ConsumerState::Active(arn)) = self.fan_out.ensure(&consumer) else {
            return false;
        };
        self.fan_out
            .open(&arn, &id(shard), &ReadFrom::Latest)
            .is_ok()
    }
}
