//! The host's heartbeat: one small write that holds all its leases at once, where the KCL renews
//! each row.
//!
//! Sound for the same reason as a renewal: the holder counts from *sending*, an observer from
//! *seeing*, each on its own clock, so the holder stops first. Which leases it holds, [`Heartbeat`]
//! decides.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use shardmill_core::fleet::WorkerRow;
use shardmill_core::lease::{Generation, Heartbeat, Hold};
use shardmill_core::plugin::PluginName;
use shardmill_core::ports::{Clock, Coordinator, Raced};
use shardmill_core::seeded_bug::SeededBug;
use shardmill_core::time::Moment;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::metrics;
use crate::options::LeaseOptions;
use crate::rollout::SharedRollout;
use crate::status::StatusBoard;

/// First wait after a failed heartbeat; doubles up to a third of the interval, so that several
/// tries fit a deadline.
const RETRY_BASE: Duration = Duration::from_millis(100);

/// What one holding may know of the host's heart. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct HeartWatch {
    heartbeat: watch::Receiver<Heartbeat>,
}

/// Sends heartbeats.
pub(crate) struct Heart {
    ports: HeartPorts,
    options: LeaseOptions,
    /// Whether each row is renewed, since a KCL shares the table and knows no heartbeats: then this
    /// one holds nothing.
    renews_rows: Arc<AtomicBool>,
    row: WorkerRow,
    heartbeat: watch::Sender<Heartbeat>,
    to_tell: Announcement,
}

/// What a heart needs of the world.
pub(crate) struct HeartPorts {
    pub(crate) coordinator: Arc<dyn Coordinator>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) rollout: SharedRollout,
    pub(crate) status: StatusBoard,
    pub(crate) plugin: PluginName,
}

/// What others are told with each heartbeat.
pub(crate) struct Announcement {
    pub(crate) is_draining: watch::Receiver<bool>,
    /// Why a lease's row cannot be written, if one cannot.
    pub(crate) cannot_write: watch::Receiver<Option<String>>,
    /// Why passes fail, if they do.
    pub(crate) cannot_look: watch::Receiver<Option<String>>,
}

/// Another process registered under this worker's id.
#[derive(Debug)]
pub(crate) struct Replaced;

impl HeartWatch {
    /// Until when a lease is held: the later of its own deadline and the heart's.
    pub(crate) fn deadline(&self, hold: Hold) -> Moment {
        self.heartbeat.borrow().deadline(hold)
    }

    /// Whether the last heartbeat holds.
    pub(crate) fn is_alive(&self, now: Moment) -> bool {
        self.heartbeat.borrow().is_alive(now)
    }

    /// What a write to a row belongs to that is sent now.
    pub(crate) fn generation(&self) -> Generation {
        self.heartbeat.borrow().generation()
    }

    /// Returns after the next heartbeat.
    pub(crate) async fn changed(&mut self) {
        if self.heartbeat.changed().await.is_err() {
            // No more heartbeats; what was held is held until its deadline.
            std::future::pending::<()>().await;
        }
    }
}

impl Heart {
    /// A heart for a worker whose registration `row` was sent at `sent_at` and applied.
    pub(crate) fn new(
        ports: HeartPorts,
        options: LeaseOptions,
        renews_rows: Arc<AtomicBool>,
        row: WorkerRow,
        sent_at: Moment,
        to_tell: Announcement,
    ) -> (Self, HeartWatch) {
        let is_holding = !renews_rows.load(Ordering::Relaxed);
        let until = if is_holding {
            sent_at + options.hold_for()
        } else {
            Moment::default()
        };
        let (heartbeat, receiver) = watch::channel(Heartbeat::new(until));
        let heart = Self {
            ports,
            options,
            renews_rows,
            row,
            heartbeat,
            to_tell,
        };
        heart.show();
        (
            heart,
            HeartWatch {
                heartbeat: receiver,
            },
        )
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
                Ok(()) = self.to_tell.is_draining.changed() => {}
            }
            self.row.is_draining = *self.to_tell.is_draining.borrow_and_update();
            self.row
                .cannot_write
                .clone_from(&self.to_tell.cannot_write.borrow());
            self.row
                .cannot_look
                .clone_from(&self.to_tell.cannot_look.borrow());
            self.row.versions = self.ports.rollout.tell(|rollout| rollout.rows());
            self.row.beat += 1;
            let sent_at = self.ports.clock.now();
            match self.ports.coordinator.heartbeat(&self.row).await {
                Ok(Raced::Applied) => {
                    self.beaten(sent_at);
                    failures = 0;
                    wait = (sent_at + self.options.renew_every).since(self.ports.clock.now());
                }
                // Not ours any more; or an earlier try of ours was applied late and its beat is
                // higher, which the next try settles.
                Ok(Raced::Lost) => {
                    if self.is_replaced().await {
                        return Replaced;
                    }
                    wait = RETRY_BASE;
                }
                Err(error) => {
                    failures += 1;
                    if failures.is_power_of_two() {
                        tracing::warn!(worker = %self.row.worker, %error, failures, "heartbeat failed, trying again");
                    }
                    self.ports
                        .status
                        .update(|status| status.heartbeat_error = Some(error.to_string()));
                    wait = self.retry_wait(failures);
                }
            }
        }
    }

    /// A heartbeat was written, or the registration, which is as good.
    fn show(&self) {
        let wall_seconds = Duration::from_millis(self.ports.clock.wall_ms()).as_secs_f64();
        ::metrics::gauge!(metrics::HEARTBEAT, "plugin" => self.ports.plugin.to_string())
            .set(wall_seconds);
        self.ports.status.update(|status| {
            (status.heartbeat_at, status.heartbeat_error) = (Some(Instant::now()), None);
        });
    }

    /// Publishes that a heartbeat sent at `sent_at` was applied.
    fn beaten(&self, sent_at: Moment) {
        self.show();
        let now = self.ports.clock.now();
        let from = if SeededBug::DeadlineFromReply.is_on() {
            now
        } else {
            sent_at
        };
        if !self.renews_rows.load(Ordering::Relaxed) {
            self.heartbeat
                .send_modify(|heartbeat| heartbeat.beaten(from + self.options.hold_for(), now));
        }
    }

    /// Whether the row shows another run of this worker, or none.
    async fn is_replaced(&mut self) -> bool {
        match self.ports.coordinator.worker(&self.row.worker).await {
            Ok(Some(row)) if row.incarnation == self.row.incarnation => {
                self.row.beat = self.row.beat.max(row.beat);
                false
            }
            Ok(Some(_)) => true,
            Ok(None) => {
                self.register_anew().await;
                false
            }
            Err(_) => false,
        }
    }

    /// The row was removed, as dead or by hand: this host lives, so it registers again, with the
    /// leases it finds.
    async fn register_anew(&self) {
        let until = self.ports.clock.now() + self.options.hold_for();
        let registered = self.ports.coordinator.register(None, &self.row).await;
        if registered == Ok(Raced::Applied) && !self.renews_rows.load(Ordering::Relaxed) {
            self.heartbeat
                .send_modify(|heartbeat| heartbeat.registered_anew(until));
        }
    }

    fn retry_wait(&self, failures: u32) -> Duration {
        let wait = RETRY_BASE
            .saturating_mul(1 << failures.min(10))
            .min(self.options.renew_every / 3);
        wait.mul_f64(0.5 + fastrand::f64() / 2.0)
    }
}
