//! `shardmill plugins`.

use clap::Args;

use super::{ConnectionArgs, OutputArgs, WatchArgs, values};

/// Arguments of `plugins`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit code: 0 if the hosts of each fleet run one version, 1 if \
        not.\n\nExamples:\n  \
    shardmill plugins                          every application that a host has served\n  \
    shardmill plugins orders --watch-for 12s   without dead hosts\n  \
    shardmill plugins orders --release 3f8a1c2b9d04\n  \
    shardmill plugins orders --rollback --config shardmill.toml   on this host, until --unpin"
)]
pub(crate) struct PluginsArgs {
    /// The application: the plugin's name, unless the configuration says otherwise. Without it, all
    /// of them.
    #[arg(value_parser = values::application)]
    pub(crate) application: Option<String>,
    /// Release this version from quarantine, for the applications of all its streams: its digest,
    /// or at least 8 digits of it.
    #[arg(long, value_name = "DIGEST", requires = "application")]
    pub(crate) release: Option<String>,
    /// Make this host run a version that it kept next to `host.cache`, even if the folder has
    /// another file, until --unpin: its digest, at least 8 digits of it, or `last-good`. Needs
    /// --config, or --local for `dev`.
    #[arg(
        long,
        value_name = "DIGEST",
        requires = "application",
        conflicts_with = "release"
    )]
    pub(crate) pin: Option<String>,
    /// Pin the version that was good before the current one.
    #[arg(long, requires = "application", conflicts_with_all = ["release", "pin"])]
    pub(crate) rollback: bool,
    /// Make this host run the file in the folder again.
    #[arg(long, requires = "application", conflicts_with_all = ["release", "pin", "rollback"])]
    pub(crate) unpin: bool,
    /// How long to watch.
    #[command(flatten)]
    pub(crate) watch: WatchArgs,
    /// How to print.
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Where the streams and tables are.
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
}
