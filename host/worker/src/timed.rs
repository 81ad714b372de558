//! The tables, with a deadline on each call: a caller that waits for an answer that never comes
//! waits no longer than a lease can.
//!
//! A call that is cut off counts as unanswered, like a lost answer: it is unknown whether it was
//! applied.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use shardmill_core::control::{Control, Directives, HistoryEntry};
use shardmill_core::fleet::{
    ApplicationStart, FleetRows, LeaderRow, Mail, Mailbox, StreamRow, WorkerRow,
};
use shardmill_core::kcl_metrics::Observation;
use shardmill_core::lease::{Lease, LeaseToken, TableDeadlines, WorkerId};
use shardmill_core::plugin::PluginDigest;
use shardmill_core::ports::{
    CachedShards, CheckpointWrite, Clock, Coordinator, Created, Deleted, Directing, LeaseListing,
    LeaseStore, ObeyWrite, PortFuture, Progress, Raced, SavedState, ShardEndWrite, StoreError,
    Took, WriteResult,
};
use shardmill_core::rollout::Quarantined;
use shardmill_core::seeded_bug::SeededBug;
use shardmill_core::stream::LeaseKey;

use crate::meters::WorkerMeters;

/// The shard list of a large stream is written in parts, with pauses. It is a hint that no host
/// waits for.
const SHARD_LIST_MAX: Duration = Duration::from_mins(2);

/// A lease table that answers in time, or not at all.
pub(crate) struct TimedStore {
    store: Arc<dyn LeaseStore>,
    deadlines: TableDeadlines,
    clock: Arc<dyn Clock>,
    meters: WorkerMeters,
}

/// A coordinator table that answers in time, or not at all.
pub(crate) struct TimedCoordinator {
    coordinator: Arc<dyn Coordinator>,
    deadlines: TableDeadlines,
    meters: WorkerMeters,
}

impl TimedStore {
    pub(crate) fn new(
        store: Arc<dyn LeaseStore>,
        deadlines: TableDeadlines,
        clock: Arc<dyn Clock>,
        meters: WorkerMeters,
    ) -> Self {
        Self {
            store,
            deadlines,
            clock,
            meters,
        }
    }

    fn call<'a, T: 'a>(
        &self,
        call: PortFuture<'a, Result<T, StoreError>>,
    ) -> PortFuture<'a, Result<T, StoreError>> {
        within(self.deadlines.call, call)
    }
}

impl TimedCoordinator {
    pub(crate) fn new(
        coordinator: Arc<dyn Coordinator>,
        deadlines: TableDeadlines,
        meters: WorkerMeters,
    ) -> Self {
        Self {
            coordinator,
            deadlines,
            meters,
        }
    }

    fn call<'a, T: 'a>(
        &self,
        call: PortFuture<'a, Result<T, StoreError>>,
    ) -> PortFuture<'a, Result<T, StoreError>> {
        within(self.deadlines.call, call)
    }
}

fn within<'a, T: 'a>(
    limit: Duration,
    call: PortFuture<'a, Result<T, StoreError>>,
) -> PortFuture<'a, Result<T, StoreError>> {
    if SeededBug::CallsHaveNoDeadline.is_on() {
        return call;
    }
    Box::pin(async move {
        let answer = tokio::time::timeout(limit, call).await;
        answer.unwrap_or_else(|_| {
            Err(StoreError::Unknown {
                message: format!("no answer within {limit:?}"),
            })
        })
    })
}

/// The same call, which does nothing any more once `limit` has passed since now.
///
/// A timer cannot promise that: after a suspension of the host, the client's wait before its next
/// try has ended too, and a client that is asked for its answer first sends the request again.
fn never_after<'a, T: 'a>(
    limit: Duration,
    clock: Arc<dyn Clock>,
    mut call: PortFuture<'a, Result<T, StoreError>>,
) -> PortFuture<'a, Result<T, StoreError>> {
    let begun_at = clock.now();
    Box::pin(poll_fn(move |context| {
        if clock.now().since(begun_at) < limit {
            return call.as_mut().poll(context);
        }
        Poll::Ready(Err(StoreError::Unknown {
            message: format!("this host stood still for longer than {limit:?}"),
        }))
    }))
}

