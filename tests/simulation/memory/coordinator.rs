//! The coordinator behind the network.

use std::sync::Arc;

use shardmill_core::control::{Control, HistoryEntry};
use shardmill_core::fleet::{
    ApplicationStart, FleetRows, LeaderRow, Mail, Mailbox, StreamRow, WorkerRow,
};
use shardmill_core::lease::WorkerId;
use shardmill_core::plugin::PluginDigest;
use shardmill_core::ports::{CachedShards, Coordinator, PortFuture, Raced, StoreError};
use shardmill_core::rollout::Quarantined;
use shardmill_fakes::coordinator_rows::CoordinatorRows;
use shardmill_invariants::history::{HostChange, What};

use super::net::{Answer, Ask, Net};
use super::store::memory;
use crate::network::RequestKind;
use crate::weather::Service;
use crate::world::World;

/// The adapter.
#[derive(Clone)]
pub struct NetCoordinator(Net);

/// What the real adapter asks DynamoDB for.
fn action_of(operation: &str) -> &'static str {
    match operation {
        "fleet" | "board" | "shards" | "mailbox" => "Query",
        "worker" => "GetItem",
        "remove_worker" | "release_version" => "DeleteItem",
        "announce" => "UpdateItem",
        "ensure_table" => "DescribeTable",
        _ => "PutItem",
    }
}

impl NetCoordinator {
    /// The table of the run, as `net`'s host reaches it.
    pub fn new(net: Net) -> Self {
        Self(net)
    }

    async fn ask<T: Send + 'static>(
        &self,
        kind: RequestKind,
        operation: &'static str,
        serve: impl Fn(&World) -> T + Send + Sync + 'static,
    ) -> Result<T, StoreError> {
        let world = Arc::clone(&self.0.world);
        let action = action_of(operation);
        let ask = Ask {
            service: Service::Coordinator,
            kind,
            operation,
            action,
            about: "",
        };
        Ok(self
            .0
            .call(ask, move || Answer::of(Ok(serve(&world))))
            .await?)
    }

    async fn write<T: Send + 'static>(
        &self,
        kind: RequestKind,
        operation: &'static str,
        act: impl Fn(&mut CoordinatorRows) -> T + Send + Sync + 'static,
    ) -> Result<T, StoreError> {
        self.ask(kind, operation, move |world| {
            memory(world).write_coordinator(world, &act)
        })
        .await
    }
}

