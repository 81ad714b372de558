//! Logs to standard error.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// How logs look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// What is logged unless `SHARDMILL_LOG` or `RUST_LOG` says otherwise: our own state changes, others' warnings. Not those
/// of wasmtime-wasi-http: it warns of whatever nonsense a guest passes to it, as often as that does.
const DEFAULT_FILTER: &str = "warn,aws_config=error,dynoxide=error,wasmtime_wasi_http=off,ferrokinesis=error,shardmill=info,shardmill_worker=info,shardmill_aws=info,shardmill_wasm=info,\
                              shardmill_local=info";

/// The same for commands in which the host is a means: only what a plugin logs, and errors.
const QUIET_FILTER: &str = "error,wasmtime_wasi_http=off,shardmill::guest=info";

/// Starts logging; standard output is left to records. Called once, by `main`.
pub fn start_logging(format: LogFormat, is_quiet: bool) {
    let directives = std::env::var("SHARDMILL_LOG").or_else(|_| std::env::var("RUST_LOG"));
    let filter = directives.ok().and_then(|directives| EnvFilter::try_new(directives).ok());
    let filter = filter.unwrap_or_else(|| EnvFilter::new(if is_quiet { QUIET_FILTER } else { DEFAULT_FILTER }));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // A second call, in a test that runs a command in-process, changes nothing.
    let _ = match format {
        LogFormat::Text => builder.with_ansi(std::io::stderr().is_terminal()).with_target(false).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
}
