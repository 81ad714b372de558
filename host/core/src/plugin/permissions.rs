//! What a plugin is given beyond computing on records. Nothing, unless its manifest asks for it and
//! the host allows it. The section of a manifest is `[grants]`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::{HttpHost, ProcessorError};

/// The prefix of secrets' names among the values that a plugin reads.
pub const SECRET_PREFIX: &str = "secret.";

/// Where a plugin reads the names of its destinations, separated by commas, among its values: for
/// `init`, which can then refuse an unknown name.
pub const DESTINATIONS_KEY: &str = "shardmill.destinations";

/// The prefix of the names of values that the host provides.
pub const HOST_PREFIX: &str = "shardmill.";

/// What one plugin is given. The default is nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Permissions {
    /// Where it may send HTTP requests.
    pub http: Vec<HttpHost>,
    /// Environment variables of the host that it sees, by name. One that is not set is not set for
    /// the plugin either.
    pub env: BTreeSet<String>,
    /// Secrets that it may read, by name. The values are read for each new instance, so that one
    /// that was changed is taken up; they are never kept here.
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

/// Refuses a version that does not match the permission to keep state. A version that saves none
/// would lose the stored state; state that the host may not store would be lost at the next crash.
pub fn check_state_permission(is_granted: bool, saves_state: bool) -> Result<(), ProcessorError> {
    let message = match (is_granted, saves_state) {
        (true, false) => {
            "is kept for this plugin (grants.state), but this version exports no save and load: \
                build it against the world stateful-plugin, or remove the grant"
        }
        (false, true) => {
            "is saved by this version, but the plugin is not granted state: set state = true \
                under [grants] in its manifest"
        }
        (true, true) | (false, false) => return Ok(()),
    };
    Err(ProcessorError::State {
        message: message.to_owned(),
    })
}

impl std::fmt::Display for SecretSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => write!(f, "the file {}", path.display()),
            Self::Variable(name) => write!(f, "the environment variable {name}"),
        }
    }
}

/// Refuses a version that wants ticks where several instances serve a shard. A tick closes windows
/// of the whole shard, which are in the state or held back; no one of several may have either.
pub fn check_ticks(is_alone: bool, ticks: bool) -> Result<(), ProcessorError> {
    if ticks && !is_alone {
        return Err(ProcessorError::TicksBesideOthers);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_is_granted_to_versions_that_save_it_and_to_no_others() {
        assert_eq!(check_state_permission(true, true), Ok(()));
        assert_eq!(check_state_permission(false, false), Ok(()));
        let refused = |is_granted, saves| {
            check_state_permission(is_granted, saves)
                .unwrap_err()
                .to_string()
        };
        assert!(
            refused(true, false).contains("exports no save and load"),
            "it would lose what is kept"
        );
        assert!(
            refused(false, true).contains("set state = true"),
            "what it saves would be lost"
        );
    }

    #[test]
    fn ticks_are_for_the_only_instance_of_a_shard() {
        assert_eq!(check_ticks(true, true), Ok(()));
        assert_eq!(check_ticks(false, false), Ok(()));
        let refused = check_ticks(false, true).unwrap_err();
        assert!(refused.to_string().contains("set parallelism = 1"));
        assert_eq!(refused.lack(), Some(crate::plugin::Lack::Configuration));
    }

    #[test]
    fn a_secret_is_shown_by_its_place_and_never_by_its_value() {
        assert_eq!(
            SecretSource::File("/run/token".into()).to_string(),
            "the file /run/token"
        );
        assert_eq!(
            SecretSource::Variable("TOKEN".to_owned()).to_string(),
            "the environment variable TOKEN"
        );
    }
}
