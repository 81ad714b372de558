//! Before the first pass: the tables, the stream's identity, this worker's registration.

use tokio_util::sync::CancellationToken;

use super::error::StartError;
use super::writes::check_writes;
use super::{PassError, Worker, WorkerError};

impl Worker {
    /// Prepares until this worker may serve. Returns false if `stop` came first.
    pub(super) async fn start(&mut self, stop: &CancellationToken) -> Result<bool, WorkerError> {
        let mut versions = self.run.ports.versions.clone();
        loop {
            let Some(prepared) = stop.run_until_cancelled(self.prepare()).await else {
                return Ok(false);
            };
            match prepared {
                Ok(()) => break,
                Err(StartError::Never(error)) => return Err(error),
                Err(StartError::NotYet(PassError::MultiStream(key))) => {
                    return Err(self.multi_stream(key));
                }
                Err(StartError::NotYet(error)) => {
                    let wait = self.reports.pass_failed(&error);
                    tokio::select! {
                        () = stop.cancelled() => return Ok(false),
                        // This worker may wait for another version.
                        Ok(()) = versions.changed() => {}
                        () = tokio::time::sleep(wait) => {}
                    }
                }
            }
        }
        self.subscribing.begin();
        self.signing.keep();
        self.reports.pass_went_well(self.duties.cannot_list());
        Ok(true)
    }

    async fn prepare(&mut self) -> Result<(), StartError> {
        let (run, status) = (&self.run, &self.run.status);
        status.wait_on("checking that its tables exist");
        run.ports.store.ensure_table().await?;
        run.ports.coordinator.ensure_table().await?;
        if run.options.keeps_state {
            run.ports.store.ensure_state_table().await?;
        }
        self.signing.begin().await?;
        status.wait_on("asking kinesis for the stream");
        self.origin.identify().await?;
        status.wait_on("agreeing with other hosts in the coordinator table");
        self.agree_with_fleet().await?;
        check_writes(&self.run).await?;
        let hosts = self.office.service().map_or(0, |service| service.hosts);
        let announcement = self.reports.announcement();
        let renews_rows = self.lookout.kcl().switch();
        let is_heir = self
            .registration
            .register(hosts, announcement, renews_rows)
            .await?;
        self.heeding.set_heir(is_heir);
        Ok(())
    }

    /// Agrees on the stream, its beginning, and the version to run. A host that has nothing fit to
    /// run must hold no lease: it would keep others from the shard.
    async fn agree_with_fleet(&mut self) -> Result<(), StartError> {
        let mut fleet = self.run.ports.coordinator.board().await?;
        self.office.observe(fleet.leader.as_ref());
        self.origin.agree(&fleet).await?;
        if !fleet.quarantined.is_empty() {
            fleet = self.run.ports.coordinator.fleet().await?;
        }
        let quarantined = self.versions.quarantined_offer(&fleet);
        self.run
            .status
            .update(|status| status.is_version_quarantined = quarantined.is_some());
        match quarantined {
            Some(entry) => Err(StartError::NotYet(PassError::Quarantined(Box::new(entry)))),
            None => Ok(()),
        }
    }
}
