//! The command line: clap types and nothing else.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use shardmill_core::text;
use shardmill_serve::telemetry;

mod artifact;
mod backup;
mod bench;
mod capture;
mod check;
mod compile;
mod consumers;
mod control;
mod cost;
mod debug;
#[cfg(feature = "local")]
mod dev;
mod doctor;
mod explain;
mod export;
mod groups;
mod iam;
mod import;
mod leases;
mod load;
mod new;
mod plan;
mod plugins;
mod put;
mod replay;
mod reset;
mod run;
mod shared;
mod state;
mod status;
#[cfg(feature = "local")]
mod test;
mod tools;
mod values;

pub(crate) use artifact::{DeployArgs, PushArgs};
pub(crate) use backup::{BackupArgs, RestoreArgs};
pub(crate) use bench::BenchArgs;
pub(crate) use capture::CaptureArgs;
pub(crate) use check::CheckArgs;
pub(crate) use compile::CompileArgs;
pub(crate) use consumers::ConsumersArgs;
pub(crate) use control::{
    ChangeArgs, DrainArgs, HistoryArgs, PauseArgs, ReleaseArgs, ReloadArgs, ResumeArgs, SeekArgs,
    ShadowArgs, SkipArgs, StateArg,
};
pub(crate) use cost::CostArgs;
pub(crate) use debug::DebugArgs;
#[cfg(feature = "local")]
pub(crate) use dev::{DevArgs, PLUGINS};
pub(crate) use doctor::DoctorArgs;
pub(crate) use explain::ExplainArgs;
pub(crate) use export::ExportArgs;
pub(crate) use iam::{IamArgs, IamFormat};
pub(crate) use import::ImportArgs;
pub(crate) use leases::LeasesArgs;
pub(crate) use load::LoadArgs;
pub(crate) use new::NewArgs;
pub(crate) use plan::PlanArgs;
pub(crate) use plugins::PluginsArgs;
pub(crate) use put::PutArgs;
pub(crate) use replay::ReplayArgs;
pub(crate) use reset::{DeleteArgs, ResetArgs};
pub(crate) use run::RunArgs;
pub(crate) use shared::{
    AwsArgs, ConnectionArgs, OutputArgs, ReadingArgs, SettingsArgs, WatchArgs,
};
pub(crate) use state::{StateArgs, StateCommand, StateExportArgs, StateImportArgs, StateResetArgs};
pub(crate) use status::{StatusArgs, TopArgs};
#[cfg(feature = "local")]
pub(crate) use test::TestArgs;
pub(crate) use tools::{CompletionsArgs, ManArgs, VersionArgs};
pub(crate) use values::Target;

/// Runs WebAssembly record processors on Amazon Kinesis Data Streams.
///
/// Put a component in the plugins folder and run a host: it leases shards, reads, delivers and
/// checkpoints, and swaps the code in place when the file changes.
#[cfg_attr(
    feature = "local",
    doc = "Start with `shardmill dev`, which needs no AWS account."
)]
#[derive(Debug, Parser)]
#[command(
    name = "shardmill",
    version = crate::own_version::in_short(),
    max_term_width = 110,
    after_help = "`shardmill COMMAND --help` shows the options of a command, with examples."
)]
pub(crate) struct Cli {
    /// The format of logs on standard error; SHARDMILL_LOG sets what is logged, as in
    /// `SHARDMILL_LOG=debug`.
    #[arg(long, global = true, value_enum, default_value_t)]
    pub(crate) log_format: LogFormat,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do. The first line of each command is what `shardmill --help` shows, so it is short.
#[allow(
    clippy::large_enum_variant,
    reason = "a process has one; how the variants differ depends on the features"
)]
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// For the authors of plugins.
    #[command(flatten)]
    Author(AuthorCommand),
    /// For the operators of hosts.
    #[command(flatten)]
    Operate(OperateCommand),
    /// About the program itself.
    #[command(flatten)]
    Tool(ToolCommand),
    /// Compile a plugin that comes on standard input, within limits; a host starts this by itself.
    #[command(hide = true)]
    CompileComponent(CompileArgs),
}

