//! `shardmill test`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args};

/// Arguments of `test`.
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own on the command line")]
#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("records").required(true).args(["input", "captured"]),
    after_help = "The plugin's manifest NAME.toml beside FILE.wasm is used, but for its streams. Output is printed line by line, as \
    a sink prints it; what is told about the run goes to standard error. Exit code: 0 if the output is as expected and no \
    record failed, 1 if not, 64 if the configuration is wrong.\n\nExamples:\n  \
    shardmill test alerts.wasm --input sample.ndjson > expected.ndjson\n  \
    shardmill test alerts.wasm --input sample.ndjson --expect expected.ndjson\n  \
    shardmill test alerts.wasm --input sample.ndjson --spoil 100 --allow-failures\n  \
    shardmill test alerts.wasm --input sample.ndjson --expect expected.ndjson --reload-after 500\n  \
    shardmill capture --stream orders --count 1000 > captured.ndjson\n  \
    shardmill test alerts.wasm --captured captured.ndjson --deterministic"
)]
pub(crate) struct TestArgs {
    /// The component.
    #[arg(value_name = "FILE.wasm")]
    pub(crate) plugin: PathBuf,
    /// Lines to deliver, a record each, plain or gzip; `-` is standard input.
    #[arg(long, value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,
    /// Records to deliver, each with the shard, sequence number, key and arrival that it had: what `shardmill capture` wrote, or
    /// dead letters; plain or gzip.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["input", "key_field", "spoil", "shards"])]
    pub(crate) captured: Option<PathBuf>,
    /// The field of each line that becomes the partition key, such as `carrier` or `properties.net`.
    #[arg(long, value_name = "FIELD")]
    pub(crate) key_field: Option<String>,
    /// What must come out, line by line.
    #[arg(long, value_name = "FILE")]
    pub(crate) expect: Option<PathBuf>,
    /// Lines may come in any order.
    #[arg(long, requires = "expect")]
    pub(crate) unordered: bool,
    /// Print and compare objects that name plugin, shard and key beside the data.
    #[arg(long)]
    pub(crate) envelope: bool,
    /// Settings as for `run`: limits, batches, failure policy, the plugin's section. Its sinks are only names here.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// A further destination that the plugin may emit to; may be given several times.
    #[arg(long = "sink", value_name = "NAME")]
    pub(crate) sinks: Vec<String>,
    /// Most records in a batch.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) batch_records: Option<u32>,
    /// Shards that the records are spread over by their keys.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) shards: u32,
    /// After each COUNT lines, put a record that no producer meant: empty, no UTF-8, or a line cut in half, in turn.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) spoil: Option<u64>,
    /// Swap the plugin once this many records are settled: for itself, or for --reload-to.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) reload_after: Option<u64>,
    /// The version to swap to.
    #[arg(long, value_name = "FILE.wasm", requires = "reload_after")]
    pub(crate) reload_to: Option<PathBuf>,
    /// Deliveries of a record that fails, where the plugin's policy would try for ever.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) attempts: u32,
    /// Bound calls by fuel, about a unit an instruction, instead of time, and let clocks and random numbers be the same in each
    /// run: what passes or fails here does so on any machine. Output comes shard by shard. Tells the fuel that a record took.
    #[arg(long)]
    pub(crate) deterministic: bool,
    /// Fuel of one call. The default is about what a fast machine burns in five seconds.
    #[arg(long, value_name = "UNITS", default_value_t = 5_000_000_000, requires = "deterministic",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) fuel: u64,
    /// Records that fail are told, and are no reason to exit with 1.
    #[arg(long)]
    pub(crate) allow_failures: bool,
    /// Give up when nothing is settled for this long.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = super::values::duration)]
    pub(crate) timeout: Duration,
    /// Print an object with counts, failures and differences instead of the output.
    #[arg(long)]
    pub(crate) json: bool,
}
