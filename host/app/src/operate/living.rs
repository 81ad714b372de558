//! Who may be alive, for commands that need an application without hosts.

use std::collections::BTreeMap;

use anyhow::bail;
use shardmill_config::Config;
use shardmill_core::doctor::living;
use shardmill_core::fleet::FleetRows;
use shardmill_core::lease::{LeaseObserver, Pulse, WorkerId};
use shardmill_core::ports::Clock;
use shardmill_serve::BootClock;
use shardmill_worker::LeaseOptions;

use super::reading::{Look, Tables, WATCH_MAX, watch_past};
use crate::cli::{ConnectionArgs, WatchArgs};

/// Looks twice, for long enough to know who is dead, and says who may be alive.
pub(super) async fn watch(
    tables: &Tables,
    connection: &ConnectionArgs,
    watch: WatchArgs,
) -> anyhow::Result<(Look, BTreeMap<WorkerId, Pulse>)> {
    let config = connection.config.as_deref().map(Config::load).transpose()?;
    let configured = config.map_or_else(LeaseOptions::default, |config| config.leases);
    let mut observer = LeaseObserver::default();
    let mut look = tables.look().await?;
    observe(&mut observer, &look);
    let of_hosts = look.fleet.workers.iter().map(|row| row.lease_duration);
    let lease_duration = of_hosts.max().unwrap_or_default().max(configured.duration);
    let by_default = watch_past(lease_duration).min(WATCH_MAX);
    let watch_for = watch.watch_for.unwrap_or(by_default);
    if has_somebody(&look) && !watch_for.is_zero() {
        tracing::info!(watch_for = ?watch_for, "watching who is alive");
        tokio::time::sleep(watch_for).await;
        look = tables.look().await?;
        observe(&mut observer, &look);
    }
    let living = living(
        &observer,
        &look.listing.leases,
        BootClock.now(),
        lease_duration,
    );
    Ok((look, living))
}

fn observe(observer: &mut LeaseObserver, look: &Look) {
    let now = BootClock.now();
    observer.observe_workers(&look.fleet.workers, now);
    observer.observe(&look.listing.leases, now);
}

fn has_somebody(look: &Look) -> bool {
    let mut leases = look.listing.leases.iter();
    !look.fleet.workers.is_empty() || leases.any(|lease| lease.owner.is_some())
}

/// A host that has come, or has written, since it was looked for.
pub(super) fn refuse_newcomers(seen: &FleetRows, now: &FleetRows) -> anyhow::Result<()> {
    for row in &now.workers {
        if !seen.workers.contains(row) {
            bail!(
                "host {} has started meanwhile: nothing was changed",
                row.worker
            );
        }
    }
    Ok(())
}