/// The commands for the authors of plugins.
#[derive(Debug, Subcommand)]
pub(crate) enum AuthorCommand {
    /// Run plugins on an embedded Kinesis and DynamoDB.
    ///
    /// Needs no account and no network. Streams, leases and checkpoints are kept in a data
    /// directory.
    #[cfg(feature = "local")]
    Dev(DevArgs),
    /// Create a project for a plugin.
    ///
    /// The folder has the source, a test, a README, and the contract with the host.
    New(NewArgs),
    /// Run a plugin on the records of a file and compare its output.
    ///
    /// The plugin runs in a whole host, on an embedded stream.
    #[cfg(feature = "local")]
    Test(TestArgs),
    /// Measure what a plugin costs.
    ///
    /// Shows the time for each record, memory and start, compared with a plugin that does nothing.
    Bench(BenchArgs),
    /// Show what a component is and whether a host would run it.
    ///
    /// Also shows the settings that would apply, and with --running what would change.
    Check(CheckArgs),
    /// Put the lines of a file, or of standard input, into a stream.
    Put(PutArgs),
    /// Put a steady load into a stream, at a price that is shown before.
    ///
    /// For a test of a fleet's size: how many records a second its hosts keep up with.
    Load(LoadArgs),
    /// Print the records of a stream, one line each.
    ///
    /// The records are printed as they are stored, for `shardmill test --captured`. Writes nothing
    /// to the stream.
    Capture(CaptureArgs),
}

/// The commands for the operators of hosts.
#[derive(Debug, Subcommand)]
pub(crate) enum OperateCommand {
    /// Run plugins against AWS, or any compatible endpoint.
    Run(RunArgs),
    /// Check an application's tables before a host uses them.
    ///
    /// Shows what a lease table holds, who is alive, what to fix, and how a host may use the table.
    /// Writes nothing.
    Doctor(DoctorArgs),
    /// Continue where another library stopped.
    ///
    /// Shows where each shard would start and why; with --apply or --watch, writes that into the
    /// application's lease table. The library's own tables are not touched.
    Import(ImportArgs),
    /// Write checkpoints in the format of another library.
    ///
    /// This is the way back to the library. Shows which checkpoints it can store; with --apply,
    /// writes them.
    Export(ExportArgs),
    /// Keep an application's checkpoints and state in a file.
    ///
    /// The fleet keeps running. Optionally keeps the components at work too.
    Backup(BackupArgs),
    /// Restore an application from a backup.
    ///
    /// On its own stream, or on another one, as after the loss of a region. Shows what it would do;
    /// with --apply, does it.
    Restore(RestoreArgs),
    /// Show who holds which shard, and how far each is.
    Leases(LeasesArgs),
    /// Show how an application is doing, in a few lines.
    ///
    /// Shows how many shards are held, paused and stuck, which is farthest behind, what operators
    /// want, and what each host reports. Writes nothing.
    Status(StatusArgs),
    /// Show an application live, the shards farthest behind first.
    Top(TopArgs),
    /// Show why a shard moves or does not.
    ///
    /// Also shows who owns it and where it is. Writes nothing.
    Explain(ExplainArgs),
    /// Rerun a failed batch on this machine.
    ///
    /// Uses the same records, state, settings and version, without a network, and gives the same
    /// result each time. Shows how the batch fails, and with --compare whether it also fails in
    /// another version.
    Debug(DebugArgs),
    /// Show what a host would do now, and why.
    ///
    /// A dry run: each step with its reason, and what would be left for later. Writes nothing.
    Plan(PlanArgs),
    /// Stop deliveries; leases stay where they are.
    ///
    /// Pauses an application or some of its shards, for a time if you like. Shows which shards would
    /// pause; with --apply, pauses them.
    Pause(PauseArgs),
    /// End a pause.
    Resume(ResumeArgs),
    /// Continue at another place of the stream, with the fleet running.
    ///
    /// Goes forward or back, by time, sequence number or number of records. Shows from where to
    /// where; with --apply, does it.
    Seek(SeekArgs),
    /// Start an application over, with the fleet running.
    ///
    /// Every shard goes back to where the application began, without its state. Shows from where to
    /// where; with --apply, does it.
    Reset(ResetArgs),
    /// Delete the tables of an application that nobody serves any more.
    ///
    /// Shows what would be lost; with --apply and --confirm, does it.
    Delete(DeleteArgs),
    /// Give up one or more records that a shard is stuck at.
    Skip(SkipArgs),
    /// Make a host hand over all its leases and stay up.
    Drain(DrainArgs),
    /// Move a lease to another host.
    Release(ReleaseArgs),
    /// Make hosts reread their configuration.
    Reload(ReloadArgs),
    /// Compare a version in the shadow; promote or drop it.
    ///
    /// Shows what each host found. A version runs in the shadow of a plugin if its file is
    /// NAME.shadow.wasm: it gets the same records, and its output is compared and not stored.
    Shadow(ShadowArgs),
    /// Roll a version out to a whole fleet.
    ///
    /// Pushes a file, or takes a version that was pushed, and has all hosts pull it and try it: one
    /// shard, one host, all. Shows which hosts; with --apply, does it, and waits for what comes of
    /// it.
    Deploy(DeployArgs),
    /// Push a plugin to a registry.
    ///
    /// Prints the digest to pin. Hosts pull it if their `plugins` names it.
    Push(PushArgs),
    /// Show who changed what, when and why.
    History(HistoryArgs),
    /// Show, pin, roll back or release versions of a plugin.
    ///
    /// Shows the versions that each host runs, and those in quarantine.
    Plugins(PluginsArgs),
    /// List the fan-out consumers of a stream, or delete one.
    ///
    /// AWS bills a consumer while it exists, whether or not a host uses it.
    Consumers(ConsumersArgs),
    /// Show, export, import or drop what a plugin saved as its state.
    ///
    /// Without a subcommand, shows it shard by shard.
    State(StateArgs),
    /// Replay dead letters, or a past time of a stream, through a plugin.
    ///
    /// Dead letters may also go into a stream.
    Replay(ReplayArgs),
    /// Print the AWS permissions that a configuration needs.
    ///
    /// The minimal policy for hosts with exactly this configuration, as JSON, Terraform,
    /// CloudFormation or text with the reasons. Makes no network calls.
    Iam(IamArgs),
    /// Estimate what a fleet costs at AWS in a month.
    ///
    /// Arithmetic on the configuration and the size of the fleet, line by line. Makes no
    /// network calls.
    Cost(CostArgs),
}

