//! Logs to standard error. Nothing in this process waits for a reader of it.

use std::io::{IsTerminal, Write};
use std::sync::OnceLock;
use std::time::Duration;

use shardmill_core::text::printable;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::format::debug_fn;
use tracing_subscriber::fmt::writer::BoxMakeWriter;

mod fields;
mod log_queue;
pub(crate) mod metrics;

use fields::write_field;
use log_queue::LogQueue;

/// How long the process waits at its end for the last lines to be read. A reader that is alive has
/// read them within 1 s.
const LAST_LINES_WITHIN: Duration = Duration::from_secs(1);

/// The process's one queue to standard error.
static QUEUE: OnceLock<LogQueue> = OnceLock::new();

/// How a line of the log is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// What is logged unless `SHARDMILL_LOG` or `RUST_LOG` says otherwise: our own state changes,
/// others' warnings. But not those of wasmtime-wasi-http, which warns whenever a guest passes
/// nonsense to it. A name covers all that begin with it: `shardmill` covers each of our crates.
const DEFAULT_FILTER: &str =
    "warn,aws_config=error,dynoxide=error,wasmtime_wasi_http=off,ferrokinesis=error,shardmill=info";

/// The same for commands that run a host for another purpose: only what a plugin logs, and errors.
const QUIET_FILTER: &str = "error,wasmtime_wasi_http=off,shardmill::guest=info";

/// A log filter that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{VARIABLE}={said:?} is not a log filter: {problem}; write it like {VARIABLE}=debug or \
     {VARIABLE}=warn,shardmill=info,shardmill_aws=debug"
)]
pub struct BadLogFilter {
    said: String,
    problem: String,
}

/// Says what is logged.
const VARIABLE: &str = "SHARDMILL_LOG";

