//! `shardmill replay`.

use std::path::PathBuf;
use std::time::SystemTime;

use clap::Args;

use super::{ConnectionArgs, OutputArgs};

/// Arguments of `replay`.
#[derive(Debug, Args)]
#[command(
    after_help = "The plugins folder, sinks, limits and plugins' values come from --config; \
        without it, the only sink is standard output. Letters that are not processed, for \
        any reason, are written to the --failed file; FILE is never changed. Exit code: 0 if \
        nothing is left, 1 if something is, 64 if the configuration is wrong.\n\nWith --stream, the \
        records are read from a stream beside its hosts: no lease is taken and no checkpoint \
        moved, parents come before children, and all readers of a shard share five reads a \
        second. The --progress file stores how far the replay is: run it again to \
        continue.\n\nExamples:\n  \
    shardmill replay --list dead.ndjson\n  \
    shardmill replay --config shardmill.toml dead.ndjson\n  \
    shardmill replay --plugin fixed/alerts.wasm --failed still.ndjson dead.ndjson.1 dead.ndjson\n  \
    shardmill replay --to-stream orders dead.ndjson\n  \
    shardmill replay --stream orders --from 2026-01-31T00:00:00Z --to 2026-01-31T06:00:00Z --plugin \
    fixed/alerts.wasm --config again.toml"
)]
pub(crate) struct ReplayArgs {
    /// Dead letters in the order to replay them, plain or gzip; `-` is standard input.
    #[arg(required_unless_present = "stream", value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Replay records of this stream, by name or ARN, instead of letters in files.
    #[arg(long, value_name = "STREAM", requires_all = ["from", "to", "plugin"],
          conflicts_with_all = ["files", "list", "to_stream"])]
    pub(crate) stream: Option<String>,
    /// With --stream: the first record of each shard arrived then or later.
    #[arg(
        long,
        value_name = "TIME",
        requires = "stream",
        value_parser = humantime::parse_rfc3339_weak
    )]
    pub(crate) from: Option<SystemTime>,
    /// With --stream: what arrived then or later is not replayed. A time in the past.
    #[arg(
        long,
        value_name = "TIME",
        requires = "stream",
        value_parser = humantime::parse_rfc3339_weak
    )]
    pub(crate) to: Option<SystemTime>,
    /// With --stream: the file that stores how far the replay is. Default: STREAM.replay.json.
    #[arg(long, value_name = "FILE", requires = "stream")]
    pub(crate) progress: Option<PathBuf>,
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
    /// several. With --stream: the plugin whose settings apply. Default: the name of the
    /// component.
    #[arg(long, value_name = "NAME")]
    pub(crate) of: Option<String>,
    /// The file for letters that are not processed, created if there are any. Default: the first
    /// FILE, or the --progress file, with `.left` appended.
    #[arg(long, value_name = "FILE")]
    pub(crate) failed: Option<PathBuf>,
    /// Maximum deliveries of a letter.
    #[arg(
        long,
        default_value_t = 3,
        value_parser = clap::value_parser!(u32).range(1..=100),
        conflicts_with = "to_stream"
    )]
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
    pub(crate) connection: ConnectionArgs,
}
