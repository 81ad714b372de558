//! Takes: the second look before one is sent, what counts as taken, and what follows a failure.

use std::collections::BTreeMap;
use std::sync::Arc;

use shardmill_core::backoff::is_worth_a_line;
use shardmill_core::control::{Deed, Directives};
use shardmill_core::kcl_metrics::Observation;
use shardmill_core::lease::{ConflictVerdict, Lease, LeaseToken, WorkerId, judge_conflict};
use shardmill_core::plan::Reason;
use shardmill_core::ports::{StoreError, Took};
use shardmill_core::seeded_bug::SeededBug;
use shardmill_core::stream::ShardId;
use tokio_util::sync::CancellationToken;

use super::Worker;
use super::holdings::{Sent, Take};
use super::rows::{Chosen, Waves};
use super::run::Run;
use crate::heart::HeartWatch;
use crate::metrics;

/// Shards that an entry of the history names.
const SHARDS_SHOWN: usize = 5;

/// A take that came back.
struct TakeAnswer {
    chosen: Chosen,
    sent: Sent,
    /// `None` if another host was faster.
    taken: Result<Option<Taken>, StoreError>,
}

/// A take that was applied.
struct Taken {
    token: LeaseToken,
    /// As the row had them after the take.
    directives: Directives,
}

/// The leases of others that were taken in one pass, by the reason.
#[derive(Default)]
struct Moved(BTreeMap<String, Vec<ShardId>>);

impl Moved {
    fn note(&mut self, answer: &TakeAnswer) {
        let is_of_other = matches!(
            answer.chosen.reason,
            Reason::Expired { .. } | Reason::HandedOver | Reason::Overdue
        );
        if is_of_other && matches!(answer.taken, Ok(Some(_))) {
            let reason = answer.chosen.reason.to_string();
            let shards = self.0.entry(reason).or_default();
            shards.push(answer.chosen.row.key.shard_id());
        }
    }

    /// One entry for each reason: a host that takes a dead one's leases takes many.
    fn record(self, run: &Run) {
        for (reason, shards) in self.0 {
            let shard = match shards.as_slice() {
                [shard] => Some(shard),
                _ => None,
            };
            let shown = shards.iter().take(SHARDS_SHOWN);
            let shown: Vec<&str> = shown.map(ShardId::as_str).collect();
            let more = shards.len().saturating_sub(SHARDS_SHOWN);
            let more = (more > 0).then(|| format!(" and {more} more"));
            let details = format!("{}{}: {reason}", shown.join(", "), more.unwrap_or_default());
            run.chronicle.did(Deed::Took, shard, &details);
        }
    }
}

impl Worker {
    pub(super) async fn take_all(&mut self, takes: Vec<Chosen>, stop: &CancellationToken) {
        let Some(heart) = self.registration.heart().cloned() else {
            return;
        };
        if !takes.is_empty() && self.writes.do_takes_rest(self.run.now()) {
            return self.lookout.next().look_soon();
        }
        let takes = self.without_revived(takes).await;
        let run = Arc::clone(&self.run);
        let mut waves = Waves::new(takes, &run, stop);
        let send = |chosen| send_take(Arc::clone(&run), &heart, chosen);
        let mut moved = Moved::default();
        while let Some(answer) = waves.next(send).await {
            match answer {
                Ok(answer) => {
                    moved.note(&answer);
                    self.take_answered(answer, &heart);
                }
                Err(_) => self.lookout.next().look_soon(),
            }
        }
        moved.record(&self.run);
    }

    /// Leaves out leases of others whose owner turns out to live.
    ///
    /// A beat of an owner taken for dead, or the registration of one taken for a KCL's worker, does
    /// not move the lease's counter, so the take's own condition would not notice it. What this
    /// host saw of the fleet may be older than what it saw of the lease, if a request took long.
    async fn without_revived(&mut self, takes: Vec<Chosen>) -> Vec<Chosen> {
        let mut asked: BTreeMap<WorkerId, bool> = BTreeMap::new();
        let mut kept = Vec::new();
        for take in takes {
            let is_free_to_take = match self.owner_to_ask(&take.row) {
                None => true,
                Some(owner) => {
                    let is_dead = match asked.get(owner).copied() {
                        Some(is_dead) => is_dead,
                        None => self.is_still_dead(owner, &take.row).await,
                    };
                    asked.insert(owner.clone(), is_dead);
                    is_dead
                }
            };
            if is_free_to_take {
                kept.push(take);
            }
        }
        kept
    }

