//! The command line: clap types and nothing else.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use shardmill_serve::telemetry;

mod bench;
mod capture;
mod check;
mod compile;
mod consumers;
mod new;
mod questions;
mod replay;
mod state;
#[cfg(feature = "local")]
mod test;
mod values;

pub(crate) use bench::BenchArgs;
pub(crate) use capture::CaptureArgs;
pub(crate) use check::CheckArgs;
pub(crate) use compile::CompileArgs;
pub(crate) use consumers::ConsumersArgs;
pub(crate) use new::NewArgs;
pub(crate) use questions::{ExplainArgs, PlanArgs, PluginsArgs, ReadingArgs};
pub(crate) use replay::ReplayArgs;
pub(crate) use state::StateArgs;
#[cfg(feature = "local")]
pub(crate) use test::TestArgs;

/// The folder of plugins where none is named.
pub(crate) const PLUGINS: &str = "plugins";

/// Runs WebAssembly record processors on Amazon Kinesis Data Streams.
///
/// Drop a component in the plugins folder and run the host: it leases shards, reads, delivers, checkpoints, and swaps the
/// code in place when the file changes. Start with `shardmill dev`, which needs no AWS account.
#[derive(Debug, Parser)]
#[command(name = "shardmill", version, max_term_width = 110)]
pub(crate) struct Cli {
    /// How logs look on standard error; SHARDMILL_LOG sets what is logged, as in `SHARDMILL_LOG=debug`.
    #[arg(long, global = true, value_enum, default_value_t)]
    pub(crate) log_format: LogFormat,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run plugins on an embedded Kinesis and DynamoDB: no account, no network, kept in a data directory.
    #[cfg(feature = "local")]
    Dev(DevArgs),
    /// Make a project for a plugin: source, test, README, and the contract.
    New(NewArgs),
    /// Run a plugin on the records of a file, in the whole host, and compare what comes out with what should.
    #[cfg(feature = "local")]
    Test(TestArgs),
    /// Measure what a plugin costs: time a record, memory, start; beside one that does nothing.
    Bench(BenchArgs),
    /// Run plugins against AWS, or any endpoint.
    Run(RunArgs),
    /// Put the lines of a file, or of standard input, into a stream.
    Put(PutArgs),
    /// Write the records of a stream down as they lie there, for `shardmill test --captured`.
    Capture(CaptureArgs),
    /// Tell what a component is, whether the host would run it, with which settings, and what it would change.
    Check(CheckArgs),
    /// Show the leases of an application: who holds which shard, and how far it is.
    Leases(LeasesArgs),
    /// Show which versions of a plugin its hosts have, and where each stands; let one out of quarantine.
    Plugins(PluginsArgs),
    /// Show the fan-out consumers of a stream, which are billed while they exist; delete one that nobody needs.
    Consumers(ConsumersArgs),
    /// Tell what a lease table holds and how a host may use it. Only reads: run it before pointing a host at a table.
    Doctor(DoctorArgs),
    /// Dry run: what a host would do now, each step with its reason, and what it would leave for now. Writes nothing.
    Plan(PlanArgs),
    /// Tell who owns a shard, where it stands, and why it does not move if it does not. Writes nothing.
    Explain(ExplainArgs),
    /// Feed dead letters back through a plugin, here and now, or back into a stream; or list them.
    Replay(ReplayArgs),
    /// Show what a plugin has saved as its state, shard by shard.
    State(StateArgs),
    /// What the host starts to compile a plugin: reads it from standard input, within limits.
    #[command(hide = true)]
    CompileComponent(CompileArgs),
}

/// How logs look.
#[derive(Debug, Clone, Copy, Default, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

impl From<LogFormat> for telemetry::LogFormat {
    fn from(format: LogFormat) -> Self {
        match format {
            LogFormat::Text => Self::Text,
            LogFormat::Json => Self::Json,
        }
    }
}

impl Command {
    /// Whether its own output is what people want to see, and not what the host logs on the way.
    pub(crate) fn is_quiet(&self) -> bool {
        match self {
            #[cfg(feature = "local")]
            Self::Test(_) => true,
            Self::Bench(_) | Self::Capture(_) => true,
            _ => false,
        }
    }
}

/// Arguments of `dev`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    shardmill dev\n  \
    shardmill dev --feed flights.ndjson.gz --key-field carrier --until-idle")]
pub(crate) struct DevArgs {
    /// The folder that plugins are dropped in; `plugins` is made if it is missing, another has to be there.
    #[arg(long, default_value = PLUGINS)]
    pub(crate) plugins: PathBuf,
    /// Where the embedded stack keeps streams, leases and checkpoints.
    #[arg(long, default_value = "data")]
    pub(crate) data: PathBuf,
    /// The stream; made if missing.
    #[arg(long, default_value = "dev")]
    pub(crate) stream: String,
    /// Shards of a stream that is made.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) shards: u32,
    /// A file of lines to put into the stream at start, plain or gzip; `-` is standard input.
    #[arg(long, value_name = "FILE")]
    pub(crate) feed: Option<PathBuf>,
    /// The field of each line that becomes the partition key, such as `carrier` or `properties.net`.
    #[arg(long, value_name = "FIELD", requires = "feed")]
    pub(crate) key_field: Option<String>,
    /// End, with a summary, when all that was fed is processed and checkpointed; with exit code 65 if records were given up.
    #[arg(long)]
    pub(crate) until_idle: bool,
    /// Print the summary as JSON.
    #[arg(long, requires = "until_idle")]
    pub(crate) json: bool,
    /// Settings beyond these, as for `run`; stream, plugins folder and endpoints in it are not used.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Loopback port of the embedded Kinesis; 0 takes a free one.
    #[arg(long, default_value_t = 0)]
    pub(crate) kinesis_port: u16,
    /// Loopback port of the embedded DynamoDB; 0 takes a free one.
    #[arg(long, default_value_t = 0)]
    pub(crate) dynamodb_port: u16,
    /// Where to serve /status and /metrics.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0", value_parser = values::address)]
    pub(crate) admin: SocketAddr,
}

