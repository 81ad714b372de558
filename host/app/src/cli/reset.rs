//! `shardmill reset` and `shardmill delete`: an application starts over, or ends.

use clap::Args;

use super::{ChangeArgs, ConnectionArgs, OutputArgs, WatchArgs, values};

/// Arguments of `reset`.
#[derive(Debug, Args)]
#[command(
    after_help = "The fleet keeps running: each host checkpoints, drops the plugin's state, and \
        continues where the application began. Finished shards are read again as far as retention \
        allows, parents before children. If --config has another initial-position than the one \
        with which the application began, the application starts there, and the new position is \
        stored; an unchanged LATEST still means the original moment.\n\nExit code: 0 if all \
        shards went there, or would; 1 if not.\n\nExamples:\n  \
    shardmill reset orders\n  \
    shardmill reset orders --why 'new version counts differently' --apply\n  \
    shardmill reset orders 3 --why 'bad data' --apply"
)]
pub(crate) struct ResetArgs {
    /// The application.
    #[arg(value_parser = values::application)]
    pub(crate) application: String,
    /// The shards, by id or by the number in it, and their descendants. Default: all.
    pub(crate) shards: Vec<String>,
    /// The stream, by name or ARN; needed only if the fleet has not recorded it.
    #[arg(long, value_name = "STREAM")]
    pub(crate) stream: Option<String>,
    /// Who, why, and whether.
    #[command(flatten)]
    pub(crate) change: ChangeArgs,
}

/// Arguments of `delete`.
#[derive(Debug, Args)]
#[command(
    after_help = "Deletes the lease table, the coordinator table and the state table, once no live \
        host or worker may use them: stop the hosts first. Streams, sinks, dead letters, fan-out \
        consumers and the tables of further streams are not touched. A host that you start \
        afterwards starts a new application.\n\nExit code: 0 if the tables are gone, or would \
        be; 1 if they are kept.\n\nExamples:\n  \
    shardmill delete orders\n  \
    shardmill delete orders --confirm orders --why 'moved to orders2' --apply"
)]
pub(crate) struct DeleteArgs {
    /// The application.
    #[arg(value_parser = values::application)]
    pub(crate) application: String,
    /// Do it. Without this, the command shows what would be lost.
    #[arg(long, requires_all = ["why", "confirm"])]
    pub(crate) apply: bool,
    /// The application's name again.
    #[arg(long, value_name = "APPLICATION")]
    pub(crate) confirm: Option<String>,
    /// The reason, for the log: the history is deleted with the tables.
    #[arg(long, value_name = "TEXT", value_parser = values::why)]
    pub(crate) why: Option<String>,
    /// Who you are. Default: the user and this machine.
    #[arg(long, value_name = "NAME", value_parser = values::name_of_person)]
    pub(crate) by: Option<String>,
    /// Also delete a lease table that had leases before the first host of shardmill: a KCL's, or
    /// those that an import wrote.
    #[arg(long)]
    pub(crate) older_leases: bool,
    /// For how long.
    #[command(flatten)]
    pub(crate) watch: WatchArgs,
    /// How to print.
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Where the tables are.
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
}
