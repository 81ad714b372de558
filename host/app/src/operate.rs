//! The commands for an operator: to run hosts, to see what the hosts of an application do and why,
//! and to change it.

mod artifact;
mod backup;
mod backup_file;
mod consumers;
mod control;
mod cost;
mod debug;
mod digest_prefix;
mod doctor;
mod explain;
mod export;
mod iam;
mod import;
mod leases;
mod living;
pub(crate) mod offered;
mod old_fleet;
mod parts;
mod plan;
mod plugins;
mod push;
mod reading;
mod replay;
mod restore;
mod run;
mod state;
mod state_file;
pub(crate) mod status;
pub(crate) mod view;
mod wanted;
mod whole_file;
mod worker_report;

pub(crate) use self::backup_file::BACKUP_VERSION;
use self::offered::look_or_change;
use crate::cli::OperateCommand;

/// Runs the command to its end.
pub(crate) async fn execute(command: OperateCommand) -> anyhow::Result<()> {
    match command {
        OperateCommand::Run(args) => Box::pin(run::execute(args)).await,
        OperateCommand::Import(args) => Box::pin(import::execute(&args)).await,
        OperateCommand::Backup(args) => Box::pin(backup::execute(&args)).await,
        OperateCommand::Restore(args) => Box::pin(restore::execute(&args)).await,
        OperateCommand::Export(args) => Box::pin(export::execute(&args)).await,
        OperateCommand::Top(args) => Box::pin(status::top(&args)).await,
        OperateCommand::Push(args) => Box::pin(push::execute(&args)).await,
        OperateCommand::Replay(args) => Box::pin(replay::execute(args)).await,
        OperateCommand::Iam(args) => iam::execute(&args),
        OperateCommand::Cost(args) => cost::execute(&args),
        command => Box::pin(look_or_change(command)).await,
    }
}
