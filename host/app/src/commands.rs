//! Which command does what was asked for.

use crate::author::{bench, capture, check, new, put};
#[cfg(feature = "local")]
use crate::author::{dev, test};
use crate::cli::{Cli, Command};
use crate::operate::{
    consumers, cost, doctor, explain, export, iam, import, leases, plan, plugins, replay, run,
    state,
};
use crate::tools::{completions, man, version};

/// Runs the command. The runtime is there; the exit code is the caller's.
pub(crate) async fn execute(cli: Cli) -> anyhow::Result<()> {
    match cli.command {
        #[cfg(feature = "local")]
        Command::Dev(args) => Box::pin(dev::execute(args)).await,
        #[cfg(feature = "local")]
        Command::Test(args) => Box::pin(test::execute(args)).await,
        Command::Bench(args) => Box::pin(bench::execute(&args)).await,
        Command::Run(args) => Box::pin(run::execute(args)).await,
        Command::New(args) => new::execute(&args),
        Command::Put(args) => Box::pin(put::execute(args)).await,
        Command::Capture(args) => Box::pin(capture::execute(&args)).await,
        Command::Check(args) => Box::pin(check::execute(&args)).await,
        Command::Consumers(args) => Box::pin(consumers::execute(&args)).await,
        Command::Leases(args) => Box::pin(leases::execute(&args)).await,
        Command::Doctor(args) => Box::pin(doctor::execute(&args)).await,
        Command::Import(args) => Box::pin(import::execute(&args)).await,
        Command::Export(args) => Box::pin(export::execute(&args)).await,
        Command::Plan(args) => Box::pin(plan::execute(&args)).await,
        Command::Plugins(args) => Box::pin(plugins::execute(&args)).await,
        Command::Explain(args) => Box::pin(explain::execute(&args)).await,
        Command::Cost(args) => cost::execute(&args),
        Command::Iam(args) => iam::execute(&args),
        Command::Replay(args) => Box::pin(replay::execute(args)).await,
        Command::State(args) => Box::pin(state::execute(&args)).await,
        Command::Completions(args) => {
            completions::execute(args.shell);
            Ok(())
        }
        Command::Man(args) => man::execute(&args),
        Command::Version(args) => version::execute(&args),
        Command::CompileComponent(args) => Ok(args.job().run(std::io::stdin().lock()).map(drop)?),
    }
}
