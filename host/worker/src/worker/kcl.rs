//! Whether a KCL shares the lease table, so that each row must be renewed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use shardmill_core::lease::WorkerId;
use shardmill_core::plan::KclWatch;

use super::office::Office;
use super::run::Run;

/// What this host knows of a KCL beside it. A KCL judges other workers by their rows: they are
/// renewed while it is there.
pub(super) struct KclSharing {
    run: Arc<Run>,
    watch: KclWatch,
    /// Shared with the heart and all keepers.
    renews_rows: Arc<AtomicBool>,
}

impl KclSharing {
    pub(super) fn new(run: Arc<Run>) -> Self {
        let is_configured = run.options.leases.shared_with_kcl;
        Self {
            run,
            watch: KclWatch::new(is_configured),
            renews_rows: Arc::new(AtomicBool::new(is_configured)),
        }
    }

    pub(super) fn renews_rows(&self) -> bool {
        self.renews_rows.load(Ordering::Relaxed)
    }

    /// The switch that the heart and the keepers go by.
    pub(super) fn switch(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.renews_rows)
    }

    /// Does what the leader says, on a host that does not look at the rows itself.
    pub(super) fn follow_leader(&self, is_beside_kcl: bool) {
        let is_shared = is_beside_kcl || self.run.options.leases.shared_with_kcl;
        self.renews_rows.store(is_shared, Ordering::Relaxed);
    }

    /// Judges by a look at the rows: `foreign` is an owner among them that is not registered.
    ///
    /// The leader looks far more often than a host that heeds, and trusts its own eyes.
    pub(super) fn judge(&mut self, foreign: Option<&WorkerId>, office: &Office) {
        let now = self.run.now();
        if foreign.is_some() {
            self.watch.saw_foreign(now);
        }
        let leader_says_so = !office.is_mine()
            && office
                .service()
                .is_some_and(|service| service.is_beside_kcl);
        let is_shared = leader_says_so || self.watch.is_shared(now, self.run.lease_duration());
        let was_shared = self.renews_rows.swap(is_shared, Ordering::Relaxed);
        if is_shared && !was_shared {
            tracing::warn!(
                owner = foreign.map(WorkerId::as_str),
                code = "kcl-shares",
                "a worker that is not shardmill's shares the lease table: renewing each lease \
                    from now on; set leases.shared-with-kcl to do so from the start"
            );
        } else if was_shared && !is_shared {
            tracing::info!(
                "for a long time only workers of shardmill have moved leases: the heartbeat \
                    holds this host's leases again"
            );
        }
    }
}
