//! Adapters over the AWS SDK: Kinesis as a `StreamReader` and `Subscriptions`, DynamoDB as a
//! `LeaseStore`. They decide nothing.
//!
//! Clients are built once, by [`connect`] or [`clients_from`], and passed in to the adapters, so
//! that a simulator can put its own transport underneath. What an error means is decided in one
//! file for each service (`kinesis/errors.rs`, `dynamodb/errors.rs`).

pub mod checked_credentials;
mod client;
pub mod dynamodb;
mod ecr;
pub mod kinesis;
pub mod metrics;
pub mod operations;
mod role;
mod s3;
mod sdk_error;
mod shared_files;
mod signed_request;
mod transport;
#[cfg(test)]
mod transport_double;
#[cfg(test)]
mod transport_fan_out_tests;
#[cfg(test)]
mod transport_fault_tests;
#[cfg(test)]
mod transport_tests;

#[cfg(test)]
pub(crate) use client::clients_of_services;
pub use client::{AwsClients, AwsOptions, ConnectError, StaticCredentials, clients_from, connect};
pub use dynamodb::{
    Billing, CoordinatorTable, Creation, HistoryPart, LeaseTable, LibraryTables, RowMove,
    RowWritten, StandaloneTables, StateRestored, TableInspector, TableOptions,
    applications_of_streams, delete_table, existing_tables, served_applications,
};
pub use kinesis::{
    AdminError, ConsumerDescription, KinesisFanOut, KinesisReader, PutEntry, PutError, PutOutcome,
    PutReport, PutTarget, Putter, StreamAdmin, StreamDescription, StreamWriter, Wire, WireSetting,
};
pub use role::{Role, ServiceAccess};
pub use s3::S3Object;
pub use sdk_error::RECORD_TOO_LARGE;
pub use shared_files::UnfitFile;
pub use signed_request::SignedRequest;
