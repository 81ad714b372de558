//! `shardmill plan`.

use clap::Args;

use super::{ReadingArgs, values};

/// Arguments of `plan`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    shardmill plan orders --stream orders      what a first host would do\n  \
    shardmill plan orders --as host-3          what host-3 would do now\n  \
    shardmill plan prices@pod-7                what the standalone host pod-7 would do now\n  \
    shardmill plan orders --hosts              how many hosts are wanted, and why")]
pub(crate) struct PlanArgs {
    /// The application: the plugin's name, unless the configuration says otherwise.
    #[arg(value_parser = values::application)]
    pub(crate) application: String,
    /// The worker to ask: a running one, or the id of one that would join. Default: one that would
    /// join, or the standalone host that the application names.
    #[arg(long = "as", value_name = "WORKER")]
    pub(crate) worker: Option<String>,
    /// How many hosts are wanted for the application, and what that follows from.
    #[arg(long, conflicts_with = "worker")]
    pub(crate) hosts: bool,
    /// How to look.
    #[command(flatten)]
    pub(crate) reading: ReadingArgs,
}
