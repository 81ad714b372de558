//! What the fleet knows of the plugin's versions: learnt and reported at each look.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use shardmill_core::fleet::{FleetRows, WorkerRow};
use shardmill_core::lease::WorkerId;
use shardmill_core::plugin::PluginDigest;
use shardmill_core::ports::StoreError;
use shardmill_core::rollout::{
    At, ENTRIES_MAX, Quarantined, RolloutState, VersionRow, live_versions, may_start,
};
use shardmill_core::time::Moment;

use super::look::Lookout;
use super::run::Run;
use crate::metrics;
use crate::status::{SwapRefusal, VersionStatus};

/// Looks in a row that must miss a quarantined version before it counts as released: a look may be
/// stale.
const MISSING_LOOKS: u32 = 3;
/// How long hosts may run different versions before that is logged: a rollout takes this long.
const MIXED_FOR: Duration = Duration::from_mins(1);
/// How long until it is logged again.
const MIXED_AGAIN: Duration = Duration::from_mins(15);

/// The hosts that run each version, by its digest.
type FleetOfVersions = BTreeMap<String, Vec<String>>;

/// What a worker remembers of the fleet's versions from look to look.
pub(super) struct FleetVersions {
    run: Arc<Run>,
    /// Quarantined versions that were in the table, and for how many looks they have not been
    /// there.
    written: BTreeMap<String, u32>,
    /// How many versions the gauges show in each state.
    gauged: BTreeMap<&'static str, usize>,
    mixed_since: Option<Moment>,
    mixed_logged_at: Option<Moment>,
}

impl FleetVersions {
    pub(super) fn new(run: Arc<Run>) -> Self {
        Self {
            run,
            written: BTreeMap::new(),
            gauged: BTreeMap::new(),
            mixed_since: None,
            mixed_logged_at: None,
        }
    }

    /// Learns which versions are bad, writes down which this host found bad, and shows what all
    /// hosts run.
    pub(super) async fn share(&mut self, lookout: &Lookout) {
        self.share_quarantine(lookout.fleet()).await;
        self.start_in_turn(lookout);
        self.show_own();
        self.show_fleet(lookout);
    }

    /// The same for a host that heeds. It knows of bad versions if it `has_read_board`, and what
    /// others run if it `knows_fleet`.
    pub(super) async fn share_while_heeding(
        &mut self,
        lookout: &Lookout,
        has_read_board: bool,
        knows_fleet: bool,
    ) {
        if has_read_board {
            self.share_quarantine(lookout.fleet()).await;
        }
        let at = self.run.at();
        self.run.ports.rollout.with(|rollout| rollout.tick(at));
        if knows_fleet || !self.wait_for_turn() {
            self.start_in_turn(lookout);
        }
        self.show_own();
        if knows_fleet {
            self.show_fleet(lookout);
        }
    }

    /// Whether a version waits for other hosts to have run it, so that their rows are needed.
    pub(super) fn wait_for_turn(&self) -> bool {
        self.run
            .ports
            .rollout
            .with(|rollout| rollout.waiting().is_some() && rollout.policy().share < 1.0)
    }

    async fn share_quarantine(&mut self, fleet: &FleetRows) {
        let at = self.run.at();
        self.learn_quarantine(fleet, at);
        if let Err(error) = self.write_quarantine(fleet).await {
            tracing::debug!(
                %error,
                "could not record a bad version, trying again at the next look"
            );
        }
        self.run.ports.rollout.with(|rollout| rollout.tick(at));
    }

    /// Starts with a version that waits, if it is this host's turn.
    fn start_in_turn(&self, lookout: &Lookout) {
        let rollout = &self.run.ports.rollout;
        let waiting = rollout.with(|rollout| rollout.waiting().cloned());
        let Some(digest) = waiting else {
            return;
        };
        let share = rollout.with(|rollout| rollout.policy().share);
        let living = living(lookout);
        let workers = lookout.fleet().workers.iter();
        let rows: Vec<&WorkerRow> = workers.filter(|row| living.contains(&row.worker)).collect();
        if share >= 1.0 || may_start(self.run.me(), &digest, &rows, share) {
            let at = self.run.at();
            rollout.with(|rollout| rollout.let_start(&digest, at));
        }
    }