/// Starts logging; standard output is left to records. Called once, by `main`.
///
/// # Errors
/// The variable that filters the log cannot be used. Its author would wait for lines that never
/// come.
pub fn start_logging(format: LogFormat, is_quiet: bool) -> Result<(), BadLogFilter> {
    let filter = match said(VARIABLE) {
        Some(said) => Some(filter_of(&said)?),
        // Often meant for other programs.
        None => said("RUST_LOG").and_then(|said| EnvFilter::try_new(said).ok()),
    };
    let filter = filter.unwrap_or_else(|| {
        EnvFilter::new(if is_quiet {
            QUIET_FILTER
        } else {
            DEFAULT_FILTER
        })
    });
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(writer());
    // A second call, in a test that runs a command in-process, changes nothing.
    let _ = match format {
        LogFormat::Text => builder
            .with_ansi(has_colors())
            .with_target(false)
            .fmt_fields(debug_fn(write_field).delimited(" "))
            .try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    Ok(())
}

/// The value of a variable, unless it is empty.
fn said(variable: &str) -> Option<String> {
    let said = std::env::var_os(variable)?.to_string_lossy().into_owned();
    (!said.is_empty()).then_some(said)
}

/// On a terminal, unless its user opted out (no-color.org).
fn has_colors() -> bool {
    std::io::stderr().is_terminal() && said("NO_COLOR").is_none()
}

fn filter_of(text: &str) -> Result<EnvFilter, BadLogFilter> {
    let bad = |problem: String| BadLogFilter {
        said: text.to_owned(),
        problem,
    };
    // A word without a level is taken as the name of a module, so that a level that is mistyped
    // would silence all others.
    let mut words = text
        .split(',')
        .map(str::trim)
        .filter(|word| !word.is_empty());
    if let Some(word) = words.find(|word| !word.contains(['=', '[', ':', '_']) && !is_known(word)) {
        return Err(bad(format!(
            "{word:?} is not a level; the levels are off, error, warn, info, debug and trace"
        )));
    }
    EnvFilter::try_new(text).map_err(|error| bad(error.to_string()))
}

/// Or a part of this program, of which all is logged then.
fn is_known(word: &str) -> bool {
    word.starts_with("shardmill") || word.parse::<tracing::level_filters::LevelFilter>().is_ok()
}

/// Without a writer thread, logging waits for the reader, as it does in most programs.
fn writer() -> BoxMakeWriter {
    let Ok(queue) = LogQueue::start(std::io::stderr(), report_dropped) else {
        return BoxMakeWriter::new(std::io::stderr);
    };
    let queue = QUEUE.get_or_init(|| queue);
    // A thread that panics may not wait either.
    std::panic::set_hook(Box::new(|panic| {
        let backtrace = std::backtrace::Backtrace::capture();
        tracing::error!(code = "panic", "{panic}\n{backtrace}");
    }));
    BoxMakeWriter::new(queue.clone())
}

fn report_dropped(lines: u64) {
    tracing::warn!(
        lines,
        code = "log-dropped",
        "log lines were dropped because standard error was not read"
    );
}

/// Says something to people on standard error, beside the log and in its order, without characters
/// that control a terminal. What is not read within a moment is cut.
pub fn show(text: &str) {
    let text = format!("{}\n", printable(text));
    let Some(queue) = QUEUE.get() else {
        // Of no use to anybody if it cannot be written.
        return drop(std::io::stderr().write_all(text.as_bytes()));
    };
    for piece in text.as_bytes().chunks(log_queue::WAITING_BYTES_MAX) {
        if !queue.flush(LAST_LINES_WITHIN) {
            return;
        }
        queue.push(piece);
    }
}

/// Writes a whole line to standard error, between those of the log, and leaves room for these.
/// False if standard error is not read, and the line is dropped.
pub(crate) fn write_beside_the_log(line: &str) -> bool {
    let text = format!("{line}\n");
    let Some(queue) = QUEUE.get() else {
        return std::io::stderr().write_all(text.as_bytes()).is_ok();
    };
    let has_room = text.len() <= log_queue::WAITING_BYTES_MAX / 2
        && queue.has_half_free_within(LAST_LINES_WITHIN);
    if has_room {
        queue.push(text.as_bytes());
    }
    has_room
}

/// Waits, not for long, until what was logged is written. Before the process ends.
pub fn flush() {
    if let Some(queue) = QUEUE.get() {
        queue.flush(LAST_LINES_WITHIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_filter_that_cannot_be_meant_is_an_error_with_its_name_and_an_example() {
        for good in [
            "debug",
            "warn,shardmill=info",
            "shardmill",
            "shardmill_aws=trace",
            "info,shardmill::guest=off",
            "OFF",
            "",
        ] {
            assert!(filter_of(good).is_ok(), "{good}");
        }
        for bad in [
            "inof",
            "nonsense=====",
            "warn,verbose",
            "shardmill=loud",
            "debug;info",
        ] {
            let told = filter_of(bad).unwrap_err().to_string();
            assert!(
                told.starts_with(&format!("SHARDMILL_LOG={bad:?} is not a log filter")),
                "{told}"
            );
            assert!(told.contains("like SHARDMILL_LOG=debug"), "{told}");
        }
    }
    #[test]
    fn what_each_crate_of_the_host_logs_is_shown_by_default_and_by_the_programs_name() {
        use tracing::{Level, enabled};
        use tracing_subscriber::layer::SubscriberExt;

        for filter in [DEFAULT_FILTER, "warn,shardmill=info"] {
            let shown = tracing_subscriber::registry().with(EnvFilter::new(filter));
            tracing::subscriber::with_default(shown, || {
                assert!(
                    enabled!(target: "shardmill::operate::run", Level::INFO),
                    "{filter}"
                );
                assert!(
                    enabled!(target: "shardmill_serve::supervisor", Level::INFO),
                    "{filter}"
                );
                assert!(
                    enabled!(target: "shardmill_config::load", Level::INFO),
                    "{filter}"
                );
                assert!(
                    enabled!(target: "shardmill_sinks::network", Level::INFO),
                    "{filter}"
                );
                assert!(
                    enabled!(target: "shardmill_worker::worker", Level::INFO),
                    "{filter}"
                );
                assert!(
                    enabled!(target: "shardmill_aws::kinesis", Level::INFO),
                    "{filter}"
                );
                assert!(
                    enabled!(target: "shardmill_wasm::plugin", Level::INFO),
                    "{filter}"
                );
                assert!(
                    enabled!(target: "shardmill_local::stack", Level::INFO),
                    "{filter}"
                );
                assert!(
                    enabled!(target: "shardmill::guest", Level::INFO),
                    "{filter}"
                );
                assert!(
                    !enabled!(target: "aws_sdk_kinesis", Level::INFO),
                    "{filter}"
                );
            });
        }
    }
}
