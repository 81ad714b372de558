//! `shardmill put`.

use std::path::PathBuf;

use clap::Args;

use super::{OutputArgs, PlaceArgs};

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
    /// How to print.
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Where the streams and tables are.
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
}
