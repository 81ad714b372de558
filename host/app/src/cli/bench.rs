//! `shardmill bench`.

use std::path::PathBuf;

use clap::Args;

use super::{OutputArgs, SettingsArgs};

/// Arguments of `bench`.
#[derive(Debug, Args)]
#[command(
    after_help = "Batches are delivered to one instance of the production engine, with the \
        limits, batches and values of the manifest NAME.toml next to FILE.wasm; its output is \
        counted and dropped. For comparison, the same batches also go to a component that does \
        nothing, which shows the cost of delivery alone, and to native code that does nothing. \
        The report has the median of the rounds, the fastest and the slowest; on a busy machine \
        they are far apart, and CPU time is well below elapsed time.\n\nWithout --input, records \
        are 1 KiB of JSON: {\"n\":0,\"text\":\"xxx…\"}. Exit code: 0 if all records were handled, \
        1 if not, 64 if the configuration is wrong.\n\nExamples:\n  \
    shardmill bench alerts.wasm\n  \
    shardmill bench alerts.wasm --input sample.ndjson --key-field user --batch-records 100\n  \
    shardmill bench alerts.wasm --json --records 100000"
)]
pub(crate) struct BenchArgs {
    /// The component.
    #[arg(value_name = "FILE.wasm")]
    pub(crate) plugin: PathBuf,
    /// Lines to deliver over and over, one record each, plain or gzip; `-` is standard input.
    #[arg(long, value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,
    /// The field of each line that becomes the partition key, such as `carrier` or
    /// `properties.net`.
    #[arg(long, value_name = "FIELD", requires = "input")]
    pub(crate) key_field: Option<String>,
    /// Records in a round, rounded up to whole batches. Default: as many as take half a second.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) records: Option<u32>,
    /// Rounds.
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = 9,
        value_parser = clap::value_parser!(u32).range(1..=1_000)
    )]
    pub(crate) rounds: u32,
    /// Settings.
    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
    /// How to print.
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
