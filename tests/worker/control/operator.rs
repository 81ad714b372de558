//! Somebody who gives commands, as the command line writes them.

use std::sync::Arc;

use harness::fake_coordinator::FakeCoordinator;
use harness::fake_lease_store::FakeLeaseStore;
use harness::fleet::TestFleet;
use shardmill_core::control::{
    Asked, Control, Directives, NewState, Pause, Place, RecordRange, Seek, SeekState, Skip,
    StateAt, StateEdit, staged_key,
};
use shardmill_core::lease::{Checkpoint, LeaseCounter, WorkerId};
use shardmill_core::ports::{Coordinator, Directing, LeaseStore, Raced, SavedState};
use shardmill_core::stream::{LeaseKey, SequenceNumber, ShardId};

/// See the module's description. Sees the tables without the hosts' faults.
pub(crate) struct Operator {
    store: FakeLeaseStore,
    coordinator: FakeCoordinator,
    nudges: Arc<std::sync::atomic::AtomicU64>,
}

impl Operator {
    pub(crate) fn of(fleet: &TestFleet) -> Self {
        Self {
            store: fleet.store.seen_apart(),
            coordinator: fleet.coordinator.seen_apart(),
            nudges: Arc::default(),
        }
    }

    fn asked() -> Asked {
        Asked {
            by: "ops".to_owned(),
            why: "a test".to_owned(),
            at_ms: 0,
        }
    }

    fn pause_until(until_ms: Option<u64>) -> Pause {
        Pause {
            asked: Self::asked(),
            until_ms,
        }
    }

    /// Changes what is wanted of a shard. Returns its owner.
    async fn change_silently(
        &self,
        shard: &ShardId,
        change: impl FnOnce(&mut Directives),
    ) -> Option<WorkerId> {
        let key = LeaseKey::of_shard(shard);
        let seen = self.store.get(&key).await.unwrap().unwrap();
        let next = seen.directives.changed(change);
        match self.store.direct(&seen, &next).await.unwrap() {
            Directing::Applied(row) => row.owner,
            Directing::Changed(row) => panic!("changed: {row:?}"),
        }
    }

    pub(crate) async fn change(&self, shard: &ShardId, change: impl FnOnce(&mut Directives)) {
        let owner = self.change_silently(shard, change).await;
        self.nudge(owner).await;
    }

    async fn nudge(&self, workers: impl IntoIterator<Item = WorkerId>) {
        for worker in workers {
            let number = self
                .nudges
                .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            self.coordinator.nudge(&worker, number).await.unwrap();
        }
        self.coordinator.announce().await.unwrap();
    }

    pub(crate) async fn pause(&self, shard: &ShardId, until_ms: Option<u64>) {
        self.change(shard, |next| next.pause = Some(Self::pause_until(until_ms)))
            .await;
    }

    /// Pauses, and nudges nobody.
    pub(crate) async fn pause_silently(&self, shard: &ShardId) {
        self.change_silently(shard, |next| next.pause = Some(Self::pause_until(None)))
            .await;
    }

    pub(crate) async fn resume(&self, shard: &ShardId) {
        self.change(shard, |next| next.pause = None).await;
    }

    pub(crate) async fn seek(&self, shard: &ShardId, to: Place, state: SeekState) {
        let seek = Seek {
            to,
            only_forward: false,
            state,
            asked: Self::asked(),
        };
        self.change(shard, |next| next.seek = Some(seek)).await;
    }

    /// Sends the shard elsewhere, and nudges nobody.
    pub(super) async fn seek_silently(&self, shard: &ShardId, to: Place, state: SeekState) {
        let seek = Seek {
            to,
            only_forward: false,
            state,
            asked: Self::asked(),
        };
        self.change_silently(shard, |next| next.seek = Some(seek))
            .await;
    }

    /// The same as a seek, unless the shard is past the place.
    pub(super) async fn seek_forward(&self, shard: &ShardId, to: Place, state: SeekState) {
        let seek = Seek {
            to,
            only_forward: true,
            state,
            asked: Self::asked(),
        };
        self.change(shard, |next| next.seek = Some(seek)).await;
    }

    pub(crate) async fn skip(
        &self,
        shard: &ShardId,
        first: SequenceNumber,
        last: SequenceNumber,
        dead_letters: Option<&str>,
    ) {
        let skip = Skip {
            records: RecordRange::new(first, last).unwrap(),
            dead_letters: dead_letters.map(str::to_owned),
            asked: Self::asked(),
        };
        self.change(shard, |next| next.skip = Some(skip)).await;
    }

    /// Leaves a state and asks for it. Returns the row in which it is.
    pub(super) async fn import_state(
        &self,
        shard: &ShardId,
        state: SavedState,
        at: StateAt,
    ) -> LeaseKey {
        let number = self
            .nudges
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let key = staged_key(shard, number).unwrap();
        self.store.stage_state(&key, state);
        self.edit_state(shard, NewState::Staged(key.clone()), at)
            .await;
        key
    }

    pub(super) async fn edit_state(&self, shard: &ShardId, to: NewState, at: StateAt) {
        let edit = StateEdit {
            to,
            at,
            asked: Self::asked(),
            refused: None,
        };
        self.change(shard, |next| next.state = Some(edit)).await;
    }

    /// Opens the row of a finished shard again, or makes it again.
    pub(crate) async fn reopen(&self, shard: &ShardId) {
        let key = LeaseKey::of_shard(shard);
        let mut row = self.store.row(&key).unwrap();
        assert_eq!(row.owner, None);
        row.checkpoint = Checkpoint::TrimHorizon;
        row.counter = LeaseCounter(row.counter.0 + 1);
        self.store.put_row(row);
        self.nudge(None).await;
    }

    async fn change_control(&self, change: impl FnOnce(&mut Control)) {
        let seen = self.coordinator.rows().control;
        let next = seen.changed(change);
        let raced = self.coordinator.write_control(&seen, &next).await.unwrap();
        assert_eq!(raced, Raced::Applied);
        let workers = self.coordinator.rows().workers;
        self.nudge(workers.into_iter().map(|row| row.worker)).await;
    }

    /// From here on, who looks sees the control row as it was before anybody wanted anything: as an
    /// eventually consistent read may show it for a moment.
    pub(crate) async fn show_outdated_control(&self) {
        let seen = self.coordinator.rows().control;
        let raced = self
            .coordinator
            .write_control(&seen, &Control::default())
            .await
            .unwrap();
        assert_eq!(raced, Raced::Applied);
        self.nudge(None).await;
    }

    pub(crate) async fn pause_all(&self, until_ms: Option<u64>) {
        self.change_control(|next| next.pause = Some(Self::pause_until(until_ms)))
            .await;
    }

    pub(crate) async fn resume_all(&self) {
        self.change_control(|next| next.pause = None).await;
    }

    pub(crate) async fn drain(&self, worker: &str, is_wanted: bool) {
        let worker = WorkerId::new(worker).unwrap();
        self.change_control(|next| {
            if is_wanted {
                next.drains.insert(worker, Self::asked());
            } else {
                next.drains.remove(&worker);
            }
        })
        .await;
    }
}
