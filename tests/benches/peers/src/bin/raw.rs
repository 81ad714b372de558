//! The least that a consumer in Rust does: a task for each shard calls `GetRecords` with the SDK
//! and drops what comes. No leases, no checkpoints, no retries but the SDK's.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use aws_config::{BehaviorVersion, Region};
use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::config::Credentials;
use aws_sdk_kinesis::types::ShardIteratorType;
use aws_smithy_http_client::{Builder, tls};
use peers::{Arguments, Count};

#[tokio::main]
async fn main() -> Result<()> {
    let Arguments {
        endpoint,
        stream,
        count,
    } = Arguments::read()?;
    let http = Builder::new()
        .tls_provider(tls::Provider::Rustls(
            tls::rustls_provider::CryptoMode::Ring,
        ))
        .build_https();
    let config = aws_sdk_kinesis::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .endpoint_url(endpoint)
        .credentials_provider(Credentials::new("local", "local", None, None, "local"))
        .http_client(http)
        .build();
    let client = Client::from_conf(config);
    let seen = Arc::new((count, AtomicU64::new(0)));
    let shards = client.list_shards().stream_name(&stream).send().await?;
    let mut readers = Vec::new();
    for shard in shards.shards() {
        let reader = read(
            client.clone(),
            stream.clone(),
            shard.shard_id().to_owned(),
            Arc::clone(&seen),
        );
        readers.push(tokio::spawn(reader));
    }
    for reader in readers {
        reader.await??;
    }
    Ok(())
}

async fn read(
    client: Client,
    stream: String,
    shard: String,
    seen: Arc<(Count, AtomicU64)>,
) -> Result<()> {
    let request = client.get_shard_iterator().stream_name(stream);
    let reply = request
        .shard_id(shard)
        .shard_iterator_type(ShardIteratorType::TrimHorizon)
        .send()
        .await?;
    let mut next = reply.shard_iterator.context("an iterator")?;
    loop {
        let request = client.get_records().shard_iterator(next);
        let reply = request.limit(10_000).send().await?;
        if reply.records.is_empty() {
            return Ok(());
        }
        let of_reply = reply.records.len() as u64;
        let (count, total) = &*seen;
        count.write(total.fetch_add(of_reply, Ordering::SeqCst) + of_reply)?;
        next = reply.next_shard_iterator.context("an open shard")?;
    }
}
