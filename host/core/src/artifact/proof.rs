//! What a host finds out about the version that is deployed, for the whole fleet to know.

use std::time::Duration;

use crate::control::DeployAsked;
use crate::plugin::PluginDigest;
use crate::rollout::Quarantined;

/// What of a plugin is in effect on a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InEffect {
    /// The artifact whose component runs and whose manifest is followed, as people see it.
    pub artifact: Option<String>,
    /// The version of all shards, if it has passed its trial.
    pub passed: Option<PluginDigest>,
    /// For how long that artifact is.
    pub lasts: Duration,
    /// Why the plugin is not served as it should be, if it is not, and for how long.
    pub trouble: Option<(String, Duration)>,
}

/// How a host came to what is in effect.
#[derive(Debug, Clone, Copy, Default)]
pub struct Came<'a> {
    /// What it had to start without a trial, which proves nothing.
    pub untried: Option<&'a str>,
    /// What it took up with other settings before all other hosts.
    pub tries_settings: Option<TriedSettings<'a>>,
}

/// Other settings that one host has taken up before all others.
#[derive(Debug, Clone, Copy)]
pub struct TriedSettings<'a> {
    /// The artifact that came with them, with its digest.
    pub reference: &'a str,
    /// How long ago the host took them up.
    pub lasts: Duration,
    /// For how long they must be served well.
    pub probation: Duration,
}

/// What a host found out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FoundOut {
    /// The version that is deployed does well.
    Proven,
    /// It is bad.
    Failed {
        /// The host that found it bad.
        by: String,
        /// Why, for people.
        why: String,
    },
}

/// How long a plugin may be in trouble with new settings. Half a minute: it restarts with them, and
/// other hosts take its leases meanwhile and give them back.
const TROUBLE_MAX: Duration = Duration::from_secs(30);