    fn learn_quarantine(&mut self, fleet: &FleetRows, at: At) {
        let rollout = self.run.ports.rollout.clone();
        let lifetime = rollout.with(|rollout| rollout.policy().quarantine_for);
        let mut listed = BTreeSet::new();
        for entry in &fleet.quarantined {
            let digest = entry.digest.as_str();
            if entry.is_expired(at.wall_ms, lifetime) {
                // It counts as gone: should the version be bad again, that is written again.
                self.written.remove(digest);
            } else {
                listed.insert(digest);
                rollout.with(|rollout| rollout.learn(entry, at));
            }
        }
        for digest in self.released(&listed) {
            rollout.with(|rollout| rollout.release(&digest));
        }
    }

    /// Forgets and returns versions that are not in the table any more, by what is `listed` there.
    fn released(&mut self, listed: &BTreeSet<&str>) -> Vec<PluginDigest> {
        for digest in listed {
            self.written.insert((*digest).to_owned(), 0);
        }
        let mut released = Vec::new();
        self.written.retain(|digest, missing| {
            if listed.contains(digest.as_str()) {
                return true;
            }
            *missing += 1;
            let is_released = *missing >= MISSING_LOOKS;
            if is_released {
                released.extend(PluginDigest::from_hex(digest));
            }
            !is_released
        });
        released
    }

    /// Writes what this host found out and the table does not have. Makes room for it if there is
    /// none.
    async fn write_quarantine(&mut self, fleet: &FleetRows) -> Result<(), StoreError> {
        let found = self.found_here();
        if found.is_empty() {
            return Ok(());
        }
        let coordinator = self.run.coordinator();
        for digest in self.outdated(fleet, found.len()) {
            coordinator.release_version(digest).await?;
        }
        for entry in found {
            coordinator.quarantine(&entry).await?;
            self.written.insert(entry.digest.as_str().to_owned(), 0);
        }
        Ok(())
    }

    /// What this host found out and the table does not have.
    fn found_here(&self) -> Vec<Quarantined> {
        self.run.ports.rollout.with(|rollout| {
            let all = rollout.quarantined();
            let mine = all.filter(|entry| entry.host == *self.run.me());
            mine.filter(|entry| !self.written.contains_key(entry.digest.as_str()))
                .cloned()
                .collect()
        })
    }

