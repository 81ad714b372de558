//! What the fleet knows of versions: told and learnt at each look.

use std::collections::{BTreeMap, BTreeSet};

use shardmill_core::fleet::{FleetRows, WorkerRow};
use shardmill_core::lease::WorkerId;
use shardmill_core::plugin::PluginDigest;
use shardmill_core::ports::StoreError;
use shardmill_core::rollout::{
    At, ENTRIES_MAX, Quarantined, RolloutState, VersionRow, live_versions, may_start,
};
use shardmill_core::time::Moment;

use super::Worker;
use crate::metrics;
use crate::status::{SwapRefusal, VersionStatus};

/// Looks in a row that must miss a quarantined version before it counts as released: a look may be
/// stale.
const MISSING_LOOKS: u32 = 3;
/// How long hosts may run different versions before that is logged, and how long until it is logged
/// again: a rollout takes this long.
const MIXED_FOR: std::time::Duration = std::time::Duration::from_mins(1);
const MIXED_AGAIN: std::time::Duration = std::time::Duration::from_mins(15);

/// What a worker remembers of the fleet's versions from look to look.
#[derive(Default)]
pub(super) struct FleetVersions {
    /// Quarantined versions that were in the table, and for how many looks they have not been
    /// there.
    written: BTreeMap<String, u32>,
    /// How many versions the gauges show in each state.
    gauged: BTreeMap<&'static str, usize>,
    mixed_since: Option<Moment>,
    mixed_told: Option<Moment>,
}

impl Worker {
    /// Learns which versions are bad, tells which this host found bad, and shows what everybody
    /// runs.
    pub(super) async fn share_versions(&mut self) {
        self.share_quarantine().await;
        self.start_in_turn();
        self.show_versions(true);
    }

    /// The same for a host that heeds: it knows of bad versions if it `has_read_board`, and what
    /// others run if it `knows_fleet`.
    pub(super) async fn share_versions_while_heeding(
        &mut self,
        has_read_board: bool,
        knows_fleet: bool,
    ) {
        if has_read_board {
            self.share_quarantine().await;
        }
        let at = self.at();
        self.ports.rollout.tell(|rollout| rollout.tick(at));
        if knows_fleet || !self.waits_for_turn() {
            self.start_in_turn();
        }
        self.show_versions(knows_fleet);
    }

    async fn share_quarantine(&mut self) {
        let at = self.at();
        self.learn_quarantine(at);
        if let Err(error) = self.write_quarantine(at).await {
            tracing::debug!(%error, "could not record a bad version, trying again at the next look");
        }
        self.ports.rollout.tell(|rollout| rollout.tick(at));
    }

    /// Starts with a version that waits, if it is this host's turn.
    fn start_in_turn(&self) {
        let at = self.at();
        let rollout = self.ports.rollout.clone();
        if let Some(digest) = rollout.tell(|rollout| rollout.waiting().cloned()) {
            let living = self.living();
            let workers = self.observed.fleet.workers.iter();
            let rows: Vec<&WorkerRow> =
                workers.filter(|row| living.contains(&row.worker)).collect();
            let share = rollout.tell(|rollout| rollout.policy().share);
            if share >= 1.0 || may_start(&self.options.worker, &digest, &rows, share) {
                rollout.tell(|rollout| rollout.let_start(&digest, at));
            }
        }
    }

    /// Whether a version waits for other hosts to have run it, so that their rows are needed.
    pub(super) fn waits_for_turn(&self) -> bool {
        self.ports
            .rollout
            .tell(|rollout| rollout.waiting().is_some() && rollout.policy().share < 1.0)
    }

    pub(super) fn at(&self) -> At {
        At {
            now: self.ports.clock.now(),
            wall_ms: self.ports.clock.wall_ms(),
        }
    }

