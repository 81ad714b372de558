//! `shardmill check`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use super::AwsArgs;

/// Arguments of `check`.
#[derive(Debug, Args)]
#[command(
    after_help = "The manifest NAME.toml beside FILE.wasm is checked too, under the host's configuration if that is given. \
    Exit code: 0 if the host would run it, 1 if not.\n\nExamples:\n  \
    shardmill check alerts.wasm\n  \
    shardmill check new/alerts.wasm --config shardmill.toml --running\n  \
    shardmill check new/alerts.wasm --running --host 127.0.0.1:9090"
)]
pub(crate) struct CheckArgs {
    /// The component.
    #[arg(value_name = "FILE.wasm")]
    pub(crate) file: PathBuf,
    /// The host's configuration: general limits, ceilings, the plugin's section.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Tell too what would change against the version that runs now: as the host at --host says, or at host.admin of the
    /// configuration; otherwise as the lease table says.
    #[arg(long)]
    pub(crate) running: bool,
    /// The admin address of a host to ask.
    #[arg(long, value_name = "ADDRESS", requires = "running")]
    pub(crate) host: Option<SocketAddr>,
    /// Print the report as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// How to reach AWS.
    #[command(flatten)]
    pub(crate) aws: AwsArgs,
}

impl CheckArgs {
    /// Whether the lease table is meant, since its place is given here.
    pub(crate) fn is_aws_named(&self) -> bool {
        let AwsArgs { region, endpoint, dynamodb_endpoint, local, .. } = &self.aws;
        self.host.is_none()
            && (region.is_some() || endpoint.is_some() || dynamodb_endpoint.is_some() || local.is_some())
    }
}