impl LeaseStore for TimedStore {
    /// Without a deadline: a table takes its time to be made. Each request has its own.
    fn ensure_table(&self) -> PortFuture<'_, Result<(), StoreError>> {
        self.store.ensure_table()
    }

    fn list(&self) -> PortFuture<'_, Result<LeaseListing, StoreError>> {
        let call = within(self.deadlines.listing, self.store.list());
        let observed = |took, is_ok| Observation::Listed { took, is_ok };
        self.meters.timed(None, observed, call)
    }

    fn list_consistently(&self) -> PortFuture<'_, Result<LeaseListing, StoreError>> {
        within(self.deadlines.listing, self.store.list_consistently())
    }

    fn get<'a>(&'a self, key: &'a LeaseKey) -> PortFuture<'a, Result<Option<Lease>, StoreError>> {
        self.call(self.store.get(key))
    }

    /// Only a create has no counter in its condition: sent again after a long time, it would bring
    /// back the row of a shard that was read to its end meanwhile, and removed.
    fn create<'a>(&'a self, lease: &'a Lease) -> PortFuture<'a, Result<Created, StoreError>> {
        let (limit, clock) = (self.deadlines.call, Arc::clone(&self.clock));
        self.call(never_after(limit, clock, self.store.create(lease)))
    }

    fn take<'a>(
        &'a self,
        seen: &'a Lease,
        by: &'a WorkerId,
        wall_ms: u64,
    ) -> PortFuture<'a, Result<Took, StoreError>> {
        let observed = |took, is_ok| Observation::Take { took, is_ok };
        let call = self.call(self.store.take(seen, by, wall_ms));
        self.meters.timed(None, observed, call)
    }

    fn claim<'a>(&'a self, seen: &'a Lease, by: &'a WorkerId) -> PortFuture<'a, WriteResult> {
        self.call(self.store.claim(seen, by))
    }

    fn delete<'a>(&'a self, seen: &'a Lease) -> PortFuture<'a, Result<Deleted, StoreError>> {
        self.call(self.store.delete(seen))
    }

    fn renew<'a>(
        &'a self,
        token: &'a LeaseToken,
        progress: &'a Progress,
    ) -> PortFuture<'a, WriteResult> {
        let observed = |took, is_ok| Observation::Renewed { took, is_ok };
        let call = self.call(self.store.renew(token, progress));
        self.meters.timed(None, observed, call)
    }

    fn checkpoint<'a>(
        &'a self,
        token: &'a LeaseToken,
        write: &'a CheckpointWrite,
    ) -> PortFuture<'a, WriteResult> {
        let observed = |took, is_ok| Observation::Checkpoint { took, is_ok };
        let call = self.call(self.store.checkpoint(token, write));
        self.meters
            .timed(Some(token.key.shard_id()), observed, call)
    }

    fn end<'a>(
        &'a self,
        token: &'a LeaseToken,
        write: &'a ShardEndWrite,
    ) -> PortFuture<'a, WriteResult> {
        self.call(self.store.end(token, write))
    }

    fn release<'a>(
        &'a self,
        token: &'a LeaseToken,
        progress: &'a Progress,
    ) -> PortFuture<'a, WriteResult> {
        self.call(self.store.release(token, progress))
    }

    fn direct<'a>(
        &'a self,
        seen: &'a Lease,
        next: &'a Directives,
    ) -> PortFuture<'a, Result<Directing, StoreError>> {
        self.call(self.store.direct(seen, next))
    }

    fn obey<'a>(
        &'a self,
        token: &'a LeaseToken,
        write: &'a ObeyWrite,
    ) -> PortFuture<'a, WriteResult> {
        self.call(self.store.obey(token, write))
    }

    /// Without a deadline, as [`Self::ensure_table`].
    fn ensure_state_table(&self) -> PortFuture<'_, Result<(), StoreError>> {
        self.store.ensure_state_table()
    }

    fn state<'a>(
        &'a self,
        key: &'a LeaseKey,
    ) -> PortFuture<'a, Result<Option<SavedState>, StoreError>> {
        self.call(self.store.state(key))
    }

    fn stream_prefix(&self) -> Option<String> {
        self.store.stream_prefix()
    }
}

