//! Kinesis Data Streams: reading a stream by asking or by subscription, writing to one, and making
//! one.

mod admin;
mod clock;
mod convert;
mod errors;
mod fan_out;
mod listing;
mod naming;
mod putter;
mod reader;
mod start;
mod subscription;
mod wire;
mod writer;

pub use admin::{AdminError, StreamAdmin, StreamDescription};
pub use fan_out::{ConsumerDescription, KinesisFanOut};
pub use putter::{PutEntry, PutOutcome, PutTarget, Putter};
pub use reader::KinesisReader;
pub use wire::{Wire, WireSetting};
pub use writer::{PutError, PutReport, StreamWriter};
