//! `shardmill plan`.

use clap::Args;

use super::{ReadingArgs, values};

/// Arguments of `plan`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    shardmill plan orders --stream orders      what a first host would do\n  \
    shardmill plan orders --as host-3          what host-3 would do now")]
pub(crate) struct PlanArgs {
    /// The application: the plugin's name, unless the configuration says otherwise.
    #[arg(value_parser = values::application)]
    pub(crate) application: String,
    /// The worker to ask: a running one, or the id of one that would join.
    #[arg(long = "as", value_name = "WORKER", default_value = "plan")]
    pub(crate) worker: String,
    /// How to look.
    #[command(flatten)]
    pub(crate) reading: ReadingArgs,
}
