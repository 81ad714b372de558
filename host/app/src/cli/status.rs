//! `shardmill status` and `shardmill top`.

use std::time::Duration;

use clap::Args;

use super::{ConnectionArgs, OutputArgs, WatchArgs, values};

/// Arguments of `status`.
#[derive(Debug, Args)]
#[command(
    after_help = "Lists only shards that need attention: they are stuck, paused or held by no host, \
        or an operator wants a change. `shardmill leases` lists all.\n\nExit code: 0; with \
        --check 1 if a shard is stuck or held by nobody, a row cannot be read, or a host says that \
        it cannot do its work.\n\nExamples:\n  \
    shardmill status orders\n  \
    shardmill status orders --watch-for 12s    hosts that are dead hold nothing\n  \
    shardmill status orders --check --json"
)]
pub(crate) struct StatusArgs {
    /// The application.
    #[arg(value_parser = values::application)]
    pub(crate) application: String,
    /// Fail if something needs attention.
    #[arg(long)]
    pub(crate) check: bool,
    /// How to print.
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// How long to watch first.
    #[command(flatten)]
    pub(crate) watching: WatchArgs,
    /// Where the tables are.
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
}

/// Arguments of `top`.
#[derive(Debug, Args)]
#[command(
    after_help = "Shards with problems come first, then those farthest behind, as many as fit. \
        Ctrl-c ends it.\n\nExamples:\n  \
    shardmill top orders\n  \
    shardmill top orders --interval 10s"
)]
pub(crate) struct TopArgs {
    /// The application.
    #[arg(value_parser = values::application)]
    pub(crate) application: String,
    /// How often to look. Each look reads the two tables.
    #[arg(
        long,
        value_name = "INTERVAL",
        default_value = "2s",
        value_parser = values::watch_interval
    )]
    pub(crate) interval: Duration,
    /// Where the tables are.
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
}
