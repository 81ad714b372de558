//! Arguments that several commands take: one meaning and one text for each.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::values;

/// Where streams and tables are, and the settings that hosts use there.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ConnectionArgs {
    /// The hosts' configuration file: how to reach AWS, and any other setting that this command
    /// uses.
    #[arg(long, value_name = "FILE", env = "SHARDMILL_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Flags win over the file.
    #[command(flatten)]
    pub(crate) aws: AwsArgs,
}

/// How to reach AWS; what is not given comes from the configuration file or the usual AWS settings.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "AWS")]
pub(crate) struct AwsArgs {
    /// The region.
    #[arg(long, value_parser = values::region)]
    pub(crate) region: Option<String>,
    /// The address of both services, such as an emulator's.
    #[arg(long, value_name = "URL", value_parser = values::endpoint)]
    pub(crate) endpoint: Option<String>,
    /// The address of Kinesis.
    #[arg(long, value_name = "URL", value_parser = values::endpoint)]
    pub(crate) kinesis_endpoint: Option<String>,
    /// The address of DynamoDB.
    #[arg(long, value_name = "URL", value_parser = values::endpoint)]
    pub(crate) dynamodb_endpoint: Option<String>,
    /// Use the embedded stack of a running `shardmill dev` with this --data directory; `--local` is
    /// short for `--local=data`.
    #[arg(
        long,
        value_name = "DATA",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "data",
        conflicts_with_all = ["endpoint", "kinesis_endpoint", "dynamodb_endpoint"]
    )]
    pub(crate) local: Option<PathBuf>,
}

/// How to print.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct OutputArgs {
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// How long to watch before judging who is alive.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct WatchArgs {
    /// How long to watch before judging who is alive; 0s reads once and considers no worker
    /// dead.
    ///
    /// A host is dead if it writes nothing for longer than its lease duration. By default, commands
    /// that judge who is alive watch for 1.2 times the lease duration (12s unless that was changed)
    /// if somebody may be; `leases`, `status` and `plugins`, which show what is there, read once.
    #[arg(long, value_name = "DURATION", value_parser = values::duration)]
    pub(crate) watch_for: Option<Duration>,
}

/// How to look at an application. Nothing is written.
#[derive(Debug, Args)]
pub(crate) struct ReadingArgs {
    /// The stream, by name or ARN; needed only if no host has served the application yet.
    #[arg(long, value_name = "STREAM")]
    pub(crate) stream: Option<String>,
    /// For how long.
    #[command(flatten)]
    pub(crate) watch: WatchArgs,
    /// How to print.
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// How to reach the tables and the stream.
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
}

/// Settings to try a plugin with, without a stream.
#[derive(Debug, Args)]
pub(crate) struct SettingsArgs {
    /// Settings as for `run`: limits, batches, the plugin's section. Its sinks are used as names
    /// only.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Another destination that the plugin may emit to; repeat it for more.
    #[arg(long = "sink", value_name = "NAME")]
    pub(crate) sinks: Vec<String>,
    /// Maximum records in a batch.
    #[arg(long, value_name = "COUNT", value_parser = values::count::<10_000>)]
    pub(crate) batch_records: Option<u32>,
}
