//! `shardmill put`.

use std::path::PathBuf;

use clap::Args;

use super::{ConnectionArgs, OutputArgs, values};

/// Arguments of `put`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    shardmill put --local --stream dev --key-field carrier flights.ndjson.gz\n  \
    tail -f events.ndjson | shardmill put --stream events -")]
pub(crate) struct PutArgs {
    /// The lines to put, plain or gzip; `-` is standard input.
    pub(crate) file: PathBuf,
    /// The stream, by name or ARN.
    #[arg(long, value_name = "STREAM", default_value = "dev")]
    pub(crate) stream: String,
    /// The field of each line that becomes the partition key, such as `carrier` or
    /// `properties.net`. Without it, keys spread evenly and order is lost.
    #[arg(long, value_name = "FIELD")]
    pub(crate) key_field: Option<String>,
    /// The partition key of every record, so that all of them go to one shard, in order.
    #[arg(long, value_name = "KEY", value_parser = values::partition_key,
          conflicts_with = "key_field")]
    pub(crate) key: Option<String>,
    /// A number below 2^128 that chooses the shard of every record, instead of the partition key's
    /// hash: each shard's range is in `aws kinesis list-shards`.
    #[arg(long, value_name = "NUMBER", value_parser = values::hash_key)]
    pub(crate) explicit_hash_key: Option<u128>,
    /// How to print.
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Where the streams and tables are.
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
}
