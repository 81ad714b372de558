//! Standard output.

use std::sync::Arc;

use shardmill_core::ports::{Origin, PortFuture, Sink, SinkError};
use shardmill_core::stream::Emitted;
use tokio::io::AsyncWriteExt;
use tokio::sync::Mutex;

use super::LineFormat;

/// Writes lines to standard output, whole batches at a time.
pub struct StdoutSink {
    format: LineFormat,
    // Batches of several shards must not mix within a line.
    out: Arc<Mutex<tokio::io::Stdout>>,
}

impl StdoutSink {
    /// The process has one standard output; make one of these.
    pub fn new(format: LineFormat) -> Self {
        Self { format, out: Arc::new(Mutex::new(tokio::io::stdout())) }
    }

    /// The same output, with lines in another format.
    #[must_use]
    pub fn with_format(&self, format: LineFormat) -> Self {
        Self { format, out: Arc::clone(&self.out) }
    }
}

impl Sink for StdoutSink {
    fn write(&self, origin: Arc<Origin>, emitted: Arc<Vec<Emitted>>) -> PortFuture<'_, Result<(), SinkError>> {
        Box::pin(async move {
            let mut lines = Vec::new();
            for piece in emitted.iter() {
                self.format.append(&mut lines, &origin, piece);
            }
            self.out.lock().await.write_all(&lines).await.map_err(|error| failed(&error))
        })
    }

    fn flush(&self) -> PortFuture<'_, Result<(), SinkError>> {
        Box::pin(async move { self.out.lock().await.flush().await.map_err(|error| failed(&error)) })
    }
}

fn failed(error: &std::io::Error) -> SinkError {
    SinkError { sink: "stdout".to_owned(), message: error.to_string() }
}
