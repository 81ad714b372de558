//! Follows a version through the hosts of a fleet until it runs everywhere, or nowhere.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Serialize;
use shardmill_core::artifact::NOT_HEEDED;
use shardmill_core::control::{Control, Deed, DeployAsked, Finding};
use shardmill_core::fleet::{FleetRows, WorkerRow};
use shardmill_core::lease::{LeaseObserver, Pulse};
use shardmill_core::ports::Clock;
use shardmill_core::rollout::RolloutState;
use shardmill_serve::{BootClock, Signals};

use crate::cli::DeployArgs;
use crate::operate::control::application::{Answer, Application};
use crate::output::{Interrupted, age, print};

/// How often it looks.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How often it reads what hosts say, which is a longer request.
const ANSWERS_EVERY: u32 = 6;
/// How long a host that was there is waited for: a plugin restarts within seconds, or drains for as
/// long as its calls take.
const AWAY_MAX: Duration = Duration::from_secs(30);
/// What hosts say about a deploy.
const DEEDS: [Deed; 2] = [Deed::Deployed, Deed::NotDeployed];

/// A deploy that is followed.
pub(super) struct Progress<'a> {
    args: &'a DeployArgs,
    application: &'a Application,
    wanted: DeployAsked,
    observer: LeaseObserver,
    /// What hosts said that could not pull it, by their names.
    cannot: BTreeMap<String, String>,
    /// When each host was last seen at work: one that restarts the plugin with other settings leaves
    /// for some seconds.
    seen: BTreeMap<String, Instant>,
    /// What was printed last.
    shown: String,
}

/// What came of it.
pub(super) struct Outcome {
    pub(super) end: End,
    pub(super) hosts: Vec<HostState>,
    pub(super) took: Duration,
}

/// How it ended.
pub(super) enum End {
    /// All hosts run it as active.
    Active,
    /// It was found bad, here and for this reason.
    RolledBack(String),
    /// Somebody deployed something else, or ended what was deployed.
    Replaced {
        /// What is wanted now, by whom and why.
        by: String,
    },
    /// No host takes it, each for this reason.
    Refused(String),
    /// There is no host.
    NoHost,
    /// It is under way still.
    NotYet,
}

/// What a host does with the version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct HostState {
    pub(super) host: String,
    /// As `shardmill plugins` shows it; `not pulled` before that.
    pub(super) state: String,
    pub(super) why: Option<String>,
    /// Whether all of the version is in effect, and nothing else.
    #[serde(skip)]
    pub(super) is_active: bool,
}

/// What is wanted of all hosts now.
fn what_is_wanted(control: &Control) -> String {
    match (&control.deploy, &control.unread_deploy) {
        (Some(deploy), _) => format!("{}, {}", deploy.reference, deploy.asked),
        (None, Some(why)) => format!("what a newer shardmill deployed ({why})"),
        (None, None) => "nothing: what was deployed was ended".to_owned(),
    }
}

/// Hosts that were there a moment ago and are not now. They hold up the end for some time, since one
/// that restarts the plugin comes back.
fn away(seen: &mut BTreeMap<String, Instant>, there: &[HostState], now: Instant) -> Vec<HostState> {
    for host in there {
        seen.insert(host.host.clone(), now);
    }
    seen.retain(|_, at| now.saturating_duration_since(*at) < AWAY_MAX);
    let is_away = |name: &&String| !there.iter().any(|host| host.host == **name);
    let away = seen.keys().filter(is_away).map(|name| HostState {
        host: name.clone(),
        state: "restarts or leaves".to_owned(),
        why: None,
        is_active: false,
    });
    away.collect()
}

/// Whether it has ended, and how.
fn end(wanted: &DeployAsked, fleet: &FleetRows, hosts: &[HostState]) -> End {
    let control = &fleet.control;
    let current = control.deploy.as_ref();
    let Some(current) = current.filter(|it| it.is_same_wish(wanted)) else {
        return End::Replaced {
            by: what_is_wanted(control),
        };
    };
    let mut quarantined = fleet.quarantined.iter();
    if let Some(entry) = quarantined.find(|entry| entry.digest == wanted.version) {
        return End::RolledBack(format!("found bad by {}: {}", entry.host, entry.reason));
    }
    if let Some(failed) = &current.failed {
        return End::RolledBack(format!("found bad by {}: {}", failed.by, failed.why));
    }
    if hosts.is_empty() {
        return End::NoHost;
    }
    if hosts.iter().all(|host| host.is_active) {
        return End::Active;
    }
    // Hosts may have said so of an earlier one, for the same reason.
    let unheeded = format!("{} {NOT_HEEDED}", wanted.reference);
    let unheeded = |host: &HostState| {
        let why = host.why.as_ref();
        why.filter(|why| why.contains(&unheeded)).cloned()
    };
    let mut refusals = hosts.iter().map(unheeded);
    let first = refusals.next().flatten();
    match first {
        Some(why) if refusals.all(|why| why.is_some()) => End::Refused(why),
        _ => End::NotYet,
    }
}

