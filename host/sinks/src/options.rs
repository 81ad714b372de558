//! The settings of a sink.

use std::path::PathBuf;

use shardmill_aws::{PutTarget, Role};

use super::http::HttpSinkOptions;
use super::kinesis::KinesisSinkOptions;
use super::line::LineFormat;

/// The sink that exists without being configured.
pub const STDOUT: &str = "stdout";

/// The kind of a sink, with the settings of that kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SinkOptions {
    /// Standard output.
    Stdout {
        /// How lines look.
        format: LineFormat,
    },
    /// A file.
    File {
        /// Where.
        path: PathBuf,
        /// When it is rotated.
        rotate_bytes: u64,
        /// How lines look.
        format: LineFormat,
        /// The file's mode: which users may read and write it. If it is not set, new files are for
        /// the owner only.
        mode: Option<u32>,
    },
    /// A Kinesis stream.
    Kinesis {
        /// Which.
        target: PutTarget,
        /// Its region, if not the host's or the ARN's.
        region: Option<String>,
        /// The role to assume for it, if not the host's.
        role: Option<Role>,
        /// Its address, if not the host's.
        endpoint: Option<String>,
        /// How it is written to.
        options: KinesisSinkOptions,
    },
    /// An HTTP endpoint.
    Http(HttpSinkOptions),
}
