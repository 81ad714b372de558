//! Where emitted data goes: named sinks behind one router.

mod body;
mod file;
mod http;
mod kinesis;
mod line;
pub mod metrics;
mod network;
mod open;
mod own;
mod router;
mod secret;
mod stdout;
mod unfinished;

pub use body::BodyFormat;
pub use file::{FileSink, FileSinkError, FileSinkOptions};
pub use http::HttpSinkOptions;
pub use kinesis::{KeyOrder, KinesisSinkOptions};
pub use line::LineFormat;
pub(crate) use open::clients_of;
pub use open::{OpenError, STDOUT, open_sinks};
pub use own::OwnSinks;
pub use router::{Outlet, Router};
pub use secret::HeaderSource;
pub use stdout::StdoutSink;
