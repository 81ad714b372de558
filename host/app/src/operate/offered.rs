//! The commands that a host's console may run: they look at a fleet or change it, and answer once.

use anyhow::bail;

use super::{consumers, control, debug, doctor, explain, leases, plan, plugins, state, status};
use crate::cli::OperateCommand;

/// Runs the command to its end; one that does not belong to these is refused.
pub(crate) async fn look_or_change(command: OperateCommand) -> anyhow::Result<()> {
    match command {
        OperateCommand::Doctor(args) => Box::pin(doctor::execute(&args)).await,
        OperateCommand::Status(args) => Box::pin(status::status(&args)).await,
        OperateCommand::Leases(args) => Box::pin(leases::execute(&args)).await,
        OperateCommand::Explain(args) => Box::pin(explain::execute(&args)).await,
        OperateCommand::Debug(args) => Box::pin(debug::execute(&args)).await,
        OperateCommand::Plan(args) => Box::pin(plan::execute(&args)).await,
        OperateCommand::Plugins(args) => Box::pin(plugins::execute(&args)).await,
        OperateCommand::Consumers(args) => Box::pin(consumers::execute(&args)).await,
        OperateCommand::State(args) => Box::pin(state::execute(&args)).await,
        command => Box::pin(control(command)).await,
    }
}

/// Changes what hosts do, or shows how it was changed.
async fn control(command: OperateCommand) -> anyhow::Result<()> {
    match command {
        OperateCommand::Pause(args) => Box::pin(control::pause(&args)).await,
        OperateCommand::Resume(args) => Box::pin(control::resume(&args)).await,
        OperateCommand::Seek(args) => Box::pin(control::seek(&args)).await,
        OperateCommand::Reset(args) => Box::pin(control::reset(args)).await,
        OperateCommand::Delete(args) => Box::pin(control::delete(&args)).await,
        OperateCommand::Skip(args) => Box::pin(control::skip(&args)).await,
        OperateCommand::Drain(args) => Box::pin(control::drain(&args)).await,
        OperateCommand::Release(args) => Box::pin(control::release(&args)).await,
        OperateCommand::Reload(args) => Box::pin(control::reload(&args)).await,
        OperateCommand::Shadow(args) => Box::pin(control::shadow(&args)).await,
        OperateCommand::Deploy(args) => Box::pin(control::deploy(&args)).await,
        OperateCommand::History(args) => Box::pin(control::history(&args)).await,
        _ => bail!("this command runs for longer, or needs files: run it on the command line"),
    }
}
