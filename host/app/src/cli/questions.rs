//! Arguments of the commands that ask what the hosts of an application do, and why.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::{AwsArgs, PlaceArgs};

/// Arguments of `plan`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    shardmill plan orders --stream orders      what a first host would do\n  \
    shardmill plan orders --as host-3          what host-3 would do now")]
pub(crate) struct PlanArgs {
    /// The application: the plugin's name, unless the configuration says otherwise.
    #[arg(value_parser = super::values::application)]
    pub(crate) application: String,
    /// The worker to ask: a running one, or the id of one that would join.
    #[arg(long = "as", value_name = "WORKER", default_value = "plan")]
    pub(crate) worker: String,
    /// How to look.
    #[command(flatten)]
    pub(crate) reading: ReadingArgs,
}

/// Arguments of `explain`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    shardmill explain shardId-000000000003 --application orders\n  \
    shardmill explain 3 --application orders --watch-for 0s")]
pub(crate) struct ExplainArgs {
    /// The shard: its id, or the number in it.
    pub(crate) shard: String,
    /// The application: the plugin's name, unless the configuration says otherwise.
    #[arg(long, value_parser = super::values::application)]
    pub(crate) application: String,
    /// How to look.
    #[command(flatten)]
    pub(crate) reading: ReadingArgs,
}

/// Arguments of `plugins`.
#[derive(Debug, Args)]
#[command(after_help = "Exit code: 0 if the hosts of each fleet run one version, 1 if not.\n\nExamples:\n  \
    shardmill plugins                          every application that hosts have served\n  \
    shardmill plugins orders --watch-for 12s   without hosts that are dead\n  \
    shardmill plugins orders --release 3f8a1c2b9d04\n  \
    shardmill plugins orders --rollback --config shardmill.toml   on this host, until --unpin")]
pub(crate) struct PluginsArgs {
    /// The application: the plugin's name, unless the configuration says otherwise. Without it, all of them.
    #[arg(value_parser = super::values::application)]
    pub(crate) application: Option<String>,
    /// Let this version out of quarantine, on its streams' applications too: its digest, or the first 8 digits or more.
    #[arg(long, value_name = "DIGEST", requires = "application")]
    pub(crate) release: Option<String>,
    /// On this host, run this version of the plugin, whatever lies in the folder, until it is unpinned: one that is kept beside
    /// `host.cache`, by its digest or the first 8 digits or more; or `last-good`. Needs --config, or --local of `dev`.
    #[arg(long, value_name = "DIGEST", requires = "application", conflicts_with = "release")]
    pub(crate) pin: Option<String>,
    /// The same with the version that did well before the one that is to run now.
    #[arg(long, requires = "application", conflicts_with_all = ["release", "pin"])]
    pub(crate) rollback: bool,
    /// On this host, run what lies in the folder again.
    #[arg(long, requires = "application", conflicts_with_all = ["release", "pin", "rollback"])]
    pub(crate) unpin: bool,
    /// How long to watch which hosts are alive: one is dead that does not beat for longer than its lease duration; 0s takes
    /// all that are registered.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = super::values::duration)]
    pub(crate) watch_for: Duration,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// How to reach AWS.
    #[command(flatten)]
    pub(crate) aws: PlaceArgs,
}

/// How to look at an application. Nothing is written.
#[derive(Debug, Args)]
pub(crate) struct ReadingArgs {
    /// The stream; needed only if no host ever served the application.
    #[arg(long, value_name = "NAME")]
    pub(crate) stream: Option<String>,
    /// How long to watch what moves, as a host does before it judges anybody dead; 0s looks once. Default: the lease
    /// duration.
    #[arg(long, value_name = "DURATION", value_parser = super::values::duration)]
    pub(crate) watch_for: Option<Duration>,
    /// The hosts' configuration file, for settings that bear on the plan; defaults without it.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// How to reach AWS.
    #[command(flatten)]
    pub(crate) aws: AwsArgs,
}
