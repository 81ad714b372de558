//! What operators want of a shard, as its pipeline knows it.

use std::time::Duration;

use shardmill_core::control::{Directed, Directives, NextStep, Reached, Skip};
use tokio::sync::watch;

/// See the module's description.
pub(super) struct Directions {
    /// As the worker reads it in the rows.
    told: watch::Receiver<Directed>,
    directed: Directed,
    /// The version of the directives that records which wait were last tried at once for.
    tried_for: u64,
}

impl Directions {
    pub(super) fn new(mut told: watch::Receiver<Directed>) -> Self {
        let directed = told.borrow_and_update().clone();
        Self {
            told,
            directed,
            tried_for: 0,
        }
    }

    /// Returns once the worker has read something new. Cancel-safe.
    pub(super) async fn news(&mut self) {
        if self.told.changed().await.is_err() {
            // The worker is gone, and takes this pipeline with it.
            std::future::pending::<()>().await;
        }
        self.take_in();
    }

    /// What to do next, on a shard that has come this far.
    pub(super) fn next_step(&mut self, reached: &Reached, wall_ms: u64) -> NextStep<'_> {
        self.take_in();
        self.directed.next_step(reached, wall_ms)
    }

    /// How long until the pause that is in effect ends by itself; `None` if it does not.
    pub(super) fn pause_ends_in(&self, wall_ms: u64) -> Option<Duration> {
        self.directed.pause_ends_in(wall_ms)
    }

    /// Returns once these records are not to be skipped any more, or not in this way. Cancel-safe.
    pub(super) async fn takes_back(&mut self, skip: &Skip) {
        while self.skip() == Some(skip) {
            self.news().await;
        }
    }

    /// The records to skip, if there are any.
    pub(super) fn skip(&self) -> Option<&Skip> {
        self.directed.own.skip.as_ref()
    }

    /// Whether records are to be skipped, and it is the first time that this is asked of these
    /// directives.
    pub(super) fn is_skip_new(&mut self) -> bool {
        let version = self.directed.own.version;
        let is_new = self.directed.own.skip.is_some() && version > self.tried_for;
        self.tried_for = self.tried_for.max(version);
        is_new
    }

    /// What is in the row.
    pub(super) fn own(&self) -> &Directives {
        &self.directed.own
    }

    /// The row shows this, by a write of this pipeline's or as one found it.
    pub(super) fn see(&mut self, row: &Directives) {
        self.directed.see(row);
    }

    /// An old look at the row may come late: it takes nothing back.
    fn take_in(&mut self) {
        let told = self.told.borrow_and_update();
        self.directed.fleet_pause.clone_from(&told.fleet_pause);
        self.directed.see(&told.own);
    }
}
