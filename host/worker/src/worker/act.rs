//! Performs a plan. A write that loses its race is nothing: the next pass sees how things stand.

use std::sync::Arc;

use shardmill_core::lease::{ConflictVerdict, Generation, Lease, LeaseToken, judge_conflict};
use shardmill_core::plan::{Plan, Reason, Step};
use shardmill_core::ports::{Deleted, InstanceContext, Progress, StoreError, Written};
use shardmill_core::seeded_bug::SeededBug;
use shardmill_core::time::Moment;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{HeldLease, PassError, Worker};
use crate::grant::{Gate, Grant, Keeper, Overseer, Taken, Troubles};
use crate::metrics;
use crate::pipeline::{Consumer, ConsumerPorts};
use crate::signs::Signs;
use crate::status::ShardStatus;

/// Writes in flight at once in a pass: well below the DynamoDB client's connection pool.
const WRITES_MAX: usize = 16;

/// A row as seen, and why something is done to it.
pub(super) type Chosen = (Box<Lease>, Reason);

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
struct Sent {
    at: Moment,
    /// As the take wrote it into the row.
    wall_ms: u64,
    generation: Generation,
}

impl Worker {
    /// Performs the steps; returns whether rows were created.
    ///
    /// Once this host is to stop, no wave of writes begins any more: each may take a table's whole
    /// deadline.
    pub(super) async fn act(
        &mut self,
        decided: Plan,
        stop: &CancellationToken,
    ) -> Result<bool, PassError> {
        let (mut creates, mut takes, mut claims, mut releases) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut deletes = Vec::new();
        for step in decided.steps {
            match step {
                Step::Create { lease, reason } => creates.push((lease, reason)),
                Step::Delete { seen, reason } => deletes.push((seen, reason)),
                Step::Take { seen, reason } => takes.push((seen, reason)),
                Step::Claim { seen, reason } => claims.push((seen, reason)),
                Step::Release { seen, reason } => releases.push((seen, reason)),
                Step::HandOver { key, reason } => {
                    if let Some(held) = self
                        .held
                        .get_mut(&key)
                        .filter(|held| !held.drain.is_cancelled())
                    {
                        tracing::info!(lease = %key, %reason, "handing the lease over");
                        held.is_handed_over = true;
                        held.drain.cancel();
                    }
                }
            }
        }
        let has_created = !creates.is_empty();
        if !takes.is_empty() || !claims.is_empty() {
            // There may be more to take or to ask for: plans are cut into portions.
            self.observed.look_soon();
        }
        // A permission that is missing for one kind of write keeps nobody from the others.
        let deleted = self.delete_all(deletes, stop).await;
        let created = self.create_all(creates, stop).await;
        self.release_all(releases, stop).await;
        self.take_all(takes, stop).await;
        self.claim_all(claims, stop).await;
        self.has_news |= has_created;
        deleted.and(created)?;
        Ok(has_created)
    }

    /// Tries each, and tells of the first that failed.
    async fn delete_all(
        &self,
        deletes: Vec<Chosen>,
        stop: &CancellationToken,
    ) -> Result<(), StoreError> {
        let mut all = Ok(());
        for (seen, reason) in deletes {
            if !stop.is_cancelled() {
                let deleted = self.delete(&seen, &reason).await;
                all = all.and(deleted);
            }
        }
        all
    }

    /// Parents first: a wave of creates ends before the next begins, and no wave holds a shard and
    /// its parent. A child whose parent has no row is taken for one whose parent is long finished.
    async fn create_all(
        &self,
        creates: Vec<Chosen>,
        stop: &CancellationToken,
    ) -> Result<(), StoreError> {
        for wave in waves(&creates).take_while(|_| !stop.is_cancelled()) {
            let mut writes = JoinSet::new();
            for (lease, reason) in wave.iter().cloned() {
                match reason {
                    Reason::RowMissing | Reason::LineageTrimmed => {
                        tracing::warn!(lease = %lease.key, %reason, "creating lease");
                    }
                    _ => tracing::info!(lease = %lease.key, %reason, "creating lease"),
                }
                let store = Arc::clone(&self.ports.store);
                writes.spawn(
                    self.ports
                        .freezer
                        .clone()
                        .guard(async move { store.create(&lease).await }),
                );
            }
            while let Some(created) = writes.join_next().await {
                created.map_err(|error| StoreError::Unknown {
                    message: error.to_string(),
                })??;
            }
        }
        Ok(())
    }

    async fn delete(&self, seen: &Lease, reason: &Reason) -> Result<(), StoreError> {
        if self.delete_as_it_is(seen).await? == Deleted::Gone {
            if matches!(reason, Reason::ShardGone { .. }) && !seen.is_finished() {
                let plugin = &self.options.plugin;
                ::metrics::counter!(metrics::SHARDS_GONE, "plugin" => plugin.to_string())
                    .increment(1);
                tracing::error!(%plugin, lease = %seen.key, %reason, "records were trimmed before \
                    they were read");
            } else {
                tracing::info!(lease = %seen.key, %reason, "lease removed");
            }
        }
        Ok(())
    }

