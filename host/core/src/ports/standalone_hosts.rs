use super::{PortFuture, Raced, StoreError};
use crate::fleet::{StandaloneHost, WorkerRow};
use crate::lease::WorkerId;

/// How much of a host's rows is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Everything.
    All,
    /// Places, state and registration; what operators want, bad versions and the history stay.
    Places,
}

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

    /// Removes what a host has in the tables but its entry: leases, state, and what only it reads;
    /// in part or as a whole. May be called again if it failed in between. Nothing is removed once
    /// the list does not show `mark` any more.
    fn clear<'a>(
        &'a self,
        mark: &'a StandaloneHost,
        extent: Extent,
    ) -> PortFuture<'a, Result<Raced, StoreError>>;
}