/// What a host does with the version, where `cannot` is what it said if it could not pull it.
fn host_state(row: &WorkerRow, wanted: &DeployAsked, cannot: Option<&String>) -> HostState {
    let mut versions = row.versions.iter();
    let Some(version) = versions.find(|it| it.digest == wanted.version) else {
        return HostState::inactive(row, "not pulled", cannot);
    };
    let is_active = version.state == RolloutState::Active.code();
    // A host that has just started has not said yet which manifest it follows.
    if is_active && row.artifact.as_ref() != Some(&wanted.reference.to_string()) {
        return HostState::inactive(row, "active with other settings", cannot);
    }
    HostState {
        is_active,
        ..HostState::inactive(row, &version.state, version.reason.as_ref())
    }
}

impl HostState {
    fn inactive(row: &WorkerRow, state: &str, why: Option<&String>) -> Self {
        Self {
            host: row.worker.to_string(),
            state: state.to_owned(),
            why: why.cloned(),
            is_active: false,
        }
    }
}

impl<'a> Progress<'a> {
    pub(super) fn new(
        args: &'a DeployArgs,
        application: &'a Application,
        wanted: DeployAsked,
    ) -> Self {
        Self {
            args,
            application,
            wanted,
            observer: LeaseObserver::default(),
            cannot: BTreeMap::new(),
            seen: BTreeMap::new(),
            shown: String::new(),
        }
    }

    /// Looks until it ends, or for as long as the arguments say.
    pub(super) async fn follow(mut self) -> anyhow::Result<Outcome> {
        let (signals, started) = (Signals::listen()?, Instant::now());
        for look in 0_u32.. {
            if look % ANSWERS_EVERY == 0 {
                self.read_answers().await?;
            }
            let fleet = self.application.fleet().await?;
            let (end, hosts) = self.judge(&fleet);
            let took = started.elapsed();
            self.show(&hosts, took);
            if matches!(end, End::Active) {
                self.is_proven().await?;
            }
            if !matches!(end, End::NotYet) || took >= self.args.change.wait {
                return Ok(Outcome { end, hosts, took });
            }
            let sleep = tokio::time::sleep(LOOK_EVERY);
            if signals.stop().run_until_cancelled(sleep).await.is_none() {
                break;
            }
        }
        let still = ": it stays wanted, and the hosts go on; `shardmill deploy --application NAME` \
            shows how far they are";
        Err(Interrupted(still.to_owned()).into())
    }

    /// Hosts that start take it at once from now on, also if the one that tried it has not written
    /// that down yet.
    async fn is_proven(&self) -> anyhow::Result<()> {
        let proven = Finding {
            by: self.wanted.asked.by.clone(),
            why: "all hosts run it as active".to_owned(),
            at_ms: BootClock.wall_ms(),
        };
        let change = |control: &mut Control| {
            let deploy = control.deploy.as_mut();
            if let Some(deploy) = deploy.filter(|it| it.is_same_wish(&self.wanted)) {
                deploy.proven.get_or_insert_with(|| proven.clone());
            }
            Ok(())
        };
        self.application.change_control(change).await
    }

    async fn read_answers(&mut self) -> anyhow::Result<()> {
        let answers = self.application.answers(&self.wanted.asked, DEEDS).await?;
        let failed = answers.into_iter().filter(|(_, answer)| !answer.is_done);
        self.cannot = failed
            .map(|(host, Answer { text, .. })| (host, text))
            .collect();
        Ok(())
    }

    fn judge(&mut self, fleet: &FleetRows) -> (End, Vec<HostState>) {
        let now = BootClock.now();
        self.observer.observe_workers(&fleet.workers, now);
        let may_live = |row: &&WorkerRow| {
            let pulse = self.observer.worker_pulse(&row.worker, now);
            !row.is_draining && pulse.is_none_or(Pulse::may_live)
        };
        let living = fleet.workers.iter().filter(may_live);
        let mut hosts: Vec<HostState> = living
            .map(|row| host_state(row, &self.wanted, self.cannot.get(row.worker.as_str())))
            .collect();
        hosts.extend(away(&mut self.seen, &hosts, Instant::now()));
        hosts.sort_by(|a, b| a.host.cmp(&b.host));
        (end(&self.wanted, fleet, &hosts), hosts)
    }

    /// A line for each change.
    fn show(&mut self, hosts: &[HostState], took: Duration) {
        let states = hosts.iter().map(HostState::in_short);
        let states = states.collect::<Vec<_>>().join(", ");
        if self.shown != states && !self.args.change.output.json {
            print(&format!("{:>5}  {states}", age(took)));
            self.shown = states;
        }
    }
}

