//! What a plugin is given beyond computing on records. Nothing, unless its manifest asks for it and the host allows it.
//! (A worker's holding of a lease is called a grant too; this is the other one, of manifests.)

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::HttpHost;

/// What one plugin is given. The default is nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PluginGrants {
    /// Where it may send HTTP requests.
    pub http: Vec<HttpHost>,
    /// Environment variables of the host that it sees, by name. One that is not set is not set for the plugin either.
    pub env: BTreeSet<String>,
    /// Secrets that it may read, by name. The values are read for each new instance, so that one that was changed is
    /// taken up; they are never kept here.
    pub secrets: BTreeMap<String, SecretSource>,
    /// Whether its state is kept between instances.
    pub state: bool,
}

/// Where a secret's value is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretSource {
    /// A file that holds nothing else.
    File(PathBuf),
    /// A variable of the host's environment, by name.
    Variable(String),
}

impl std::fmt::Display for SecretSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => write!(f, "the file {}", path.display()),
            Self::Variable(name) => write!(f, "the environment variable {name}"),
        }
    }
}
