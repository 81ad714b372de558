//! Why a sink cannot be opened.

use shardmill_aws::ConnectError;

use super::file::FileSinkError;

/// Why a sink cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Its file cannot be opened.
    #[error("sinks.{sink}: {source}")]
    File {
        /// The sink.
        sink: String,
        /// What is wrong, and the fix.
        source: FileSinkError,
    },
    /// A header has no value, or not one that HTTP allows.
    #[error("sinks.{sink}.headers: {header}: {message}")]
    Header {
        /// The sink.
        sink: String,
        /// The header.
        header: String,
        /// What is wrong; never the value.
        message: String,
    },
    /// TLS or its certificates cannot be set up.
    #[error("sinks.{sink}: cannot prepare HTTP: {source}")]
    Http {
        /// The sink.
        sink: String,
        /// What is wrong.
        source: reqwest::Error,
    },
    /// AWS cannot be reached.
    #[error("sinks.{sink}: {source}")]
    Aws {
        /// The sink.
        sink: String,
        /// What is wrong, and the fix.
        source: ConnectError,
    },
}
