//! `ruststream-kinesis` at its cheapest: its subscription without the handlers and codecs above it,
//! batches of 10,000, and leases in memory, because with its DynamoDB store each record that is
//! acknowledged is a write to the table.

use std::num::NonZeroUsize;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::StreamExt;
use peers::Arguments;
use ruststream::{BatchSubscriber, Broker, IncomingMessage, Seekable, Seeker, SubscriptionSource};
use ruststream_kinesis::{KinesisBroker, KinesisPosition, KinesisStream};

#[tokio::main]
async fn main() -> Result<()> {
    let Arguments {
        endpoint,
        stream,
        count,
    } = Arguments::read()?;
    let broker = KinesisBroker::new()
        .endpoint(endpoint)
        .region("us-east-1")
        .test_credentials();
    let connected = broker.connect().await?;
    let source = KinesisStream::new(stream).poll_interval(Duration::from_millis(1));
    let mut subscriber = source.subscribe(&connected).await?;
    subscriber.seeker().seek(KinesisPosition::horizon()).await?;
    let size = NonZeroUsize::new(10_000).context("not zero")?;
    let mut batches = pin!(subscriber.batches(size));
    let mut seen = 0;
    while let Some(batch) = batches.next().await {
        let batch = batch?;
        seen += batch.len() as u64;
        for message in batch {
            message.ack().await?;
        }
        count.write(seen)?;
    }
    Ok(())
}
