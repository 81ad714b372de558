//! Standard output and standard error of a guest: bytes in, log lines out. The last lines of
//! standard error are kept, since a panic's message goes there before the trap that has none.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tokio::io::AsyncWrite;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamError, StreamResult};

use super::GuestLog;
use crate::bindings::wasi::logging::logging::Level;
use crate::text::clean;

/// Bytes that a guest may write at once, as WASI streams usually allow. No deadline applies while
/// they are cut into lines, which always takes some milliseconds.
const WRITE_BYTES_MAX: usize = 64 << 10;
/// Last lines kept to explain a trap. A Rust panic takes three.
const KEPT_LINES: usize = 4;
/// Bytes of each that are kept.
const KEPT_LINE_BYTES: usize = 256;

/// One of a guest's two output streams.
#[derive(Clone)]
pub(crate) struct LineStream {
    level: Level,
    source: &'static str,
    log: GuestLog,
    // Shared with the copies that WASI hands to the guest; used by one thread at a time.
    lines: Arc<Mutex<Lines>>,
}

#[derive(Default)]
struct Lines {
    open: Vec<u8>,
    last: VecDeque<String>,
}

impl LineStream {
    pub(crate) fn stdout(log: GuestLog) -> Self {
        Self {
            level: Level::Info,
            source: "stdout",
            log,
            lines: Arc::default(),
        }
    }

    pub(crate) fn stderr(log: GuestLog) -> Self {
        Self {
            level: Level::Warn,
            source: "stderr",
            log,
            lines: Arc::default(),
        }
    }

    /// Writes a line that has no end yet.
    pub(crate) fn end_line(&self) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if !lines.open.is_empty() {
            self.end(&mut lines);
        }
    }

    /// Takes the last lines.
    pub(crate) fn take_last_lines(&self) -> Option<String> {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let last = std::mem::take(&mut lines.last);
        (!last.is_empty()).then(|| Vec::from(last).join(" "))
    }

    fn push(&self, bytes: &[u8]) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        for piece in bytes.split_inclusive(|b| *b == b'\n') {
            let (text, is_ended) = match piece.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (piece, false),
            };
            // One byte more than the limit is kept, so that cutting shows.
            let room = (self.log.line_bytes_max + 1).saturating_sub(lines.open.len());
            lines.open.extend_from_slice(&text[..text.len().min(room)]);
            if is_ended {
                self.end(&mut lines);
            }
        }
    }

    fn end(&self, lines: &mut Lines) {
        let redactor = self.log.redactor();
        if lines.open.len() > self.log.line_bytes_max {
            // The cut may be in the middle of something that must not be shown.
            let kept = lines.open.len() - redactor.begun_at_end(&lines.open);
            lines.open.truncate(kept);
        }
        let text = String::from_utf8_lossy(&lines.open).into_owned();
        let text = redactor.redact(text.trim_end_matches('\r'));
        if !text.is_empty() {
            self.log.write(self.level, self.source, &text);
            lines.last.push_back(clean(&text, KEPT_LINE_BYTES));
        }
        if lines.last.len() > KEPT_LINES {
            lines.last.pop_front();
        }
        lines.open.clear();
    }
}

impl IsTerminal for LineStream {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for LineStream {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        // For WASI 0.3 only, which is not linked.
        Box::new(tokio::io::sink())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for LineStream {
    async fn ready(&mut self) {}
}

impl OutputStream for LineStream {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        if bytes.len() > WRITE_BYTES_MAX {
            // Under WASI, writing more than `check_write` allowed is an error.
            let (written, allowed) = (bytes.len(), WRITE_BYTES_MAX);
            return Err(StreamError::trap(&format!(
                "{written} bytes written to {} at once; at most {allowed} are allowed",
                self.source
            )));
        }
        self.push(&bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(WRITE_BYTES_MAX)
    }
}
