//! Where emitted data goes: named sinks behind one router.

mod file;
mod line;
mod router;
mod stdout;

pub use file::{FileSink, FileSinkError, FileSinkOptions};
pub use line::LineFormat;
pub use router::Router;
pub use stdout::StdoutSink;
