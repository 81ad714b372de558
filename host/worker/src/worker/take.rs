//! Takes: who is asked before, what counts as taken, and what follows one that failed.

use std::sync::Arc;

use shardmill_core::lease::{
    ConflictVerdict, Generation, Lease, LeaseToken, WorkerId, judge_conflict,
};
use shardmill_core::plan::Reason;
use shardmill_core::ports::{StoreError, Written};
use shardmill_core::seeded_bug::SeededBug;
use shardmill_core::time::Moment;
use tokio_util::sync::CancellationToken;

use super::Worker;
use super::act::Chosen;
use crate::heart::HeartWatch;
use crate::metrics;

/// A take that came back.
struct TakeAnswer {
    seen: Box<Lease>,
    reason: Reason,
    sent: Sent,
    /// `None` if somebody else was faster.
    token: Result<Option<LeaseToken>, StoreError>,
}

/// When a take was sent: from there its deadline counts, and in the heart's generation of that
/// moment, since the answer may come long after others took the lease again.
#[derive(Clone, Copy)]
pub(super) struct Sent {
    pub(super) at: Moment,
    /// As the take wrote it into the row.
    pub(super) wall_ms: u64,
    pub(super) generation: Generation,
}

impl Worker {
    pub(super) async fn take_all(&mut self, takes: Vec<Chosen>, stop: &CancellationToken) {
        let Some(heart) = self.heart.clone() else {
            return;
        };
        if !takes.is_empty() && self.writes.takes_rest(self.ports.clock.now()) {
            return self.observed.look_soon();
        }
        let takes = self.without_revived(takes).await;
        let send = |worker: &Self, chosen| worker.send_take(chosen, &heart);
        self.in_waves(takes, stop, send, Self::hear_of_take).await;
    }

    fn send_take(
        &self,
        (seen, reason): Chosen,
        heart: &HeartWatch,
    ) -> impl Future<Output = TakeAnswer> + use<> {
        let (store, worker) = (Arc::clone(&self.ports.store), self.options.worker.clone());
        let sent = Sent {
            at: self.ports.clock.now(),
            wall_ms: self.ports.clock.wall_ms(),
            generation: heart.generation(),
        };
        async move {
            let written = store.take(&seen, &worker, sent.wall_ms).await;
            let token = written.map(|written| match written {
                Written::Applied(token) => Some(token),
                Written::Conflict(row) => applied_earlier(&seen, worker, row.as_deref(), sent),
            });
            TakeAnswer {
                seen,
                reason,
                sent,
                token,
            }
        }
    }

    fn hear_of_take(&mut self, answer: Option<TakeAnswer>) {
        let Some(answer) = answer else {
            return self.observed.look_soon();
        };
        let TakeAnswer {
            seen,
            reason,
            sent,
            token,
        } = answer;
        self.writes.note_take(sent.at, token.as_ref().err());
        match token {
            Ok(Some(token)) => self.begin(*seen, &reason, sent, token),
            Err(error) => self.take_failed(&seen, &error),
            Ok(None) => self.observed.look_soon(),
        }
    }

    /// Told of the first, and then ever less often. What was refused is tried again ever later;
    /// what has no answer may be this host's by name, and is looked into at once.
    fn take_failed(&mut self, seen: &Lease, error: &StoreError) {
        if !matches!(error, StoreError::Unknown { .. }) {
            return self.take_not_tried(seen, error);
        }
        self.tell_of_failed_take(seen, error);
        self.heeding
            .follow_take(seen, self.options.leases.duration, self.ports.clock.now());
        self.observed.look_soon();
    }

    /// Nothing was written.
    pub(super) fn take_not_tried(&mut self, seen: &Lease, error: &StoreError) {
        self.tell_of_failed_take(seen, error);
        // Not much later: once the table answers again, records wait for this.
        let wait = self
            .options
            .backoff
            .delay(self.writes.failed_takes(), fastrand::f64());
        self.writes
            .let_takes_rest(self.ports.clock.now() + wait.min(self.options.leases.renew_every));
        self.observed.look_soon();
    }

    fn tell_of_failed_take(&self, seen: &Lease, error: &StoreError) {
        ::metrics::counter!(metrics::TAKE_FAILURES, "plugin" => self.options.plugin.to_string())
            .increment(1);
        let failures = self.writes.failed_takes();
        if failures.is_power_of_two() {
            tracing::warn!(lease = %seen.key, %error, failures, "cannot take leases, trying again");
        }
    }
}

/// The token of a take that met its own effect: it was applied, and the answer was lost.
///
/// A counter of one more under our name may also be the last write of an earlier run of this
/// worker, still on its way when it died: only a take leaves the time of a take.
fn applied_earlier(
    seen: &Lease,
    worker: WorkerId,
    row: Option<&Lease>,
    sent: Sent,
) -> Option<LeaseToken> {
    let is_ours = row.is_some_and(|row| row.held_since_ms == Some(sent.wall_ms))
        || SeededBug::MistakesEarlierRunsWrite.is_on();
    let asked = seen.token(worker);
    let verdict = judge_conflict(&asked, row);
    (is_ours && verdict == ConflictVerdict::AppliedEarlier).then(|| asked.advanced())
}
