//! Where each command is carried out.

use crate::cli::Command;
use crate::{author, operate, tools};

/// Runs the command to its end. Needs a tokio runtime.
pub(crate) async fn execute(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Author(command) => author::execute(command).await,
        Command::Operate(command) => operate::execute(command).await,
        Command::Tool(command) => tools::execute(&command),
        Command::CompileComponent(args) => Ok(args.job().run(std::io::stdin().lock()).map(drop)?),
    }
}
