//! The lease store behind the network.

use std::sync::{Arc, Mutex};

use shardmill_core::control::Directives;
use shardmill_core::lease::{Lease, LeaseToken, WorkerId};
use shardmill_core::ports::{
    CheckpointWrite, Created, Deleted, Directing, LeaseListing, LeaseStore, ObeyState, ObeyWrite,
    PortFuture, Progress, SavedState, ShardEndWrite, StoreError, Took, WriteResult, Written,
};
use shardmill_core::stream::LeaseKey;
use shardmill_fakes::lease_rows::LeaseRows;
use shardmill_invariants::history::WriteKind;

use super::net::{Answer, Ask, Net};
use super::tables::{Asked, MemoryTables};
use crate::bugs;
use crate::network::RequestKind;
use crate::observed::release_kind;
use crate::tables::Tables;
use crate::weather::Service;
use crate::world::{World, lock};

/// The adapter.
#[derive(Clone)]
pub struct NetStore(Net);

/// The tables of a world that holds them in memory.
pub(super) fn memory(world: &World) -> &MemoryTables {
    match &world.tables {
        Tables::Memory(memory) => memory,
        Tables::Emulated(_) => unreachable!("a host in memory has its tables in memory"),
    }
}

/// What the real adapter asks DynamoDB for.
fn action_of(operation: &str) -> &'static str {
    match operation {
        "list" | "list_consistently" => "Scan",
        "get" | "state" => "GetItem",
        "create" => "PutItem",
        "delete" => "DeleteItem",
        "checkpoint_with_state" | "end_with_state" | "obey_with_state" => "TransactWriteItems",
        "ensure_table" | "ensure_state_table" => "DescribeTable",
        _ => "UpdateItem",
    }
}

impl NetStore {
    /// The table of the run, as `net`'s host reaches it.
    pub fn new(net: Net) -> Self {
        Self(net)
    }

    async fn read<T: Send + 'static>(
        &self,
        operation: &'static str,
        about: &str,
        read: impl Fn(&World) -> T + Send + Sync + 'static,
    ) -> Result<T, StoreError> {
        let world = Arc::clone(&self.0.world);
        let action = action_of(operation);
        let kind = if operation == "take" {
            RequestKind::Take
        } else {
            RequestKind::Other
        };
        let ask = Ask {
            service: Service::Dynamodb,
            kind,
            operation,
            action,
            about,
        };
        Ok(self
            .0
            .call(ask, move || Answer::of(Ok(read(&world))))
            .await?)
    }

    async fn write<T: Send + 'static>(
        &self,
        operation: &'static str,
        key: &LeaseKey,
        kind: WriteKind,
        act: impl Fn(&mut LeaseRows) -> T + Send + Sync + 'static,
    ) -> Result<T, StoreError> {
        let (row, by, sent_at) = (key.clone(), Arc::clone(&self.0.host), self.0.now());
        self.read(operation, key.as_str(), move |world| {
            let asked = Asked {
                by: Some(&by),
                kind,
                sent_at,
            };
            memory(world).write_lease(world, &row, asked, &act)
        })
        .await
    }

    /// A write of a lease's holder, as the table takes it.
    fn held<W>(
        &self,
        kind: WriteKind,
        token: &LeaseToken,
        write: W,
    ) -> impl Fn(&mut LeaseRows) -> Written + Send + Sync + use<W>
    where
        W: Fn(&mut LeaseRows, &LeaseToken) -> Written + Send + Sync + 'static,
    {
        let (bug, token) = (self.0.world.bug, token.clone());
        move |rows| bugs::held_write(bug, kind, rows, &token, &write)
    }
}

/// A write with a state is a transaction, which DynamoDB knows again by its token: it happens once,
/// and answers the same.
fn once(act: impl Fn(&mut LeaseRows) -> Written) -> impl Fn(&mut LeaseRows) -> Written {
    let applied = Mutex::new(None);
    move |rows| {
        let mut applied = lock(&applied);
        if let Some(written) = &*applied {
            return Written::clone(written);
        }
        let written = act(rows);
        if matches!(written, Written::Applied(_)) {
            *applied = Some(written.clone());
        }
        written
    }
}

