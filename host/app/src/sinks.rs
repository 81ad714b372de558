//! Where emitted data goes: named sinks behind one router.

mod file;
mod line;
mod no_dead_letters;
mod router;
mod stdout;

pub use file::{FileSink, FileSinkError, FileSinkOptions};
pub use line::LineFormat;
pub use no_dead_letters::NoDeadLetters;
pub use router::Router;
pub use stdout::StdoutSink;