    /// Workers that live, those on their way out among them: they still run what they run.
    fn living(&self) -> BTreeSet<WorkerId> {
        let workers = self.observed_workers().into_iter();
        workers
            .filter(|worker| worker.is_alive)
            .map(|worker| worker.id)
            .collect()
    }

    fn learn_quarantine(&mut self, at: At) {
        let Self {
            ports,
            observed,
            versions,
            ..
        } = self;
        let lifetime = ports
            .rollout
            .tell(|rollout| rollout.policy().quarantine_for);
        // What is over counts as gone: should the version be bad again, that is written anew.
        let is_over = |entry: &&Quarantined| entry.is_expired(at.wall_ms, lifetime);
        let (over, listed): (Vec<_>, Vec<_>) = observed.fleet.quarantined.iter().partition(is_over);
        for entry in over {
            versions.written.remove(entry.digest.as_str());
        }
        for entry in &listed {
            versions.written.insert(entry.digest.as_str().to_owned(), 0);
            ports.rollout.tell(|rollout| rollout.learn(entry, at));
        }
        let mut released = Vec::new();
        versions.written.retain(|digest, missing| {
            let is_listed = listed.iter().any(|entry| entry.digest.as_str() == digest);
            *missing = if is_listed { 0 } else { *missing + 1 };
            let is_released = *missing >= MISSING_LOOKS;
            released.extend(PluginDigest::from_hex(digest).filter(|_| is_released));
            !is_released
        });
        for digest in released {
            ports.rollout.tell(|rollout| rollout.release(&digest));
        }
    }

    /// Writes what this host found out and the table does not have; makes room for it if there is
    /// none.
    async fn write_quarantine(&mut self, at: At) -> Result<(), StoreError> {
        let mine = |entry: &&Quarantined| {
            entry.host == self.options.worker
                && !self.versions.written.contains_key(entry.digest.as_str())
        };
        let (new, lifetime): (Vec<Quarantined>, _) = self.ports.rollout.tell(|rollout| {
            (
                rollout.quarantined().filter(mine).cloned().collect(),
                rollout.policy().quarantine_for,
            )
        });
        if new.is_empty() {
            return Ok(());
        }
        let mut listed: Vec<&Quarantined> = self.observed.fleet.quarantined.iter().collect();
        listed.sort_by_key(|entry| entry.at_ms);
        let over = (listed.len() + new.len()).saturating_sub(ENTRIES_MAX);
        let is_old = |index: usize, entry: &Quarantined| {
            index < over || entry.is_expired(at.wall_ms, lifetime)
        };
        for (index, entry) in listed.into_iter().enumerate() {
            if is_old(index, entry) {
                self.ports
                    .coordinator
                    .release_version(&entry.digest)
                    .await?;
            }
        }
        for entry in new {
            self.ports.coordinator.quarantine(&entry).await?;
            self.versions
                .written
                .insert(entry.digest.as_str().to_owned(), 0);
        }
        Ok(())
    }

    /// Shows this host's versions, and those of all hosts if their rows were read just now.
    fn show_versions(&mut self, knows_fleet: bool) {
        let rows = self.ports.rollout.tell(|rollout| rollout.rows());
        self.show_own_versions(&rows);
        if knows_fleet {
            self.show_fleet_versions(self.at());
        }
    }

    fn show_own_versions(&mut self, rows: &[VersionRow]) {
        for word in RolloutState::CODES {
            let count = rows
                .iter()
                .filter(|row| row.state.split('(').next() == Some(word))
                .count();
            if self.versions.gauged.insert(word, count) != Some(count) {
                let labels = [
                    ("plugin", self.options.plugin.to_string()),
                    ("state", word.to_owned()),
                ];
                ::metrics::gauge!(metrics::VERSIONS, &labels).set(count as f64);
            }
        }
        let refused = rows
            .iter()
            .find(|row| row.state == RolloutState::Quarantined.code());
        let refused = refused.map(|row| SwapRefusal {
            digest: Some(row.digest.as_str().to_owned()),
            reason: row.reason.clone().unwrap_or_default(),
        });
        let versions = rows.iter().map(VersionStatus::of).collect();
        self.status.update(|status| {
            status.versions = versions;
            status.refused = refused.or_else(|| status.refused.take());
        });
    }

