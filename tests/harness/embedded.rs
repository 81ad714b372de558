//! The embedded stack with clients, and a stream in it that tests can change.

use std::time::Duration;

use aws_sdk_kinesis::primitives::Blob;
use shardmill_aws::{
    AwsClients, AwsOptions, KinesisReader, LeaseTable, StaticCredentials, StreamAdmin, Wire,
    WireSetting, connect,
};
use shardmill_core::ports::{PortFuture, StreamReader};
use shardmill_core::stream::{SequenceNumber, ShardId, StreamName, StreamRef};
use shardmill_local::{LOCAL_REGION, LocalOptions, LocalStack};

use crate::contract::stream::StreamControl;

/// A running stack and clients for it.
pub struct Embedded {
    /// The stack.
    pub stack: LocalStack,
    /// Clients that reach it.
    pub clients: AwsClients,
}

impl Embedded {
    /// Starts a stack.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub async fn start(options: LocalOptions) -> Self {
        let stack = LocalStack::start(options).await.expect("the stack starts");
        let clients = clients(&stack).await;
        Self { stack, clients }
    }

    /// Makes `name` with `shards` shards.
    ///
    /// # Panics
    ///
    /// If it cannot be made.
    pub async fn stream(&self, name: &str, shards: u32) -> EmbeddedStream {
        let name = StreamName::new(name).expect("a valid name");
        let admin = StreamAdmin::new(self.clients.kinesis.clone());
        admin.ensure_stream(&name, shards).await.expect("a stream");
        EmbeddedStream::new(self.clients.kinesis.clone(), name)
    }

    /// A lease table adapter whose scans take many pages.
    pub fn lease_table(&self, name: &str) -> LeaseTable {
        LeaseTable::new(self.clients.dynamodb.clone(), name).with_page_rows(5)
    }
}

/// Clients for a stack.
///
/// # Panics
///
/// If none can be made.
pub async fn clients(stack: &LocalStack) -> AwsClients {
    let options = AwsOptions {
        region: Some(LOCAL_REGION.to_owned()),
        kinesis_endpoint: Some(stack.kinesis_endpoint().to_owned()),
        dynamodb_endpoint: Some(stack.dynamodb_endpoint().to_owned()),
        credentials: Some(StaticCredentials::dummy()),
        ..AwsOptions::default()
    };
    connect(&options).await.expect("clients")
}

/// A stream of the embedded Kinesis.
pub struct EmbeddedStream {
    client: aws_sdk_kinesis::Client,
    reader: KinesisReader,
}

impl EmbeddedStream {
    /// An existing stream, listed one shard a page.
    pub fn new(client: aws_sdk_kinesis::Client, name: StreamName) -> Self {
        let reader = KinesisReader::new(client.clone(), name).with_page_shards(1);
        Self { client, reader }
    }

    /// The same stream, read by its ARN.
    ///
    /// # Panics
    ///
    /// If that is none.
    #[must_use]
    pub fn by_arn(self, arn: &str) -> Self {
        let stream = StreamRef::parse(arn).expect("an ARN");
        let reader = KinesisReader::new(self.client.clone(), stream).with_page_shards(1);
        Self { reader, ..self }
    }

    /// The same stream, spoken to in one format.
    #[must_use]
    pub fn speaking(self, wire: WireSetting) -> Self {
        let reader = self.reader.speaking(Wire::new(wire));
        Self { reader, ..self }
    }

    /// The stream.
    pub fn name(&self) -> &StreamName {
        self.reader.stream().name()
    }
}

impl StreamControl for EmbeddedStream {
    fn reader(&self) -> &dyn StreamReader {
        &self.reader
    }

    fn put<'a>(
        &'a self,
        hash_key: u128,
        key: &'a str,
        data: &'a str,
    ) -> PortFuture<'a, (ShardId, SequenceNumber)> {
        Box::pin(async move {
            let request = self
                .client
                .put_record()
                .stream_name(self.name().as_str())
                .partition_key(key);
            let request = request
                .explicit_hash_key(hash_key.to_string())
                .data(Blob::new(data));
            let reply = request.send().await.expect("the record is stored");
            let sequence =
                SequenceNumber::parse(&reply.sequence_number).expect("a sequence number");
            (ShardId::new(reply.shard_id).expect("a shard id"), sequence)
        })
    }

    fn split<'a>(&'a self, shard: &'a ShardId, at: u128) -> PortFuture<'a, ()> {
        Box::pin(async move {
            let request = self
                .client
                .split_shard()
                .stream_name(self.name().as_str())
                .shard_to_split(shard.as_str());
            request
                .new_starting_hash_key(at.to_string())
                .send()
                .await
                .expect("the shard is split");
        })
    }

    fn merge<'a>(&'a self, left: &'a ShardId, right: &'a ShardId) -> PortFuture<'a, ()> {
        Box::pin(async move {
            let request = self
                .client
                .merge_shards()
                .stream_name(self.name().as_str())
                .shard_to_merge(left.as_str());
            request
                .adjacent_shard_to_merge(right.as_str())
                .send()
                .await
                .expect("the shards are merged");
        })
    }

    fn timestamp(&self) -> PortFuture<'_, u64> {
        Box::pin(async move {
            // The emulator keeps whole seconds: a moment between two records needs a second on
            // either side. The only wait for real time, because the other process' clock is the
            // machine's.
            tokio::time::sleep(Duration::from_millis(1_100)).await;
            let now = machine_now_ms();
            tokio::time::sleep(Duration::from_millis(1_100)).await;
            now
        })
    }
}

/// Lets `stream` take records of 10 MiB (AWS limit).
///
/// # Panics
///
/// If that is refused.
pub async fn take_large_records(client: &aws_sdk_kinesis::Client, stream: &StreamName) {
    let described = client
        .describe_stream_summary()
        .stream_name(stream.as_str())
        .send()
        .await
        .expect("described");
    let arn = described
        .stream_description_summary()
        .expect("a summary")
        .stream_arn();
    client
        .update_max_record_size()
        .stream_arn(arn)
        .max_record_size_in_kib(10_240)
        .send()
        .await
        .expect("raised");
}

/// The machine's wall clock, which is the emulator's too, in milliseconds since the Unix epoch.
#[expect(
    clippy::disallowed_methods,
    reason = "the emulator's clock is the machine's"
)]
pub fn machine_now_ms() -> u64 {
    let since_epoch = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX)
}
