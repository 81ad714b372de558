//! This worker's registration: its row in the coordinator table, and the heart that moves it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use shardmill_core::fleet::{WorkerRow, pace};
use shardmill_core::ports::{Raced, StoreError};
use shardmill_core::time::Moment;
use tokio::task::{JoinError, JoinSet};

use super::run::Run;
use crate::heart::{Announcement, Heart, HeartPorts, HeartWatch, Replaced};
use crate::load::LoadMeter;

/// Whether this run is registered, and how its heart beats.
pub(super) struct Registration {
    run: Arc<Run>,
    /// Whether the table may have a row of this run.
    is_registering: bool,
    heart: Option<HeartWatch>,
    task: JoinSet<Replaced>,
}

impl Registration {
    pub(super) fn new(run: Arc<Run>) -> Self {
        Self {
            run,
            is_registering: false,
            heart: None,
            task: JoinSet::new(),
        }
    }

    /// The heart, once this run is registered.
    pub(super) fn heart(&self) -> Option<&HeartWatch> {
        self.heart.as_ref()
    }

    /// Whether the table may have a row of this run.
    pub(super) fn may_have_row(&self) -> bool {
        self.is_registering
    }

    /// Whether the last heartbeat holds.
    pub(super) fn is_heart_alive(&self) -> bool {
        let now = self.run.now();
        self.heart.as_ref().is_some_and(|heart| heart.is_alive(now))
    }

    /// Registers this run under the worker's id, and starts its heart. `hosts` is the size of the
    /// fleet. Returns whether an earlier run left its row.
    pub(super) async fn register(
        &mut self,
        hosts: usize,
        announcement: Announcement,
        renews_rows: Arc<AtomicBool>,
    ) -> Result<bool, StoreError> {
        debug_assert!(
            self.heart.is_none(),
            "a run registers once, and has one heart"
        );
        let row = self.first_row();
        // Many hosts may start at once, and the rows of a large fleet are in one partition.
        tokio::time::sleep(pace::join_within(hosts).mul_f64(fastrand::f64())).await;
        self.is_registering = true;
        let coordinator = &self.run.ports.coordinator;
        let seen = coordinator.worker(&row.worker).await?;
        let sent_at = self.run.now();
        if coordinator.register(seen.as_ref(), &row).await? == Raced::Lost {
            self.check_own_row(&row).await?;
        }
        let ports = self.heart_ports(announcement, renews_rows);
        self.start_heart(ports, row, sent_at);
        Ok(seen.is_some())
    }

    /// `sent_at`: when the row was written that the heart goes on with.
    fn start_heart(&mut self, ports: HeartPorts, row: WorkerRow, sent_at: Moment) {
        let run = &self.run;
        let (heart, watch) = Heart::new(ports, run.options.leases, row, run.plugin(), sent_at);
        self.heart = Some(watch);
        self.task.spawn(self.run.guard(heart.run()));
    }

    fn heart_ports(&self, announcement: Announcement, renews_rows: Arc<AtomicBool>) -> HeartPorts {
        HeartPorts {
            coordinator: self.run.coordinator(),
            clock: Arc::clone(&self.run.ports.clock),
            rollout: self.run.ports.rollout.clone(),
            status: self.run.status.clone(),
            announcement,
            load: self.load_meter(),
            renews_rows,
        }
    }

    fn first_row(&self) -> WorkerRow {
        WorkerRow {
            worker: self.run.me().clone(),
            incarnation: self.run.incarnation.clone(),
            beat: 0,
            lease_duration: self.run.lease_duration(),
            is_draining: false,
            max_leases: self.run.options.leases.max_leases,
            versions: self.run.ports.rollout.rows(),
            artifact: self.run.ports.rollout.artifact(),
            cannot_write: None,
            cannot_look: None,
            load: None,
        }
    }

    fn load_meter(&self) -> Option<LoadMeter> {
        let scaling = self.run.ports.scaling.clone()?;
        let status = self.run.status.clone();
        Some(LoadMeter::new(
            scaling,
            status,
            self.run.options.parallelism,
        ))
    }

    /// A registration lost its race. That is well if the row is this run's: a retry inside the SDK
    /// finds what the first try wrote.
    async fn check_own_row(&self, row: &WorkerRow) -> Result<(), StoreError> {
        let there = self.run.ports.coordinator.worker(&row.worker).await?;
        if there.is_some_and(|there| there.incarnation == row.incarnation) {
            return Ok(());
        }
        let message = format!(
            "another run of worker {} is registering at the same time",
            row.worker
        );
        Err(StoreError::Unknown { message })
    }

    /// How the heart's task ended; `None` if there is none. Cancel-safe.
    pub(super) async fn heart_ended(&mut self) -> Option<Result<Replaced, JoinError>> {
        self.task.join_next().await
    }

    pub(super) fn stop_heart(&mut self) {
        self.task.abort_all();
    }

    /// Removes this run's row.
    pub(super) async fn remove_row(&self) {
        let coordinator = &self.run.ports.coordinator;
        if let Ok(Some(row)) = coordinator.worker(self.run.me()).await
            && row.incarnation == self.run.incarnation
            && let Err(error) = coordinator.remove_worker(&row).await
        {
            tracing::debug!(%error, "could not remove this host's registration, others will see \
                it as silent");
        }
    }
}
