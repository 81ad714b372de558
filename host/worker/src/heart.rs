//! The host's heartbeat: one small write that holds all its leases at once, where the KCL renews each row.
//!
//! Sound for the same reason as a renewal: the holder counts from *sending*, an observer from *seeing*, each on its own
//! clock, so the holder stops first. But a heartbeat moves no lease's counter, so nothing tells a revived host that its
//! leases were taken meanwhile: once a deadline was missed, a later heartbeat holds only leases that are taken after it.

use std::sync::Arc;
use std::time::Duration;

use shardmill_core::fleet::WorkerRow;
use shardmill_core::ports::{Clock, Coordinator, Raced};
use shardmill_core::seeded_bug::SeededBug;
use shardmill_core::time::Moment;
use tokio::sync::watch;

use crate::options::LeaseOptions;
use crate::rollout::SharedRollout;

/// First wait after a failed heartbeat; doubles up to a third of the interval, so that several tries fit a deadline.
const RETRY_BASE: Duration = Duration::from_millis(100);

/// How long this host's heart holds its leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Beating {
    /// Raised whenever a deadline was missed.
    generation: u64,
    until: Moment,
}

/// What one grant may assume of the host's heart.
#[derive(Debug, Clone)]
pub(crate) struct HeartWatch {
    beating: watch::Receiver<Beating>,
    generation: u64,
}

/// Sends heartbeats.
pub(crate) struct Heart {
    coordinator: Arc<dyn Coordinator>,
    clock: Arc<dyn Clock>,
    rollout: SharedRollout,
    options: LeaseOptions,
    row: WorkerRow,
    beating: watch::Sender<Beating>,
    is_draining: watch::Receiver<bool>,
}

/// Another process registered under this worker's id.
#[derive(Debug)]
pub(crate) struct Replaced;

impl HeartWatch {
    /// The later of a lease's own deadline and the heart's.
    pub(crate) fn extend(&self, own: Moment) -> Moment {
        let beating = *self.beating.borrow();
        if beating.generation == self.generation { own.max(beating.until) } else { own }
    }

    /// The same for a grant that begins now.
    pub(crate) fn renewed(&self) -> Self {
        let generation = self.beating.borrow().generation;
        Self { beating: self.beating.clone(), generation }
    }

    /// Returns after the next heartbeat.
    pub(crate) async fn changed(&mut self) {
        if self.beating.changed().await.is_err() {
            // No more heartbeats; what was held is held until its deadline.
            std::future::pending::<()>().await;
        }
    }
}

impl Heart {
    /// A heart for a worker whose registration `row` was sent at `sent_at` and applied.
    pub(crate) fn new(
        (coordinator, clock, rollout): (Arc<dyn Coordinator>, Arc<dyn Clock>, SharedRollout),
        options: LeaseOptions,
        row: WorkerRow,
        sent_at: Moment,
        is_draining: watch::Receiver<bool>,
    ) -> (Self, HeartWatch) {
        let until = if options.shared_with_kcl { Moment::default() } else { sent_at + options.hold_for() };
        let (beating, receiver) = watch::channel(Beating { generation: 0, until });
        let heart = Self { coordinator, clock, rollout, options, row, beating, is_draining };
        (heart, HeartWatch { beating: receiver, generation: 0 })
    }

    /// Beats until another process takes this worker's name.
    pub(crate) async fn run(mut self) -> Replaced {
        let mut failures = 0_u32;
        // Hosts that start together must not beat together: their rows lie in one partition.
        let mut wait = self.options.renew_every.mul_f64(fastrand::f64());
        loop {
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                // Said at once, so that others take over the share of a host on its way out.
                Ok(()) = self.is_draining.changed() => {}
            }
            self.row.is_draining = *self.is_draining.borrow_and_update();
            self.row.versions = self.rollout.tell(|rollout| rollout.rows());
            self.row.beat += 1;
            let sent_at = self.clock.now();
            // A request that outlives the lease is as good as lost.
            let beat = tokio::time::timeout(self.options.duration, self.coordinator.heartbeat(&self.row));
            match beat.await {
                Ok(Ok(Raced::Applied)) => {
                    self.beaten(sent_at);
                    failures = 0;
                    wait = (sent_at + self.options.renew_every).since(self.clock.now());
                }
                // Not ours any more; or an earlier try of ours was applied late and its beat is higher, which the next
                // try settles.
                Ok(Ok(Raced::Lost)) => {
                    if self.is_replaced().await {
                        return Replaced;
                    }
                    wait = RETRY_BASE;
                }
                Ok(Err(error)) => {
                    failures += 1;
                    tracing::warn!(worker = %self.row.worker, %error, failures, "heartbeat failed, trying again");
                    wait = self.retry_wait(failures);
                }
                Err(_) => {
                    failures += 1;
                    wait = self.retry_wait(failures);
                }
            }
        }
    }

    /// Publishes that a heartbeat sent at `sent_at` was applied.
    fn beaten(&self, sent_at: Moment) {
        let (now, options) = (self.clock.now(), &self.options);
        self.beating.send_modify(|beating| {
            if now >= beating.until && !SeededBug::LateHeartbeatRevives.is_on() {
                beating.generation += 1;
            }
            let from = if SeededBug::DeadlineFromReply.is_on() { now } else { sent_at };
            if !options.shared_with_kcl {
                beating.until = beating.until.max(from + options.hold_for());
            }
        });
    }

    /// Whether the row shows another run of this worker, or none.
    async fn is_replaced(&mut self) -> bool {
        match self.coordinator.worker(&self.row.worker).await {
            Ok(Some(row)) if row.incarnation == self.row.incarnation => {
                self.row.beat = self.row.beat.max(row.beat);
                false
            }
            Ok(Some(_)) => true,
            // Removed as dead while this host was out: it lives, so it registers again, with the leases it finds.
            Ok(None) => {
                let sent_at = self.clock.now();
                if self.coordinator.register(None, &self.row).await == Ok(Raced::Applied) {
                    self.beaten(sent_at);
                }
                false
            }
            Err(_) => false,
        }
    }

    fn retry_wait(&self, failures: u32) -> Duration {
        let wait = RETRY_BASE.saturating_mul(1 << failures.min(10)).min(self.options.renew_every / 3);
        wait.mul_f64(0.5 + fastrand::f64() / 2.0)
    }
}
