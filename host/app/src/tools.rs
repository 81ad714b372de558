//! The commands about the program itself.

mod completions;
mod man;
mod version;

use crate::cli::ToolCommand;

/// Runs the command to its end.
pub(crate) fn execute(command: &ToolCommand) -> anyhow::Result<()> {
    match command {
        ToolCommand::Completions(args) => completions::execute(args.shell),
        ToolCommand::Man(args) => man::execute(args)?,
        ToolCommand::Version(args) => version::execute(args)?,
    }
    Ok(())
}
