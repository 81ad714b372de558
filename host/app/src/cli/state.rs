//! `shardmill state`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{ChangeArgs, ConnectionArgs, OutputArgs, values};

/// Arguments of `state`.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    disable_help_subcommand = true,
    after_help = "With --json, each row has the state in base64.\n\nExamples:\n  \
    shardmill state totals\n  \
    shardmill state totals --shard shardId-000000000000 > state.json\n  \
    shardmill state export totals --out totals.ndjson\n  \
    shardmill state import totals totals.ndjson --go-back --why 'bad version' --apply\n  \
    shardmill state reset totals 3 --why 'start over' --apply"
)]
pub(crate) struct StateArgs {
    /// What to do with the states instead of showing them.
    #[command(subcommand)]
    pub(crate) command: Option<StateCommand>,
    /// The application: the plugin's name, unless the configuration says otherwise.
    #[arg(value_parser = values::application, required = true)]
    pub(crate) application: Option<String>,
    /// Print only the state of this shard, as the plugin saved it.
    #[arg(long, value_name = "SHARD", conflicts_with = "json")]
    pub(crate) shard: Option<String>,
    /// How to print.
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Where the streams and tables are.
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
}

/// What to do with states.
#[derive(Debug, Subcommand)]
pub(crate) enum StateCommand {
    /// Write the states of shards to a file, one line each.
    Export(StateExportArgs),
    /// Replace the states of shards with those in a file.
    ///
    /// Shows what it would do; with --apply, does it.
    Import(StateImportArgs),
    /// Drop the states of shards, without moving the shards.
    ///
    /// Shows what it would do; with --apply, does it.
    Reset(StateResetArgs),
}

/// Arguments of `state export`.
#[derive(Debug, Args)]
#[command(
    after_help = "Each line is a JSON object: `application`, `shard`, `checkpoint` and \
        `sub-sequence` (what the state counts up to), `version` (the digest of the component that \
        saved it) and `state` in base64. Shards without a state have no line.\n\nExamples:\n  \
    shardmill state export totals > totals.ndjson\n  \
    shardmill state export totals 3 7 --out two.ndjson"
)]
pub(crate) struct StateExportArgs {
    /// The application.
    #[arg(value_parser = values::application)]
    pub(crate) application: String,
    /// The shards, by id or by the number in it. Default: all that have a state.
    pub(crate) shards: Vec<String>,
    /// The file to write, which must not exist. Default: standard output.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Where the tables are.
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
}

/// Arguments of `state import`.
#[derive(Debug, Args)]
#[command(
    after_help = "The host that holds a shard saves and closes its instance, and replaces the \
        state in one write. A state covers all records up to its checkpoint. If a shard is \
        elsewhere, the import is refused, unless you pass --go-back or --any-checkpoint. The \
        checkpoints of busy shards move: pause them first.\n\nExit code: 0 if all states were \
        replaced, or would be; 1 if not.\n\nExamples:\n  \
    shardmill state import totals totals.ndjson\n  \
    shardmill state import totals totals.ndjson --go-back --why 'bad version' --apply\n  \
    shardmill state import totals --cancel --why 'wrong file' --apply"
)]
pub(crate) struct StateImportArgs {
    /// The application.
    #[arg(value_parser = values::application)]
    pub(crate) application: String,
    /// The file, as `state export` writes it.
    #[arg(required_unless_present = "cancel")]
    pub(crate) file: Option<PathBuf>,
    /// Only the states of these shards. Default: all in the file.
    #[arg(long = "shard", value_name = "SHARD")]
    pub(crate) shards: Vec<String>,
    /// Send each shard to the checkpoint of its state: records after it are delivered again.
    #[arg(long, conflicts_with = "any_checkpoint")]
    pub(crate) go_back: bool,
    /// Use each state wherever its shard is, although it belongs to another checkpoint: records may
    /// count twice in it, or not at all.
    #[arg(long)]
    pub(crate) any_checkpoint: bool,
    /// Cancel what no host has done yet.
    #[arg(long, conflicts_with_all = ["file", "go_back", "any_checkpoint"])]
    pub(crate) cancel: bool,
    /// Who, why, and whether.
    #[command(flatten)]
    pub(crate) change: ChangeArgs,
}

/// Arguments of `state reset`.
#[derive(Debug, Args)]
#[command(
    after_help = "The shards stay where they are, and no record is delivered again; `shardmill \
        reset` also sends them to where the application began.\n\nExit code: 0 if all states are \
        gone, or would be; 1 if not.\n\nExamples:\n  \
    shardmill state reset totals\n  \
    shardmill state reset totals 3 --why 'start over' --apply"
)]
pub(crate) struct StateResetArgs {
    /// The application.
    #[arg(value_parser = values::application)]
    pub(crate) application: String,
    /// The shards, by id or by the number in it. Default: all that have a state.
    pub(crate) shards: Vec<String>,
    /// Cancel what no host has done yet.
    #[arg(long)]
    pub(crate) cancel: bool,
    /// Who, why, and whether.
    #[command(flatten)]
    pub(crate) change: ChangeArgs,
}
