//! The only way for a guest's text to become a log line.

use std::sync::{Arc, Mutex, PoisonError};

use shardmill_core::plugin::GuestLimits;
use shardmill_core::trace::TraceContext;

use super::guest_identity::GuestIdentity;
use super::log_budget::Admission;
use super::log_lines::LogLines;
use super::plugin_output::PluginOutput;
use crate::bindings::wasi::logging::logging::Level;
use crate::secrets::redactor::Redactor;

/// Bytes of wasi:logging's context string that are kept: it is a group's name, not text.
const CONTEXT_BYTES_MAX: usize = 100;

/// Writes an instance's lines, within the plugin's budget.
#[derive(Clone)]
pub(crate) struct GuestLog {
    identity: Arc<GuestIdentity>,
    pub(crate) line_bytes_max: usize,
    output: Arc<PluginOutput>,
    redactor: Arc<Redactor>,
    lines: LogLines,
    // Shared with the streams of the guest; used by one thread at a time.
    trace: Arc<Mutex<Option<TraceContext>>>,
}

impl GuestLog {
    pub(crate) fn new(
        identity: GuestIdentity,
        limits: &GuestLimits,
        output: Arc<PluginOutput>,
        redactor: Redactor,
        lines: LogLines,
    ) -> Self {
        Self {
            identity: Arc::new(identity),
            line_bytes_max: limits.log_line_bytes,
            output,
            redactor: Arc::new(redactor),
            lines,
            trace: Arc::default(),
        }
    }

    /// Lines belong to this span from now on, or to none.
    pub(crate) fn belong_to(&self, span: Option<TraceContext>) {
        *self.trace.lock().unwrap_or_else(PoisonError::into_inner) = span;
    }

    fn trace(&self) -> Option<TraceContext> {
        *self.trace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self, level: Level, source: &str, message: &str) {
        if self.output.admit_line() == Admission::Drop {
            return self.report_dropped();
        }
        let message = self.redactor.shown(message, self.line_bytes_max);
        let source = self.redactor.shown(source, CONTEXT_BYTES_MAX);
        let line = || format!("{} {source}{}{message}", level_word(level), gap(&source));
        self.lines.show(&self.identity, line);
        let is_taken = self.lines.add(line);
        if is_taken {
            return;
        }
        let source = (!source.is_empty()).then(|| tracing::field::display(source));
        let (plugin, shard) = (&self.identity.label, &self.identity.shard);
        let trace = self.trace();
        let trace_id = trace.map(|of| tracing::field::display(of.trace));
        let span_id = trace.map(|of| tracing::field::display(of.span));
        macro_rules! line {
            ($level:ident) => {
                // Begins with the name, as no line of the host's does, whatever text follows.
                tracing::event!(
                    target: "shardmill::guest",
                    tracing::Level::$level,
                    %plugin,
                    %shard,
                    trace_id,
                    span_id,
                    source,
                    "[{plugin}] {message}"
                )
            };
        }
        match level {
            Level::Trace => line!(TRACE),
            Level::Debug => line!(DEBUG),
            Level::Info => line!(INFO),
            Level::Warn => line!(WARN),
            Level::Error | Level::Critical => line!(ERROR),
        }
    }

    /// Removes what no text of this instance may contain.
    pub(crate) fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    /// Logs how many lines were dropped, at most once a second.
    pub(crate) fn report_dropped(&self) {
        let dropped = self.output.take_dropped_lines();
        if dropped > 0 {
            let plugin = &self.identity.label;
            metrics::counter!("shardmill_plugin_log_lines_dropped_total", "plugin" => plugin.to_string())
                .increment(dropped);
            tracing::warn!(
                target: "shardmill::guest",
                %plugin,
                dropped,
                code = "guest-log-dropped",
                "the plugin logs too fast; lines were dropped"
            );
        }
    }
}

fn gap(source: &str) -> &'static str {
    if source.is_empty() { "" } else { ": " }
}

fn level_word(level: Level) -> &'static str {
    match level {
        Level::Trace => "TRACE",
        Level::Debug => "DEBUG",
        Level::Info => "INFO",
        Level::Warn => "WARN",
        Level::Error | Level::Critical => "ERROR",
    }
}
