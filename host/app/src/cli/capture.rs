//! `shardmill capture`.

use clap::Args;

use super::ConnectionArgs;

/// Arguments of `capture`.
#[derive(Debug, Args)]
#[command(
    after_help = "Each line is a JSON object with a record's stream, shard, sequence number, \
        keys, arrival time and data; records that a producer packed into an aggregate are written \
        one by one. No lease is taken, so hosts do not notice, but all readers of a shard share \
        five reads a second.\n\nExamples:\n  \
    shardmill capture --stream orders --from 2026-01-31T00:00:00Z --count 1000 > \
    captured.ndjson\n  \
    shardmill test alerts.wasm --captured captured.ndjson"
)]
pub(crate) struct CaptureArgs {
    /// The stream, by name or ARN.
    #[arg(long, value_name = "STREAM", default_value = "dev")]
    pub(crate) stream: String,
    /// Only this shard, such as shardId-000000000003; repeat it for more. Default: all shards.
    #[arg(long = "shard", value_name = "SHARD")]
    pub(crate) shards: Vec<String>,
    /// The time to start from in each shard, such as 2026-01-31T00:00:00Z. Default: the oldest
    /// record.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_rfc3339_weak)]
    pub(crate) from: Option<std::time::SystemTime>,
    /// Maximum records from each shard. Default: all, up to the latest.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// Where the streams and tables are.
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
}
