//! One run written down: requests, history, and the hosts' own log between them.

use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::hearing;
use crate::world::lock;

/// The file, shared by all that write to it.
#[derive(Clone)]
pub struct TraceFile(Arc<Mutex<BufWriter<File>>>);

/// Writes the hosts' log into a trace file, or nowhere; what hosts say of records they give up is
/// always heard.
///
/// Every run has one, so that a replay is the run that failed: without any subscriber the SDK rolls
/// dice to name its spans. And it makes no hash map on the simulation's thread, since each shifts
/// the keys of all that follow.
pub struct HostLog(pub Option<TraceFile>);

struct Line(String);

impl TraceFile {
    /// A new file at `path`.
    pub fn create(path: &Path) -> io::Result<Self> {
        Ok(Self(Arc::new(Mutex::new(BufWriter::new(File::create(
            path,
        )?)))))
    }

    /// Adds a line.
    pub fn line(&self, line: fmt::Arguments<'_>) {
        let written = writeln!(lock(&self.0), "{line}");
        written.expect("the trace file can be written");
    }

    /// Writes what is buffered.
    pub fn flush(&self) {
        lock(&self.0)
            .flush()
            .expect("the trace file can be written");
    }
}

impl HostLog {
    /// Makes it this process' log.
    pub fn install(self) {
        // Set already in a process that runs several seeds, which then share it.
        let _was_first = tracing::subscriber::set_global_default(self);
    }
}

impl Subscriber for HostLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let is_written = self.0.is_some() && *metadata.level() <= tracing::Level::DEBUG;
        metadata.is_event()
            && metadata.target().starts_with("shardmill")
            && (is_written || hearing::is_of_interest(metadata))
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let metadata = event.metadata();
        if hearing::is_of_interest(metadata) {
            hearing::hear(event);
        }
        let Some(file) = &self.0 else { return };
        let mut line = Line(format!(
            "{:>12} {} {}",
            "log",
            metadata.level(),
            metadata.target()
        ));
        event.record(&mut line);
        file.line(format_args!("{}", line.0));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self.0, " {value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}
