use super::reference::ArtifactRef;
use crate::control::DeployAsked;
use crate::plugin::PluginDigest;

/// What is known of the orders of operators.
#[derive(Debug, Clone, Copy)]
pub enum Orders<'a> {
    /// The tables could not be read.
    Unknown,
    /// What they say.
    Known {
        /// The version that the fleet is to run, if somebody deployed one.
        deploy: Option<&'a DeployAsked>,
        /// The versions that the fleet found bad.
        bad: &'a [PluginDigest],
    },
}

/// What a host is to have in its folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Where it is, and which one it is.
    pub reference: ArtifactRef,
    /// Who wants this version, of all there are.
    pub by: WantedBy,
    /// Why what was deployed is not heeded, if it is not.
    pub refused: Option<String>,
}

/// Who wants a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WantedBy {
    /// The configuration of the host.
    Config,
    /// Whoever deployed it.
    Deploy {
        /// Whether one host tries it before all others.
        is_in_turns: bool,
    },
    /// Whoever deployed it before a version that the fleet found bad.
    EarlierDeploy,
}

impl WantedBy {
    /// A stable word, as status pages show it.
    pub fn code(self) -> &'static str {
        match self {
            Self::Config => "configuration",
            Self::Deploy { .. } => "deploy",
            Self::EarlierDeploy => "earlier-deploy",
        }
    }
}

/// The version that a host is to have, where its configuration says `configured`; `None` means that
/// what is there stays.
///
/// A deploy is heeded only for what is kept beside the configured version: who may write the table
/// chooses among versions of the people that the operator of the host trusts, and no others.
pub fn wanted(configured: &ArtifactRef, orders: Orders<'_>, has_file: bool) -> Option<Wanted> {
    let of_config = |refused: Option<String>| Wanted {
        reference: configured.clone(),
        by: WantedBy::Config,
        refused,
    };
    let (deploy, bad) = match orders {
        // A host without a version serves nothing: better the configured one than none.
        Orders::Unknown => return (!has_file).then(|| of_config(None)),
        Orders::Known { deploy: None, .. } => return Some(of_config(None)),
        Orders::Known {
            deploy: Some(deploy),
            bad,
        } => (deploy, bad),
    };
    if !bad.contains(&deploy.version) {
        if let Some(why) = refusal(configured, &deploy.reference) {
            return Some(of_config(Some(why)));
        }
        return Some(Wanted {
            reference: deploy.reference.clone(),
            by: WantedBy::Deploy {
                is_in_turns: deploy.is_in_turns,
            },
            refused: None,
        });
    }
    let before = deploy.before.as_ref();
    match before.filter(|before| refusal(configured, before).is_none()) {
        Some(before) => Some(Wanted {
            reference: before.clone(),
            by: WantedBy::EarlierDeploy,
            refused: None,
        }),
        None => Some(of_config(None)),
    }
}

/// Why a version that was deployed is not run on a host with this configuration.
fn refusal(configured: &ArtifactRef, deployed: &ArtifactRef) -> Option<String> {
    if !deployed.is_beside(configured) {
        return Some(format!(
            "{deployed} is not heeded: this host takes its versions from where {configured} is, and \
                from nowhere else"
        ));
    }
    if deployed.digest().is_none() {
        return Some(format!(
            "{deployed} is not heeded: it has no digest, so that hosts might run different versions"
        ));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Asked;

    fn reference(text: &str) -> ArtifactRef {
        ArtifactRef::parse(text).unwrap()
    }

    fn configured() -> ArtifactRef {
        reference("oci://r.example/alerts:1.4")
    }

    fn pinned(repository: &str, digit: &str) -> ArtifactRef {
        reference(&format!("oci://{repository}@sha256:{}", digit.repeat(64)))
    }

    fn version(digit: &str) -> PluginDigest {
        PluginDigest::from_hex(&digit.repeat(64)).unwrap()
    }

    fn deploy(before: Option<ArtifactRef>) -> DeployAsked {
        DeployAsked {
            asked: Asked {
                by: "alice".to_owned(),
                why: "faster".to_owned(),
                at_ms: 1,
            },
            reference: pinned("r.example/alerts", "5"),
            version: version("a"),
            before,
            is_in_turns: true,
        }
    }

    fn with(deploy: Option<&DeployAsked>, bad: &[PluginDigest]) -> (String, WantedBy) {
        let orders = Orders::Known { deploy, bad };
        let wanted = wanted(&configured(), orders, true).unwrap();
        (wanted.reference.as_text(), wanted.by)
    }

    #[test]
    fn a_deploy_counts_until_the_fleet_finds_it_bad_and_then_what_was_before_it() {
        let text = |reference: ArtifactRef| reference.as_text();
        assert_eq!(with(None, &[]), (text(configured()), WantedBy::Config));
        let one = deploy(None);
        let by = WantedBy::Deploy { is_in_turns: true };
        assert_eq!(with(Some(&one), &[]), (text(one.reference.clone()), by));
        let others = [version("b")];
        assert_eq!(with(Some(&one), &others).1, by, "another one is bad");
        let bad = [version("b"), version("a")];
        let back = (text(configured()), WantedBy::Config);
        assert_eq!(with(Some(&one), &bad), back);
        let earlier = pinned("r.example/alerts", "4");
        let second = deploy(Some(earlier.clone()));
        let back = (text(earlier), WantedBy::EarlierDeploy);
        assert_eq!(with(Some(&second), &bad), back);
    }

    #[test]
    fn who_may_write_the_table_cannot_make_a_host_run_what_its_operator_did_not_choose() {
        for foreign in [
            pinned("evil.example/alerts", "5"),
            pinned("r.example/orders", "5"),
            reference("oci://r.example/alerts:2"),
        ] {
            let asked = DeployAsked {
                reference: foreign.clone(),
                ..deploy(None)
            };
            let orders = Orders::Known {
                deploy: Some(&asked),
                bad: &[],
            };
            let found = wanted(&configured(), orders, true).unwrap();
            assert_eq!(
                (found.reference, found.by),
                (configured(), WantedBy::Config)
            );
            assert!(found.refused.unwrap().contains("is not heeded"));
            let second = deploy(Some(foreign));
            assert_eq!(with(Some(&second), &[version("a")]).1, WantedBy::Config);
        }
    }

    #[test]
    fn without_a_table_a_host_keeps_what_it_has_and_one_without_anything_takes_what_is_configured()
    {
        assert_eq!(wanted(&configured(), Orders::Unknown, true), None);
        let first = wanted(&configured(), Orders::Unknown, false).unwrap();
        assert_eq!(
            (first.reference, first.by),
            (configured(), WantedBy::Config)
        );
    }
}
