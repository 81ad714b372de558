//! Arguments of the commands that ask what the hosts of an application do, and why.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::AwsArgs;

/// Arguments of `plan`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    shardmill plan orders --stream orders      what a first host would do\n  \
    shardmill plan orders --as host-3          what host-3 would do now")]
pub struct PlanArgs {
    /// The application: the plugin's name, unless the configuration says otherwise.
    pub application: String,
    /// The worker to ask: a running one, or the id of one that would join.
    #[arg(long = "as", value_name = "WORKER", default_value = "plan")]
    pub worker: String,
    /// How to look.
    #[command(flatten)]
    pub reading: ReadingArgs,
}

/// Arguments of `explain`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    shardmill explain shardId-000000000003 --application orders\n  \
    shardmill explain 3 --application orders --watch-for 0s")]
pub struct ExplainArgs {
    /// The shard: its id, or the number in it.
    pub shard: String,
    /// The application: the plugin's name, unless the configuration says otherwise.
    #[arg(long)]
    pub application: String,
    /// How to look.
    #[command(flatten)]
    pub reading: ReadingArgs,
}

/// How to look at an application. Nothing is written.
#[derive(Debug, Args)]
pub struct ReadingArgs {
    /// The stream; needed only if no host ever served the application.
    #[arg(long, value_name = "NAME")]
    pub stream: Option<String>,
    /// How long to watch what moves, as a host does before it judges anybody dead; 0s looks once. Default: the lease
    /// duration.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    pub watch_for: Option<Duration>,
    /// The hosts' configuration file, for settings that bear on the plan; defaults without it.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// How to reach AWS.
    #[command(flatten)]
    pub aws: AwsArgs,
}