/// What is to be written into the deploy by the host `me`, if anything is news. `entry` says that
/// the fleet found the version bad.
pub fn found_out(
    deploy: &DeployAsked,
    entry: Option<&Quarantined>,
    here: Option<&InEffect>,
    came: Came<'_>,
    me: &str,
) -> Option<FoundOut> {
    if deploy.failed.is_some() {
        return None;
    }
    if let Some(entry) = entry {
        return Some(FoundOut::Failed {
            by: entry.host.to_string(),
            why: entry.reason.clone(),
        });
    }
    if deploy.proven.is_some() {
        return None;
    }
    let here = here?;
    let as_text = deploy.reference.as_text();
    let trial = came
        .tries_settings
        .filter(|trial| trial.reference == as_text);
    // Trouble that is older than the trial has another reason.
    if let (Some(trial), Some((why, lasts))) = (trial, &here.trouble)
        && trial.lasts.min(*lasts) >= TROUBLE_MAX
    {
        return Some(FoundOut::Failed {
            by: me.to_owned(),
            why: format!("with its manifest the plugin is not served: {why}"),
        });
    }
    let is_over = trial.is_none_or(|trial| here.lasts >= trial.probation && here.trouble.is_none());
    let is_in_effect = here.artifact.as_deref() == Some(deploy.reference.to_string().as_str());
    let has_passed = here.passed.as_ref() == Some(&deploy.version);
    let was_tried = came.untried != Some(as_text.as_str());
    (is_in_effect && has_passed && was_tried && is_over).then_some(FoundOut::Proven)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::artifact::ArtifactRef;
    use crate::control::{Asked, Finding};
    use crate::lease::WorkerId;

    fn version(digit: &str) -> PluginDigest {
        PluginDigest::from_hex(&digit.repeat(64)).unwrap()
    }

    fn deploy() -> DeployAsked {
        let text = format!("oci://r.example/alerts@sha256:{}", "5".repeat(64));
        DeployAsked {
            asked: Asked {
                by: "alice".to_owned(),
                why: "faster".to_owned(),
                at_ms: 1,
            },
            reference: ArtifactRef::parse(&text).unwrap(),
            version: version("a"),
            before: None,
            is_in_turns: true,
            proven: None,
            failed: None,
        }
    }

    fn entry() -> Quarantined {
        Quarantined {
            digest: version("a"),
            host: WorkerId::new("b").unwrap(),
            reason: "it traps".to_owned(),
            at_ms: 2,
        }
    }

    fn in_effect(artifact: &str, passed: Option<&str>) -> InEffect {
        InEffect {
            artifact: Some(artifact.to_owned()),
            passed: passed.map(version),
            lasts: Duration::from_mins(1),
            trouble: None,
        }
    }

    #[test]
    fn a_deploy_is_proven_by_a_host_on_which_all_of_it_has_passed_and_by_no_other() {
        let asked = deploy();
        let text = asked.reference.to_string();
        let found = |here: &InEffect, untried| {
            let came = Came {
                untried,
                ..Came::default()
            };
            found_out(&asked, None, Some(here), came, "me")
        };
        let proven = in_effect(&text, Some("a"));
        assert_eq!(found(&proven, None), Some(FoundOut::Proven));
        let as_text = asked.reference.as_text();
        assert_eq!(found(&proven, Some(&as_text)), None, "it was not tried");
        assert_eq!(found(&in_effect(&text, None), None), None, "in probation");
        assert_eq!(found(&in_effect(&text, Some("b")), None), None);
        let other = in_effect("oci://r.example/alerts:1", Some("a"));
        assert_eq!(found(&other, None), None, "another manifest");
        assert_eq!(found_out(&asked, None, None, Came::default(), "me"), None);
    }

    #[test]
    fn settings_must_serve_for_a_while_on_the_host_that_tries_them_and_fail_if_they_do_not() {
        let asked = deploy();
        let as_text = asked.reference.as_text();
        let found = |here: &InEffect, secs| {
            let came = Came {
                untried: None,
                tries_settings: Some(TriedSettings {
                    reference: &as_text,
                    lasts: Duration::from_mins(2),
                    probation: Duration::from_secs(secs),
                }),
            };
            found_out(&asked, None, Some(here), came, "me")
        };
        let serves = in_effect(&asked.reference.to_string(), Some("a"));
        assert_eq!(found(&serves, 60), Some(FoundOut::Proven));
        assert_eq!(found(&serves, 61), None, "not for long enough");
        let troubled = |secs| InEffect {
            trouble: Some(("stuck".to_owned(), Duration::from_secs(secs))),
            ..serves.clone()
        };
        assert_eq!(found(&troubled(29), 60), None, "it may pass");
        let Some(FoundOut::Failed { by, why }) = found(&troubled(30), 60) else {
            panic!("it goes on");
        };
        assert!(by == "me" && why.contains("stuck"), "{why}");
        let none = Came::default();
        let elsewhere = found_out(&asked, None, Some(&troubled(90)), none, "me");
        assert_eq!(elsewhere, Some(FoundOut::Proven), "it tries no settings");
    }

    #[test]
    fn trouble_that_settings_found_when_they_came_is_not_theirs() {
        let asked = deploy();
        let as_text = asked.reference.as_text();
        let here = InEffect {
            trouble: Some(("what was there before".to_owned(), Duration::from_mins(5))),
            ..in_effect("oci://r.example/alerts:1", Some("a"))
        };
        let found = |secs| {
            let came = Came {
                untried: None,
                tries_settings: Some(TriedSettings {
                    reference: &as_text,
                    lasts: Duration::from_secs(secs),
                    probation: Duration::from_mins(1),
                }),
            };
            found_out(&asked, None, Some(&here), came, "me")
        };
        assert_eq!(found(0), None);
        assert_eq!(found(29), None);
        assert!(matches!(found(30), Some(FoundOut::Failed { .. })));
    }

    #[test]
    fn what_the_fleet_found_bad_is_a_failure_once_also_if_it_was_proven_before() {
        let failed = Some(FoundOut::Failed {
            by: "b".to_owned(),
            why: "it traps".to_owned(),
        });
        assert_eq!(
            found_out(&deploy(), Some(&entry()), None, Came::default(), "me"),
            failed
        );
        let finding = Some(Finding {
            by: "c".to_owned(),
            why: String::new(),
            at_ms: 3,
        });
        let proven = DeployAsked {
            proven: finding.clone(),
            ..deploy()
        };
        assert_eq!(
            found_out(&proven, Some(&entry()), None, Came::default(), "me"),
            failed
        );
        let known = DeployAsked {
            failed: finding,
            ..deploy()
        };
        assert_eq!(
            found_out(&known, Some(&entry()), None, Came::default(), "me"),
            None
        );
    }
}
