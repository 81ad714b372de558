//! What the leader does for the other hosts: it leaves errands for those that do not watch.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use shardmill_core::fleet::{Errand, Mail, Role, Service, Task};
use shardmill_core::lease::WorkerId;
use shardmill_core::plan::{Declined, Heeders, ObservedLease, ObservedWorker, errands};
use shardmill_core::ports::StoreError;
use shardmill_core::seeded_bug::SeededBug;
use shardmill_core::stream::LeaseKey;
use tokio::task::JoinSet;

use super::look::{Lookout, is_orphan};
use super::rows::{REQUESTS_MAX, answer_of};
use super::run::Run;
use super::{PassError, Worker};

/// After so long a leader looks at what came of its errands: they are read within about a second,
/// and done at once.
const ERRANDS_TAKE: Duration = Duration::from_millis(1_500);

/// Errands, by the host that is to do them.
type Given = BTreeMap<WorkerId, Vec<Errand>>;

/// What a leader remembers of the errands it gave.
pub(super) struct Serving {
    run: Arc<Run>,
    declined: Declined,
    /// Hosts whose mail is so long that reading it costs more than reading none.
    long: BTreeSet<WorkerId>,
}

/// A mail, and the host that it is for.
struct Addressed {
    host: WorkerId,
    mail: Mail,
}

impl Serving {
    pub(super) fn new(run: Arc<Run>) -> Self {
        Self {
            run,
            declined: Declined::default(),
            long: BTreeSet::new(),
        }
    }

    fn heeders<'a>(
        &'a self,
        workers: &'a [ObservedWorker],
        service: &Service,
        lookout: &'a Lookout,
    ) -> Heeders<'a> {
        let me = self.run.me();
        let mut heeders = Heeders {
            ids: BTreeSet::new(),
            owners: BTreeSet::from([me]),
            beats: BTreeMap::new(),
            declined: &self.declined,
        };
        for worker in workers
            .iter()
            .filter(|worker| worker.is_alive && worker.id != *me)
        {
            heeders.owners.insert(&worker.id);
            if !worker.is_draining && service.role(&worker.id) == Role::Heed {
                heeders.ids.insert(&worker.id);
            }
        }
        for (row, _) in lookout.observer().workers(self.run.now()) {
            heeders
                .beats
                .insert(&row.worker, (&row.incarnation, row.beat));
        }
        heeders
    }

    /// Leaves errands for their hosts.
    async fn send(&mut self, given: Given, lookout: &Lookout) -> Result<(), StoreError> {
        self.remove_long_mails(&given).await;
        let mails = self.address(given, lookout);
        for wave in mails.chunks(REQUESTS_MAX) {
            let mut writes = JoinSet::new();
            for Addressed { host, mail } in wave {
                let (host, mail) = (host.clone(), mail.clone());
                let coordinator = self.run.coordinator();
                writes.spawn(
                    self.run
                        .guard(async move { coordinator.leave_mail(&host, Some(&mail)).await }),
                );
            }
            while let Some(left) = writes.join_next().await {
                answer_of(left)?;
            }
        }
        Ok(())
    }

    /// Removes long mails of hosts that get none now. What is left of them says nothing to a host
    /// that has heeded it, and is tried again the next time.
    async fn remove_long_mails(&mut self, given: &Given) {
        let heeded = self.long.iter().filter(|host| !given.contains_key(*host));
        let heeded: Vec<WorkerId> = heeded.cloned().collect();
        for host in heeded {
            match self.run.ports.coordinator.leave_mail(&host, None).await {
                Ok(()) => {
                    self.long.remove(&host);
                }
                Err(error) => {
                    tracing::debug!(%host, %error, "could not remove a long mail that was heeded");
                }
            }
        }
    }

    /// The mails to write. A host that is not registered any more gets none.
    fn address(&mut self, given: Given, lookout: &Lookout) -> Vec<Addressed> {
        let runs = lookout.runs();
        let mut mails = Vec::with_capacity(given.len());
        for (host, errands) in given {
            let Some(to) = runs.get(&host).cloned() else {
                continue;
            };
            if errands.len() > Mail::ERRANDS_FREE {
                self.long.insert(host.clone());
            }
            let mail = Mail {
                to,
                number: fastrand::u64(..),
                errands,
            };
            mails.push(Addressed { host, mail });
        }
        mails
    }
}

impl Worker {
    /// Plans for the hosts that heed, and leaves it for them.
    pub(super) async fn leave_errands(
        &mut self,
        leases: &[ObservedLease],
    ) -> Result<(), PassError> {
        let Some(service) = self.office.service().cloned() else {
            return Ok(());
        };
        if !self.office.is_mine() {
            return Ok(());
        }
        let mut given = self.plan_errands(leases, &service);
        // A host that takes a lease reads its row only: that its parents are done is the leader's
        // word.
        if gives_orphans(&given, &self.lookout) && !SeededBug::TrustsStaleListing.is_on() {
            self.lookout.look_closely().await?;
            let leases = self.lookout.leases(&self.holdings);
            given = self.plan_errands(&leases, &service);
        }
        self.serving.declined.note(&given);
        if !given.is_empty() {
            self.lookout.next().list_at(self.run.now() + ERRANDS_TAKE);
        }
        if let Some(own) = given.remove(self.run.me()) {
            self.heeding.admit(own);
        }
        self.serving.send(given, &self.lookout).await?;
        Ok(())
    }

    fn plan_errands(&self, leases: &[ObservedLease], service: &Service) -> Given {
        let workers = self.lookout.workers();
        errands(
            &self.lookout.view(leases, &workers, None),
            &self.lookout.limits(self.origin.start().position),
            &self.serving.heeders(&workers, service, &self.lookout),
        )
    }
}

/// Whether a lease is to be taken that was never started and a parent of which has no row.
fn gives_orphans(given: &Given, lookout: &Lookout) -> bool {
    let takes = given.values().flatten();
    let takes = takes.filter(|errand| matches!(errand.task, Task::Take { .. }));
    let taken: BTreeSet<&LeaseKey> = takes.map(|errand| &errand.key).collect();
    let listed = lookout.listed_shards();
    lookout
        .rows()
        .iter()
        .any(|lease| taken.contains(&lease.key) && is_orphan(lease, &listed))
}
