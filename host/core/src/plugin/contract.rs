//! Versions of the contract with plugins.

/// The version of the contract that this host knows: major and minor, which is all that matters
/// below 1.0.
pub const CONTRACT: &str = "0.1";

/// A version of the contract that a manifest or an operator wants: `0.1`, or `0.1.2` for that one
/// only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedContract(String);

/// A version that this host does not know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("this host does not know version {0:?} of the contract: it knows \"{CONTRACT}\"")]
pub struct UnknownContract(String);

impl WantedContract {
    /// Reads a version; refuses those that this host does not know.
    pub fn parse(text: &str) -> Result<Self, UnknownContract> {
        let is_known = match text.strip_prefix(CONTRACT) {
            Some("") => true,
            Some(rest) => rest
                .strip_prefix('.')
                .is_some_and(|patch| patch.parse::<u32>().is_ok()),
            None => false,
        };
        if is_known {
            Ok(Self(text.to_owned()))
        } else {
            Err(UnknownContract(text.to_owned()))
        }
    }

    /// Whether a component for version `exported` is what is wanted.
    pub fn is_met_by(&self, exported: &str) -> bool {
        exported
            .strip_prefix(self.0.as_str())
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }
}

impl std::fmt::Display for WantedContract {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_met_by_its_patches_and_by_nothing_else() {
        let met = |wanted: &str, exported: &str| {
            WantedContract::parse(wanted).unwrap().is_met_by(exported)
        };
        assert_eq!(WantedContract::parse("0.1.2").unwrap().to_string(), "0.1.2");
        assert!(met("0.1", "0.1.0") && met("0.1", "0.1.9") && met("0.1.2", "0.1.2"));
        assert!(
            !met("0.1", "0.11.0")
                && !met("0.1.2", "0.1.0")
                && !met("0.1.2", "0.1.20")
                && !met("0.1", "0.2.0")
        );
    }

    #[test]
    fn a_version_that_this_host_does_not_know_is_refused() {
        for text in [
            "",
            "0",
            "0.2",
            "1.0",
            "0.1.",
            "0.1.x",
            "0.10",
            "0.1.0-rc.1",
            "^0.1",
        ] {
            assert!(
                WantedContract::parse(text)
                    .unwrap_err()
                    .to_string()
                    .contains("it knows \"0.1\""),
                "{text}"
            );
        }
    }
}
