//! `shardmill state`.

use clap::Args;

use super::{OutputArgs, PlaceArgs, values};

/// Arguments of `state`.
#[derive(Debug, Args)]
#[command(
    after_help = "With --json, each row has the state in base64.\n\nExamples:\n  \
    shardmill state totals\n  \
    shardmill state totals --shard shardId-000000000000 > state.json"
)]
pub(crate) struct StateArgs {
    /// The application: the plugin's name, unless the configuration says otherwise.
    #[arg(value_parser = values::application)]
    pub(crate) application: String,
    /// Print only the state of this shard, as the plugin saved it.
    #[arg(long, value_name = "SHARD", conflicts_with = "json")]
    pub(crate) shard: Option<String>,
    /// How to print.
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Where the streams and tables are.
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
}
