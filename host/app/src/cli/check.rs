//! `shardmill check`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use super::{AwsArgs, ConnectionArgs, OutputArgs, values};

/// Arguments of `check`.
#[derive(Debug, Args)]
#[command(
    after_help = "The manifest NAME.toml next to FILE.wasm is checked too, under the limits, \
        ceilings and section of the hosts' configuration if it is given. Exit code: 0 if the host \
        would run it, 1 if not.\n\nExamples:\n  \
    shardmill check alerts.wasm\n  \
    shardmill check new/alerts.wasm --config shardmill.toml --running\n  \
    shardmill check new/alerts.wasm --running --host 127.0.0.1:9090"
)]
pub(crate) struct CheckArgs {
    /// The component.
    #[arg(value_name = "FILE.wasm")]
    pub(crate) file: PathBuf,
    /// Also show what would change from the version that runs now. Asks the host at --host, or at
    /// host.admin of the configuration, or else the lease table.
    #[arg(long)]
    pub(crate) running: bool,
    /// The admin address of a host to ask.
    #[arg(long, value_name = "ADDRESS", requires = "running", value_parser = values::address)]
    pub(crate) host: Option<SocketAddr>,
    /// How to print.
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Where the streams and tables are.
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
}

impl CheckArgs {
    /// Whether to ask the lease table, because its place is given here.
    pub(crate) fn is_aws_named(&self) -> bool {
        let AwsArgs {
            region,
            endpoint,
            dynamodb_endpoint,
            local,
            ..
        } = &self.connection.aws;
        self.host.is_none()
            && (region.is_some()
                || endpoint.is_some()
                || dynamodb_endpoint.is_some()
                || local.is_some())
    }
}
