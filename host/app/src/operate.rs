//! The commands for an operator: to run hosts, to see what the hosts of an application do and why,
//! and to change it.

mod consumers;
mod cost;
mod doctor;
mod explain;
mod export;
mod iam;
mod import;
mod leases;
mod old_fleet;
mod plan;
mod plugins;
mod reading;
mod replay;
mod run;
mod state;

use crate::cli::OperateCommand;

/// Runs the command to its end.
pub(crate) async fn execute(command: OperateCommand) -> anyhow::Result<()> {
    match command {
        OperateCommand::Run(args) => Box::pin(run::execute(args)).await,
        OperateCommand::Doctor(args) => Box::pin(doctor::execute(&args)).await,
        OperateCommand::Import(args) => Box::pin(import::execute(&args)).await,
        OperateCommand::Export(args) => Box::pin(export::execute(&args)).await,
        OperateCommand::Leases(args) => Box::pin(leases::execute(&args)).await,
        OperateCommand::Explain(args) => Box::pin(explain::execute(&args)).await,
        OperateCommand::Plan(args) => Box::pin(plan::execute(&args)).await,
        OperateCommand::Plugins(args) => Box::pin(plugins::execute(&args)).await,
        OperateCommand::Consumers(args) => Box::pin(consumers::execute(&args)).await,
        OperateCommand::State(args) => Box::pin(state::execute(&args)).await,
        OperateCommand::Replay(args) => Box::pin(replay::execute(args)).await,
        OperateCommand::Iam(args) => iam::execute(&args),
        OperateCommand::Cost(args) => cost::execute(&args),
    }
}
