//! What the leader does for the others, beside the shards: it says who watches, and leaves errands
//! for those who do not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use shardmill_core::fleet::{Errand, Incarnation, Mail, Role, Service, Task};
use shardmill_core::lease::WorkerId;
use shardmill_core::plan::{Declined, Heeders, ObservedLease, ObservedWorker, errands};
use shardmill_core::ports::StoreError;
use shardmill_core::seeded_bug::SeededBug;
use shardmill_core::stream::LeaseKey;
use tokio::task::JoinSet;

use super::look::is_orphan;
use super::{PassError, Worker};

/// Mails in flight at once: well below the DynamoDB client's connection pool.
const MAILS_MAX: usize = 16;
/// After so long a leader looks what came of its errands: they are read within about a second, and
/// done at once.
const ERRANDS_TAKE: Duration = Duration::from_millis(1_500);

/// What a leader remembers of the errands it gave.
#[derive(Default)]
pub(super) struct Serving {
    declined: Declined,
    /// Hosts whose mail is so long that reading it costs more than reading none.
    long: BTreeSet<WorkerId>,
}

impl Worker {
    /// What this host would say of its service as the leader.
    pub(super) fn service(&self) -> Service {
        let before = self.observed.leadership.service();
        let me = &self.options.worker;
        // It has not looked at the fleet for long: the deputies have, and stay until it did.
        if let Some(before) =
            before.filter(|service| service.role(me) == Role::Heed && !self.leads_by_record())
        {
            return before.clone();
        }
        let live = self.live_workers();
        let deputies = before.map_or(&[][..], |service| &service.deputies);
        Service {
            deputies: Service::choose_deputies(deputies, &live, me),
            hosts: live.len(),
            leases: self
                .observed
                .listing
                .as_ref()
                .map_or(0, |(listing, _)| listing.leases.len()),
            is_beside_kcl: self.renews_rows(),
        }
    }

    /// Whether the record names others than it should, so that it is to be written at once.
    pub(super) fn is_service_outdated(&self) -> bool {
        let (now, told) = (self.service(), self.observed.leadership.service());
        told.is_none_or(|told| {
            told.deputies != now.deputies || told.is_beside_kcl != now.is_beside_kcl
        })
    }

    /// Whether the leader tells this host of claims, though it watches.
    pub(super) fn is_deputy(&self) -> bool {
        let service = self.observed.leadership.service();
        service.is_some_and(|service| service.deputies.contains(&self.options.worker))
    }

    fn leads_by_record(&self) -> bool {
        self.observed
            .leadership
            .is_mine(&self.options.worker, &self.run)
    }

    fn live_workers(&self) -> BTreeSet<WorkerId> {
        let is_live = |worker: &ObservedWorker| worker.is_alive && !worker.is_draining;
        let others = self
            .observed_workers()
            .into_iter()
            .filter(is_live)
            .map(|worker| worker.id);
        others.chain([self.options.worker.clone()]).collect()
    }

    /// Plans for the hosts that heed, and leaves it for them.
    pub(super) async fn leave_errands(
        &mut self,
        leases: &[ObservedLease],
    ) -> Result<(), PassError> {
        let Some(service) = self
            .observed
            .leadership
            .service()
            .filter(|_| self.leads_by_record())
            .cloned()
        else {
            return Ok(());
        };
        let mut given = self.plan_errands(leases, &service);
        // Whoever takes a lease reads its row only: that its parents are done is the leader's word.
        if self.gives_orphans(&given) && !SeededBug::TrustsStaleListing.is_on() {
            self.look_closely().await?;
            let leases = self.observed_leases();
            given = self.plan_errands(&leases, &service);
        }
        self.serving.declined.note(&given);
        if !given.is_empty() {
            self.observed.look_at = Some(self.ports.clock.now() + ERRANDS_TAKE);
        }
        self.send(given).await?;
        Ok(())
    }

