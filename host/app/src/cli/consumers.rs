//! `shardmill consumers`.

use clap::Args;

use super::{ConnectionArgs, OutputArgs};

/// Arguments of `consumers`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    shardmill consumers orders\n  \
    shardmill consumers orders --delete billing")]
pub(crate) struct ConsumersArgs {
    /// The stream, by name or ARN.
    pub(crate) stream: String,
    /// Deregister this consumer; refused while hosts of the application of that name are
    /// registered.
    #[arg(long, value_name = "NAME", conflicts_with = "json")]
    pub(crate) delete: Option<String>,
    /// Deregister it even if hosts are registered.
    #[arg(long, requires = "delete")]
    pub(crate) force: bool,
    /// How to print.
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Where the streams and tables are.
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
}
