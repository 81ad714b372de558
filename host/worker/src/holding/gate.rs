//! What a pipeline may assume of its lease, published by the keeper.
//!
//! | the lease is | event | then it is |
//! |---|---|---|
//! | held | a write to its row is applied | held, with a later deadline |
//! | held | a write has no answer | in doubt |
//! | in doubt | the row shows whether it was applied, or it is sent again and answered | held |
//! | held or in doubt | the row has another owner or is gone, or the deadline passed | lost |
//!
//! A lost lease stays lost, and its keeper ends. New records go out only while the lease is held.

use std::sync::Arc;

use shardmill_core::lease::{Hold, LossReason};
use shardmill_core::ports::Clock;
use shardmill_core::seeded_bug::SeededBug;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::heart::HeartWatch;

/// What the keeper knows about the lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LeaseState {
    /// This host holds it, by the row's own writes or the host's heart.
    Held(Hold),
    /// A write has no answer yet: no new records go out before it is settled.
    InDoubt(Hold),
    /// Gone.
    Lost(LossReason),
}

/// Why a pipeline must stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// The lease is gone: nothing may be written or emitted any more.
    Lost(LossReason),
    /// The host or the plugin is going down, or another host asked for the lease: finish,
    /// checkpoint, release.
    Draining,
    /// It makes no progress, for this reason: give the lease up, so that another host may try.
    Stuck(String),
}

/// A pipeline's view of its lease and of the wish to stop.
#[derive(Clone)]
pub(crate) struct Gate {
    pub(crate) state: watch::Receiver<LeaseState>,
    pub(crate) heart: HeartWatch,
    pub(crate) drain: CancellationToken,
    /// Why the lease is to be given up, if it is.
    pub(crate) give_up: watch::Receiver<Option<String>>,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Gate {
    /// Returns once new records may go out; fails if they never may again.
    pub(crate) async fn pass(&mut self) -> Result<(), Stopped> {
        loop {
            if self.drain.is_cancelled() {
                return Err(Stopped::Draining);
            }
            self.check_held()?;
            let is_settled = matches!(*self.state.borrow_and_update(), LeaseState::Held(_));
            if is_settled || SeededBug::DeliversInDoubt.is_on() {
                return Ok(());
            }
            tokio::select! {
                changed = self.state.changed() => if changed.is_err() { return Err(keeper_gone()) },
                () = self.drain.cancelled() => {}
                Ok(()) = self.give_up.changed() => {}
            }
        }
    }

    /// Fails if the lease is gone, is to be given up, or its deadline has passed; says nothing
    /// about draining.
    pub(crate) fn check_held(&self) -> Result<(), Stopped> {
        if SeededBug::DeliversAfterLoss.is_on() {
            return Ok(());
        }
        match &*self.state.borrow() {
            LeaseState::Lost(reason) => Err(Stopped::Lost(reason.clone())),
            // The host may have been paused between two renewals; then the keeper could not report
            // it yet.
            LeaseState::Held(hold) | LeaseState::InDoubt(hold)
                if self.clock.now() >= self.heart.deadline(*hold)
                    && !SeededBug::NoHolderDeadline.is_on() =>
            {
                Err(Stopped::Lost(LossReason::DeadlinePassed))
            }
            LeaseState::Held(_) | LeaseState::InDoubt(_) => match &*self.give_up.borrow() {
                Some(reason) => Err(Stopped::Stuck(reason.clone())),
                None => Ok(()),
            },
        }
    }

    /// Returns when the lease is lost; never otherwise.
    pub(crate) async fn lost(&mut self) -> Stopped {
        lost(&mut self.state).await
    }

    /// Returns when the lease is lost or to be given up. Ignores a request to drain: the current
    /// batch is finished first.
    pub(crate) async fn over(&mut self) -> Stopped {
        let Self { state, give_up, .. } = self;
        tokio::select! {
            biased;
            lost = lost(state) => lost,
            given_up = given_up(give_up) => given_up,
        }
    }

    /// Returns when the pipeline is asked to drain, or its lease is lost or to be given up.
    pub(crate) async fn stopped(&mut self) -> Stopped {
        let Self {
            state,
            drain,
            give_up,
            ..
        } = self;
        tokio::select! {
            biased;
            lost = lost(state) => lost,
            given_up = given_up(give_up) => given_up,
            () = drain.cancelled() => Stopped::Draining,
        }
    }
}

async fn lost(state: &mut watch::Receiver<LeaseState>) -> Stopped {
    loop {
        if let LeaseState::Lost(reason) = &*state.borrow_and_update() {
            return Stopped::Lost(reason.clone());
        }
        if state.changed().await.is_err() {
            return keeper_gone();
        }
    }
}

async fn given_up(give_up: &mut watch::Receiver<Option<String>>) -> Stopped {
    loop {
        if let Some(reason) = &*give_up.borrow_and_update() {
            return Stopped::Stuck(reason.clone());
        }
        if give_up.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// A keeper that ended without a report was aborted; then nothing is known about the lease.
fn keeper_gone() -> Stopped {
    Stopped::Lost(LossReason::DeadlinePassed)
}
