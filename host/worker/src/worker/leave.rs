//! On the way out: say so, drain, release, hand the office over, sign off.

use std::time::Duration;

use shardmill_core::ports::Progress;
use shardmill_core::stream::FanOutConsumer;

use super::Worker;
use crate::holding::HoldingEnd;
use crate::pipeline::PipelineEnd;

impl Worker {
    /// Drains every pipeline for at most `limit`, then signs off.
    ///
    /// Others are told first, so that they count this host out before its leases are free.
    pub(super) async fn leave(mut self, limit: Duration) {
        /// Signing off is a courtesy: without it, others find this host silent after a lease
        /// duration.
        const SIGN_OFF_MAX: Duration = Duration::from_secs(2);
        /// Leases that this host lost or could not release, and whose rows may name it; most hosts
        /// have none.
        const RELEASE_MAX: Duration = Duration::from_secs(2);
        /// One look and one request; a consumer that stays behind costs money and nothing else.
        const DEREGISTER_MAX: Duration = Duration::from_secs(5);
        if self.heart.is_none() {
            // It was about to register: what may have arrived would count in everybody's shares for
            // a lease duration.
            if self.is_registering {
                let _ = tokio::time::timeout(SIGN_OFF_MAX, self.sign_off(true)).await;
            }
            return;
        }
        self.is_draining.send_replace(true);
        for held in self.held.values() {
            held.drain.cancel();
        }
        // A successor shares out what this host releases, from the first lease on.
        let _ = tokio::time::timeout(SIGN_OFF_MAX, self.resign()).await;
        let has_drained = tokio::time::timeout(limit, self.drained()).await.is_ok();
        if !has_drained {
            let left = self.holdings.len();
            tracing::warn!(
                left,
                ?limit,
                "not all shards drained in time; their leases will expire and records repeat"
            );
        }
        // Signing off says that nothing is held any more, so nothing may run any more.
        self.holdings.shutdown().await;
        let has_released = tokio::time::timeout(RELEASE_MAX, self.release_strays())
            .await
            .unwrap_or(false);
        let _ =
            tokio::time::timeout(SIGN_OFF_MAX, self.sign_off(has_drained && has_released)).await;
        let _ = tokio::time::timeout(DEREGISTER_MAX, self.deregister_consumer()).await;
    }

    async fn drained(&mut self) {
        while let Some(ended) = self.holdings.join_next().await {
            let mut ended = Some(ended);
            // Those that ended at the same time are announced together.
            while let Some(one) = ended {
                if let Ok(HoldingEnd { key, end }) = one {
                    tracing::info!(lease = %key, ?end, "drained");
                    if let PipelineEnd::Unreleased(reason) = &end {
                        self.writes.note_unreleased(key.clone(), reason.clone());
                    }
                    if !matches!(end, PipelineEnd::Released | PipelineEnd::Ended) {
                        self.heeding.follow_lost(key, self.ports.clock.now());
                    }
                }
                ended = self.holdings.try_join_next();
            }
            self.has_news = true;
            self.announce_news().await;
        }
    }

    /// Gives back what names this host and is not served. Returns whether no row may name it any
    /// more.
    async fn release_strays(&mut self) -> bool {
        let strays = self.heeding.strays();
        let keys = strays
            .keys()
            .chain(self.writes.unreleased())
            .cloned()
            .collect();
        let Ok(rows) = self.read_rows(keys).await else {
            return false;
        };
        let me = &self.options.worker;
        for row in rows
            .into_iter()
            .filter_map(|(_, row)| row)
            .filter(|row| row.owner.as_ref() == Some(me))
        {
            let progress = Progress {
                stuck: self.writes.stuck_of(&row),
                ..Progress::default()
            };
            if self
                .ports
                .store
                .release(&row.token(me.clone()), &progress)
                .await
                .is_err()
            {
                return false;
            }
            tracing::info!(lease = %row.key, "released a lease whose row named this worker");
            self.has_news = true;
        }
        let now = self.ports.clock.now();
        strays
            .values()
            .all(|may_arrive_until| *may_arrive_until <= now)
    }

    /// The row of a host that leaves leases behind stays: its next run, under the same id, looks
    /// for them by it. Its heart would hold them with nobody reading them.
    async fn sign_off(&mut self, is_clean: bool) {
        self.resign().await;
        self.heart_task.abort_all();
        self.keeper_task.abort_all();
        if self.heeding.has_mail() {
            let _ = self
                .ports
                .coordinator
                .leave_mail(&self.options.worker, None)
                .await;
        }
        if is_clean
            && let Ok(Some(row)) = self.ports.coordinator.worker(&self.options.worker).await
            && row.incarnation == self.run
            && let Err(error) = self.ports.coordinator.remove_worker(&row).await
        {
            tracing::debug!(%error, "could not remove this host's registration, others will see \
                it as silent");
        }
        self.has_news = true;
        self.announce_news().await;
    }

    /// The last one out puts out the light, if it is told to. A host that starts at this moment
    /// registers the consumer again, as it does whenever it finds none.
    async fn deregister_consumer(&self) {
        let (Some(fan_out), Some(subscriptions)) =
            (self.options.retrieval.fan_out(), &self.ports.subscriptions)
        else {
            return;
        };
        let FanOutConsumer::Named(name) = &fan_out.consumer else {
            return;
        };
        if !fan_out.deregister_on_exit {
            return;
        }
        // Others may be dead and still listed, and this one may be listed still: the doubt keeps
        // the consumer.
        let fleet = self.ports.coordinator.fleet().await;
        if !fleet.is_ok_and(|fleet| {
            fleet
                .workers
                .iter()
                .all(|row| row.worker == self.options.worker)
        }) {
            return;
        }
        match subscriptions.remove_consumer(name).await {
            Ok(()) => {
                tracing::info!(consumer = %name, "last host of the application, fan-out consumer \
                    deregistered");
            }
            Err(error) => {
                tracing::warn!(consumer = %name, %error, "the fan-out consumer was left behind, \
                    and is billed");
            }
        }
    }
}
