//! A coordinator with a bug.

use std::sync::Arc;

use shardmill_core::control::{Control, HistoryEntry};
use shardmill_core::fleet::{
    ApplicationStart, FleetRows, LeaderRow, Mail, Mailbox, StreamRow, WorkerRow,
};
use shardmill_core::lease::WorkerId;
use shardmill_core::plugin::PluginDigest;
use shardmill_core::ports::{CachedShards, Coordinator, PortFuture, Raced, StoreError};
use shardmill_core::rollout::Quarantined;

use super::{FirstStart, PortBug};
use crate::world::lock;

/// The decorator.
pub struct WrongCoordinator {
    table: Arc<dyn Coordinator>,
    bug: PortBug,
    host: String,
    plugin: String,
    first_start: FirstStart,
}

impl WrongCoordinator {
    /// `table` with `bug`, as `host` has it for `plugin`; `first_start` is one for all plugins of a
    /// process.
    pub fn new(
        table: Arc<dyn Coordinator>,
        bug: PortBug,
        host: &str,
        plugin: &str,
        first_start: FirstStart,
    ) -> Self {
        Self {
            table,
            bug,
            host: host.to_owned(),
            plugin: plugin.to_owned(),
            first_start,
        }
    }

    fn wrong(&self, mut rows: FleetRows) -> FleetRows {
        if self.bug == PortBug::SeesOnlyItself {
            rows.workers.retain(|row| row.worker.as_str() == self.host);
        }
        if self.bug == PortBug::StartOfAnother
            && let Some(start) = self.start_of_another()
        {
            rows.start = Some(start);
        }
        rows
    }

    fn start_of_another(&self) -> Option<ApplicationStart> {
        let first = lock(&self.first_start);
        let (plugin, start) = first.as_ref()?;
        (*plugin != self.plugin).then_some(*start)
    }
}

fn applied<'a>() -> PortFuture<'a, Result<Raced, StoreError>> {
    Box::pin(std::future::ready(Ok(Raced::Applied)))
}

impl Coordinator for WrongCoordinator {
    fn ensure_table(&self) -> PortFuture<'_, Result<(), StoreError>> {
        self.table.ensure_table()
    }

    fn fleet(&self) -> PortFuture<'_, Result<FleetRows, StoreError>> {
        Box::pin(async move { Ok(self.wrong(self.table.fleet().await?)) })
    }

    fn board(&self) -> PortFuture<'_, Result<FleetRows, StoreError>> {
        self.table.board()
    }

    fn mailbox<'a>(&'a self, id: &'a WorkerId) -> PortFuture<'a, Result<Mailbox, StoreError>> {
        self.table.mailbox(id)
    }

    fn nudge<'a>(
        &'a self,
        id: &'a WorkerId,
        number: u64,
    ) -> PortFuture<'a, Result<(), StoreError>> {
        self.table.nudge(id, number)
    }

    fn write_control<'a>(
        &'a self,
        seen: &'a Control,
        next: &'a Control,
    ) -> PortFuture<'a, Result<Raced, StoreError>> {
        self.table.write_control(seen, next)
    }

    fn record<'a>(&'a self, entry: &'a HistoryEntry) -> PortFuture<'a, Result<(), StoreError>> {
        self.table.record(entry)
    }

    fn leave_mail<'a>(
        &'a self,
        id: &'a WorkerId,
        mail: Option<&'a Mail>,
    ) -> PortFuture<'a, Result<(), StoreError>> {
        self.table.leave_mail(id, mail)
    }

    fn worker<'a>(
        &'a self,
        id: &'a WorkerId,
    ) -> PortFuture<'a, Result<Option<WorkerRow>, StoreError>> {
        // Its own row it must see, or it never starts.
        if self.bug == PortBug::WorkerIsNotFound && id.as_str() != self.host {
            return Box::pin(std::future::ready(Ok(None)));
        }
        self.table.worker(id)
    }

    fn register<'a>(
        &'a self,
        seen: Option<&'a WorkerRow>,
        row: &'a WorkerRow,
    ) -> PortFuture<'a, Result<Raced, StoreError>> {
        self.table.register(seen, row)
    }

    fn heartbeat<'a>(&'a self, row: &'a WorkerRow) -> PortFuture<'a, Result<Raced, StoreError>> {
        match self.bug {
            PortBug::HeartbeatIsNotSent => applied(),
            PortBug::HeartbeatAlwaysHolds => Box::pin(async move {
                self.table.heartbeat(row).await?;
                Ok(Raced::Applied)
            }),
            _ => self.table.heartbeat(row),
        }
    }

    fn remove_worker<'a>(
        &'a self,
        row: &'a WorkerRow,
    ) -> PortFuture<'a, Result<Raced, StoreError>> {
        match self.bug {
            PortBug::SignOffIsNotSent => applied(),
            _ => self.table.remove_worker(row),
        }
    }

    fn write_leader<'a>(
        &'a self,
        seen: Option<&'a LeaderRow>,
        next: &'a LeaderRow,
    ) -> PortFuture<'a, Result<Raced, StoreError>> {
        self.table.write_leader(seen, next)
    }

    fn write_stream<'a>(
        &'a self,
        seen: Option<&'a StreamRow>,
        next: &'a StreamRow,
    ) -> PortFuture<'a, Result<Raced, StoreError>> {
        self.table.write_stream(seen, next)
    }

    fn write_start<'a>(
        &'a self,
        start: &'a ApplicationStart,
    ) -> PortFuture<'a, Result<Raced, StoreError>> {
        match self.bug {
            PortBug::StartIsNotWritten => applied(),
            PortBug::StartOfAnother if self.start_of_another().is_some() => applied(),
            PortBug::StartOfAnother => {
                *lock(&self.first_start) = Some((self.plugin.clone(), *start));
                self.table.write_start(start)
            }
            _ => self.table.write_start(start),
        }
    }

    fn quarantine<'a>(&'a self, entry: &'a Quarantined) -> PortFuture<'a, Result<(), StoreError>> {
        self.table.quarantine(entry)
    }

    fn release_version<'a>(
        &'a self,
        digest: &'a PluginDigest,
    ) -> PortFuture<'a, Result<(), StoreError>> {
        self.table.release_version(digest)
    }

    fn announce(&self) -> PortFuture<'_, Result<(), StoreError>> {
        self.table.announce()
    }

    fn shards(&self) -> PortFuture<'_, Result<Option<CachedShards>, StoreError>> {
        self.table.shards()
    }

    fn write_shards<'a>(
        &'a self,
        shards: &'a CachedShards,
    ) -> PortFuture<'a, Result<(), StoreError>> {
        self.table.write_shards(shards)
    }
}