    /// The worker other than this one that a row to be taken names.
    fn owner_to_ask<'a>(&self, row: &'a Lease) -> Option<&'a WorkerId> {
        if SeededBug::TakesWithoutSecondLook.is_on() {
            return None;
        }
        row.owner.as_ref().filter(|owner| *owner != self.run.me())
    }

    /// Whether the owner's row, read consistently now, shows no more than this host, or the leader
    /// that left the errand, has seen. No answer counts as a take that failed: otherwise nothing
    /// would show that leases of dead hosts stay where they are.
    async fn is_still_dead(&mut self, owner: &WorkerId, seen: &Lease) -> bool {
        let asked_at = self.run.now();
        match self.run.ports.coordinator.worker(owner).await {
            Ok(row) => {
                let row = row.as_ref().map(|row| (&row.incarnation, row.beat));
                let errands = self.heeding.errands();
                errands
                    .is_owner_as_seen(owner, row)
                    .unwrap_or_else(|| !self.lookout.observer().has_moved(owner, row))
            }
            Err(error) => {
                self.writes.note_take(asked_at, Some(&error));
                self.take_refused(seen, &error);
                false
            }
        }
    }

    fn take_answered(&mut self, answer: TakeAnswer, heart: &HeartWatch) {
        let TakeAnswer {
            chosen: Chosen { row, reason },
            sent,
            taken,
        } = answer;
        self.writes.note_take(sent.at, taken.as_ref().err());
        if let Ok(taken) = &taken {
            let is_ours = taken.is_some();
            let meter = self.run.meters.of_worker();
            meter.note(&Observation::Taken { is_ours });
        }
        match taken {
            Ok(Some(Taken { token, directives })) => {
                let take = Take {
                    lease: Lease { directives, ..*row },
                    reason,
                    sent,
                    token,
                };
                self.holdings.begin(take, heart.clone(), &self.origin);
            }
            Ok(None) => self.lookout.next().look_soon(),
            Err(error @ StoreError::Unknown { .. }) => self.take_unanswered(&row, &error),
            Err(error) => self.take_refused(&row, &error),
        }
    }

    /// The lease may be this host's by name: its row is read at once.
    fn take_unanswered(&mut self, seen: &Lease, error: &StoreError) {
        self.show_failed_take(seen, error);
        self.heeding.errands_mut().follow_take(seen);
        self.lookout.next().look_soon();
    }

    /// Nothing was written: it is tried again ever later.
    fn take_refused(&mut self, seen: &Lease, error: &StoreError) {
        self.show_failed_take(seen, error);
        self.heeding.errands_mut().follow_refused(seen);
        // Not much later: once the table answers again, records wait for this.
        let options = &self.run.options;
        let wait = options
            .backoff
            .delay(self.writes.failed_takes(), fastrand::f64());
        self.writes
            .let_takes_rest(self.run.now() + wait.min(options.leases.renew_every));
        self.lookout.next().look_soon();
    }

    /// Counts each failure; logs the first, and then ever fewer.
    fn show_failed_take(&self, seen: &Lease, error: &StoreError) {
        self.run.counter(metrics::TAKE_FAILURES).increment(1);
        let failures = self.writes.failed_takes();
        if is_worth_a_line(failures) {
            tracing::warn!(
                lease = %seen.key,
                %error,
                failures,
                code = "take-failed",
                "cannot take leases, trying again"
            );
        }
    }
}

/// The take of a row. It counts as sent from the call on.
fn send_take(
    run: Arc<Run>,
    heart: &HeartWatch,
    chosen: Chosen,
) -> impl Future<Output = TakeAnswer> + use<> {
    let sent = Sent {
        at: run.now(),
        wall_ms: run.ports.clock.wall_ms(),
        generation: heart.generation(),
    };
    async move {
        let (seen, me) = (&chosen.row, run.me());
        let taken = match run.ports.store.take(seen, me, sent.wall_ms).await {
            Ok(Took::Applied { token, directives }) => Ok(Some(Taken {
                token,
                directives: *directives,
            })),
            Ok(Took::Conflict(row)) => Ok(applied_earlier(seen, me, row.as_deref(), sent)),
            Err(error) => Err(error),
        };
        TakeAnswer {
            chosen,
            sent,
            taken,
        }
    }
}

/// What a take brought that met its own effect: it was applied, and the answer was lost.
///
/// A counter of one more under our name may also be the last write of an earlier run of this
/// worker, still on its way when it died: only a take leaves the time of a take.
fn applied_earlier(seen: &Lease, me: &WorkerId, row: Option<&Lease>, sent: Sent) -> Option<Taken> {
    let is_ours = row.is_some_and(|row| row.held_since_ms == Some(sent.wall_ms))
        || SeededBug::MistakesEarlierRunsWrite.is_on();
    let asked = seen.token(me.clone());
    let verdict = judge_conflict(&asked, row);
    (is_ours && verdict == ConflictVerdict::AppliedEarlier).then(|| Taken {
        token: asked.advanced(),
        directives: row.map(|row| row.directives.clone()).unwrap_or_default(),
    })
}