    fn show_fleet_versions(&mut self, at: At) {
        let plugin = self.options.plugin.to_string();
        let living = self.living();
        let workers = &self.observed.fleet.workers;
        let fleet: BTreeMap<String, Vec<String>> = live_versions(workers, |id| living.contains(id))
            .into_iter()
            .map(|(digest, hosts)| {
                (
                    digest.to_owned(),
                    hosts.into_iter().map(ToString::to_string).collect(),
                )
            })
            .collect();
        ::metrics::gauge!(metrics::FLEET_VERSIONS, "plugin" => plugin).set(fleet.len() as f64);
        self.note_mixed(&fleet, at);
        self.status.update(|status| status.fleet_versions = fleet);
    }

    /// The rows of the other hosts are not read any more: what they said last may be long untrue.
    pub(super) fn forget_fleet_versions(&mut self) {
        let plugin = self.options.plugin.to_string();
        ::metrics::gauge!(metrics::FLEET_VERSIONS, "plugin" => plugin).set(metrics::ENDED);
        (self.versions.mixed_since, self.versions.mixed_told) = (None, None);
        self.status.update(|status| status.fleet_versions.clear());
    }

    /// Logs that hosts run different versions, once that lasts.
    fn note_mixed(&mut self, fleet: &BTreeMap<String, Vec<String>>, At { now, .. }: At) {
        let memory = &mut self.versions;
        if fleet.len() < 2 {
            (memory.mixed_since, memory.mixed_told) = (None, None);
            return;
        }
        let since = *memory.mixed_since.get_or_insert(now);
        let is_due = memory
            .mixed_told
            .is_none_or(|told| now.since(told) >= MIXED_AGAIN);
        if now.since(since) >= MIXED_FOR && is_due {
            memory.mixed_told = Some(now);
            let hosts: Vec<String> = fleet
                .iter()
                .map(|(digest, hosts)| format!("{:.12}: {}", digest, hosts.join(", ")))
                .collect();
            let plugin = &self.options.plugin;
            tracing::warn!(%plugin, versions = hosts.join("; "), "the hosts of the fleet run \
                different versions");
        }
    }

    /// Why the version on offer must not be run, if the fleet found it bad and this host has no
    /// other. One that other hosts are done with trying is not blocked: the one host that found it
    /// bad does not stop the fleet. One that a host died of is.
    pub(super) fn blocked(&mut self, fleet: &FleetRows) -> Option<Quarantined> {
        let offered = self.ports.versions.borrow().digest().clone();
        let at = self.at();
        let active = RolloutState::Active.code();
        let runs_it = |row: &&WorkerRow| {
            let first = row
                .versions
                .first()
                .filter(|running| running.digest == offered && running.state == active);
            !row.is_draining && row.worker != self.options.worker && first.is_some()
        };
        if let Some(row) = fleet.workers.iter().find(runs_it)
            && fleet
                .quarantined
                .iter()
                .any(|entry| entry.digest == offered && !entry.is_deadly())
        {
            tracing::warn!(digest = %offered, host = %row.worker, "running a quarantined version, \
                because another host runs it");
            return None;
        }
        self.ports.rollout.tell(|rollout| {
            match fleet
                .quarantined
                .iter()
                .find(|entry| entry.digest == offered)
            {
                Some(entry) => {
                    rollout.learn(entry, at);
                    self.versions.written.insert(offered.as_str().to_owned(), 0);
                }
                None if self.versions.written.remove(offered.as_str()).is_some() => {
                    rollout.release(&offered);
                }
                None => {}
            }
            rollout
                .blocked(Some(&offered))
                .filter(|_| rollout.active().is_none())
                .cloned()
        })
    }
}
