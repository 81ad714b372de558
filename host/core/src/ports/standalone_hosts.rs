use super::{PortFuture, Raced, StoreError};
use crate::fleet::{StandaloneHost, WorkerRow};
use crate::lease::WorkerId;

/// The list of an application's standalone hosts, and what each of them has in the tables.
/// Implementations decide nothing.
pub trait StandaloneHosts: Send + Sync {
    /// All entries; eventually consistent.
    fn list(&self) -> PortFuture<'_, Result<Vec<StandaloneHost>, StoreError>>;

    /// The entry of one host, strongly consistent.
    fn entry<'a>(
        &'a self,
        id: &'a WorkerId,
    ) -> PortFuture<'a, Result<Option<StandaloneHost>, StoreError>>;

    /// Writes an entry if the list shows `seen`, or none if that is `None`.
    fn write<'a>(
        &'a self,
        seen: Option<&'a StandaloneHost>,
        next: &'a StandaloneHost,
    ) -> PortFuture<'a, Result<Raced, StoreError>>;

    /// Removes an entry if the list shows it as `seen`.
    fn remove<'a>(&'a self, seen: &'a StandaloneHost) -> PortFuture<'a, Result<Raced, StoreError>>;

    /// How a host registered as a worker, which shows its heartbeats; strongly consistent.
    fn worker<'a>(
        &'a self,
        id: &'a WorkerId,
    ) -> PortFuture<'a, Result<Option<WorkerRow>, StoreError>>;

    /// Removes all that a host has in the tables but its entry: leases, state, and what only it
    /// reads. May be called again if it failed in between. A lease that changed since the rows were
    /// listed stays.
    fn clear<'a>(&'a self, id: &'a WorkerId) -> PortFuture<'a, Result<(), StoreError>>;
}
