use super::reference::ArtifactRef;
use crate::control::{DeployAsked, Deployed};
use crate::plugin::PluginDigest;

/// In each reason why a host does not run what was deployed: by it a command knows that no wait
/// helps.
pub const NOT_HEEDED: &str = "is not heeded";

/// What is known of the orders of operators.
#[derive(Debug, Clone, Copy)]
pub enum Orders<'a> {
    /// The tables could not be read.
    Unknown,
    /// A version was deployed, and what says which one cannot be read, for this reason.
    Unreadable(&'a str),
    /// What they say.
    Known {
        /// The version that the fleet is to run, if somebody deployed one.
        deploy: Option<&'a DeployAsked>,
        /// The versions that the fleet found bad.
        bad: &'a [PluginDigest],
    },
}

/// What a host has of a plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Here<'a> {
    /// Whether its folder has a version, pulled or not.
    pub has_file: bool,
    /// What that was pulled from, if it was, with its digest.
    pub pulled: Option<&'a str>,
    /// Whether a version runs here, beside which another one can be tried.
    pub is_running: bool,
    /// Whether it has waited for others to prove a version for as long as hosts do.
    pub has_waited: bool,
}

/// What a host is to do about its folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decided {
    /// What is there stays.
    Keeps(Keeps),
    /// This is to be there.
    Wants(Wanted),
}

/// Why what is there stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Keeps {
    /// Nobody knows what is wanted.
    Unknown,
    /// What was deployed is not heeded, for this reason.
    Refused(String),
    /// It runs first, and then what was deployed is tried beside it.
    RunsFirst,
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
    /// Whether what is in the folder must not start meanwhile: nobody knows yet whether it does
    /// well.
    pub holds_start: bool,
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
    /// Whoever deployed it before a version that is bad, or not proven yet.
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

/// What a host is to have, where its configuration says `configured`.
///
/// A deploy is heeded only for what is kept beside the configured version: who may write the table
/// chooses among versions of the people that the operator of the host trusts, and no others. One
/// that is not heeded changes nothing on a host that has a version. And one that nobody has proven
/// is only tried beside a version that runs: a host that starts does so with what was good before.
pub fn wanted(configured: &ArtifactRef, orders: Orders<'_>, here: Here<'_>) -> Decided {
    match orders {
        Orders::Unknown => keeps_or_configured(Keeps::Unknown, None, configured, here),
        Orders::Unreadable(why) => {
            let why = format!(
                "what was deployed {NOT_HEEDED}: a newer shardmill may have written it, and this one \
                    cannot read it ({why})"
            );
            keeps_or_configured(Keeps::Refused(why.clone()), Some(why), configured, here)
        }
        Orders::Known { deploy: None, .. } => Decided::Wants(of_config(configured, None)),
        Orders::Known {
            deploy: Some(deploy),
            bad,
        } => with_deploy(deploy, bad, configured, here),
    }
}

/// A host without a version serves nothing: better the configured one than none.
fn keeps_or_configured(
    keeps: Keeps,
    refused: Option<String>,
    configured: &ArtifactRef,
    here: Here<'_>,
) -> Decided {
    if here.has_file {
        Decided::Keeps(keeps)
    } else {
        Decided::Wants(of_config(configured, refused))
    }
}

/// A deploy is followed if it is heeded here, and not bad, and either proven or to be tried now.
fn with_deploy(
    deploy: &DeployAsked,
    bad: &[PluginDigest],
    configured: &ArtifactRef,
    here: Here<'_>,
) -> Decided {
    let good = good_or_configured(configured, deploy, bad);
    if let Some(why) = refusal(configured, &deploy.reference) {
        if here.has_file {
            return Decided::Keeps(Keeps::Refused(why));
        }
        return Decided::Wants(Wanted {
            refused: Some(why),
            ..good
        });
    }
    if deploy.is_bad(bad) {
        return Decided::Wants(good);
    }
    if deploy.proven.is_none()
        && let Some(first) = good_first(deploy, good, here)
    {
        return first;
    }
    Decided::Wants(Wanted {
        by: WantedBy::Deploy {
            is_in_turns: deploy.is_in_turns,
        },
        ..of_config(&deploy.reference, None)
    })
}

/// What a host does before it tries a version that nobody has proven; `None` once it may try it.
fn good_first(deploy: &DeployAsked, good: Wanted, here: Here<'_>) -> Option<Decided> {
    if here.is_running || here.has_waited {
        return None;
    }
    let is_here = here.pulled == Some(deploy.reference.as_text().as_str());
    if here.has_file && !is_here {
        return Some(Decided::Keeps(Keeps::RunsFirst));
    }
    if good.reference == deploy.reference {
        return None;
    }
    Some(Decided::Wants(Wanted {
        holds_start: is_here,
        ..good
    }))
}

/// What a host is to have if it does not follow the deploy.
fn good_or_configured(
    configured: &ArtifactRef,
    deploy: &DeployAsked,
    bad: &[PluginDigest],
) -> Wanted {
    match good_before(configured, deploy, bad) {
        Some(before) => Wanted {
            by: WantedBy::EarlierDeploy,
            ..of_config(&before.reference, None)
        },
        None => of_config(configured, None),
    }
}

fn of_config(reference: &ArtifactRef, refused: Option<String>) -> Wanted {
    Wanted {
        reference: reference.clone(),
        by: WantedBy::Config,
        refused,
        holds_start: false,
    }
}

/// What was good before a deploy, if this host heeds that.
fn good_before<'d>(
    configured: &ArtifactRef,
    deploy: &'d DeployAsked,
    bad: &[PluginDigest],
) -> Option<&'d Deployed> {
    let before = deploy.good_before(bad);
    before.filter(|before| refusal(configured, &before.reference).is_none())
}

/// Why a version that was deployed is not run on a host with this configuration.
pub fn refusal(configured: &ArtifactRef, deployed: &ArtifactRef) -> Option<String> {
    if !deployed.is_beside(configured) {
        return Some(format!(
            "{deployed} {NOT_HEEDED}: this host takes its versions from where {configured} is, and \
                from nowhere else"
        ));
    }
    if deployed.digest().is_none() {
        return Some(format!(
            "{deployed} {NOT_HEEDED}: it has no digest, so that hosts might run different versions"
        ));
    }
    None
}

#[cfg(test)]
mod tests;
