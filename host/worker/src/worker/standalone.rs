//! A host that reads all shards by itself: its entry in the list of such hosts, and the removal of
//! what hosts left that are gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use shardmill_core::fleet::{Beginning, Incarnation, StandaloneHost, StandalonePolicy, WorkerRow};
use shardmill_core::lease::WorkerId;
use shardmill_core::ports::{Clock, Extent, Raced, StandaloneHosts, StoreError};

/// Another host may remove this one's rows while it starts, and then its entry: that needs one try
/// more, or two.
const TRIES_MAX: usize = 5;
/// Hosts that one round removes: it deletes row by row, and the next round is soon.
const REMOVED_MAX: usize = 16;
/// A heartbeat is written several times within a lease's duration, so a host that wrote none for
/// two of them has stopped.
const QUIET_LEASES: u32 = 2;
/// For how long a host is watched that is not registered as a worker: it may be about to.
const UNREGISTERED_WATCH: Duration = Duration::from_secs(20);

/// How this host reads by itself, and the list of the others that do.
#[derive(Clone)]
pub struct Standalone {
    hosts: Arc<dyn StandaloneHosts>,
    policy: StandalonePolicy,
    /// Whether this process served the plugin before: then it goes on, whatever a restart does.
    has_begun: Arc<AtomicBool>,
}

impl Standalone {
    /// `has_begun` is shared by all workers that serve the same application in this process.
    pub fn new(
        hosts: Arc<dyn StandaloneHosts>,
        policy: StandalonePolicy,
        has_begun: Arc<AtomicBool>,
    ) -> Self {
        Self {
            hosts,
            policy,
            has_begun,
        }
    }

    /// Signs the list; removes what an earlier run left if this one is to start over. To be called
    /// before anything is read that is this host's.
    ///
    /// # Errors
    /// The table does not answer, or another process writes the same entry all the time.
    pub async fn begin(&self, me: &WorkerId, clock: &dyn Clock) -> Result<(), StoreError> {
        let mut has_cleared = false;
        for _ in 0..TRIES_MAX {
            let entry = self.hosts.entry(me).await?;
            let is_first = !has_cleared && !self.has_begun.load(Ordering::Relaxed);
            let wall_ms = clock.wall_ms();
            match self.policy.begin(me, entry.as_ref(), is_first, wall_ms) {
                Beginning::Sign(next) => {
                    if self.hosts.write(entry.as_ref(), &next).await? == Raced::Applied {
                        self.has_begun.store(true, Ordering::Relaxed);
                        return Ok(());
                    }
                }
                Beginning::StartOver(mark) => {
                    tracing::info!(host = %me, "removing what an earlier run left, to start over");
                    let extent = Extent::Places;
                    let removed = self.remove(entry.as_ref(), &mark, extent).await?;
                    has_cleared = removed == Raced::Applied;
                }
            }
        }
        Err(StoreError::Unknown {
            message: format!(
                "the entry of standalone host {me} changes all the time: does another process \
                    run under this worker-id?"
            ),
        })
    }

    /// Removes what a host has, and then its entry. Of two that do so, the later one goes on.
    async fn remove(
        &self,
        entry: Option<&StandaloneHost>,
        mark: &StandaloneHost,
        extent: Extent,
    ) -> Result<Raced, StoreError> {
        if self.hosts.write(entry, mark).await? == Raced::Lost
            || self.hosts.clear(mark, extent).await? == Raced::Lost
        {
            return Ok(Raced::Lost);
        }
        self.hosts.remove(mark).await
    }

    /// Signs, and removes what others left, until it is dropped.
    pub async fn keep(self, me: WorkerId, clock: Arc<dyn Clock>) {
        loop {
            // Hosts that were started together need not look together.
            let wait = self
                .policy
                .sign_every()
                .mul_f64(0.75 + fastrand::f64() / 4.0);
            tokio::time::sleep(wait).await;
            if let Err(error) = self.round(&me, clock.as_ref()).await {
                tracing::info!(%error, "could not sign the list of standalone hosts, or remove \
                    what others left; the next round tries again");
            }
        }
    }

    async fn round(&self, me: &WorkerId, clock: &dyn Clock) -> Result<(), StoreError> {
        self.sign(me, clock).await?;
        let entries = self.hosts.list().await?;
        let overdue = self.policy.overdue(me, &entries, clock.wall_ms());
        for entry in overdue.into_iter().take(REMOVED_MAX) {
            if let Err(error) = self.forget(entry, clock).await {
                tracing::info!(%error, host = %entry.id, "could not remove what a standalone host \
                    left; the next round tries again");
            }
        }
        Ok(())
    }

    /// Also a host that was taken for gone, such as one that was suspended, is in the list again
    /// once its rows were removed.
    async fn sign(&self, me: &WorkerId, clock: &dyn Clock) -> Result<(), StoreError> {
        let entry = self.hosts.entry(me).await?;
        if entry.as_ref().is_some_and(|entry| entry.is_going) {
            return Ok(());
        }
        let next = self.policy.sign(me, entry.as_ref(), clock.wall_ms());
        self.hosts.write(entry.as_ref(), &next).await.map(drop)
    }

    /// Whether a host writes no heartbeat. By this host's own watch: what clocks say may be wrong.
    async fn is_quiet(&self, id: &WorkerId) -> Result<bool, StoreError> {
        let before = self.hosts.worker(id).await?;
        let watch = before.as_ref().map_or(UNREGISTERED_WATCH, |row| {
            row.lease_duration.saturating_mul(QUIET_LEASES)
        });
        tokio::time::sleep(watch).await;
        let after = self.hosts.worker(id).await?;
        Ok(before.as_ref().map(beat_of) == after.as_ref().map(beat_of))
    }

    async fn forget(&self, entry: &StandaloneHost, clock: &dyn Clock) -> Result<(), StoreError> {
        if !self.is_quiet(&entry.id).await? {
            return Ok(());
        }
        let mark = entry.going(clock.wall_ms());
        if self.remove(Some(entry), &mark, Extent::All).await? == Raced::Applied {
            tracing::info!(host = %entry.id, last_seen_ms = entry.seen_ms,
                "removed what a standalone host left that is gone");
        }
        Ok(())
    }
}

/// What changes with each heartbeat, and with each run of a host.
fn beat_of(row: &WorkerRow) -> (&Incarnation, u64) {
    (&row.incarnation, row.beat)
}
