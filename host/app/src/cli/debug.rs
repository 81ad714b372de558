//! `shardmill debug`.

use std::path::PathBuf;

use clap::Args;

use super::OutputArgs;

/// Arguments of `debug`.
#[derive(Debug, Args)]
#[command(
    after_help = "A host records each batch that fails: its records, the state and the batches \
        before it, the plugin's settings, and the version. debug runs it again, in this process, \
        with the clock at the time of the failure, fixed random numbers, and no network, \
        environment or secrets unless you pass --grants. So each run gives the same bytes. \
        Nothing that the plugin emits is stored. Exit code: 0 if the batch fails as before, and \
        with --compare if the other version handles it; 1 if not, 64 if the configuration is \
        wrong.\n\nExamples:\n  \
    shardmill debug --config shardmill.toml orders\n  \
    shardmill debug --config shardmill.toml orders 3@4959033827149025660855969253836157109592157598913658\n  \
    shardmill debug --config shardmill.toml orders 3@49590338 --compare fixed/orders.wasm\n  \
    shardmill debug --config shardmill.toml dead.ndjson --save failing.ndjson\n  \
    shardmill debug failed.recording --plugin orders.wasm"
)]
pub(crate) struct DebugArgs {
    /// The application: the plugin's name, unless the configuration says otherwise. Or a file: a
    /// recording, or dead letters, plain or gzip.
    #[arg(value_name = "APPLICATION|FILE")]
    pub(crate) what: String,
    /// The record: its shard, by its id or the number in it, and its sequence number. Without it,
    /// lists the application's recordings, or takes the only record of the file.
    #[arg(value_name = "SHARD@SEQUENCE")]
    pub(crate) record: Option<String>,
    /// Run this component instead of the version that failed.
    #[arg(long, value_name = "FILE.wasm")]
    pub(crate) plugin: Option<PathBuf>,
    /// Also run this component on the same batch, and show the result.
    #[arg(long, value_name = "FILE.wasm")]
    pub(crate) compare: Option<PathBuf>,
    /// Write the records, with those of the batches before, to a new file for `shardmill test
    /// --captured`.
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,
    /// Give the plugin the HTTP hosts, environment variables and secrets that the configuration
    /// grants it. Its requests are really sent: other services get them again.
    #[arg(long, requires = "config")]
    pub(crate) grants: bool,
    /// Fuel for one call, about a unit an instruction.
    #[arg(long, value_name = "UNITS", default_value_t = 5_000_000_000,
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) fuel: u64,
    /// The folder with the recordings, such as a copy of a host's. Default: where a host with this
    /// configuration keeps them.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) from: Option<PathBuf>,
    /// The configuration file that the host was started with.
    #[arg(long, value_name = "FILE", env = "SHARDMILL_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Recordings of `shardmill dev` with this --data directory; `--local` is short for
    /// `--local=data`.
    #[arg(
        long,
        value_name = "DATA",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "data",
        conflicts_with = "from"
    )]
    pub(crate) local: Option<PathBuf>,
    /// How to print.
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
