//! One stream through `ListShards`, `GetShardIterator` and `GetRecords`.

use std::collections::BTreeMap;

use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::error::SdkError;
use aws_sdk_kinesis::operation::get_records::{GetRecordsError, GetRecordsOutput};
use shardmill_core::fleet::StreamIdentity;
use shardmill_core::ports::{
    Fetched, PortFuture, REPLY_RECORDS_MAX, ReadError, ShardIterator, StreamReader,
};
use shardmill_core::stream::{ReadFrom, SequenceNumber, Shard, ShardId, StreamRef};
use shardmill_wire::{Format, Reply};

use super::errors::read_error;
use super::listing::{self, PAGE_SHARDS_MAX};
use super::start::Start;
use super::wire::{self, Decoded, Inbox, Wire};
use super::{admin, clock, convert, naming};

/// The port [`StreamReader`] for one stream, by `GetRecords`.
#[derive(Debug, Clone)]
pub struct KinesisReader {
    client: Client,
    stream: StreamRef,
    page_shards: i32,
    wire: Wire,
}

impl KinesisReader {
    /// Reads `stream` through `client`, which must be of the region in its ARN.
    pub fn new(client: Client, stream: impl Into<StreamRef>) -> Self {
        Self {
            client,
            stream: stream.into(),
            page_shards: PAGE_SHARDS_MAX,
            wire: Wire::default(),
        }
    }

    /// Speaks as `wire` says and shares what it learns; without it, as the default says.
    #[must_use]
    pub fn speaking(self, wire: Wire) -> Self {
        Self { wire, ..self }
    }

    /// Lists shards in pages of this many, at most 1,000. For tests of the paging.
    #[must_use]
    pub fn with_page_shards(self, page_shards: u16) -> Self {
        Self {
            page_shards: i32::from(page_shards).clamp(1, PAGE_SHARDS_MAX),
            ..self
        }
    }

    /// The stream that it reads.
    pub fn stream(&self) -> &StreamRef {
        &self.stream
    }

    async fn request_iterator(
        &self,
        shard: &ShardId,
        from: &ReadFrom,
    ) -> Result<ShardIterator, ReadError> {
        let start = Start::from(from);
        let request = self
            .client
            .get_shard_iterator()
            .shard_id(shard.as_str())
            .set_stream_name(naming::name(&self.stream))
            .set_stream_arn(naming::arn(&self.stream))
            .shard_iterator_type(start.kind)
            .set_timestamp(start.timestamp)
            .set_starting_sequence_number(start.sequence_number);
        let reply = request.send().await.map_err(|error| read_error(&error))?;
        reply
            .shard_iterator
            .map(ShardIterator)
            .ok_or_else(|| convert::unreadable("no shard iterator"))
    }

    async fn get_records(
        &self,
        iterator: &ShardIterator,
        limit: u32,
    ) -> Result<Fetched, ReadError> {
        let limit = i32::try_from(limit.clamp(1, REPLY_RECORDS_MAX)).unwrap_or(i32::MAX);
        let format = self.wire.format();
        let mut reply = self.ask(iterator, limit, format).await;
        if reply.is_err() && self.wire.has_left(format) {
            reply = self.ask(iterator, limit, self.wire.format()).await;
        }
        let fetched = reply
            .map_err(|error| read_error(&error))
            .and_then(fetched)?;
        let says_nothing = fetched.next.is_none()
            && fetched.children.is_empty()
            && fetched.millis_behind_latest.is_none();
        if says_nothing {
            // An empty body is a reply without members. Were this believed, a proxy could end a
            // shard.
            return Err(convert::unreadable(
                "a reply has neither an iterator nor anything that ends a shard",
            ));
        }
        Ok(fetched)
    }

    async fn ask(
        &self,
        iterator: &ShardIterator,
        limit: i32,
        format: Format,
    ) -> Result<Answer, SdkError<GetRecordsError>> {
        let inbox = Inbox::default();
        let request = self
            .client
            .get_records()
            .shard_iterator(&iterator.0)
            .limit(limit)
            .set_stream_arn(naming::arn(&self.stream))
            .customize()
            .config_override(wire::config(&self.wire, format, &inbox));
        let output = request.send().await?;
        Ok(match inbox.take() {
            Some(Decoded::Reply(reply)) => Answer::Ours(reply),
            Some(Decoded::Puts(_)) | None => Answer::Sdk(output),
        })
    }
}

/// A reply, as our decoder or the SDK read it.
enum Answer {
    Ours(Reply),
    Sdk(GetRecordsOutput),
}

fn fetched(answer: Answer) -> Result<Fetched, ReadError> {
    let reply = match answer {
        Answer::Ours(reply) => reply,
        Answer::Sdk(output) => decoded_by_sdk(output)?,
    };
    let behind = reply.millis_behind_latest;
    let fetched = Fetched {
        records: reply.records,
        next: reply.next.map(ShardIterator),
        millis_behind_latest: behind.and_then(|millis| u64::try_from(millis).ok()),
        children: reply.children,
    };
    fetched.in_order()
}

fn decoded_by_sdk(output: GetRecordsOutput) -> Result<Reply, ReadError> {
    Ok(Reply {
        records: convert::records(output.records)?,
        next: output.next_shard_iterator,
        continuation: None,
        millis_behind_latest: output.millis_behind_latest,
        children: convert::child_shards(output.child_shards)?,
    })
}

impl KinesisReader {
    /// The sequence number that each shard begins with, which no record has. Not part of the port:
    /// no host asks for it.
    ///
    /// # Errors
    /// Kinesis does not answer, or the reply cannot be read.
    pub async fn first_sequences(&self) -> Result<BTreeMap<ShardId, SequenceNumber>, ReadError> {
        listing::first_sequences(&self.client, &self.stream).await
    }
}

impl StreamReader for KinesisReader {
    fn identity(&self) -> PortFuture<'_, Result<Option<StreamIdentity>, ReadError>> {
        Box::pin(admin::identity(&self.client, &self.stream))
    }

    fn list_shards(&self) -> PortFuture<'_, Result<Vec<Shard>, ReadError>> {
        Box::pin(listing::list_shards(
            &self.client,
            &self.stream,
            self.page_shards,
        ))
    }

    fn list_shards_since(
        &self,
        since_ms: u64,
    ) -> PortFuture<'_, Result<Option<Vec<Shard>>, ReadError>> {
        Box::pin(listing::list_shards_since(
            &self.client,
            &self.stream,
            self.page_shards,
            since_ms,
        ))
    }

    fn now_ms(&self) -> PortFuture<'_, Result<Option<u64>, ReadError>> {
        Box::pin(clock::now_ms(&self.client, &self.stream))
    }

    fn iterator<'a>(
        &'a self,
        shard: &'a ShardId,
        from: &'a ReadFrom,
    ) -> PortFuture<'a, Result<ShardIterator, ReadError>> {
        Box::pin(self.request_iterator(shard, from))
    }

    fn fetch<'a>(
        &'a self,
        iterator: &'a ShardIterator,
        limit: u32,
    ) -> PortFuture<'a, Result<Fetched, ReadError>> {
        Box::pin(self.get_records(iterator, limit))
    }
}
