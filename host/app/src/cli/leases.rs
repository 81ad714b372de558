//! `shardmill leases`.

use std::time::Duration;

use clap::Args;

use super::{ConnectionArgs, OutputArgs, WatchArgs, values};

/// Arguments of `leases`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    shardmill leases orders\n  \
    shardmill leases orders --watch-for 12s    which owners are alive\n  \
    shardmill leases orders --watch 2s         prints again every two seconds")]
pub(crate) struct LeasesArgs {
    /// The application: the plugin's name, unless the configuration says otherwise.
    #[arg(value_parser = values::application)]
    pub(crate) application: String,
    /// How to print.
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Show all of every column, however narrow the terminal is.
    #[arg(long)]
    pub(crate) wide: bool,
    /// Print again at this interval until ctrl-c. From the second time on, it shows which owners
    /// are alive.
    #[arg(long, value_name = "INTERVAL", value_parser = values::watch_interval)]
    pub(crate) watch: Option<Duration>,
    /// How long to watch first.
    #[command(flatten)]
    pub(crate) watching: WatchArgs,
    /// Where the streams and tables are.
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
}
