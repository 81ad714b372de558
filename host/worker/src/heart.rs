//! The host's heartbeat: one small write that holds all its leases at once, where the KCL renews
//! each row.
//!
//! Sound for the same reason as a renewal: the holder counts from *sending*, an observer from
//! *seeing*, each on its own clock, so the holder stops first. Which leases it holds, [`Heartbeat`]
//! decides.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::metrics::SharedString;
use shardmill_core::backoff::is_worth_a_line;
use shardmill_core::fleet::WorkerRow;
use shardmill_core::lease::{Generation, Heartbeat, Hold};
use shardmill_core::plugin::PluginName;
use shardmill_core::ports::{Clock, Coordinator, Raced, StoreError};
use shardmill_core::seeded_bug::SeededBug;
use shardmill_core::time::Moment;
use tokio::sync::watch;

use crate::load::LoadMeter;
use crate::metrics;
use crate::options::LeaseOptions;
use crate::rollout::SharedRollout;
use crate::status::StatusBoard;
use crate::timer::timer_now;

/// First wait after a failed heartbeat; doubles up to a third of the interval, so that several
/// tries fit a deadline.
const RETRY_BASE: Duration = Duration::from_millis(100);

/// What one holding may know of the host's heart. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct HeartWatch {
    heartbeat: watch::Receiver<Heartbeat>,
}

/// The task that writes this host's heartbeat, which holds all its leases.
pub(crate) struct Heart {
    ports: HeartPorts,
    options: LeaseOptions,
    row: WorkerRow,
    heartbeat: watch::Sender<Heartbeat>,
    plugin_label: SharedString,
}

/// What a heart needs of the world and of its worker.
pub(crate) struct HeartPorts {
    pub(crate) coordinator: Arc<dyn Coordinator>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) rollout: SharedRollout,
    pub(crate) status: StatusBoard,
    pub(crate) announcement: Announcement,
    /// Measures the load for the row, if the application is scaled.
    pub(crate) load: Option<LoadMeter>,
    /// Whether each row is renewed, since a KCL shares the table and knows no heartbeats. Then this
    /// heart holds nothing.
    pub(crate) renews_rows: Arc<AtomicBool>,
}

/// What this host's row says to others with each heartbeat.
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
        row: WorkerRow,
        plugin: &PluginName,
        sent_at: Moment,
    ) -> (Self, HeartWatch) {
        let until = if ports.renews_rows.load(Ordering::Relaxed) {
            Moment::default()
        } else {
            sent_at + options.hold_for()
        };
        let (heartbeat, receiver) = watch::channel(Heartbeat::new(until));
        let heart = Self {
            ports,
            options,
            row,
            heartbeat,
            plugin_label: metrics::label(plugin),
        };
        heart.show();
        let watch = HeartWatch {
            heartbeat: receiver,
        };
        (heart, watch)
    }

    /// Beats until another process takes this worker's name.
    pub(crate) async fn run(mut self) -> Replaced {
        let mut failures = 0_u32;
        // Hosts that start together must not beat together: their rows are in one partition.
        let mut wait = self.options.renew_every.mul_f64(fastrand::f64());
        loop {
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                // At once, so that others take over the share of a host on its way out.
                Ok(()) = self.ports.announcement.is_draining.changed() => {}
            }
            self.fill_row();
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
                    self.failed(&error, failures);
                    wait = self.retry_wait(failures);
                }
            }
        }
    }

    /// Brings the row up to date for the next beat.
    fn fill_row(&mut self) {
        let (row, announcement) = (&mut self.row, &mut self.ports.announcement);
        row.is_draining = *announcement.is_draining.borrow_and_update();
        row.cannot_write
            .clone_from(&announcement.cannot_write.borrow());
        row.cannot_look
            .clone_from(&announcement.cannot_look.borrow());
        row.versions = self.ports.rollout.rows();
        row.artifact = self.ports.rollout.artifact();
        let now = self.ports.clock.now();
        row.load = self.ports.load.as_mut().and_then(|load| load.measure(now));
        row.beat += 1;
    }

    fn failed(&self, error: &StoreError, failures: u32) {
        if is_worth_a_line(failures) {
            tracing::warn!(
                worker = %self.row.worker,
                %error,
                failures,
                code = "heartbeat-failed", "heartbeat failed, trying again"
            );
        }
        self.ports
            .status
            .update(|status| status.heartbeat_error = Some(error.to_string()));
    }

    /// Shows that a heartbeat was written, or the registration, which is as good.
    fn show(&self) {
        let wall_seconds = Duration::from_millis(self.ports.clock.wall_ms()).as_secs_f64();
        ::metrics::gauge!(metrics::HEARTBEAT, "plugin" => self.plugin_label.clone())
            .set(wall_seconds);
        self.ports.status.update(|status| {
            (status.heartbeat_at, status.heartbeat_error) = (Some(timer_now()), None);
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
        if !self.ports.renews_rows.load(Ordering::Relaxed) {
            let until = from + self.options.hold_for();
            self.heartbeat
                .send_modify(|heartbeat| heartbeat.beaten(until, now));
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
                self.register_again().await;
                false
            }
            Err(_) => false,
        }
    }

    /// Registers again, since the row was removed, as dead or by hand, and this host lives. It
    /// keeps the leases it finds.
    async fn register_again(&self) {
        self.heartbeat.send_modify(Heartbeat::row_gone);
        let sent_at = self.ports.clock.now();
        if self.ports.coordinator.register(None, &self.row).await == Ok(Raced::Applied) {
            self.beaten(sent_at);
        }
    }

    fn retry_wait(&self, failures: u32) -> Duration {
        let wait = RETRY_BASE
            .saturating_mul(1 << failures.min(10))
            .min(self.options.renew_every / 3);
        wait.mul_f64(0.5 + fastrand::f64() / 2.0)
    }
}
