//! `shardmill test`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args};
use shardmill_config::{floor, parse_duration};

use super::{OutputArgs, SettingsArgs, values};

/// Arguments of `test`.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of its own on the command line"
)]
#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("records").required(true).args(["input", "captured"]),
    after_help = "The manifest NAME.toml next to FILE.wasm applies, except for its streams. Output \
        is printed line by line, as a sink would print it, and the summary goes to standard \
        error; with --json, counts, failures and differences replace the output. Exit code: 0 if \
        the output is as expected and no record failed, 1 if not, 64 if the configuration is \
        wrong.\n\nExamples:\n  \
    shardmill test alerts.wasm --input sample.ndjson > expected.ndjson\n  \
    shardmill test alerts.wasm --input sample.ndjson --expect expected.ndjson\n  \
    shardmill test alerts.wasm --input sample.ndjson --spoil 100 --allow-failures\n  \
    shardmill test alerts.wasm --input sample.ndjson --expect expected.ndjson --reload-after \
    500\n  \
    shardmill test hours.wasm --input sample.ndjson --hand-over-after 500 --clock 1h \
    --end-shard\n  \
    shardmill capture --stream orders --count 1000 > captured.ndjson\n  \
    shardmill test alerts.wasm --captured captured.ndjson --deterministic"
)]
pub(crate) struct TestArgs {
    /// The component.
    #[arg(value_name = "FILE.wasm")]
    pub(crate) plugin: PathBuf,
    /// Lines to deliver, one record each, plain or gzip; `-` is standard input.
    #[arg(long, value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,
    /// Records to deliver with their original shard, sequence number, key and arrival time: the
    /// output of `shardmill capture`, or dead letters; plain or gzip.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["input", "key_field", "spoil", "shards"])]
    pub(crate) captured: Option<PathBuf>,
    /// The field of each line that becomes the partition key, such as `carrier` or
    /// `properties.net`.
    #[arg(long, value_name = "FIELD")]
    pub(crate) key_field: Option<String>,
    /// The expected output, line by line.
    #[arg(long, value_name = "FILE")]
    pub(crate) expect: Option<PathBuf>,
    /// Accept the expected lines in any order.
    #[arg(long, requires = "expect")]
    pub(crate) unordered: bool,
    /// Print and compare objects that have plugin, shard and key as well as the data.
    #[arg(long)]
    pub(crate) envelope: bool,
    /// Settings.
    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
    /// Shards to spread the records over, by their keys.
    #[arg(long, default_value_t = 1, value_parser = values::count::<100>)]
    pub(crate) shards: u32,
    /// After every COUNT lines, add a broken record: empty, not UTF-8, or half a line, in turn.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) spoil: Option<u64>,
    /// Swap the plugin for itself, or for --reload-to, once this many records are settled.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) reload_after: Option<u64>,
    /// The version to swap to.
    #[arg(long, value_name = "FILE.wasm", requires = "reload_after")]
    pub(crate) reload_to: Option<PathBuf>,
    /// Hand all shards to another host, with the plugin's saved state, once this many records are
    /// settled.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) hand_over_after: Option<u64>,
    /// Once all records are settled, let this much time pass for the plugin, without waiting: its
    /// clock advances, and it gets a tick every `tick.every`.
    #[arg(long, value_name = "DURATION", value_parser = passing)]
    pub(crate) clock: Option<Duration>,
    /// Finally, end all shards: the plugin closes them with `shard-ended`.
    #[arg(long)]
    pub(crate) end_shard: bool,
    /// Maximum deliveries of a failing record, if the failure policy sets no limit.
    #[arg(long, default_value_t = 2, value_parser = values::count::<100>)]
    pub(crate) attempts: u32,
    /// Make the result the same on every machine: calls are limited by fuel (about one unit an
    /// instruction) instead of time, and clocks and random numbers are the same in each run. Prints
    /// output shard by shard, and the fuel a record took.
    #[arg(long)]
    pub(crate) deterministic: bool,
    /// Fuel for one call. The default is about what a fast machine uses in five seconds.
    #[arg(long, value_name = "UNITS", default_value_t = 5_000_000_000, requires = "deterministic",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) fuel: u64,
    /// Report failed records, but do not exit with 1 because of them.
    #[arg(long)]
    pub(crate) allow_failures: bool,
    /// Stop if no record is settled for this long.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = timeout)]
    pub(crate) timeout: Duration,
    /// How to print.
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// How long a dry run may settle nothing.
fn timeout(text: &str) -> Result<Duration, String> {
    floor::TIMEOUT.parse(text)
}

/// How much time passes for a plugin.
fn passing(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text)?;
    if time.is_zero() {
        return Err("no time would pass: give a duration such as 10s or 1h".to_owned());
    }
    Ok(time)
}