impl LeaseStore for NetStore {
    fn ensure_table(&self) -> PortFuture<'_, Result<(), StoreError>> {
        Box::pin(self.read("ensure_table", "", |_| ()))
    }

    fn list(&self) -> PortFuture<'_, Result<LeaseListing, StoreError>> {
        Box::pin(self.read("list", "", |world| memory(world).scan(world)))
    }

    fn list_consistently(&self) -> PortFuture<'_, Result<LeaseListing, StoreError>> {
        Box::pin(self.read("list_consistently", "", |world| {
            memory(world).read_leases(LeaseRows::list)
        }))
    }

    fn get<'a>(&'a self, key: &'a LeaseKey) -> PortFuture<'a, Result<Option<Lease>, StoreError>> {
        let row = key.clone();
        Box::pin(self.read("get", key.as_str(), move |world| {
            memory(world).read_leases(|rows| rows.get(&row).cloned())
        }))
    }

    fn create<'a>(&'a self, lease: &'a Lease) -> PortFuture<'a, Result<Created, StoreError>> {
        let row = lease.clone();
        Box::pin(
            self.write("create", &lease.key, WriteKind::Create, move |rows| {
                rows.create(&row)
            }),
        )
    }

    fn take<'a>(
        &'a self,
        seen: &'a Lease,
        by: &'a WorkerId,
        wall_ms: u64,
    ) -> PortFuture<'a, Result<Took, StoreError>> {
        let kind = WriteKind::Take {
            seen: seen.counter.0,
        };
        let (row, by, bug) = (seen.clone(), by.clone(), self.0.world.bug);
        let act = move |rows: &mut LeaseRows| {
            let row = bugs::asked_of_take(bug, rows, &row);
            rows.take(&row, &by, wall_ms)
        };
        Box::pin(self.write("take", &seen.key, kind, act))
    }

    fn claim<'a>(&'a self, seen: &'a Lease, by: &'a WorkerId) -> PortFuture<'a, WriteResult> {
        let (row, by) = (seen.clone(), by.clone());
        Box::pin(
            self.write("claim", &seen.key, WriteKind::Claim, move |rows| {
                rows.claim(&row, &by)
            }),
        )
    }

    fn delete<'a>(&'a self, seen: &'a Lease) -> PortFuture<'a, Result<Deleted, StoreError>> {
        let row = seen.clone();
        Box::pin(
            self.write("delete", &seen.key, WriteKind::Delete, move |rows| {
                rows.delete(&row)
            }),
        )
    }

    fn renew<'a>(
        &'a self,
        token: &'a LeaseToken,
        progress: &'a Progress,
    ) -> PortFuture<'a, WriteResult> {
        let progress = progress.clone();
        let act = self.held(WriteKind::Renew, token, move |rows, held| {
            rows.renew(held, &progress)
        });
        Box::pin(self.write("renew", &token.key, WriteKind::Renew, act))
    }

    fn checkpoint<'a>(
        &'a self,
        token: &'a LeaseToken,
        write: &'a CheckpointWrite,
    ) -> PortFuture<'a, WriteResult> {
        let (kind, asked) = (WriteKind::Checkpoint, write.clone());
        let act = self.held(kind, token, move |rows, held| rows.checkpoint(held, &asked));
        if write.state.is_some() {
            return Box::pin(async move {
                let written = self
                    .write("checkpoint_with_state", &token.key, kind, once(act))
                    .await?;
                if matches!(written, Written::Applied(_)) {
                    self.0
                        .world
                        .count("reached: state written with a checkpoint");
                }
                Ok(written)
            });
        }
        Box::pin(self.write("checkpoint", &token.key, kind, act))
    }

    fn end<'a>(
        &'a self,
        token: &'a LeaseToken,
        write: &'a ShardEndWrite,
    ) -> PortFuture<'a, WriteResult> {
        let asked = write.clone();
        let act = self.held(WriteKind::End, token, move |rows, held| {
            rows.end(held, &asked)
        });
        if write.keeps_state {
            return Box::pin(self.write("end_with_state", &token.key, WriteKind::End, once(act)));
        }
        Box::pin(self.write("end", &token.key, WriteKind::End, act))
    }

    fn release<'a>(
        &'a self,
        token: &'a LeaseToken,
        progress: &'a Progress,
    ) -> PortFuture<'a, WriteResult> {
        let (kind, progress) = (release_kind(progress), progress.clone());
        let act = self.held(kind, token, move |rows, held| rows.release(held, &progress));
        Box::pin(self.write("release", &token.key, kind, act))
    }

    fn direct<'a>(
        &'a self,
        seen: &'a Lease,
        next: &'a Directives,
    ) -> PortFuture<'a, Result<Directing, StoreError>> {
        let (row, next) = (seen.clone(), next.clone());
        let act = move |rows: &mut LeaseRows| rows.direct(&row, &next);
        Box::pin(self.write("direct", &seen.key, WriteKind::Direct, act))
    }

    fn obey<'a>(
        &'a self,
        token: &'a LeaseToken,
        write: &'a ObeyWrite,
    ) -> PortFuture<'a, WriteResult> {
        let (kind, asked, bug) = (WriteKind::Obey, write.clone(), self.0.world.bug);
        let act = self.held(kind, token, move |rows, held| {
            rows.obey(held, &bugs::asked_of_obey(bug, rows, held, &asked))
        });
        if write.state == ObeyState::Untouched {
            return Box::pin(self.write("obey", &token.key, kind, act));
        }
        Box::pin(self.write("obey_with_state", &token.key, kind, once(act)))
    }

    fn ensure_state_table(&self) -> PortFuture<'_, Result<(), StoreError>> {
        Box::pin(self.read("ensure_state_table", "", |_| ()))
    }

    fn state<'a>(
        &'a self,
        key: &'a LeaseKey,
    ) -> PortFuture<'a, Result<Option<SavedState>, StoreError>> {
        let row = key.clone();
        let read = move |world: &World| memory(world).read_leases(|rows| rows.state(&row).cloned());
        Box::pin(self.read("state", key.as_str(), read))
    }
}
