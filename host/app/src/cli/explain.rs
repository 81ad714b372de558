//! `shardmill explain`.

use clap::Args;

use super::{ReadingArgs, values};

/// Arguments of `explain`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    shardmill explain orders shardId-000000000003\n  \
    shardmill explain orders 3 --watch-for 0s")]
pub(crate) struct ExplainArgs {
    /// The application: the plugin's name, unless the configuration says otherwise.
    #[arg(value_parser = values::application)]
    pub(crate) application: String,
    /// The shard: its id, or the number in it.
    pub(crate) shard: String,
    /// How to look.
    #[command(flatten)]
    pub(crate) reading: ReadingArgs,
}
