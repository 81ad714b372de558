//! The embedded stack: a Kinesis and a DynamoDB in this process, on loopback ports, kept in a data
//! directory.
//!
//! For development and tests. The host speaks to it through the same SDK clients as to AWS, and so
//! may other processes. What the emulators lack of the real services' promises is added in front of
//! them; see [`kinesis`].

mod data_dir;
mod dynamodb;
mod error;
pub mod kinesis;
mod place;
mod stack;
mod web;

pub use error::StartError;
pub use place::{LOCAL_ACCOUNT, LOCAL_REGION};
pub use stack::{LocalOptions, LocalStack};