/// The commands about the program itself.
#[derive(Debug, Subcommand)]
pub(crate) enum ToolCommand {
    /// Print a script that completes commands and options in a shell.
    Completions(CompletionsArgs),
    /// Write manual pages, one for each command.
    Man(ManArgs),
    /// Show the version; with --verbose, what a bug report needs.
    Version(VersionArgs),
}

/// The command line as clap sees it, with the commands in groups.
pub(crate) fn command() -> clap::Command {
    groups::grouped(Cli::command())
}

/// Reads the command line; ends the process if it is wrong, or if it asks for help.
pub(crate) fn parse() -> Cli {
    if let Some(argument) = std::env::args_os().find(|argument| steers(&argument.to_string_lossy()))
    {
        let message = format!(
            "the argument {:?} has a line break, or another character that could forge lines in \
                messages or steer a terminal: rename the file, or leave it out\n",
            argument.to_string_lossy()
        );
        command().error(ErrorKind::InvalidValue, message).exit();
    }
    let matches = command()
        .try_get_matches()
        .unwrap_or_else(|error| explained(error).exit());
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

/// Says which build has the command, if only this one lacks it.
fn explained(error: clap::Error) -> clap::Error {
    match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(name)) if groups::is_left_out(name) => {
            let message = format!(
                "`shardmill {name}` needs the embedded Kinesis and DynamoDB, and this is the lean \
                    build without them: use the full build (its archive and package are named \
                    `full`), or build with the feature `local`, which is on by default\n"
            );
            command().error(ErrorKind::InvalidSubcommand, message)
        }
        _ => error,
    }
}

/// Whether messages that show it would have more lines than they were written with, or steer a
/// terminal. Names of files come from anybody.
fn steers(argument: &str) -> bool {
    argument.contains(|c| c != '\t' && text::steers(c))
}

/// How logs look.
#[derive(Debug, Clone, Copy, Default, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// For people
    #[default]
    Text,
    /// One JSON object a line
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
    /// Whether the command shows its own output only, without the host's log below warnings.
    pub(crate) fn is_quiet(&self) -> bool {
        match self {
            #[cfg(feature = "local")]
            Self::Author(AuthorCommand::Test(_)) => true,
            Self::Author(AuthorCommand::Bench(_) | AuthorCommand::Capture(_)) => true,
            Self::Operate(OperateCommand::Debug(_)) => true,
            _ => false,
        }
    }
}