    /// A KCL renews the rows of finished shards that it holds, and any holder beside one the row of
    /// a shard that retention took, sooner than they are listed: such a row has moved and says the
    /// same, and is deleted as it is now.
    async fn delete_as_it_is(&self, seen: &Lease) -> Result<Deleted, StoreError> {
        let deleted = self.ports.store.delete(seen).await?;
        if deleted == Deleted::Gone {
            return Ok(deleted);
        }
        match self.ports.store.get(&seen.key).await? {
            Some(now) if now.checkpoint == seen.checkpoint => self.ports.store.delete(&now).await,
            Some(_) => Ok(deleted),
            None => Ok(Deleted::Gone),
        }
    }

    async fn take_all(&mut self, takes: Vec<Chosen>, stop: &CancellationToken) {
        let Some(heart) = self.heart.clone() else {
            return;
        };
        if !takes.is_empty() && self.writes.takes_rest(self.ports.clock.now()) {
            return self.observed.look_soon();
        }
        let takes = self.without_revived(takes).await;
        for wave in takes
            .chunks(WRITES_MAX)
            .take_while(|_| !stop.is_cancelled())
        {
            let mut writes = JoinSet::new();
            for (seen, reason) in wave.iter().cloned() {
                let (store, worker) = (Arc::clone(&self.ports.store), self.options.worker.clone());
                let sent = Sent {
                    at: self.ports.clock.now(),
                    wall_ms: self.ports.clock.wall_ms(),
                    generation: heart.generation(),
                };
                let wall_ms = sent.wall_ms;
                writes.spawn(self.ports.freezer.clone().guard(async move {
                    let token = match store.take(&seen, &worker, wall_ms).await {
                        Ok(Written::Applied(token)) => Some(token),
                        Ok(Written::Conflict(row)) => {
                            // A counter of one more under our name may also be the last write of an
                            // earlier run of this worker, still on its way when it died: only a
                            // take leaves the time of a take.
                            let is_ours = row
                                .as_ref()
                                .is_some_and(|row| row.held_since_ms == Some(wall_ms))
                                || SeededBug::MistakesEarlierRunsWrite.is_on();
                            let asked = seen.token(worker);
                            let verdict = judge_conflict(&asked, row.as_deref());
                            (is_ours && verdict == ConflictVerdict::AppliedEarlier)
                                .then(|| asked.advanced())
                        }
                        Err(error) => {
                            return TakeAnswer {
                                seen,
                                reason,
                                sent,
                                token: Err(error),
                            };
                        }
                    };
                    TakeAnswer {
                        seen,
                        reason,
                        sent,
                        token: Ok(token),
                    }
                }));
            }
            while let Some(answer) = writes.join_next().await {
                let Ok(TakeAnswer {
                    seen,
                    reason,
                    sent,
                    token,
                }) = answer
                else {
                    self.observed.look_soon();
                    continue;
                };
                self.writes.note_take(sent.at, token.as_ref().err());
                match token {
                    Ok(Some(token)) => self.start_grant(*seen, &reason, sent, token),
                    Err(error) => self.take_failed(&seen, &error),
                    Ok(None) => self.observed.look_soon(),
                }
            }
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

    async fn claim_all(&mut self, claims: Vec<Chosen>, stop: &CancellationToken) {
        for wave in claims
            .chunks(WRITES_MAX)
            .take_while(|_| !stop.is_cancelled())
        {
            let mut writes = JoinSet::new();
            for (seen, reason) in wave.iter().cloned() {
                let (store, worker) = (Arc::clone(&self.ports.store), self.options.worker.clone());
                writes.spawn(self.ports.freezer.clone().guard(async move {
                    let claimed = store.claim(&seen, &worker).await;
                    (seen, reason, claimed)
                }));
            }
            while let Some(answer) = writes.join_next().await {
                match answer {
                    Ok((seen, reason, Ok(Written::Applied(_)))) => {
                        tracing::info!(lease = %seen.key, %reason, "asked for the lease");
                        self.has_news = true;
                        self.observed.look_soon();
                    }
                    Ok((_, _, Ok(Written::Conflict(_)))) | Err(_) => self.observed.look_soon(),
                    Ok((seen, _, Err(error))) => {
                        tracing::debug!(lease = %seen.key, %error, "claim failed");
                        self.observed.look_soon();
                    }
                }
            }
        }
    }

    /// Gives back what is this worker's by name only. What cannot be given back now is in the next
    /// plan again.
    async fn release_all(&mut self, releases: Vec<Chosen>, stop: &CancellationToken) {
        for wave in releases
            .chunks(WRITES_MAX)
            .take_while(|_| !stop.is_cancelled())
        {
            let mut writes = JoinSet::new();
            for (seen, reason) in wave.iter().cloned() {
                let (store, token) = (
                    Arc::clone(&self.ports.store),
                    seen.token(self.options.worker.clone()),
                );
                writes.spawn(self.ports.freezer.clone().guard(async move {
                    // What the row says of a trouble stays.
                    let progress = Progress {
                        stuck: seen.stuck.clone(),
                        ..Progress::default()
                    };
                    let released = store.release(&token, &progress).await;
                    (seen, reason, released)
                }));
            }
            while let Some(answer) = writes.join_next().await {
                match answer {
                    Ok((seen, reason, Ok(Written::Applied(_)))) => {
                        tracing::info!(lease = %seen.key, %reason, "released a lease whose row \
                            named this worker");
                        self.has_news = true;
                    }
                    Ok((seen, _, Err(error))) => {
                        tracing::warn!(lease = %seen.key, %error, "release failed");
                    }
                    Ok((_, _, Ok(Written::Conflict(_)))) | Err(_) => {}
                }
                self.observed.look_soon();
            }
        }
    }

    fn start_grant(&mut self, lease: Lease, reason: &Reason, sent: Sent, token: LeaseToken) {
        let Some(heart) = self.heart.clone() else {
            return;
        };
        tracing::info!(lease = %lease.key, %reason, checkpoint = %lease.checkpoint, epoch = %token.counter, "lease taken");
        ::metrics::counter!(metrics::TAKES, "plugin" => self.options.plugin.to_string())
            .increment(1);
        let shard = lease.key.shard_id();
        let starting = ShardStatus::starting(token.counter.0, lease.checkpoint.clone());
        self.status.update(|status| {
            let earlier = status.shards.remove(shard.as_str());
            status
                .shards
                .insert(shard.to_string(), starting.after(earlier));
        });
        let context = Arc::new(InstanceContext {
            plugin: self.options.plugin.clone(),
            application: self.options.application.clone(),
            stream: self.options.stream.clone(),
            shard,
            worker: self.options.worker.clone(),
            epoch: token.counter,
            destinations: self.options.destinations.clone(),
            limits: self.options.limits,
            config: self.options.config.clone(),
            grants: Arc::clone(&self.options.grants),
        });
        let ports = &self.ports;
        let (give_up, told_to_give_up) = watch::channel(None);
        let generation = if SeededBug::HeartGenerationAtAnswer.is_on() {
            heart.generation()
        } else {
            sent.generation
        };
        let (plugin, clock) = (self.options.plugin.clone(), Arc::clone(&ports.clock));
        let signs = Signs::new(self.status.clone(), plugin, lease.key.shard_id(), clock);
        let owner = signs.owner();
        let troubles = Troubles::new(signs.clone(), lease.key.shard_id());
        let (keeper, handle, state) = Keeper::new(
            (Arc::clone(&ports.store), Arc::clone(&ports.clock)),
            self.options.leases,
            Taken {
                token,
                sent_at: sent.at,
                held_since_ms: sent.wall_ms,
                generation,
                stuck: lease.stuck.clone(),
            },
            heart.clone(),
            Arc::clone(&self.renews_rows),
            Overseer {
                troubles,
                give_up: told_to_give_up.clone(),
            },
        );
        let drain = CancellationToken::new();
        let clock = Arc::clone(&ports.clock);
        let gate = Gate {
            state,
            heart,
            drain: drain.clone(),
            give_up: told_to_give_up,
            clock,
        };
        self.held.insert(
            lease.key.clone(),
            HeldLease {
                is_handed_over: false,
                drain,
                give_up,
                keeper: handle.clone(),
            },
        );
        self.count_leases();
        let consumer = Consumer::new(
            self.consumer_ports(),
            Arc::clone(&self.options),
            (self.status.clone(), signs),
            context,
            (gate, handle),
            lease.checkpoint,
        );
        let (status, freezer) = (self.status.clone(), ports.freezer.clone());
        let grant = Grant {
            key: lease.key,
            keeper,
            consumer,
            status,
            freezer,
            signs: owner,
        };
        self.grants.spawn(ports.freezer.clone().guard(grant.run()));
    }

    fn consumer_ports(&self) -> ConsumerPorts {
        let ports = &self.ports;
        ConsumerPorts {
            reader: Arc::clone(&ports.reader),
            fan_out: self.fan_out.clone(),
            store: Arc::clone(&ports.store),
            coordinator: Arc::clone(&ports.coordinator),
            sink: Arc::clone(&ports.sink),
            dead_letters: Arc::clone(&ports.dead_letters),
            clock: Arc::clone(&ports.clock),
            budget: ports.budget.clone(),
            versions: ports.versions.clone(),
            freezer: ports.freezer.clone(),
            identity: self.identity,
            start: self.start,
            doubts: Arc::clone(&self.doubts),
            rollout: ports.rollout.view(),
        }
    }
}

/// Cuts creates, parents before children, into runs of bounded length without a shard and its
/// parent in one.
fn waves(creates: &[Chosen]) -> impl Iterator<Item = &[Chosen]> {
    let mut left = creates;
    std::iter::from_fn(move || {
        let has_parent_among = |index: usize| {
            let is_parent =
                |(lease, _): &Chosen| left[index].0.parents.contains(&lease.key.shard_id());
            left[..index].iter().any(is_parent)
        };
        let end = (0..left.len().min(WRITES_MAX)).find(|index| has_parent_among(*index));
        let (wave, rest) = left.split_at(end.unwrap_or(left.len().min(WRITES_MAX)));
        left = rest;
        (!wave.is_empty()).then_some(wave)
    })
}
