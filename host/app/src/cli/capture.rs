//! `shardmill capture`.

use std::path::PathBuf;

use clap::Args;

use super::AwsArgs;

/// Arguments of `capture`.
#[derive(Debug, Args)]
#[command(
    after_help = "A line is a JSON object with stream, shard, sequence number, keys, arrival and data of a record; what a \
    producer packed into an aggregate is written as the records in it. Only reads, without a lease, so that no host notices; but \
    a shard answers five readers a second in all.\n\nExamples:\n  \
    shardmill capture --stream orders --from 2026-01-31T00:00:00Z --count 1000 > captured.ndjson\n  \
    shardmill test alerts.wasm --captured captured.ndjson"
)]
pub(crate) struct CaptureArgs {
    /// The stream.
    #[arg(long, default_value = "dev")]
    pub(crate) stream: String,
    /// Only this shard, such as shardId-000000000003; may be given several times. All shards unless given.
    #[arg(long = "shard", value_name = "SHARD")]
    pub(crate) shards: Vec<String>,
    /// Where to start in each shard: its oldest record unless given, or a time such as 2026-01-31T00:00:00Z.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_rfc3339_weak)]
    pub(crate) from: Option<std::time::SystemTime>,
    /// Most records of each shard. Unless given, all up to the latest.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// The configuration, for how to reach AWS.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// How to reach AWS.
    #[command(flatten)]
    pub(crate) aws: AwsArgs,
}
