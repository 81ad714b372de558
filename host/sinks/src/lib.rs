//! Where emitted data goes: named sinks behind one router; and the formats of dead letters, of
//! captured records and of recordings.

mod body;
mod captured;
mod file;
mod http;
mod kinesis;
pub mod letters;
mod line;
pub mod metrics;
mod network;
mod open;
mod open_error;
mod options;
mod own;
pub mod recordings;
mod router;
mod secret;
mod stdout;
mod unfinished;
mod write_span;

pub use body::BodyFormat;
pub use captured::{CAPTURED_VERSION, Captured};
pub use file::FileSinkError;
pub use http::HttpSinkOptions;
pub use kinesis::{KeyOrder, KinesisSinkOptions};
pub use line::LineFormat;
pub use open::{clients_of, open_sinks};
pub use open_error::OpenError;
pub use options::{STDOUT, SinkOptions};
pub use own::OwnSinks;
pub use router::Router;
pub use secret::HeaderSource;
