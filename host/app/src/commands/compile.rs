//! `shardmill compile-component`: the process in which a host compiles one plugin.

use std::io::Write;
use std::process::ExitCode;

use shardmill_wasm::CompileFailure;

use crate::cli::CompileArgs;

/// Compiles, before anything else of this process is started: it needs no runtime, no log and no signals.
pub fn execute(args: &CompileArgs) -> ExitCode {
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // Who started it reads it; if nobody does, the exit code says enough.
            let _ = writeln!(std::io::stderr(), "{failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}

pub(super) fn run(args: &CompileArgs) -> Result<(), CompileFailure> {
    args.job().run(std::io::stdin().lock())
}
