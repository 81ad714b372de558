//! `shardmill load`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::{ConnectionArgs, OutputArgs, values};

/// Arguments of `load`.
#[derive(Debug, Args)]
#[command(
    after_help = "Without --apply it shows what would be put and what that costs, and does \
        nothing. A stream of --create-with is deleted at the end, also after Ctrl-C.\n\n\
        Exit code: 0 if all records were put and, with --application, handled in time.\n\n\
        Examples:\n  \
    shardmill load --stream load-test --create-with 8 --records-per-second 5000 --for 10m\n  \
    shardmill load --stream load-test --records-per-second 5000 --application load-test --apply"
)]
pub(crate) struct LoadArgs {
    /// The stream, by name; by ARN too if it exists. Load-test records are junk: use a stream that
    /// only the test's hosts read.
    #[arg(long, value_name = "STREAM")]
    pub(crate) stream: String,
    /// Make the stream with so many shards, and delete it at the end. One that exists is refused.
    #[arg(long, value_name = "SHARDS", value_parser = values::count::<10_000>)]
    pub(crate) create_with: Option<u32>,
    /// Leave the stream of --create-with for another test. It costs money until it is deleted.
    #[arg(long, requires = "create_with")]
    pub(crate) keep: bool,
    /// Records to put in a second.
    #[arg(long, value_name = "RATE", value_parser = values::load)]
    pub(crate) records_per_second: f64,
    /// Bytes of a record, data and key.
    #[arg(long, value_name = "BYTES", default_value_t = 1_024,
          value_parser = clap::value_parser!(u32).range(128..=1_048_576))]
    pub(crate) bytes: u32,
    /// For how long to put records.
    #[arg(long = "for", value_name = "DURATION", default_value = "5m",
          value_parser = values::load_time)]
    pub(crate) lasts: Duration,
    /// The application whose hosts are tested: waits until it has handled all records.
    #[arg(long, value_name = "APPLICATION", value_parser = values::application)]
    pub(crate) application: Option<String>,
    /// How long to wait for the application after the last record.
    #[arg(long, value_name = "DURATION", default_value = "5m", requires = "application",
          value_parser = values::load_time)]
    pub(crate) wait: Duration,
    /// A file of prices that replaces the built-in ones of us-east-1; docs/commands.md shows it.
    #[arg(long, value_name = "FILE")]
    pub(crate) prices: Option<PathBuf>,
    /// Do it. Without this, the command shows what it would do and what that costs.
    #[arg(long)]
    pub(crate) apply: bool,
    /// How to print.
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Where the streams and tables are.
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
}
