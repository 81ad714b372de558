//! `shardmill bench`.

use std::path::PathBuf;

use clap::Args;

/// Arguments of `bench`.
#[derive(Debug, Args)]
#[command(
    after_help = "Batches are delivered to one instance of the production engine, with the limits, batches and values of the \
    manifest NAME.toml beside FILE.wasm; what it emits is counted and dropped. Beside it, in turn, the same batches go to a \
    component that does nothing, which is the price of delivering, and to native code that does nothing. Medians of the \
    rounds are told, with the fastest and the slowest; a machine that does other things shows in the spread, and in CPU time \
    that is less.\n\nWithout \
    --input, records are 1 KiB of JSON: {\"n\":0,\"text\":\"xxx…\"}. Exit code: 0 if all records were handled, 1 if not, \
    64 if the configuration is wrong.\n\nExamples:\n  \
    shardmill bench alerts.wasm\n  \
    shardmill bench alerts.wasm --input sample.ndjson --key-field user --batch-records 100\n  \
    shardmill bench alerts.wasm --json --records 100000"
)]
pub(crate) struct BenchArgs {
    /// The component.
    #[arg(value_name = "FILE.wasm")]
    pub(crate) plugin: PathBuf,
    /// Lines to deliver, a record each, plain or gzip, over and over; `-` is standard input.
    #[arg(long, value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,
    /// The field of each line that becomes the partition key, such as `carrier` or `properties.net`.
    #[arg(long, value_name = "FIELD", requires = "input")]
    pub(crate) key_field: Option<String>,
    /// Records in a round, made up to whole batches; unless given, as many as take half a second.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) records: Option<u32>,
    /// Rounds.
    #[arg(long, value_name = "COUNT", default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) rounds: u32,
    /// Most records in a batch.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) batch_records: Option<u32>,
    /// Settings as for `run`: limits, batches, the plugin's section, a cache for compiled code. Its sinks are only names here.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// A further destination that the plugin may emit to; may be given several times.
    #[arg(long = "sink", value_name = "NAME")]
    pub(crate) sinks: Vec<String>,
    /// Print the report as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}