impl Coordinator for NetCoordinator {
    fn ensure_table(&self) -> PortFuture<'_, Result<(), StoreError>> {
        Box::pin(self.ask(RequestKind::Other, "ensure_table", |_| ()))
    }

    fn fleet(&self) -> PortFuture<'_, Result<FleetRows, StoreError>> {
        Box::pin(self.ask(RequestKind::Other, "fleet", |world| {
            memory(world).query(world)
        }))
    }

    fn board(&self) -> PortFuture<'_, Result<FleetRows, StoreError>> {
        Box::pin(self.ask(RequestKind::Other, "board", |world| FleetRows {
            workers: Vec::new(),
            ..memory(world).query(world)
        }))
    }

    fn mailbox<'a>(&'a self, id: &'a WorkerId) -> PortFuture<'a, Result<Mailbox, StoreError>> {
        let id = id.clone();
        let read = move |world: &World| memory(world).read_coordinator(|rows| rows.mailbox(&id));
        Box::pin(self.ask(RequestKind::Other, "mailbox", read))
    }

    fn nudge<'a>(
        &'a self,
        id: &'a WorkerId,
        number: u64,
    ) -> PortFuture<'a, Result<(), StoreError>> {
        let id = id.clone();
        let act = move |rows: &mut CoordinatorRows| {
            rows.nudges.insert(id.clone(), number);
        };
        Box::pin(self.write(RequestKind::Other, "nudge", act))
    }

    fn write_control<'a>(
        &'a self,
        seen: &'a Control,
        next: &'a Control,
    ) -> PortFuture<'a, Result<Raced, StoreError>> {
        let (seen, next) = (seen.clone(), next.clone());
        let act = move |rows: &mut CoordinatorRows| rows.write_control(&seen, &next);
        Box::pin(self.write(RequestKind::Other, "write_control", act))
    }

    fn record<'a>(&'a self, entry: &'a HistoryEntry) -> PortFuture<'a, Result<(), StoreError>> {
        let entry = entry.clone();
        let act = move |rows: &mut CoordinatorRows| rows.history.push(entry.clone());
        Box::pin(self.write(RequestKind::Other, "record", act))
    }

    fn leave_mail<'a>(
        &'a self,
        id: &'a WorkerId,
        mail: Option<&'a Mail>,
    ) -> PortFuture<'a, Result<(), StoreError>> {
        let (id, mail) = (id.clone(), mail.cloned());
        let act = move |rows: &mut CoordinatorRows| drop(rows.leave_mail(&id, mail.as_ref()));
        Box::pin(self.write(RequestKind::Other, "leave_mail", act))
    }

    fn worker<'a>(
        &'a self,
        id: &'a WorkerId,
    ) -> PortFuture<'a, Result<Option<WorkerRow>, StoreError>> {
        let id = id.clone();
        let read =
            move |world: &World| memory(world).read_coordinator(|rows| rows.worker(&id).cloned());
        Box::pin(self.ask(RequestKind::Other, "worker", read))
    }

    fn register<'a>(
        &'a self,
        seen: Option<&'a WorkerRow>,
        row: &'a WorkerRow,
    ) -> PortFuture<'a, Result<Raced, StoreError>> {
        let (seen, row) = (seen.cloned(), row.clone());
        let act = move |rows: &mut CoordinatorRows| rows.register(seen.as_ref(), &row);
        Box::pin(self.write(RequestKind::Heartbeat, "register", act))
    }

    fn heartbeat<'a>(&'a self, row: &'a WorkerRow) -> PortFuture<'a, Result<Raced, StoreError>> {
        let row = row.clone();
        Box::pin(
            self.write(RequestKind::Heartbeat, "heartbeat", move |rows| {
                rows.heartbeat(&row)
            }),
        )
    }

    fn remove_worker<'a>(
        &'a self,
        row: &'a WorkerRow,
    ) -> PortFuture<'a, Result<Raced, StoreError>> {
        let (row, host) = (row.clone(), Arc::clone(&self.0.host));
        Box::pin(self.ask(RequestKind::Other, "remove_worker", move |world| {
            let raced = memory(world).write_coordinator(world, |rows| rows.remove_worker(&row));
            if raced == Raced::Applied && row.worker.as_str() == &*host {
                world.note(What::Host {
                    host: host.to_string(),
                    change: HostChange::SignedOff,
                });
            }
            raced
        }))
    }

    fn write_leader<'a>(
        &'a self,
        seen: Option<&'a LeaderRow>,
        next: &'a LeaderRow,
    ) -> PortFuture<'a, Result<Raced, StoreError>> {
        let (seen, next) = (seen.cloned(), next.clone());
        let act = move |rows: &mut CoordinatorRows| rows.write_leader(seen.as_ref(), &next);
        Box::pin(self.write(RequestKind::Other, "write_leader", act))
    }

    fn write_stream<'a>(
        &'a self,
        seen: Option<&'a StreamRow>,
        next: &'a StreamRow,
    ) -> PortFuture<'a, Result<Raced, StoreError>> {
        let (seen, next) = (seen.cloned(), next.clone());
        let act = move |rows: &mut CoordinatorRows| rows.write_stream(seen.as_ref(), &next);
        Box::pin(self.write(RequestKind::Other, "write_stream", act))
    }

    fn write_start<'a>(
        &'a self,
        start: &'a ApplicationStart,
    ) -> PortFuture<'a, Result<Raced, StoreError>> {
        let start = *start;
        Box::pin(self.write(RequestKind::Other, "write_start", move |rows| {
            rows.write_start(&start)
        }))
    }

    fn quarantine<'a>(&'a self, entry: &'a Quarantined) -> PortFuture<'a, Result<(), StoreError>> {
        let entry = entry.clone();
        Box::pin(self.write(RequestKind::Other, "quarantine", move |rows| {
            rows.quarantine(&entry);
        }))
    }

    fn release_version<'a>(
        &'a self,
        digest: &'a PluginDigest,
    ) -> PortFuture<'a, Result<(), StoreError>> {
        let digest = digest.clone();
        Box::pin(
            self.write(RequestKind::Other, "release_version", move |rows| {
                rows.release_version(&digest);
            }),
        )
    }

    fn announce(&self) -> PortFuture<'_, Result<(), StoreError>> {
        Box::pin(self.write(RequestKind::Other, "announce", |rows| {
            rows.fleet.bulletin += 1;
        }))
    }

    fn shards(&self) -> PortFuture<'_, Result<Option<CachedShards>, StoreError>> {
        let read = |world: &World| memory(world).read_coordinator(|rows| rows.shards.clone());
        Box::pin(self.ask(RequestKind::Other, "shards", read))
    }

    fn write_shards<'a>(
        &'a self,
        shards: &'a CachedShards,
    ) -> PortFuture<'a, Result<(), StoreError>> {
        let shards = shards.clone();
        Box::pin(self.write(RequestKind::Other, "write_shards", move |rows| {
            rows.shards = Some(shards.clone());
        }))
    }
}
