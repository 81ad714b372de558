//! A header's value, which may be a secret: never shown, and read from the environment where the
//! configuration says so.

use std::fmt;

use serde::Deserialize;

/// Where a header's value comes from. Never shown, not even a value that stands in the
/// configuration.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
pub struct HeaderSource(String);

/// What stands before the name of an environment variable.
const FROM_ENV: &str = "env:";

impl HeaderSource {
    /// The variable that holds the value, if it is not in the configuration itself.
    pub fn variable(&self) -> Option<&str> {
        self.0.strip_prefix(FROM_ENV)
    }

    /// The value.
    pub(super) fn read(&self) -> Result<String, String> {
        let Some(name) = self.variable() else {
            return Ok(self.0.clone());
        };
        match std::env::var(name) {
            Ok(value) => Ok(value.trim_end_matches(['\r', '\n']).to_owned()),
            Err(std::env::VarError::NotPresent) => {
                Err(format!("the environment variable {name} is not set"))
            }
            Err(std::env::VarError::NotUnicode(_)) => {
                Err(format!("the environment variable {name} is not text"))
            }
        }
    }
}

impl From<String> for HeaderSource {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for HeaderSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.variable() {
            Some(name) => write!(f, "{FROM_ENV}{name}"),
            None => f.write_str("(not shown)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_never_shown() {
        assert_eq!(
            format!("{:?}", HeaderSource::from("hush".to_owned())),
            "(not shown)"
        );
        assert_eq!(
            format!("{:?}", HeaderSource::from("env:TOKEN".to_owned())),
            "env:TOKEN"
        );
    }

    #[test]
    fn a_variable_is_read_and_a_missing_one_is_named() {
        assert_eq!(
            HeaderSource::from("env:CARGO_PKG_NAME".to_owned())
                .read()
                .unwrap(),
            env!("CARGO_PKG_NAME")
        );
        let error = HeaderSource::from("env:SHARDMILL_NOT_SET_ANYWHERE".to_owned())
            .read()
            .unwrap_err();
        assert!(
            error.contains("SHARDMILL_NOT_SET_ANYWHERE is not set"),
            "{error}"
        );
    }
}
