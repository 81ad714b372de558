//! `shardmill replay`.

use std::path::PathBuf;

use clap::Args;

use super::{OutputArgs, PlaceArgs};

/// Arguments of `replay`.
#[derive(Debug, Args)]
#[command(
    after_help = "The plugins folder, sinks, limits and plugins' values come from --config; \
        without it, the only sink is standard output. Letters that are not processed, for \
        any reason, are written to the --failed file; FILE is never changed. Exit code: 0 if \
        nothing is left, 1 if something is, 64 if the configuration is wrong.\n\nExamples:\n  \
    shardmill replay --list dead.ndjson\n  \
    shardmill replay --config shardmill.toml dead.ndjson\n  \
    shardmill replay --plugin fixed/alerts.wasm --failed still.ndjson dead.ndjson.1 dead.ndjson\n  \
    shardmill replay --to-stream orders dead.ndjson"
)]
pub(crate) struct ReplayArgs {
    /// Dead letters in the order to replay them, plain or gzip; `-` is standard input.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Only show what is in the files.
    #[arg(long, conflicts_with_all = ["plugin", "to_stream", "failed"])]
    pub(crate) list: bool,
    /// With --list: show the beginning of each record's data, too.
    #[arg(long, requires = "list")]
    pub(crate) data: bool,
    /// The component to run. Default: for each letter, its plugin's NAME.wasm in the plugins
    /// folder.
    #[arg(long, value_name = "FILE.wasm", conflicts_with = "to_stream")]
    pub(crate) plugin: Option<PathBuf>,
    /// Only the letters of this plugin; required with --plugin if the files hold letters of
    /// several.
    #[arg(long, value_name = "NAME")]
    pub(crate) of: Option<String>,
    /// The file for letters that are not processed, created if there are any. Default: the first
    /// FILE with `.left` appended.
    #[arg(long, value_name = "FILE")]
    pub(crate) failed: Option<PathBuf>,
    /// Most deliveries of a letter.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100), conflicts_with = "to_stream")]
    pub(crate) attempts: u32,
    /// The grant epoch that the plugin sees; set it if the plugin fences its own side effects with
    /// it.
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 0,
        conflicts_with = "to_stream"
    )]
    pub(crate) epoch: u64,
    /// Put the original records into this stream instead; every application that reads it gets them
    /// as new records.
    #[arg(long, value_name = "STREAM")]
    pub(crate) to_stream: Option<String>,
    /// How to print.
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Where the streams and tables are.
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
}
