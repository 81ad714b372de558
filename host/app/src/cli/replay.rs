//! `shardmill replay`.

use std::path::PathBuf;

use clap::Args;

use super::AwsArgs;

/// Arguments of `replay`.
#[derive(Debug, Args)]
#[command(
    after_help = "What is not processed, for whatever reason, is in the file of what is left (--failed), and FILE is never \
    changed. Exit code: 0 if nothing is left, 1 if something is, 64 if the configuration is wrong.\n\nExamples:\n  \
    shardmill replay --list dead.ndjson\n  \
    shardmill replay --config shardmill.toml dead.ndjson\n  \
    shardmill replay --plugin fixed/alerts.wasm --failed still.ndjson dead.ndjson.1 dead.ndjson\n  \
    shardmill replay --to-stream orders dead.ndjson"
)]
pub(crate) struct ReplayArgs {
    /// Dead letters, plain or gzip, in the order they are to be replayed in; `-` is standard input.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Only print a table of what is in the files.
    #[arg(long, conflicts_with_all = ["plugin", "to_stream", "failed"])]
    pub(crate) list: bool,
    /// The component to run. Without it, each letter goes to NAME.wasm of its plugin, in the plugins folder.
    #[arg(long, value_name = "FILE.wasm", conflicts_with = "to_stream")]
    pub(crate) plugin: Option<PathBuf>,
    /// Only letters of this plugin; needed with --plugin if the files hold letters of several.
    #[arg(long, value_name = "NAME")]
    pub(crate) of: Option<String>,
    /// The configuration: plugins folder, sinks, limits, the plugins' own values. Without it there is only standard output.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Where letters go that are not processed; made if there are any. The first FILE's name with `.left` unless given.
    #[arg(long, value_name = "FILE")]
    pub(crate) failed: Option<PathBuf>,
    /// Deliveries of a letter before it is left.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100), conflicts_with = "to_stream")]
    pub(crate) attempts: u32,
    /// The grant epoch that the plugin is told; set it if the plugin's own side effects are fenced by it.
    #[arg(long, value_name = "NUMBER", default_value_t = 0, conflicts_with = "to_stream")]
    pub(crate) epoch: u64,
    /// Put the records into this stream instead, as they were: every application that reads it gets them, as new records.
    #[arg(long, value_name = "STREAM")]
    pub(crate) to_stream: Option<String>,
    /// Print the summary as JSON.
    #[arg(long, conflicts_with = "list")]
    pub(crate) json: bool,
    /// How to reach AWS.
    #[command(flatten)]
    pub(crate) aws: AwsArgs,
}
