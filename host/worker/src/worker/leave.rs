//! On the way out: report it, drain, release, hand the office over, sign off.

use std::time::Duration;

use shardmill_core::lease::Lease;
use shardmill_core::ports::{Progress, StoreError};
use tokio::time::timeout;

use super::Worker;
use super::rows::read_rows;
use crate::holding::HoldingEnd;
use crate::pipeline::PipelineEnd;

/// Signing off is a courtesy: without it, others find this host silent after a lease duration.
const SIGN_OFF_MAX: Duration = Duration::from_secs(2);
/// Leases that this host lost or could not release, and whose rows may name it; most hosts have
/// none.
const RELEASE_MAX: Duration = Duration::from_secs(2);
/// What the host did last, for the history: nothing depends on it.
const HISTORY_MAX: Duration = Duration::from_secs(1);
/// One look and one request; a consumer that stays behind costs money and nothing else.
const DEREGISTER_MAX: Duration = Duration::from_secs(5);

impl Worker {
    /// Drains every pipeline for at most `limit`, then signs off.
    ///
    /// Others learn of it first, so that they do not count this host any more when its leases
    /// become free.
    pub(super) async fn leave(mut self, limit: Duration) {
        if self.registration.heart().is_none() {
            // It was about to register: a row that may have arrived would count in the shares of
            // all hosts for a lease duration.
            if self.registration.may_have_row() {
                let _ = timeout(SIGN_OFF_MAX, self.sign_off(true)).await;
            }
            return;
        }
        self.reports.set_draining(true);
        self.holdings.drain();
        // A successor shares out what this host releases, from the first lease on.
        let _ = timeout(SIGN_OFF_MAX, self.office.resign()).await;
        let has_drained = self.drained_within(limit).await;
        // Signing off says that nothing is held any more, so nothing may run any more.
        self.holdings.abort().await;
        let released = timeout(RELEASE_MAX, self.release_strays()).await;
        let is_clean = has_drained && matches!(released, Ok(Ok(true)));
        let _ = timeout(SIGN_OFF_MAX, self.sign_off(is_clean)).await;
        let _ = timeout(HISTORY_MAX, self.run.chronicle.flush()).await;
        let _ = timeout(DEREGISTER_MAX, self.subscribing.deregister()).await;
    }

    /// Whether all pipelines have ended by then.
    async fn drained_within(&mut self, limit: Duration) -> bool {
        let has_drained = timeout(limit, self.drained()).await.is_ok();
        if !has_drained {
            let left = self.holdings.running();
            tracing::warn!(
                left,
                ?limit,
                code = "shards-not-drained",
                "not all shards drained in time; their leases will expire and records repeat"
            );
            self.writes.note_cut_off(&self.holdings);
        }
        has_drained
    }

    async fn drained(&mut self) {
        while let Some(ended) = self.holdings.next_ended().await {
            let mut ended = Some(ended);
            // Those that ended at the same time are announced together.
            while let Some(one) = ended {
                if let Ok(end) = one {
                    self.holding_drained(end);
                }
                ended = self.holdings.try_next_ended();
            }
            self.reports.set_news(true);
            self.reports.announce_news().await;
        }
    }

    fn holding_drained(&mut self, HoldingEnd { key, end }: HoldingEnd) {
        tracing::info!(lease = %key, ?end, "drained");
        if let PipelineEnd::Unreleased(reason) = &end {
            self.writes.note_unreleased(key.clone(), reason.clone());
        }
        if !matches!(end, PipelineEnd::Released | PipelineEnd::Ended) {
            self.heeding.errands_mut().follow_lost(key);
        }
    }

    /// Gives back what names this host and is not served. Returns whether no row can name it any
    /// more.
    async fn release_strays(&mut self) -> Result<bool, StoreError> {
        let strays = self.heeding.errands().strays();
        let mut keys: Vec<_> = strays.keys().cloned().collect();
        keys.extend(self.writes.unreleased().cloned());
        for read in read_rows(&self.run, keys).await? {
            if let Some(row) = read.row
                && row.owner.as_ref() == Some(self.run.me())
            {
                self.release_stray(&row).await?;
            }
        }
        let now = self.run.now();
        let mut may_arrive_until = strays.into_values();
        Ok(may_arrive_until.all(|until| until <= now))
    }

    async fn release_stray(&mut self, row: &Lease) -> Result<(), StoreError> {
        let progress = Progress {
            stuck: self.writes.stuck_of(row),
            ..Progress::default()
        };
        let token = row.token(self.run.me().clone());
        self.run.ports.store.release(&token, &progress).await?;
        tracing::info!(lease = %row.key, "released a lease whose row named this worker");
        self.reports.set_news(true);
        Ok(())
    }

    /// The row of a host that leaves leases behind stays, since its heart would hold them with
    /// nothing reading them: its next run, under the same id, looks for them by that row.
    async fn sign_off(&mut self, is_clean: bool) {
        self.office.resign().await;
        self.registration.stop_heart();
        self.subscribing.stop();
        if self.heeding.has_mail() {
            let coordinator = &self.run.ports.coordinator;
            let _ = coordinator.leave_mail(self.run.me(), None).await;
        }
        if is_clean {
            self.registration.remove_row().await;
        }
        self.reports.set_news(true);
        self.reports.announce_news().await;
    }
}
