//! Why the embedded stack did not start.

use std::io;
use std::path::PathBuf;

/// Each message says what to do about it, or which file to look at.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Another process uses the data directory.
    #[error("data directory {} is in use by {}: stop it, join it, or choose another directory",
        path.display(), holder.map_or("another process".to_owned(), |pid| format!("process {pid}")))]
    InUse {
        /// The directory.
        path: PathBuf,
        /// The other process, if known.
        holder: Option<u32>,
    },
    /// The data directory does not exist and cannot be created.
    #[error(
        "cannot create the data directory {}: {source}; name another with --data, in a folder \
            that this user may write to",
        path.display()
    )]
    NoDirectory {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A port is taken.
    #[error("port {port} for the embedded {service} is taken: free it or choose another")]
    PortTaken {
        /// `kinesis` or `dynamodb`.
        service: &'static str,
        /// The port.
        port: u16,
    },
    /// A file or socket could not be used.
    #[error("cannot {what}")]
    Io {
        /// What was tried.
        what: String,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// The journal is damaged elsewhere than at its end.
    #[error("{} is damaged at byte {at}: {problem}; move it away to start without its streams", path.display())]
    Journal {
        /// The journal.
        path: PathBuf,
        /// Where.
        at: u64,
        /// What is wrong.
        problem: String,
    },
    /// An emulator did not accept its saved state.
    #[error("the embedded {service} cannot start: {problem}")]
    Emulator {
        /// `kinesis` or `dynamodb`.
        service: &'static str,
        /// What it said.
        problem: String,
    },
}

impl StartError {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