    /// Entries of the table that expired, and the oldest ones, so many that `new` ones find room.
    fn outdated<'a>(&self, fleet: &'a FleetRows, new: usize) -> Vec<&'a PluginDigest> {
        let wall_ms = self.run.at().wall_ms;
        let rollout = &self.run.ports.rollout;
        let lifetime = rollout.with(|rollout| rollout.policy().quarantine_for);
        let mut listed: Vec<&Quarantined> = fleet.quarantined.iter().collect();
        listed.sort_by_key(|entry| entry.at_ms);
        let surplus = (listed.len() + new).saturating_sub(ENTRIES_MAX);
        let mut outdated = Vec::new();
        for (index, entry) in listed.into_iter().enumerate() {
            if index < surplus || entry.is_expired(wall_ms, lifetime) {
                outdated.push(&entry.digest);
            }
        }
        outdated
    }

    /// Shows this host's versions.
    fn show_own(&mut self) {
        let rows = self.run.ports.rollout.rows();
        self.gauge_states(&rows);
        let quarantined = RolloutState::Quarantined.code();
        let refused = rows.iter().find(|row| row.state == quarantined);
        let refused = refused.map(|row| SwapRefusal {
            digest: Some(row.digest.as_str().to_owned()),
            reason: row.reason.clone().unwrap_or_default(),
        });
        self.run.status.update(|status| {
            status.versions = rows.iter().map(VersionStatus::of).collect();
            if refused.is_some() {
                status.refused = refused;
            }
        });
    }

    /// Sets the gauges whose values changed.
    fn gauge_states(&mut self, rows: &[VersionRow]) {
        for state in RolloutState::CODES {
            let in_state = rows.iter().filter(|row| word_of(row) == Some(state));
            let count = in_state.count();
            if self.gauged.insert(state, count) != Some(count) {
                metrics::versions(self.run.plugin(), state).set(count as f64);
            }
        }
    }

    /// Shows which versions the live hosts of the fleet run.
    fn show_fleet(&mut self, lookout: &Lookout) {
        let living = living(lookout);
        let workers = &lookout.fleet().workers;
        let mut fleet = FleetOfVersions::new();
        for (digest, hosts) in live_versions(workers, |id| living.contains(id)) {
            let hosts = hosts.into_iter().map(ToString::to_string).collect();
            fleet.insert(digest.to_owned(), hosts);
        }
        self.run.gauge(metrics::FLEET_VERSIONS, fleet.len() as f64);
        self.log_if_mixed(&fleet);
        self.run
            .status
            .update(|status| status.fleet_versions = fleet);
    }

    /// Shows nothing of the fleet any more: the rows of the other hosts are not read now, and what
    /// they said last may have changed long ago.
    pub(super) fn forget_fleet(&mut self) {
        self.run.gauge(metrics::FLEET_VERSIONS, metrics::ENDED);
        self.mixed_since = None;
        self.mixed_logged_at = None;
        self.run
            .status
            .update(|status| status.fleet_versions.clear());
    }

    /// Logs that hosts run different versions, once that lasts.
    fn log_if_mixed(&mut self, fleet: &FleetOfVersions) {
        if fleet.len() < 2 {
            self.mixed_since = None;
            self.mixed_logged_at = None;
            return;
        }
        let now = self.run.now();
        let since = *self.mixed_since.get_or_insert(now);
        let logged_at = self.mixed_logged_at;
        let is_due = logged_at.is_none_or(|at| now.since(at) >= MIXED_AGAIN);
        if now.since(since) >= MIXED_FOR && is_due {
            self.mixed_logged_at = Some(now);
            let versions = fleet.iter();
            let versions =
                versions.map(|(digest, hosts)| format!("{digest:.12}: {}", hosts.join(", ")));
            let versions = versions.collect::<Vec<_>>().join("; ");
            tracing::warn!(
                plugin = %self.run.plugin(),
                versions,
                code = "versions-differ",
                "the hosts of the fleet run different versions"
            );
        }
    }

    /// The entry that forbids to run the version on offer, if the fleet found it bad and this host
    /// has no other. An entry is ignored if another host is done with trying the version: the one
    /// host that found it bad does not stop the fleet. The entry of a host that died of it counts.
    pub(super) fn quarantined_offer(&mut self, fleet: &FleetRows) -> Option<Quarantined> {
        let offered = self.run.ports.versions.borrow().digest().clone();
        let entries = fleet.quarantined.iter();
        let entries: Vec<&Quarantined> = entries.filter(|one| one.digest == offered).collect();
        let is_survivable = entries.iter().any(|entry| !entry.is_deadly());
        if is_survivable && let Some(host) = self.host_that_runs(&offered, fleet) {
            tracing::warn!(
                digest = %offered,
                %host,
                code = "quarantined-runs",
                "running a quarantined version, because another host runs it"
            );
            return None;
        }
        let entry = entries.first().copied();
        self.heed_entry(entry, &offered);
        self.run.ports.rollout.with(|rollout| {
            if rollout.active().is_some() {
                return None;
            }
            rollout.blocked(Some(&offered)).cloned()
        })
    }

    /// Has the rollout heed what the fleet says of a version: its entry, or that it has none any
    /// more.
    fn heed_entry(&mut self, entry: Option<&Quarantined>, digest: &PluginDigest) {
        let at = self.run.at();
        let rollout = &self.run.ports.rollout;
        if let Some(entry) = entry {
            rollout.with(|rollout| rollout.learn(entry, at));
            self.written.insert(digest.as_str().to_owned(), 0);
        } else if self.written.remove(digest.as_str()).is_some() {
            rollout.with(|rollout| rollout.release(digest));
        }
    }

    /// Another host that is done with trying a version, and stays.
    fn host_that_runs<'a>(
        &self,
        digest: &PluginDigest,
        fleet: &'a FleetRows,
    ) -> Option<&'a WorkerId> {
        let others = fleet
            .workers
            .iter()
            .filter(|row| row.worker != *self.run.me());
        let mut staying = others.filter(|row| !row.is_draining);
        staying.find(|row| runs(row, digest)).map(|row| &row.worker)
    }
}

/// Whether this is the first of a host's versions, and active: the one that all its shards run.
fn runs(row: &WorkerRow, digest: &PluginDigest) -> bool {
    let active = RolloutState::Active.code();
    let running = row.versions.first();
    running.is_some_and(|running| running.digest == *digest && running.state == active)
}

/// The word of a version's state, without what it says of the shard.
fn word_of(row: &VersionRow) -> Option<&str> {
    row.state.split('(').next()
}

/// Workers that live. Those on their way out are among them: they still run what they run.
fn living(lookout: &Lookout) -> BTreeSet<WorkerId> {
    let living = lookout
        .workers()
        .into_iter()
        .filter(|worker| worker.is_alive);
    living.map(|worker| worker.id).collect()
}