    fn plan_errands(
        &self,
        leases: &[ObservedLease],
        service: &Service,
    ) -> BTreeMap<WorkerId, Vec<Errand>> {
        let workers = self.observed_workers();
        let heeders = self.heeders(&workers, service);
        errands(&self.view(leases, &workers, None), &self.limits(), &heeders)
    }

    fn gives_orphans(&self, given: &BTreeMap<WorkerId, Vec<Errand>>) -> bool {
        let is_take = |errand: &&Errand| matches!(errand.task, Task::Take { .. });
        let taken: BTreeSet<&LeaseKey> = given
            .values()
            .flatten()
            .filter(is_take)
            .map(|errand| &errand.key)
            .collect();
        let listed = self.listed_shards();
        let rows = self
            .observed
            .listing
            .iter()
            .flat_map(|(listing, _)| &listing.leases);
        rows.filter(|lease| taken.contains(&lease.key))
            .any(|lease| is_orphan(lease, &listed))
    }

    fn heeders<'a>(&'a self, workers: &'a [ObservedWorker], service: &Service) -> Heeders<'a> {
        let me = &self.options.worker;
        let is_live = |worker: &&ObservedWorker| worker.is_alive && worker.id != *me;
        let live = workers.iter().filter(is_live);
        let heeds = |worker: &&ObservedWorker| {
            !worker.is_draining && service.role(&worker.id) == Role::Heed
        };
        let now = self.ports.clock.now();
        Heeders {
            ids: live
                .clone()
                .filter(heeds)
                .map(|worker| &worker.id)
                .collect(),
            owners: live.map(|worker| &worker.id).chain([me]).collect(),
            beats: self
                .observed
                .observer
                .workers(now)
                .map(|(row, _)| (&row.worker, (&row.incarnation, row.beat)))
                .collect(),
            declined: &self.serving.declined,
        }
    }

    async fn send(&mut self, mut given: BTreeMap<WorkerId, Vec<Errand>>) -> Result<(), StoreError> {
        if let Some(mine) = given.remove(&self.options.worker) {
            self.heeding
                .admit(mine, self.options.leases.duration, self.ports.clock.now());
        }
        let done: Vec<WorkerId> = self
            .serving
            .long
            .iter()
            .filter(|host| !given.contains_key(*host))
            .cloned()
            .collect();
        for host in done {
            // An old mail says nothing to a host that has heeded it: it is in nobody's way, and is
            // tried again the next time.
            match self.ports.coordinator.leave_mail(&host, None).await {
                Ok(()) => drop(self.serving.long.remove(&host)),
                Err(error) => {
                    tracing::debug!(%host, %error, "could not remove a long mail that was heeded");
                }
            }
        }
        let runs = self.runs();
        let mut mails: Vec<(WorkerId, Mail)> = Vec::with_capacity(given.len());
        for (host, errands) in given {
            let Some(to) = runs.get(&host).cloned() else {
                continue;
            };
            if errands.len() > Mail::ERRANDS_FREE {
                self.serving.long.insert(host.clone());
            }
            mails.push((
                host,
                Mail {
                    to,
                    number: fastrand::u64(..),
                    errands,
                },
            ));
        }
        for wave in mails.chunks(MAILS_MAX) {
            let mut writes = JoinSet::new();
            for (host, mail) in wave {
                let (host, mail) = (host.clone(), mail.clone());
                let coordinator = Arc::clone(&self.ports.coordinator);
                writes.spawn(
                    self.ports
                        .freezer
                        .clone()
                        .guard(async move { coordinator.leave_mail(&host, Some(&mail)).await }),
                );
            }
            while let Some(left) = writes.join_next().await {
                left.map_err(|error| StoreError::Unknown {
                    message: error.to_string(),
                })??;
            }
        }
        Ok(())
    }

    fn runs(&self) -> BTreeMap<WorkerId, Incarnation> {
        let now = self.ports.clock.now();
        let workers = self.observed.observer.workers(now);
        workers
            .map(|(row, _)| (row.worker.clone(), row.incarnation.clone()))
            .collect()
    }
}
