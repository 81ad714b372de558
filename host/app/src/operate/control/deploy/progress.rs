//! Follows a version through the hosts of a fleet until it runs everywhere, or nowhere.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Serialize;
use shardmill_core::control::{Asked, Deed};
use shardmill_core::fleet::{FleetRows, WorkerRow};
use shardmill_core::lease::{LeaseObserver, Pulse};
use shardmill_core::plugin::PluginDigest;
use shardmill_core::ports::Clock;
use shardmill_core::rollout::{Quarantined, RolloutState};
use shardmill_serve::{BootClock, Signals};

use crate::cli::DeployArgs;
use crate::operate::control::application::{Answer, Application};
use crate::output::{Interrupted, age, print};

/// How often it looks.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How often it reads what hosts say, which is a longer request.
const ANSWERS_EVERY: u32 = 6;
/// What hosts say about a deploy.
const DEEDS: [Deed; 2] = [Deed::Deployed, Deed::NotDeployed];

/// A deploy that is followed.
pub(super) struct Progress<'a> {
    args: &'a DeployArgs,
    application: &'a Application,
    asked: &'a Asked,
    version: PluginDigest,
    observer: LeaseObserver,
    /// What hosts said that could not pull it, by their names.
    cannot: BTreeMap<String, String>,
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
    RolledBack(Quarantined),
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
}

impl<'a> Progress<'a> {
    pub(super) fn new(
        args: &'a DeployArgs,
        application: &'a Application,
        asked: &'a Asked,
        version: PluginDigest,
    ) -> Self {
        Self {
            args,
            application,
            asked,
            version,
            observer: LeaseObserver::default(),
            cannot: BTreeMap::new(),
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

    async fn read_answers(&mut self) -> anyhow::Result<()> {
        let answers = self.application.answers(self.asked, DEEDS).await?;
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
        let mut hosts: Vec<HostState> = living.map(|row| self.state(row)).collect();
        hosts.sort_by(|a, b| a.host.cmp(&b.host));
        let mut quarantined = fleet.quarantined.iter();
        if let Some(entry) = quarantined.find(|entry| entry.digest == self.version) {
            return (End::RolledBack(entry.clone()), hosts);
        }
        let is_active = |host: &HostState| host.state == RolloutState::Active.code();
        if !hosts.is_empty() && hosts.iter().all(is_active) {
            return (End::Active, hosts);
        }
        (End::NotYet, hosts)
    }

    fn state(&self, row: &WorkerRow) -> HostState {
        let host = row.worker.to_string();
        let mut versions = row.versions.iter();
        match versions.find(|version| version.digest == self.version) {
            Some(version) => HostState {
                host,
                state: version.state.clone(),
                why: version.reason.clone(),
            },
            None => HostState {
                why: self.cannot.get(&host).cloned(),
                host,
                state: "not pulled".to_owned(),
            },
        }
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
