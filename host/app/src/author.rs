//! The commands for a plugin's author: a project, a host on the embedded stack, tests,
//! measurements, records.

pub(crate) mod arguments;
mod bench;
mod capture;
#[cfg(feature = "local")]
mod captured;
mod check;
#[cfg(feature = "local")]
mod dev;
#[cfg(feature = "local")]
pub(crate) mod dry_run;
pub(crate) mod feed;
mod interrupted;
mod load;
mod new;
mod pump;
mod put;
pub(crate) mod scaffold;
mod settled;
#[cfg(feature = "local")]
pub(crate) mod summary;
#[cfg(feature = "local")]
mod test;

use crate::cli::AuthorCommand;

/// Runs the command to its end.
pub(crate) async fn execute(command: AuthorCommand) -> anyhow::Result<()> {
    match command {
        #[cfg(feature = "local")]
        AuthorCommand::Dev(args) => Box::pin(dev::execute(args)).await,
        AuthorCommand::New(args) => new::execute(&args),
        #[cfg(feature = "local")]
        AuthorCommand::Test(args) => Box::pin(test::execute(args)).await,
        AuthorCommand::Bench(args) => Box::pin(bench::execute(&args)).await,
        AuthorCommand::Check(args) => Box::pin(check::execute(&args)).await,
        AuthorCommand::Put(args) => Box::pin(put::execute(args)).await,
        AuthorCommand::Load(args) => Box::pin(load::execute(&args)).await,
        AuthorCommand::Capture(args) => Box::pin(capture::execute(&args)).await,
    }
}
