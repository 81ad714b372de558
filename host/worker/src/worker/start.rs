//! Before the first pass: the tables, the stream's identity, this worker's registration.

use std::sync::Arc;

use shardmill_core::fleet::{
    ApplicationStart, FleetRows, StreamIdentity, StreamRow, StreamVerdict, WorkerRow, pace,
};
use shardmill_core::ports::{Raced, ReadError, StoreError};
use shardmill_core::seeded_bug::SeededBug;
use shardmill_core::stream::LeaseKey;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::look::refuse_multi_stream;
use super::{PassError, Worker, WorkerError};
use crate::heart::{Announcement, Heart, HeartPorts};

/// Which stream it is that has the name now; `None` if there is none.
pub(super) type IdentityAnswer = Result<Option<StreamIdentity>, ReadError>;

/// What can be tried again, and what cannot.
enum StartError {
    NotYet(PassError),
    Never(WorkerError),
}

impl Worker {
    /// Whether the worker may serve; false if `stop` came first.
    pub(super) async fn start(&mut self, stop: &CancellationToken) -> Result<bool, WorkerError> {
        let mut failures = 0;
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
                    failures += 1;
                    self.pass_failed(&error, failures);
                    let wait = self.options.backoff.delay(failures, fastrand::f64());
                    tokio::select! {
                        () = stop.cancelled() => return Ok(false),
                        // It may be what is waited for.
                        Ok(()) = self.ports.versions.changed() => {}
                        () = tokio::time::sleep(wait) => {}
                    }
                }
            }
        }
        if let Some(keeper) = self.consumer_keeper.take() {
            self.keeper_task
                .spawn(self.ports.freezer.clone().guard(keeper.run()));
        }
        self.pass_went_well();
        Ok(true)
    }

    async fn prepare(&mut self) -> Result<(), StartError> {
        self.wait_on("checking that its tables exist");
        self.ports.store.ensure_table().await?;
        self.ports.coordinator.ensure_table().await?;
        if self.options.keeps_state {
            self.ports.store.ensure_state_table().await?;
        }
        self.wait_on("asking kinesis for the stream");
        let identity = self
            .ports
            .reader
            .identity()
            .await
            .map_err(|error| StartError::NotYet(error.into()))?;
        let Some(identity) = identity else {
            return Err(StartError::NotYet(PassError::NoStream(
                self.options.stream.clone(),
            )));
        };
        self.identity = identity;
        self.wait_on("agreeing with other hosts in the coordinator table");
        let mut fleet = self.ports.coordinator.board().await?;
        self.observed
            .leadership
            .observe(fleet.leader.as_ref(), self.ports.clock.now());
        self.agree_on_stream(&fleet).await?;
        if !fleet.quarantined.is_empty() {
            fleet = self.ports.coordinator.fleet().await?;
        }
        // A host that has nothing fit to run must hold no lease: others would be kept from the
        // shard.
        let blocked = self.blocked(&fleet);
        self.status
            .update(|status| status.is_version_quarantined = blocked.is_some());
        if let Some(entry) = blocked {
            return Err(StartError::NotYet(PassError::Quarantined(Box::new(entry))));
        }
        self.check_writes().await?;
        self.register().await?;
        Ok(())
    }

    /// Compares the stream with the one that the checkpoints belong to; writes down what nobody
    /// did.
    async fn agree_on_stream(&mut self, fleet: &FleetRows) -> Result<(), StartError> {
        let row = fleet.stream.as_ref();
        let verdict = StreamRow::judge(row, &self.options.stream, self.identity);
        let is_ignored = SeededBug::IgnoresStreamIdentity.is_on() && row.is_some();
        match verdict {
            StreamVerdict::OtherName if !is_ignored => {
                Err(StartError::Never(WorkerError::OtherStream {
                    application: self.options.application.clone(),
                    ours: self.options.stream.clone(),
                    theirs: row.map_or_else(|| self.options.stream.clone(), |row| row.name.clone()),
                }))
            }
            StreamVerdict::Recreated if !is_ignored => Err(StartError::Never(self.recreated())),
            StreamVerdict::Same | StreamVerdict::OtherName | StreamVerdict::Recreated => {
                self.agree_on_start(fleet.start).await
            }
            StreamVerdict::Unknown => {
                self.agree_on_start(fleet.start).await?;
                let has_leases = !self.ports.store.list().await?.leases.is_empty();
                let row = StreamRow::first(self.options.stream.clone(), self.identity, has_leases);
                wrote_first(self.ports.coordinator.write_stream(None, &row).await?)
            }
        }
    }

    /// Takes up where the application began; writes it down if nobody did, which is before any
    /// lease is made or taken.
    async fn agree_on_start(
        &mut self,
        written: Option<ApplicationStart>,
    ) -> Result<(), StartError> {
        let Some(start) = written else {
            // In this order: what is put after the leases were looked at arrives after the moment
            // that is kept.
            let looked_at_ms = self.first_moment().await?;
            let listing = self.ports.store.list_consistently().await?;
            refuse_multi_stream(&listing)?;
            let found_leases = !listing.leases.is_empty();
            let start = ApplicationStart {
                position: self.options.initial_position,
                looked_at_ms,
                found_leases,
            };
            wrote_first(self.ports.coordinator.write_start(&start).await?)?;
            tracing::info!(application = self.options.application, %start, "the application starts");
            self.keep_start(start);
            return Ok(());
        };
        let configured = self.options.initial_position;
        if let Some(kept) = start
            .kept_instead_of(configured)
            .filter(|_| start != self.start)
        {
            tracing::warn!(
                application = self.options.application,
                %configured,
                %kept,
                "initial-position differs from where the application started, which stays in \
                    force; to start elsewhere, name another application"
            );
        }
        self.keep_start(start);
        Ok(())
    }

    fn keep_start(&mut self, start: ApplicationStart) {
        self.start = start;
        self.status
            .update(|status| status.starts_at = Some(start.to_string()));
    }

    /// The time of this run's first look, whatever has to be tried again after it.
    async fn first_moment(&mut self) -> Result<u64, StartError> {
        if let Some(first_look_ms) = self.first_look_ms {
            return Ok(first_look_ms);
        }
        let stream_ms = self
            .ports
            .reader
            .now_ms()
            .await
            .map_err(|error| StartError::NotYet(error.into()))?;
        if stream_ms.is_none() {
            tracing::warn!(
                "kinesis' replies have no date: the application starts by this host's clock, some \
                    seconds early"
            );
        }
        let moment = ApplicationStart::moment(stream_ms, self.ports.clock.wall_ms());
        self.first_look_ms = Some(moment);
        Ok(moment)
    }

    pub(super) fn multi_stream(&self, key: LeaseKey) -> WorkerError {
        WorkerError::MultiStream {
            application: self.options.application.clone(),
            key,
        }
    }

    pub(super) fn recreated(&self) -> WorkerError {
        WorkerError::StreamRecreated {
            application: self.options.application.clone(),
            stream: self.options.stream.clone(),
        }
    }

    fn to_tell(&self) -> Announcement {
        Announcement {
            is_draining: self.is_draining.subscribe(),
            cannot_write: self.cannot_write.subscribe(),
            cannot_look: self.cannot_look.subscribe(),
        }
    }

    /// Registers this run under the worker's id, and starts its heart.
    async fn register(&mut self) -> Result<(), StoreError> {
        let row = WorkerRow {
            worker: self.options.worker.clone(),
            incarnation: self.run.clone(),
            beat: 0,
            lease_duration: self.options.leases.duration,
            is_draining: false,
            max_leases: self.options.leases.max_leases,
            versions: self.ports.rollout.tell(|rollout| rollout.rows()),
            cannot_write: None,
            cannot_look: None,
        };
        // Many hosts may start at once, and a large fleet's rows lie in one partition.
        let hosts = self
            .observed
            .leadership
            .service()
            .map_or(0, |service| service.hosts);
        tokio::time::sleep(pace::join_within(hosts).mul_f64(fastrand::f64())).await;
        self.is_registering = true;
        let seen = self.ports.coordinator.worker(&row.worker).await?;
        self.heeding.set_heir(seen.is_some());
        let sent_at = self.ports.clock.now();
        if self.ports.coordinator.register(seen.as_ref(), &row).await? == Raced::Lost {
            // A retry inside the SDK finds what the first try wrote.
            let there = self.ports.coordinator.worker(&row.worker).await?;
            if there.is_none_or(|there| there.incarnation != row.incarnation) {
                let message = format!(
                    "another run of worker {} is registering at the same time",
                    row.worker
                );
                return Err(StoreError::Unknown { message });
            }
        }
        let ports = HeartPorts {
            coordinator: Arc::clone(&self.ports.coordinator),
            clock: Arc::clone(&self.ports.clock),
            rollout: self.ports.rollout.clone(),
            status: self.status.clone(),
            plugin: self.options.plugin.clone(),
        };
        let renews_rows = Arc::clone(&self.renews_rows);
        let (heart, watch) = Heart::new(
            ports,
            self.options.leases,
            renews_rows,
            row,
            sent_at,
            self.to_tell(),
        );
        self.heart = Some(watch);
        self.heart_task
            .spawn(self.ports.freezer.clone().guard(heart.run()));
        Ok(())
    }

    /// A reader doubts that the stream is the one it was. Asked beside everything else: a call that
    /// hangs must keep nobody from leases, claims, or the end.
    pub(super) fn ask_identity(&self, answers: &mut JoinSet<IdentityAnswer>) {
        let reader = Arc::clone(&self.ports.reader);
        answers.spawn(
            self.ports
                .freezer
                .clone()
                .guard(async move { reader.identity().await }),
        );
    }

    /// Gives everything up if the stream is another one.
    pub(super) fn check_stream(&mut self, answer: &IdentityAnswer) -> Result<(), WorkerError> {
        match answer {
            Ok(Some(identity))
                if *identity != self.identity && !SeededBug::IgnoresStreamIdentity.is_on() =>
            {
                Err(self.recreated())
            }
            Ok(None) => {
                let error = PassError::NoStream(self.options.stream.clone());
                self.pass_failed(&error, 1);
                Ok(())
            }
            // Still the same, or nobody knows: the readers ask again.
            Ok(Some(_)) | Err(_) => Ok(()),
        }
    }
}

/// Of a row that is written once: if another host was faster, or an earlier try of this one, its
/// row is to be looked at.
fn wrote_first(raced: Raced) -> Result<(), StartError> {
    match raced {
        Raced::Applied => Ok(()),
        Raced::Lost => Err(StartError::NotYet(PassError::Store(StoreError::Unknown {
            message: "another host is starting at the same time".to_owned(),
        }))),
    }
}

impl From<PassError> for StartError {
    fn from(error: PassError) -> Self {
        Self::NotYet(error)
    }
}

impl From<StoreError> for StartError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::WrongTable { .. } => Self::Never(WorkerError::Table(error)),
            other => Self::NotYet(other.into()),
        }
    }
}
