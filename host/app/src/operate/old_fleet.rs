//! Watching the fleet of another library: look after look at its tables, until enough was seen.

use std::time::Duration;

use anyhow::anyhow;
use shardmill_aws::LibraryTables;
use shardmill_core::migration::{FleetWatch, Found, WorkerLife, choose};
use shardmill_core::ports::Clock;
use shardmill_core::stream::StreamName;
use shardmill_serve::BootClock;

use super::reading::watch_past;

/// Time between two looks while waiting for a fleet to stop. One look is a scan of a table with one
/// row for each shard.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// A fleet without owners must stay so for this long: kcl-rb gives a lease up and takes it again
/// each second, and a fleet that restarts has none for a moment.
pub(super) const QUIET_FOR: Duration = Duration::from_secs(4);

/// One position in a library's tables, and the workers that use it.
pub(super) struct OldFleet<'a> {
    tables: &'a LibraryTables,
    stream: &'a StreamName,
    group: Option<&'a str>,
    failover_time: Duration,
    watch: FleetWatch,
    /// As it was at the last look.
    pub(super) found: Found,
}

impl<'a> OldFleet<'a> {
    /// Looks for the first time. `failover_time` is the library's own unless it was configured.
    pub(super) async fn look(
        tables: &'a LibraryTables,
        stream: &'a StreamName,
        group: Option<&'a str>,
        failover_time: Option<Duration>,
    ) -> anyhow::Result<Self> {
        let mut fleet = Self {
            tables,
            stream,
            group,
            failover_time: failover_time.unwrap_or_else(|| tables.library().failover_time()),
            watch: FleetWatch::default(),
            found: read(tables, stream, group).await?,
        };
        fleet.watch.observe(&fleet.found, BootClock.now());
        Ok(fleet)
    }

    async fn look_again(&mut self) -> anyhow::Result<()> {
        tokio::time::sleep(LOOK_EVERY).await;
        self.found = read(self.tables, self.stream, self.group).await?;
        self.watch.observe(&self.found, BootClock.now());
        Ok(())
    }

    /// Which of its workers are alive, as far as it was watched.
    pub(super) fn lives(&self) -> Vec<WorkerLife> {
        self.watch.lives(BootClock.now(), self.failover_time)
    }

    /// Workers that may live.
    pub(super) fn alive(&self) -> Vec<WorkerLife> {
        let mut lives = self.lives();
        lives.retain(|worker| worker.pulse.may_live());
        lives
    }

    /// Watches until every worker counts as dead, or one is seen alive. This ends, because an owner
    /// that writes nothing counts as dead after its failover time.
    pub(super) async fn judge(&mut self) -> anyhow::Result<()> {
        let longest = watch_past(self.failover_time) + QUIET_FOR;
        while self.watch.watched_for(BootClock.now()) < longest {
            let alive = self.alive();
            let is_seen = alive.iter().any(|worker| worker.pulse.code() == "live");
            if is_seen || alive.is_empty() && self.is_quiet() {
                break;
            }
            self.look_again().await?;
        }
        Ok(())
    }

    /// Waits until no worker of it is alive, however long that takes, and reports meanwhile which
    /// are.
    pub(super) async fn until_stopped(&mut self) -> anyhow::Result<()> {
        const REPORT_EVERY: Duration = Duration::from_secs(30);
        let mut reported_at = None;
        while !(self.alive().is_empty() && self.is_quiet()) {
            let now = BootClock.now();
            if reported_at.is_none_or(|at| now.since(at) >= REPORT_EVERY) {
                reported_at = Some(now);
                let alive = self.alive();
                let names: Vec<&str> = alive.iter().map(|life| life.worker.as_str()).collect();
                tracing::info!(
                    workers = names.join(", "),
                    "the old fleet has not stopped: waiting"
                );
            }
            self.look_again().await?;
        }
        Ok(())
    }

    fn is_quiet(&self) -> bool {
        self.watch.quiet_for(BootClock.now()) >= QUIET_FOR
    }
}

async fn read(
    tables: &LibraryTables,
    stream: &StreamName,
    group: Option<&str>,
) -> anyhow::Result<Found> {
    let places = tables.places().await?;
    let chosen = choose(&places, stream, group);
    let name = tables.checkpoints_table();
    chosen
        .cloned()
        .map_err(|why| anyhow!("table {name} of {}: {why}", tables.library()))
}
