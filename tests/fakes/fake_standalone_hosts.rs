//! The list of standalone hosts in memory, with how many rows each of them has.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use shardmill_core::fleet::{Incarnation, StandaloneHost, WorkerRow};
use shardmill_core::lease::WorkerId;
use shardmill_core::ports::{Extent, PortFuture, Raced, StandaloneHosts, StoreError};

/// What operators want of a host, and its history.
pub const WISHES: usize = 2;

/// See the module's description.
#[derive(Debug, Default)]
pub struct FakeStandaloneHosts {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    entries: BTreeMap<WorkerId, StandaloneHost>,
    rows: BTreeMap<WorkerId, usize>,
    /// Hosts that write heartbeats.
    living: BTreeMap<WorkerId, u64>,
    cleared: Vec<WorkerId>,
}

impl FakeStandaloneHosts {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The host writes so many rows, and heartbeats from now on.
    pub fn start(&self, id: &WorkerId, rows: usize) {
        let mut state = self.state();
        state.rows.insert(id.clone(), rows);
        state.living.insert(id.clone(), 0);
    }

    /// The host writes no heartbeats any more, as after a kill.
    pub fn stop(&self, id: &WorkerId) {
        self.state().living.remove(id);
    }

    /// How many rows each host has.
    pub fn rows(&self) -> BTreeMap<WorkerId, usize> {
        self.state().rows.clone()
    }

    /// The hosts that were removed, in order.
    pub fn cleared(&self) -> Vec<WorkerId> {
        self.state().cleared.clone()
    }

    /// Whether a host is in the list.
    pub fn is_listed(&self, id: &WorkerId) -> bool {
        self.state().entries.contains_key(id)
    }

    fn write_now(&self, id: &WorkerId, seen: Option<u64>, next: Option<&StandaloneHost>) -> Raced {
        let entries = &mut self.state().entries;
        if entries.get(id).map(|entry| entry.beat) != seen {
            return Raced::Lost;
        }
        match next {
            Some(next) => entries.insert(id.clone(), next.clone()),
            None => entries.remove(id),
        };
        Raced::Applied
    }

    fn clear_now(&self, mark: &StandaloneHost, extent: Extent) -> Raced {
        let mut state = self.state();
        if state.entries.get(&mark.id) != Some(mark) {
            return Raced::Lost;
        }
        match extent {
            Extent::All => state.rows.remove(&mark.id),
            Extent::Places => state.rows.insert(mark.id.clone(), WISHES),
        };
        state.cleared.push(mark.id.clone());
        Raced::Applied
    }

    /// A look at a living host shows another heartbeat than the one before.
    fn look_at(&self, id: &WorkerId) -> Option<WorkerRow> {
        let mut state = self.state();
        let beat = state.living.get_mut(id)?;
        *beat += 1;
        Some(WorkerRow {
            worker: id.clone(),
            incarnation: Incarnation::new("run").expect("not empty"),
            beat: *beat,
            lease_duration: Duration::from_secs(10),
            is_draining: false,
            max_leases: usize::MAX,
            versions: Vec::new(),
            cannot_write: None,
            cannot_look: None,
            artifact: None,
            load: None,
        })
    }
}

impl StandaloneHosts for FakeStandaloneHosts {
    fn list(&self) -> PortFuture<'_, Result<Vec<StandaloneHost>, StoreError>> {
        let entries = self.state().entries.values().cloned().collect();
        Box::pin(std::future::ready(Ok(entries)))
    }

    fn entry<'a>(
        &'a self,
        id: &'a WorkerId,
    ) -> PortFuture<'a, Result<Option<StandaloneHost>, StoreError>> {
        let entry = self.state().entries.get(id).cloned();
        Box::pin(std::future::ready(Ok(entry)))
    }

    fn write<'a>(
        &'a self,
        seen: Option<&'a StandaloneHost>,
        next: &'a StandaloneHost,
    ) -> PortFuture<'a, Result<Raced, StoreError>> {
        let raced = self.write_now(&next.id, seen.map(|seen| seen.beat), Some(next));
        Box::pin(std::future::ready(Ok(raced)))
    }

    fn remove<'a>(&'a self, seen: &'a StandaloneHost) -> PortFuture<'a, Result<Raced, StoreError>> {
        let raced = self.write_now(&seen.id, Some(seen.beat), None);
        Box::pin(std::future::ready(Ok(raced)))
    }

    fn worker<'a>(
        &'a self,
        id: &'a WorkerId,
    ) -> PortFuture<'a, Result<Option<WorkerRow>, StoreError>> {
        Box::pin(std::future::ready(Ok(self.look_at(id))))
    }

    fn clear<'a>(
        &'a self,
        mark: &'a StandaloneHost,
        extent: Extent,
    ) -> PortFuture<'a, Result<Raced, StoreError>> {
        let raced = self.clear_now(mark, extent);
        Box::pin(std::future::ready(Ok(raced)))
    }
}
