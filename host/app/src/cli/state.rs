//! The command line of `shardmill state`.

use clap::Args;

use super::PlaceArgs;

/// Arguments of `state`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    shardmill state totals\n  \
    shardmill state totals --shard shardId-000000000000 > state.json")]
pub(crate) struct StateArgs {
    /// The application: the plugin's name, unless the configuration says otherwise.
    #[arg(value_parser = super::values::application)]
    pub(crate) application: String,
    /// Print the state of this shard, as the plugin saved it, and nothing else.
    #[arg(long, value_name = "SHARD", conflicts_with = "json")]
    pub(crate) shard: Option<String>,
    /// Print rows as JSON, each with the state in base64.
    #[arg(long)]
    pub(crate) json: bool,
    /// How to reach AWS.
    #[command(flatten)]
    pub(crate) aws: PlaceArgs,
}
