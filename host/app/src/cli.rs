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

pub use bench::BenchArgs;
pub use capture::CaptureArgs;
pub use check::CheckArgs;
pub use compile::CompileArgs;
pub use consumers::ConsumersArgs;
pub use new::NewArgs;
pub use questions::{ExplainArgs, PlanArgs, PluginsArgs, ReadingArgs};
pub use replay::ReplayArgs;
pub use state::StateArgs;
#[cfg(feature = "local")]
pub use test::TestArgs;

/// The folder of plugins where none is named.
pub(crate) const PLUGINS: &str = "plugins";

/// Runs WebAssembly record processors on Amazon Kinesis Data Streams.
///
/// Drop a component in the plugins folder and run the host: it leases shards, reads, delivers, checkpoints, and swaps the
/// code in place when the file changes. Start with `shardmill dev`, which needs no AWS account.
#[derive(Debug, Parser)]
#[command(name = "shardmill", version, max_term_width = 110)]
pub struct Cli {
    /// How logs look on standard error; SHARDMILL_LOG sets what is logged, as in `SHARDMILL_LOG=debug`.
    #[arg(long, global = true, value_enum, default_value_t)]
    pub log_format: LogFormat,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
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
pub enum LogFormat {
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
    pub fn is_quiet(&self) -> bool {
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
pub struct DevArgs {
    /// The folder that plugins are dropped in; `plugins` is made if it is missing, another has to be there.
    #[arg(long, default_value = PLUGINS)]
    pub plugins: PathBuf,
    /// Where the embedded stack keeps streams, leases and checkpoints.
    #[arg(long, default_value = "data")]
    pub data: PathBuf,
    /// The stream; made if missing.
    #[arg(long, default_value = "dev")]
    pub stream: String,
    /// Shards of a stream that is made.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub shards: u32,
    /// A file of lines to put into the stream at start, plain or gzip; `-` is standard input.
    #[arg(long, value_name = "FILE")]
    pub feed: Option<PathBuf>,
    /// The field of each line that becomes the partition key, such as `carrier` or `properties.net`.
    #[arg(long, value_name = "FIELD", requires = "feed")]
    pub key_field: Option<String>,
    /// End, with a summary, when all that was fed is processed and checkpointed; with exit code 65 if records were given up.
    #[arg(long)]
    pub until_idle: bool,
    /// Print the summary as JSON.
    #[arg(long, requires = "until_idle")]
    pub json: bool,
    /// Settings beyond these, as for `run`; stream, plugins folder and endpoints in it are not used.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Loopback port of the embedded Kinesis; 0 takes a free one.
    #[arg(long, default_value_t = 0)]
    pub kinesis_port: u16,
    /// Loopback port of the embedded DynamoDB; 0 takes a free one.
    #[arg(long, default_value_t = 0)]
    pub dynamodb_port: u16,
    /// Where to serve /status and /metrics.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0", value_parser = values::address)]
    pub admin: SocketAddr,
}

/// Arguments of `run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The configuration file; docs/configuration.md lists its keys.
    #[arg(long, value_name = "FILE", default_value = "shardmill.toml")]
    pub config: PathBuf,
    /// Only check the configuration: exit 0 if it is good, 64 if not.
    #[arg(long)]
    pub check: bool,
    /// With --check: also ask for credentials, streams, tables and sinks, and tell all that is missing. Writes nothing.
    #[arg(long, requires = "check")]
    pub connect: bool,
    /// How to reach AWS.
    #[command(flatten)]
    pub aws: AwsArgs,
}

/// Arguments of `put`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    shardmill put --local --stream dev --key-field carrier flights.ndjson.gz\n  \
    tail -f events.ndjson | shardmill put --stream events -")]
pub struct PutArgs {
    /// Lines to put, plain or gzip; `-` is standard input.
    pub file: PathBuf,
    /// The stream.
    #[arg(long, default_value = "dev")]
    pub stream: String,
    /// The field of each line that becomes the partition key; without it, keys spread evenly and no order is kept.
    #[arg(long, value_name = "FIELD")]
    pub key_field: Option<String>,
    /// Print the summary as JSON.
    #[arg(long)]
    pub json: bool,
    /// How to reach AWS.
    #[command(flatten)]
    pub aws: PlaceArgs,
}

/// Arguments of `leases`.
#[derive(Debug, Args)]
pub struct LeasesArgs {
    /// The application: the plugin's name, unless the configuration says otherwise.
    #[arg(value_parser = values::application)]
    pub application: String,
    /// Print rows as JSON.
    #[arg(long)]
    pub json: bool,
    /// Print again at this interval until ctrl-c.
    #[arg(long, value_name = "INTERVAL", value_parser = values::duration)]
    pub watch: Option<Duration>,
    /// How to reach AWS.
    #[command(flatten)]
    pub aws: PlaceArgs,
}

/// Arguments of `doctor`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit code: 0 if a host may use the table, 1 if something must be mended first.\n\nExamples:\n  \
    shardmill doctor orders --stream orders\n  \
    shardmill doctor orders --watch-for 0s --json"
)]
pub struct DoctorArgs {
    /// The application: its lease table's name, as for a KCL application.
    #[arg(value_parser = values::application)]
    pub application: String,
    /// The stream it reads; leases are then held against its shards.
    #[arg(long, value_name = "STREAM")]
    pub stream: Option<String>,
    /// The failover time of the KCL fleet that uses the table (failoverTimeMillis; the KCL's default is 10s). No row tells
    /// it, so without it no worker of a KCL counts as dead.
    #[arg(long, value_name = "DURATION", value_parser = values::duration)]
    pub failover_time: Option<Duration>,
    /// How long to watch whether owners live; an owner is dead that wrote nothing for longer than its failover time. 0s does
    /// not wait. Default: 12s, or 1.2 times the failover time.
    #[arg(long, value_name = "DURATION", value_parser = values::duration)]
    pub watch_for: Option<Duration>,
    /// Print the report as JSON.
    #[arg(long)]
    pub json: bool,
    /// How to reach AWS.
    #[command(flatten)]
    pub aws: PlaceArgs,
}

/// How to reach AWS, for commands that want nothing else of a configuration.
#[derive(Debug, Clone, Default, Args)]
pub struct PlaceArgs {
    /// The configuration of the hosts, for its `[aws]`.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// What stands over it.
    #[command(flatten)]
    pub aws: AwsArgs,
}

/// How to reach AWS; what is not given comes from the configuration file or the ordinary AWS chain.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "AWS")]
pub struct AwsArgs {
    /// The region.
    #[arg(long)]
    pub region: Option<String>,
    /// Another address for both services, such as an emulator's.
    #[arg(long, value_name = "URL")]
    pub endpoint: Option<String>,
    /// Another address for Kinesis.
    #[arg(long, value_name = "URL")]
    pub kinesis_endpoint: Option<String>,
    /// Another address for DynamoDB.
    #[arg(long, value_name = "URL")]
    pub dynamodb_endpoint: Option<String>,
    /// Use the embedded stack of a running `shardmill dev`, by its data directory: `--local` is `--local=data`.
    #[arg(long, value_name = "DATA", num_args = 0..=1, require_equals = true, default_missing_value = "data",
          conflicts_with_all = ["endpoint", "kinesis_endpoint", "dynamodb_endpoint"])]
    pub local: Option<PathBuf>,
}
