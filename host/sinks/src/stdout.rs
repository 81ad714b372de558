//! Standard output.

use std::io::{self, BufWriter, IsTerminal, Write};
use std::sync::Arc;

use shardmill_core::ports::{Origin, PortFuture, Sink, SinkError};
use shardmill_core::stream::Emitted;
use shardmill_core::text::printable;
use tokio::sync::Mutex;

use super::LineFormat;

/// Bytes that are gathered before they are written.
const BUFFER_BYTES: usize = 64 << 10;

/// Writes lines to standard output, whole batches at a time, on a thread that may block: what a
/// plugin emitted may grow by six when it is written down, and async threads renew leases.
pub(crate) struct StdoutSink {
    format: LineFormat,
    // Waited for before a thread is taken: batches of several shards must not mix, and a reader
    // that hangs holds one thread.
    turn: Arc<Mutex<()>>,
}

impl StdoutSink {
    /// The process has one standard output; make one of these.
    pub(crate) fn new(format: LineFormat) -> Self {
        Self {
            format,
            turn: Arc::default(),
        }
    }

    /// The same output, with lines in another format.
    #[must_use]
    pub(crate) fn with_format(&self, format: LineFormat) -> Self {
        Self {
            format,
            turn: Arc::clone(&self.turn),
        }
    }

    async fn blocking(
        &self,
        work: impl FnOnce(LineFormat) -> io::Result<()> + Send + 'static,
    ) -> Result<(), SinkError> {
        let (format, turn) = (self.format, Arc::clone(&self.turn).lock_owned().await);
        let done = tokio::task::spawn_blocking(move || {
            // Writes everything, even if the caller has stopped waiting: half a line would not be a
            // line.
            let _turn = turn;
            work(format)
        });
        let result = done
            .await
            .unwrap_or_else(|error| Err(io::Error::other(error)));
        result.map_err(|error| SinkError {
            sink: "stdout".to_owned(),
            message: error.to_string(),
        })
    }
}

impl Sink for StdoutSink {
    fn write(
        &self,
        origin: Arc<Origin>,
        emitted: Arc<Vec<Emitted>>,
    ) -> PortFuture<'_, Result<(), SinkError>> {
        Box::pin(self.blocking(move |format| {
            let stdout = io::stdout();
            let mut out = BufWriter::with_capacity(BUFFER_BYTES, stdout.lock());
            for piece in emitted.iter() {
                if stdout.is_terminal() {
                    write_printable(&mut out, format, &origin, piece)?;
                } else {
                    format.write(&mut out, &origin, piece)?;
                }
            }
            out.flush()
        }))
    }

    fn flush(&self) -> PortFuture<'_, Result<(), SinkError>> {
        Box::pin(self.blocking(|_| io::stdout().flush()))
    }
}

/// For people: a line that a plugin made up must not steer their terminal.
fn write_printable(
    out: &mut impl Write,
    format: LineFormat,
    origin: &Origin,
    piece: &Emitted,
) -> io::Result<()> {
    let mut line = Vec::new();
    format.write(&mut line, origin, piece)?;
    out.write_all(printable(&String::from_utf8_lossy(&line)).as_bytes())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use shardmill_core::plugin::PluginName;
    use shardmill_core::stream::ShardId;

    use super::*;

    #[test]
    fn what_a_plugin_emits_cannot_steer_the_terminal_that_it_is_shown_on() {
        let plugin = PluginName::new("alerts").unwrap();
        let origin = Origin {
            plugin,
            shard: ShardId::new("shardId-0").unwrap(),
            through: None,
            trace: None,
        };
        for format in [LineFormat::Data, LineFormat::Envelope] {
            let data = Bytes::from_static("\u{1b}]0;owned\u{7} \u{9b}2J \u{202e}é".as_bytes());
            let piece = Emitted {
                destination: "stdout".into(),
                key: "k".into(),
                data,
            };
            let mut out = Vec::new();
            write_printable(&mut out, format, &origin, &piece).unwrap();
            let text = String::from_utf8(out).unwrap();
            assert!(text.contains('é') && text.ends_with('\n'), "{text:?}");
            assert!(
                !text
                    .trim_end()
                    .contains(|c: char| c.is_control() || c == '\u{202e}'),
                "{text:?}"
            );
        }
    }
}
