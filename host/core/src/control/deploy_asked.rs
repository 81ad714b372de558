use super::Asked;
use crate::artifact::ArtifactRef;
use crate::plugin::PluginDigest;

/// A wish that hosts run a version from where they pull their versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeployAsked {
    /// Who, why and when.
    pub asked: Asked,
    /// Where the version is; with its digest.
    pub reference: ArtifactRef,
    /// The SHA-256 of its component.
    pub version: PluginDigest,
    /// The last one before it that did well: hosts go back to it if this one is bad, and start with
    /// it while this one is not proven. `None` means what their configuration says.
    pub before: Option<Deployed>,
    /// Whether one host runs it before all others try it.
    pub is_in_turns: bool,
    /// Who found that it does well, once it has passed its trial somewhere.
    pub proven: Option<Finding>,
    /// Who found it bad, and why. It is not tried again, however long ago that was.
    pub failed: Option<Finding>,
}

/// A version, and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deployed {
    /// Where it is; with its digest.
    pub reference: ArtifactRef,
    /// The SHA-256 of its component; `None` if whoever wrote it did not know that it is needed.
    pub version: Option<PluginDigest>,
}

/// What somebody found out about a version that was deployed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The host, or the person.
    pub by: String,
    /// What was seen that shows it, with the figures, for people.
    pub why: String,
    /// When, by the clock of who found out, in milliseconds since the Unix epoch.
    pub at_ms: u64,
}

impl DeployAsked {
    /// Whether it was found bad, by itself or as a version among these.
    pub fn is_bad(&self, bad: &[PluginDigest]) -> bool {
        self.failed.is_some() || bad.contains(&self.version)
    }

    /// Whether this is the wish that `other` was, whatever was found out meanwhile.
    pub fn is_same_wish(&self, other: &Self) -> bool {
        self.asked == other.asked && self.reference == other.reference
    }

    /// The last version that did well: this one, if it has passed its trial, or else the one before
    /// it. `None` means what the configuration says.
    pub fn last_good(&self, bad: &[PluginDigest]) -> Option<Deployed> {
        if self.proven.is_some() && !self.is_bad(bad) {
            return Some(Deployed {
                reference: self.reference.clone(),
                version: Some(self.version.clone()),
            });
        }
        self.good_before(bad).cloned()
    }

    /// What was good before it, and still is.
    pub fn good_before(&self, bad: &[PluginDigest]) -> Option<&Deployed> {
        let is_bad = |before: &Deployed| {
            let version = before.version.as_ref();
            version.is_some_and(|version| bad.contains(version))
        };
        self.before.as_ref().filter(|before| !is_bad(before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(digit: &str) -> PluginDigest {
        PluginDigest::from_hex(&digit.repeat(64)).unwrap()
    }

    fn deployed(digit: &str) -> Deployed {
        let text = format!("oci://r.example/alerts@sha256:{}", digit.repeat(64));
        Deployed {
            reference: ArtifactRef::parse(&text).unwrap(),
            version: Some(version(digit)),
        }
    }

    fn found() -> Finding {
        Finding {
            by: "a".to_owned(),
            why: "it fails".to_owned(),
            at_ms: 1,
        }
    }

    #[test]
    fn hosts_go_back_to_the_last_version_that_did_well_and_to_none_that_was_only_deployed() {
        let two = DeployAsked {
            asked: Asked {
                by: "alice".to_owned(),
                why: "faster".to_owned(),
                at_ms: 1,
            },
            reference: deployed("2").reference,
            version: version("2"),
            before: Some(deployed("1")),
            is_in_turns: true,
            proven: None,
            failed: None,
        };
        let one = Some(deployed("1"));
        assert_eq!(two.last_good(&[]), one, "nobody knows of 2 yet");
        let proven = DeployAsked {
            proven: Some(found()),
            ..two.clone()
        };
        assert_eq!(proven.last_good(&[]), Some(deployed("2")));
        assert_eq!(proven.last_good(&[version("2")]), one, "bad after all");
        let failed = DeployAsked {
            failed: Some(found()),
            ..proven
        };
        assert_eq!(failed.last_good(&[]), one, "its quarantine has lapsed");
        assert_eq!(two.last_good(&[version("1"), version("2")]), None);
    }
}