impl HostState {
    fn in_short(&self) -> String {
        match &self.why {
            Some(why) => format!("{}: {} ({why})", self.host, self.state),
            None => format!("{}: {}", self.host, self.state),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardmill_core::artifact::ArtifactRef;
    use shardmill_core::control::Asked;
    use shardmill_core::fleet::Incarnation;
    use shardmill_core::lease::WorkerId;
    use shardmill_core::plugin::PluginDigest;
    use shardmill_core::rollout::VersionRow;

    fn wanted(by: &str) -> DeployAsked {
        let text = format!("oci://r.example/alerts@sha256:{}", "5".repeat(64));
        DeployAsked {
            asked: Asked {
                by: by.to_owned(),
                why: "faster".to_owned(),
                at_ms: 1,
            },
            reference: ArtifactRef::parse(&text).unwrap(),
            version: PluginDigest::from_hex(&"a".repeat(64)).unwrap(),
            before: None,
            is_in_turns: true,
            proven: None,
            failed: None,
        }
    }

    fn fleet(deploy: Option<DeployAsked>) -> FleetRows {
        let control = Control {
            deploy,
            ..Control::default()
        };
        FleetRows {
            control,
            ..FleetRows::default()
        }
    }

    fn host(is_active: bool, why: Option<&str>) -> HostState {
        HostState {
            host: "a".to_owned(),
            state: String::new(),
            why: why.map(str::to_owned),
            is_active,
        }
    }

    #[test]
    fn a_host_that_is_away_for_a_moment_is_waited_for_and_one_that_left_is_not() {
        let (mut seen, began) = (BTreeMap::new(), Instant::now());
        assert!(away(&mut seen, &[host(false, None)], began).is_empty());
        let restarts = away(&mut seen, &[], began + AWAY_MAX / 2);
        assert!(
            restarts.len() == 1 && !restarts[0].is_active,
            "{restarts:?}"
        );
        assert!(away(&mut seen, &[], began + AWAY_MAX).is_empty());
    }

    #[test]
    fn a_host_has_all_of_a_version_only_if_it_says_so_of_its_manifest_too() {
        let asked = wanted("alice");
        let row = |artifact: Option<String>, state: RolloutState| WorkerRow {
            worker: WorkerId::new("a").unwrap(),
            incarnation: Incarnation::new("run").unwrap(),
            beat: 1,
            lease_duration: Duration::from_secs(10),
            is_draining: false,
            max_leases: usize::MAX,
            versions: vec![VersionRow {
                digest: asked.version.clone(),
                state: state.code().to_owned(),
                since_ms: 1,
                reason: None,
            }],
            artifact,
            cannot_write: None,
            cannot_look: None,
            load: None,
        };
        let active = |artifact: Option<String>, state| {
            host_state(&row(artifact, state), &asked, None).is_active
        };
        let (all, other) = (asked.reference.to_string(), "oci://r.example/alerts:1");
        assert!(active(Some(all.clone()), RolloutState::Active));
        assert!(!active(None, RolloutState::Active), "it has just started");
        assert!(!active(Some(other.to_owned()), RolloutState::Active));
        assert!(!active(Some(all), RolloutState::Probation));
    }

    #[test]
    fn a_deploy_that_was_replaced_ends_at_once_and_says_by_which_and_whose() {
        let asked = wanted("alice");
        let End::Replaced { by } = end(&asked, &fleet(Some(wanted("bob"))), &[]) else {
            panic!("it goes on");
        };
        assert!(by.contains("by bob") && by.contains("oci://"), "{by}");
        let hosts = [host(true, None)];
        let ended = end(&asked, &fleet(None), &hosts);
        assert!(matches!(ended, End::Replaced { by } if by.contains("was ended")));
        assert!(matches!(
            end(&asked, &fleet(Some(asked.clone())), &hosts),
            End::Active
        ));
    }

    #[test]
    fn a_deploy_ends_if_all_hosts_refuse_it_or_there_is_none() {
        let asked = wanted("alice");
        let fleet = fleet(Some(asked.clone()));
        assert!(matches!(end(&asked, &fleet, &[]), End::NoHost));
        let refusal = format!("{} {NOT_HEEDED}: elsewhere", asked.reference);
        let refuses = host(false, Some(&refusal));
        let earlier = host(false, Some("oci://r.example/other is not heeded"));
        let busy = host(false, None);
        let both = [refuses.clone(), refuses.clone()];
        assert!(matches!(end(&asked, &fleet, &both), End::Refused(why) if why == refusal));
        for other in [busy, earlier] {
            let hosts = [refuses.clone(), other];
            assert!(matches!(end(&asked, &fleet, &hosts), End::NotYet));
        }
    }
}
