//! `shardmill run`.

use std::path::PathBuf;

use clap::Args;

use super::AwsArgs;

/// Arguments of `run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The configuration file; docs/configuration.md lists its keys.
    #[arg(
        long,
        value_name = "FILE",
        env = "SHARDMILL_CONFIG",
        default_value = "shardmill.toml"
    )]
    pub(crate) config: PathBuf,
    /// Check the configuration and exit: code 0 if it is good, 64 if not.
    #[arg(long)]
    pub(crate) check: bool,
    /// With --check: also try credentials, streams, tables and sinks, and list all that is missing.
    /// Writes nothing.
    #[arg(long, requires = "check")]
    pub(crate) connect: bool,
    /// With --check: print JSON.
    #[arg(long, requires = "check")]
    pub(crate) json: bool,
    /// How to reach AWS.
    #[command(flatten)]
    pub(crate) aws: AwsArgs,
}