impl Coordinator for TimedCoordinator {
    /// Without a deadline: a table takes its time to be made. Each request has its own.
    fn ensure_table(&self) -> PortFuture<'_, Result<(), StoreError>> {
        self.coordinator.ensure_table()
    }

    fn fleet(&self) -> PortFuture<'_, Result<FleetRows, StoreError>> {
        within(self.deadlines.listing, self.coordinator.fleet())
    }

    fn board(&self) -> PortFuture<'_, Result<FleetRows, StoreError>> {
        self.call(self.coordinator.board())
    }

    fn mailbox<'a>(&'a self, id: &'a WorkerId) -> PortFuture<'a, Result<Mailbox, StoreError>> {
        self.call(self.coordinator.mailbox(id))
    }

    fn leave_mail<'a>(
        &'a self,
        id: &'a WorkerId,
        mail: Option<&'a Mail>,
    ) -> PortFuture<'a, Result<(), StoreError>> {
        self.call(self.coordinator.leave_mail(id, mail))
    }

    fn nudge<'a>(
        &'a self,
        id: &'a WorkerId,
        number: u64,
    ) -> PortFuture<'a, Result<(), StoreError>> {
        self.call(self.coordinator.nudge(id, number))
    }

    fn write_control<'a>(
        &'a self,
        seen: &'a Control,
        next: &'a Control,
    ) -> PortFuture<'a, Result<Raced, StoreError>> {
        self.call(self.coordinator.write_control(seen, next))
    }

    fn record<'a>(&'a self, entry: &'a HistoryEntry) -> PortFuture<'a, Result<(), StoreError>> {
        self.call(self.coordinator.record(entry))
    }

    fn worker<'a>(
        &'a self,
        id: &'a WorkerId,
    ) -> PortFuture<'a, Result<Option<WorkerRow>, StoreError>> {
        self.call(self.coordinator.worker(id))
    }

    fn register<'a>(
        &'a self,
        seen: Option<&'a WorkerRow>,
        row: &'a WorkerRow,
    ) -> PortFuture<'a, Result<Raced, StoreError>> {
        self.call(self.coordinator.register(seen, row))
    }

    /// Sooner than other calls: the next heartbeat is as good, and all leases of the host wait for
    /// one.
    fn heartbeat<'a>(&'a self, row: &'a WorkerRow) -> PortFuture<'a, Result<Raced, StoreError>> {
        let call = within(self.deadlines.attempt, self.coordinator.heartbeat(row));
        let observed = |took, is_ok| Observation::Heartbeat { took, is_ok };
        self.meters.timed(None, observed, call)
    }

    fn remove_worker<'a>(
        &'a self,
        row: &'a WorkerRow,
    ) -> PortFuture<'a, Result<Raced, StoreError>> {
        self.call(self.coordinator.remove_worker(row))
    }

    fn write_leader<'a>(
        &'a self,
        seen: Option<&'a LeaderRow>,
        next: &'a LeaderRow,
    ) -> PortFuture<'a, Result<Raced, StoreError>> {
        self.call(self.coordinator.write_leader(seen, next))
    }

    fn write_stream<'a>(
        &'a self,
        seen: Option<&'a StreamRow>,
        next: &'a StreamRow,
    ) -> PortFuture<'a, Result<Raced, StoreError>> {
        self.call(self.coordinator.write_stream(seen, next))
    }

    fn write_start<'a>(
        &'a self,
        start: &'a ApplicationStart,
    ) -> PortFuture<'a, Result<Raced, StoreError>> {
        self.call(self.coordinator.write_start(start))
    }

    fn quarantine<'a>(&'a self, entry: &'a Quarantined) -> PortFuture<'a, Result<(), StoreError>> {
        self.call(self.coordinator.quarantine(entry))
    }

    fn release_version<'a>(
        &'a self,
        digest: &'a PluginDigest,
    ) -> PortFuture<'a, Result<(), StoreError>> {
        self.call(self.coordinator.release_version(digest))
    }

    fn announce(&self) -> PortFuture<'_, Result<(), StoreError>> {
        self.call(self.coordinator.announce())
    }

    fn shards(&self) -> PortFuture<'_, Result<Option<CachedShards>, StoreError>> {
        within(self.deadlines.listing, self.coordinator.shards())
    }

    fn write_shards<'a>(
        &'a self,
        shards: &'a CachedShards,
    ) -> PortFuture<'a, Result<(), StoreError>> {
        within(SHARD_LIST_MAX, self.coordinator.write_shards(shards))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use shardmill_core::time::Moment;

    use super::*;

    /// A clock that is set by hand.
    #[derive(Default)]
    struct SetClock(AtomicU64);

    impl Clock for SetClock {
        fn now(&self) -> Moment {
            Moment::from_origin(Duration::from_secs(self.0.load(Ordering::Relaxed)))
        }

        fn wall_ms(&self) -> u64 {
            0
        }
    }

    #[tokio::test]
    async fn a_client_that_would_try_again_after_a_suspension_is_not_asked_any_more() {
        for (wakes_at, sent_again) in [(2, true), (3, false), (100, false)] {
            let clock = Arc::new(SetClock::default());
            let tries = Arc::new(AtomicU64::new(0));
            let suspended = (Arc::clone(&clock), Arc::clone(&tries));
            let call = async move {
                let (clock, tries) = suspended;
                tries.fetch_add(1, Ordering::Relaxed);
                clock.0.store(wakes_at, Ordering::Relaxed);
                tokio::task::yield_now().await;
                tries.fetch_add(1, Ordering::Relaxed);
                Ok(())
            };
            let answer = never_after(Duration::from_secs(3), clock, Box::pin(call)).await;
            assert_eq!(answer.is_ok(), sent_again, "{wakes_at}");
            assert_eq!(tries.load(Ordering::Relaxed), 1 + u64::from(sent_again));
        }
    }
}
