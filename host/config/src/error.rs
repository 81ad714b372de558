//! Why a configuration cannot be used.

use std::path::PathBuf;

use super::problem::listed;
use super::rest::Rest;

/// A configuration that cannot be used. Its text names file, line and fix.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// There is no such file.
    #[error(
        "there is no {path}: name another with --config, or create it; one line is enough, stream = \"NAME\""
    )]
    Missing {
        /// The file's path.
        path: PathBuf,
    },
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file's path.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// Settings of a plugin do not fit together, or ask for more than the host gives. The text says
    /// where.
    #[error("{message}")]
    Plugin {
        /// File and line if known, problem, fix.
        message: String,
    },
    /// The file has mistakes.
    #[error("{path}: {}", listed(.problems))]
    Invalid {
        /// The file's path.
        path: PathBuf,
        /// Line, problem and fix of each mistake, in the order of the file.
        problems: Vec<String>,
        /// What can be read without them, if it is the host's configuration.
        rest: Option<Box<Rest>>,
    },
}

impl ConfigError {
    /// What can be read of a configuration without these problems.
    pub fn rest(&self) -> Option<&Rest> {
        match self {
            Self::Invalid { rest, .. } => rest.as_deref(),
            Self::Missing { .. } | Self::Read { .. } | Self::Plugin { .. } => None,
        }
    }

    /// Each problem by itself.
    pub fn problems(&self) -> Vec<String> {
        match self {
            Self::Invalid { problems, .. } => problems.clone(),
            Self::Missing { .. } | Self::Read { .. } | Self::Plugin { .. } => {
                vec![self.to_string()]
            }
        }
    }
}
