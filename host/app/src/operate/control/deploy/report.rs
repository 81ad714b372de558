//! What `deploy` shows.

use anyhow::bail;
use serde::Serialize;
use shardmill_core::fleet::FleetRows;

use super::progress::{End, HostState, Outcome};
use super::version::Chosen;
use crate::cli::DeployArgs;
use crate::output::{age, millis, print, print_json, table};

/// What `deploy --json` prints.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Report {
    application: String,
    /// Where the version is.
    reference: String,
    /// The SHA-256 of its component.
    version: String,
    /// Whether it was deployed, and not only shown.
    applied: bool,
    /// `active`, `rolled-back`, `replaced`, `refused`, `no-host` or `not-yet`; none if it was only
    /// shown.
    outcome: Option<&'static str>,
    /// Why it was rolled back, and by whom; what replaced it, or why no host takes it.
    why: Option<String>,
    millis: Option<u64>,
    hosts: Vec<HostState>,
}

impl Report {
    /// Of a version that could be deployed.
    pub(super) fn planned(args: &DeployArgs, chosen: &Chosen, fleet: &FleetRows) -> Self {
        let workers = fleet.workers.iter().filter(|row| !row.is_draining);
        let hosts = workers.map(|row| HostState {
            host: row.worker.to_string(),
            state: row.versions.first().map_or_else(
                || "reports no version".to_owned(),
                |version| format!("{} {}", version.digest.short(), version.state),
            ),
            why: None,
            is_active: false,
        });
        Self {
            hosts: hosts.collect(),
            applied: false,
            ..Self::of(args, chosen)
        }
    }

    /// Of a version that was deployed.
    pub(super) fn ended(args: &DeployArgs, chosen: &Chosen, outcome: &Outcome) -> Self {
        let (code, why) = match &outcome.end {
            End::Active => ("active", None),
            End::RolledBack(why) => ("rolled-back", Some(why.clone())),
            End::Replaced { by } => ("replaced", Some(by.clone())),
            End::Refused(why) => ("refused", Some(why.clone())),
            End::NoHost => ("no-host", None),
            End::NotYet => ("not-yet", None),
        };
        Self {
            outcome: Some(code),
            why,
            millis: Some(millis(outcome.took)),
            hosts: outcome.hosts.clone(),
            ..Self::of(args, chosen)
        }
    }

    fn of(args: &DeployArgs, chosen: &Chosen) -> Self {
        Self {
            application: args.application.clone(),
            reference: chosen.reference.to_string(),
            version: chosen.version.as_str().to_owned(),
            applied: true,
            outcome: None,
            why: None,
            millis: None,
            hosts: Vec::new(),
        }
    }

    /// Prints it, as JSON if `--json` asks for it.
    pub(super) fn show(&self, args: &DeployArgs) -> anyhow::Result<()> {
        if args.change.output.json {
            return print_json(self);
        }
        print(&self.as_text());
        Ok(())
    }

    fn as_text(&self) -> String {
        let (version, reference) = (&self.version[..12], &self.reference);
        let took = self.millis.map(std::time::Duration::from_millis);
        let took = took.map(age).unwrap_or_default();
        match (self.outcome, &self.why) {
            (Some("active"), _) => {
                let hosts = self.hosts.len();
                format!(
                    "\nversion {version} is active on all {hosts} hosts after {took}: {reference}"
                )
            }
            (Some("rolled-back"), why) => format!(
                "\nversion {version} was rolled back after {took}, {}",
                why.as_deref().unwrap_or_default()
            ),
            (Some("replaced"), why) => format!(
                "\nversion {version} is not wanted any more after {took}; wanted now: {}",
                why.as_deref().unwrap_or_default()
            ),
            (Some("refused"), why) => format!(
                "\nno host takes version {version}, each keeps what it runs: {}",
                why.as_deref().unwrap_or_default()
            ),
            (Some("no-host"), _) => format!(
                "\nno host of the application lives: version {version} stays wanted, and hosts that \
                    start take it up"
            ),
            (Some(_), _) => format!(
                "\nversion {version} is not active on all hosts after {took}; it stays wanted, and the \
                    hosts go on"
            ),
            (None, _) => {
                let mut hosts = table(["host", "runs now"]);
                for host in &self.hosts {
                    hosts.add_row([&host.host, &host.state]);
                }
                format!(
                    "{hosts}\n\nall of them would pull version {version} and try it: {reference}\n\n\
                        nothing was changed: --apply does it"
                )
            }
        }
    }

    /// An error if not all hosts run it.
    pub(super) fn conclude(&self) -> anyhow::Result<()> {
        match self.outcome {
            Some("rolled-back") => bail!(
                "the version was rolled back: the hosts run what they ran before, and go back to it \
                    in their folders too"
            ),
            Some("replaced") => bail!(
                "the deploy was replaced before all hosts ran it; wanted now: {}",
                self.why.as_deref().unwrap_or_default()
            ),
            Some("refused") => bail!(
                "no host takes the version: deploy one from where the hosts' configuration says, or \
                    end this one with --end"
            ),
            Some("no-host") => bail!("no host lives that could run the version"),
            Some("not-yet") => bail!(
                "not all hosts run the version as active yet; `shardmill deploy --application {}` \
                    shows how far they are",
                self.application
            ),
            Some(_) | None => Ok(()),
        }
    }
}
