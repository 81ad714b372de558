//! `shardmill compile-component`: the process in which a host compiles one plugin.

use std::io::Write;
use std::process::ExitCode;

use crate::cli::CompileArgs;

/// Compiles, before anything else of this process is started: it needs no runtime, no log and no
/// signals.
pub(crate) fn execute(args: &CompileArgs) -> ExitCode {
    let (said, code) = match args.job().run(std::io::stdin().lock()) {
        Ok(lacks) => (lacks, ExitCode::SUCCESS),
        Err(failure) => (
            Some(failure.to_string()),
            ExitCode::from(failure.exit_code()),
        ),
    };
    if let Some(said) = said {
        // The parent process reads this. If it does not, the exit code says enough.
        let _ = writeln!(std::io::stderr(), "{said}");
    }
    code
}
