//! Arguments of `consumers`.

use clap::Args;

use super::PlaceArgs;

/// Arguments of `consumers`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    shardmill consumers orders\n  \
    shardmill consumers orders --delete billing")]
pub(crate) struct ConsumersArgs {
    /// The stream, by name or by ARN.
    pub(crate) stream: String,
    /// Deregister this consumer. Refused while hosts of an application of its name are registered.
    #[arg(long, value_name = "NAME", conflicts_with = "json")]
    pub(crate) delete: Option<String>,
    /// Deregister it though hosts are registered.
    #[arg(long, requires = "delete")]
    pub(crate) force: bool,
    /// Print rows as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// How to reach AWS.
    #[command(flatten)]
    pub(crate) aws: PlaceArgs,
}
