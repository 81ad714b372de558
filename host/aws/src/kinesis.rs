//! Kinesis Data Streams: reading a stream, writing to one, and making one.

mod admin;
mod convert;
mod errors;
mod listing;
mod naming;
mod reader;
mod writer;

pub use admin::{AdminError, StreamAdmin, StreamDescription};
pub use reader::KinesisReader;
pub use writer::{PutEntry, PutError, PutReport, StreamWriter};
