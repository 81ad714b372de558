//! The binary: parse, run, exit.

mod author;
mod aws;
mod cli;
mod commands;
mod compile;
mod console;
mod operate;
mod output;
mod own_version;
mod prices;
mod shard_cursor;
mod tools;

use std::process::ExitCode;

use shardmill_config::ConfigError;
use shardmill_serve::{NothingLeft, hardening, telemetry};
use tokio::runtime::Runtime;

use crate::cli::{Cli, Command};

/// That of musl takes one lock for all threads, and makes a record dearer: decision 58.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Threads for blocking calls: one for each call of a plugin, and as many again for the host's own
/// calls (it looks up names, writes files, reads plugins). They are started when they are needed.
const BLOCKING_THREADS_MAX: usize = 2 * shardmill_wasm::GUEST_CALLS_MAX;
/// `EX_USAGE` of sysexits: the command line or the configuration is wrong, and trying again will
/// not help.
const EXIT_USAGE: u8 = 64;
/// `EX_UNAVAILABLE` of sysexits: this process may serve nothing any more.
const EXIT_NOTHING_LEFT: u8 = 69;
/// `EX_DATAERR` of sysexits: everything is settled, but records were given up.
const EXIT_GIVEN_UP: u8 = 65;
/// 128 and SIGINT, as shells count it: a signal ended a command before it was done.
const EXIT_INTERRUPTED: u8 = 130;
/// 128 and SIGPIPE: the reader of the output closed the pipe.
const EXIT_PIPE_CLOSED: u8 = 141;

fn main() -> ExitCode {
    let cli = cli::parse();
    if let Command::CompileComponent(args) = &cli.command {
        return compile::execute(args);
    }
    match start(&cli) {
        Ok(runtime) => run(runtime, cli.command),
        Err(code) => code,
    }
}

/// Starts what every command needs. An error was reported, and is the exit code.
fn start(cli: &Cli) -> Result<Runtime, ExitCode> {
    hardening::raise_wall();
    if let Err(error) = telemetry::start_logging(cli.log_format.into(), cli.command.is_quiet()) {
        telemetry::show(&format!("error: {error}"));
        return Err(ExitCode::from(EXIT_USAGE));
    }
    if let Err(error) = hardening::forbid_core_dumps() {
        tracing::warn!(
            %error,
            code = "core-dumps",
            "core dumps cannot be disabled; one would contain credentials and secrets"
        );
    }
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS_MAX);
    builder.build().map_err(|error| {
        tracing::error!(%error, code = "start-failed", "cannot start");
        telemetry::flush();
        ExitCode::FAILURE
    })
}

/// Runs the command, and reports its error.
fn run(runtime: Runtime, command: Command) -> ExitCode {
    let result = runtime.block_on(commands::execute(command));
    let result = result.and_then(|()| output::all_written());
    // A guest that never returns holds a blocking thread until its deadline; do not wait for it.
    runtime.shutdown_background();
    if let Err(error) = &result
        && !error.is::<output::PipeClosed>()
    {
        telemetry::show(&message(error));
    }
    telemetry::flush();
    result.map_or_else(|error| exit_code(&error), |()| ExitCode::SUCCESS)
}

fn message(error: &anyhow::Error) -> String {
    let line = output::in_one_line(error);
    if error.is::<output::Interrupted>() {
        line
    } else {
        format!("error: {line}")
    }
}

fn exit_code(error: &anyhow::Error) -> ExitCode {
    if error.is::<ConfigError>() {
        ExitCode::from(EXIT_USAGE)
    } else if error.is::<output::Interrupted>() {
        ExitCode::from(EXIT_INTERRUPTED)
    } else if error.is::<output::PipeClosed>() {
        ExitCode::from(EXIT_PIPE_CLOSED)
    } else if is_given_up(error) {
        ExitCode::from(EXIT_GIVEN_UP)
    } else if error.is::<NothingLeft>() {
        ExitCode::from(EXIT_NOTHING_LEFT)
    } else {
        ExitCode::FAILURE
    }
}

/// Only `dev` ends when everything is settled.
#[cfg(feature = "local")]
fn is_given_up(error: &anyhow::Error) -> bool {
    error.is::<author::summary::RecordsGivenUp>()
}

#[cfg(not(feature = "local"))]
fn is_given_up(_error: &anyhow::Error) -> bool {
    false
}
