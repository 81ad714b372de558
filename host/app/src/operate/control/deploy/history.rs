//! What is deployed, and what became of it and of what was deployed before.

use std::time::Duration;

use serde::Serialize;
use shardmill_core::control::{Deed, DeployAsked, HistoryEntry};
use shardmill_core::ports::Clock;
use shardmill_core::stream::Utc;
use shardmill_serve::BootClock;

use crate::cli::DeployArgs;
use crate::operate::control::application::Application;
use crate::operate::control::history::{Row, as_text};
use crate::output::{millis, print, print_json, short_reason, table, terminal_width};

/// How far back it looks.
const SINCE: Duration = Duration::from_hours(30 * 24);
/// The latest entries that are shown: some deploys of a large fleet.
const ENTRIES_MAX: usize = 100;
/// Characters of a reason that are shown in a cell.
const REASON_SHOWN: usize = 80;

/// What `deploy --json` prints without a version.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Shown<'a> {
    application: &'a str,
    deployed: Option<Deployed>,
    /// Why what is deployed cannot be read, if it cannot.
    unread: Option<&'a str>,
    hosts: Vec<Host>,
    history: Vec<Row>,
}

/// What is deployed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Deployed {
    reference: String,
    version: String,
    /// What hosts go back to, and start with while this is not proven.
    before: Option<String>,
    one_host_first: bool,
    /// `proven`, `failed`, or `on-trial`.
    state: &'static str,
    /// Who found that out, and why.
    found_by: Option<String>,
    found_why: Option<String>,
    by: String,
    why: String,
    at: String,
}

/// What a host runs, and what it has besides.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Host {
    #[serde(rename = "host")]
    id: String,
    version: String,
    state: String,
    artifact: Option<String>,
    why: Option<String>,
}

pub(super) async fn show(args: &DeployArgs, application: &Application) -> anyhow::Result<()> {
    let fleet = application.fleet().await?;
    let since_ms = BootClock.wall_ms().saturating_sub(millis(SINCE));
    let coordinator = application.coordinator();
    let found = coordinator.history(since_ms, ENTRIES_MAX, is_of_deploys);
    let history = found.await?.entries;
    let hosts = fleet.workers.iter().flat_map(|row| {
        row.versions.iter().map(|version| Host {
            id: row.worker.to_string(),
            version: version.digest.as_str().to_owned(),
            state: version.state.clone(),
            artifact: row.artifact.clone(),
            why: version.reason.clone(),
        })
    });
    let shown = Shown {
        application: &args.application,
        deployed: fleet.control.deploy.as_ref().map(Deployed::of),
        unread: fleet.control.unread_deploy.as_deref(),
        hosts: hosts.collect(),
        history: history.iter().map(Row::of).collect(),
    };
    if args.change.output.json {
        return print_json(&shown);
    }
    print(&shown.as_text());
    Ok(())
}

fn is_of_deploys(entry: &HistoryEntry) -> bool {
    matches!(
        entry.deed,
        Deed::Deploy
            | Deed::Deployed
            | Deed::NotDeployed
            | Deed::Tried
            | Deed::Promoted
            | Deed::RolledBack
    )
}

impl Deployed {
    fn of(deploy: &DeployAsked) -> Self {
        let found = deploy.failed.as_ref().or(deploy.proven.as_ref());
        let before = deploy.before.as_ref();
        Self {
            state: state_code(deploy),
            found_by: found.map(|found| found.by.clone()),
            found_why: found.map(|found| found.why.clone()),
            reference: deploy.reference.to_string(),
            version: deploy.version.as_str().to_owned(),
            before: before.map(|before| before.reference.to_string()),
            one_host_first: deploy.is_in_turns,
            by: deploy.asked.by.clone(),
            why: deploy.asked.why.clone(),
            at: Utc(deploy.asked.at_ms).to_string(),
        }
    }
}

/// A stable word: scripts compare it.
fn state_code(deploy: &DeployAsked) -> &'static str {
    match (&deploy.failed, &deploy.proven) {
        (Some(_), _) => "failed",
        (None, Some(_)) => "proven",
        (None, None) => "on-trial",
    }
}

impl Deployed {
    fn state_as_text(&self) -> String {
        let by = self.found_by.as_deref().unwrap_or_default();
        let why = self.found_why.as_deref().unwrap_or_default();
        let back = match &self.before {
            Some(before) => format!("what was good before it, {before}"),
            None => "what their configuration says".to_owned(),
        };
        match self.state {
            "proven" => format!("proven by {by}: {why}"),
            "failed" => format!("found bad by {by}: {why}; hosts run {back}"),
            _ => format!("not proven yet: hosts that start do so with {back}"),
        }
    }
}

impl Shown<'_> {
    fn as_text(&self) -> String {
        let deployed = match &self.deployed {
            Some(deployed) => format!(
                "deployed: {} {}\nby {} at {}: {}\n{}",
                &deployed.version[..12],
                deployed.reference,
                deployed.by,
                deployed.at,
                deployed.why,
                deployed.state_as_text()
            ),
            None if self.unread.is_some() => format!(
                "a version was deployed by a newer shardmill, and this one cannot read it ({}): hosts \
                    as old as this command keep what they run",
                self.unread.unwrap_or_default()
            ),
            None => "nothing is deployed: hosts run what their configuration says".to_owned(),
        };
        let mut hosts = table(["host", "version", "state", "why"]);
        for host in &self.hosts {
            let why = host.why.as_deref();
            let why = why.map(|why| short_reason(why, REASON_SHOWN));
            hosts.add_row([
                host.id.as_str(),
                &host.version[..12],
                &host.state,
                &why.unwrap_or_else(|| "-".to_owned()),
            ]);
        }
        let history = as_text(&self.history, terminal_width());
        format!("{deployed}\n\n{hosts}\n\n{history}")
    }
}