/// Arguments of `run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The configuration file; docs/configuration.md lists its keys.
    #[arg(long, value_name = "FILE", default_value = "shardmill.toml")]
    pub(crate) config: PathBuf,
    /// Only check the configuration: exit 0 if it is good, 64 if not.
    #[arg(long)]
    pub(crate) check: bool,
    /// With --check: also ask for credentials, streams, tables and sinks, and tell all that is missing. Writes nothing.
    #[arg(long, requires = "check")]
    pub(crate) connect: bool,
    /// How to reach AWS.
    #[command(flatten)]
    pub(crate) aws: AwsArgs,
}

/// Arguments of `put`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    shardmill put --local --stream dev --key-field carrier flights.ndjson.gz\n  \
    tail -f events.ndjson | shardmill put --stream events -")]
pub(crate) struct PutArgs {
    /// Lines to put, plain or gzip; `-` is standard input.
    pub(crate) file: PathBuf,
    /// The stream.
    #[arg(long, default_value = "dev")]
    pub(crate) stream: String,
    /// The field of each line that becomes the partition key; without it, keys spread evenly and no order is kept.
    #[arg(long, value_name = "FIELD")]
    pub(crate) key_field: Option<String>,
    /// Print the summary as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// How to reach AWS.
    #[command(flatten)]
    pub(crate) aws: PlaceArgs,
}

/// Arguments of `leases`.
#[derive(Debug, Args)]
pub(crate) struct LeasesArgs {
    /// The application: the plugin's name, unless the configuration says otherwise.
    #[arg(value_parser = values::application)]
    pub(crate) application: String,
    /// Print rows as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print again at this interval until ctrl-c.
    #[arg(long, value_name = "INTERVAL", value_parser = values::duration)]
    pub(crate) watch: Option<Duration>,
    /// How to reach AWS.
    #[command(flatten)]
    pub(crate) aws: PlaceArgs,
}

/// Arguments of `doctor`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit code: 0 if a host may use the table, 1 if something must be mended first.\n\nExamples:\n  \
    shardmill doctor orders --stream orders\n  \
    shardmill doctor orders --watch-for 0s --json"
)]
pub(crate) struct DoctorArgs {
    /// The application: its lease table's name, as for a KCL application.
    #[arg(value_parser = values::application)]
    pub(crate) application: String,
    /// The stream it reads; leases are then held against its shards.
    #[arg(long, value_name = "STREAM")]
    pub(crate) stream: Option<String>,
    /// The failover time of the KCL fleet that uses the table (failoverTimeMillis; the KCL's default is 10s). No row tells
    /// it, so without it no worker of a KCL counts as dead.
    #[arg(long, value_name = "DURATION", value_parser = values::duration)]
    pub(crate) failover_time: Option<Duration>,
    /// How long to watch whether owners live; an owner is dead that wrote nothing for longer than its failover time. 0s does
    /// not wait. Default: 12s, or 1.2 times the failover time.
    #[arg(long, value_name = "DURATION", value_parser = values::duration)]
    pub(crate) watch_for: Option<Duration>,
    /// Print the report as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// How to reach AWS.
    #[command(flatten)]
    pub(crate) aws: PlaceArgs,
}

/// How to reach AWS, for commands that want nothing else of a configuration.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct PlaceArgs {
    /// The configuration of the hosts, for its `[aws]`.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// What stands over it.
    #[command(flatten)]
    pub(crate) aws: AwsArgs,
}

/// How to reach AWS; what is not given comes from the configuration file or the ordinary AWS chain.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "AWS")]
pub(crate) struct AwsArgs {
    /// The region.
    #[arg(long)]
    pub(crate) region: Option<String>,
    /// Another address for both services, such as an emulator's.
    #[arg(long, value_name = "URL")]
    pub(crate) endpoint: Option<String>,
    /// Another address for Kinesis.
    #[arg(long, value_name = "URL")]
    pub(crate) kinesis_endpoint: Option<String>,
    /// Another address for DynamoDB.
    #[arg(long, value_name = "URL")]
    pub(crate) dynamodb_endpoint: Option<String>,
    /// Use the embedded stack of a running `shardmill dev`, by its data directory: `--local` is `--local=data`.
    #[arg(long, value_name = "DATA", num_args = 0..=1, require_equals = true, default_missing_value = "data",
          conflicts_with_all = ["endpoint", "kinesis_endpoint", "dynamodb_endpoint"])]
    pub(crate) local: Option<PathBuf>,
}
