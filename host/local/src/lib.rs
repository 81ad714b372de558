//! The embedded stack: a Kinesis and a DynamoDB in this process, on loopback ports, kept in a data
//! directory.
//!
//! For development and tests. The host uses the same SDK clients for it as for AWS, and so may
//! other processes. A front adds the real services' promises that the emulators do not keep; see
//! [`kinesis`].

mod address;
mod data_dir;
mod dynamodb;
mod error;
pub mod kinesis;
mod stack;
mod web;

pub use address::{LOCAL_ACCOUNT, LOCAL_REGION};
pub use error::StartError;
pub use stack::{LocalOptions, LocalStack};
