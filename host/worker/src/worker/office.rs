//! The leader's office: who holds it, and what the leader says of its service.

use std::sync::Arc;

use shardmill_core::fleet::{FleetRows, LeaderRow, LeaderStep, Leadership, Role, Service};
use shardmill_core::ports::{Raced, StoreError};
use shardmill_core::seeded_bug::SeededBug;

use super::run::Run;

/// What this host knows of the leader's record, and its writes to that record.
pub(super) struct Office {
    run: Arc<Run>,
    leadership: Leadership,
}

impl Office {
    pub(super) fn new(run: Arc<Run>) -> Self {
        Self {
            run,
            leadership: Leadership::default(),
        }
    }

    /// Takes in the leader's record as it was just read.
    pub(super) fn observe(&mut self, row: Option<&LeaderRow>) {
        self.leadership.observe(row, self.run.now());
    }

    pub(super) fn next_step(&self) -> LeaderStep {
        self.leadership.decide(
            self.run.me(),
            &self.run.incarnation,
            self.run.lease_duration(),
            self.run.now(),
        )
    }

    /// Whether this host leads, as far as it knows.
    pub(super) fn is_mine(&self) -> bool {
        self.leadership
            .is_mine(self.run.me(), &self.run.incarnation)
    }

    pub(super) fn role(&self) -> Role {
        self.leadership.role(self.run.me())
    }

    /// Whether this host is a deputy: it watches, and still gets mail about claims.
    pub(super) fn is_deputy(&self) -> bool {
        self.service()
            .is_some_and(|service| service.deputies.contains(self.run.me()))
    }

    /// What the leader last said of its service.
    pub(super) fn service(&self) -> Option<&Service> {
        self.leadership.service()
    }

    /// The version of the leader's record, which rises with each write; 0 before there is one.
    pub(super) fn version(&self) -> u64 {
        self.leadership.seen().map_or(0, |row| row.version)
    }

    /// The worker that leads, for people.
    pub(super) fn holder(&self) -> Option<String> {
        let (worker, _) = self.leadership.seen()?.holder.as_ref()?;
        Some(worker.to_string())
    }

    /// Whether the record names other deputies than `service`, or says otherwise whether a KCL
    /// shares the table. Then it must be written at once.
    pub(super) fn is_outdated(&self, service: &Service) -> bool {
        self.service().is_none_or(|written| {
            written.deputies != service.deputies || written.is_beside_kcl != service.is_beside_kcl
        })
    }

    /// Writes that this host leads, with `service`. Returns false if another host was faster.
    pub(super) async fn write(&mut self, service: Service) -> Result<bool, StoreError> {
        let sent_at = self.run.now();
        let holder = (self.run.me().clone(), self.run.incarnation.clone());
        let next = self.leadership.next(Some(holder), Some(service));
        let seen = self.leadership.seen();
        let raced = self.run.ports.coordinator.write_leader(seen, &next).await?;
        let is_applied = raced == Raced::Applied;
        if is_applied {
            self.leadership.written(next, sent_at);
        }
        Ok(is_applied)
    }

    /// Gives the office back, so that another host takes it at its next look.
    pub(super) async fn resign(&mut self) {
        if SeededBug::NeverResigns.is_on() {
            return;
        }
        self.read_newer_record().await;
        if !self.is_mine() {
            return;
        }
        let next = self.leadership.next(None, self.service().cloned());
        let seen = self.leadership.seen();
        if let Err(error) = self.run.ports.coordinator.write_leader(seen, &next).await {
            tracing::debug!(%error, "the leader's record could not be released, others will see \
                it as silent");
        }
    }

    /// The stop may have cut short the very write that made this host the leader.
    async fn read_newer_record(&mut self) {
        if let Ok(FleetRows {
            leader: Some(row), ..
        }) = self.run.ports.coordinator.board().await
            && self
                .leadership
                .seen()
                .is_none_or(|seen| seen.version < row.version)
        {
            self.observe(Some(&row));
        }
    }
}
