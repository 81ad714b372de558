//! Kinesis Data Streams: reading a stream, writing to one, and making one.

mod admin;
mod convert;
mod errors;
mod listing;
mod naming;
mod putter;
mod reader;
mod writer;

pub use admin::{AdminError, StreamAdmin, StreamDescription};
pub use putter::{PutEntry, PutOutcome, PutTarget, Putter};
pub use reader::KinesisReader;
pub use writer::{PutError, PutReport, StreamWriter};
