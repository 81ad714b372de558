//! Performs a plan. A write that loses its race is nothing: the next pass sees how things stand.

use std::sync::Arc;

use shardmill_core::lease::Lease;
use shardmill_core::plan::{Plan, Reason, Step};
use shardmill_core::ports::{Deleted, Progress, StoreError, Written};
use shardmill_core::stream::LeaseKey;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{PassError, Worker};
use crate::metrics;

/// Writes in flight at once in a pass: well below the DynamoDB client's connection pool.
const WRITES_MAX: usize = 16;

/// A row as seen, and why something is done to it.
pub(super) type Chosen = (Box<Lease>, Reason);

/// The writes of a plan, by kind.
#[derive(Default)]
struct PlannedWrites {
    creates: Vec<Chosen>,
    deletes: Vec<Chosen>,
    takes: Vec<Chosen>,
    claims: Vec<Chosen>,
    releases: Vec<Chosen>,
}

/// How a claim or a release went.
struct WriteAnswer {
    seen: Box<Lease>,
    reason: Reason,
    written: Result<Written, StoreError>,
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
        let mut writes = PlannedWrites::default();
        for step in decided.steps {
            match step {
                Step::Create { lease, reason } => writes.creates.push((lease, reason)),
                Step::Delete { seen, reason } => writes.deletes.push((seen, reason)),
                Step::Take { seen, reason } => writes.takes.push((seen, reason)),
                Step::Claim { seen, reason } => writes.claims.push((seen, reason)),
                Step::Release { seen, reason } => writes.releases.push((seen, reason)),
                Step::HandOver { key, reason } => self.hand_over(&key, &reason),
            }
        }
        let has_created = !writes.creates.is_empty();
        if !writes.takes.is_empty() || !writes.claims.is_empty() {
            // There may be more to take or to ask for: plans are cut into portions.
            self.observed.look_soon();
        }
        // A permission that is missing for one kind of write keeps nobody from the others.
        let deleted = self.delete_all(writes.deletes, stop).await;
        let created = self.create_all(writes.creates, stop).await;
        self.release_all(writes.releases, stop).await;
        self.take_all(writes.takes, stop).await;
        self.claim_all(writes.claims, stop).await;
        self.has_news |= has_created;
        deleted.and(created)?;
        Ok(has_created)
    }

    /// Lets the lease's pipeline finish its batch, checkpoint and release.
    fn hand_over(&mut self, key: &LeaseKey, reason: &Reason) {
        let held = self.held.get_mut(key);
        if let Some(held) = held.filter(|held| !held.drain.is_cancelled()) {
            tracing::info!(lease = %key, %reason, "handing the lease over");
            held.is_handed_over = true;
            held.drain.cancel();
        }
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

    /// Sends a write for each row, [`WRITES_MAX`] at once, and hears the answers as they come: `None`
    /// of a write that panicked. No wave begins once this host is to stop.
    pub(super) async fn in_waves<Answer, Write>(
        &mut self,
        rows: Vec<Chosen>,
        stop: &CancellationToken,
        send: impl Fn(&Self, Chosen) -> Write,
        hear: impl Fn(&mut Self, Option<Answer>),
    ) where
        Write: Future<Output = Answer> + Send + 'static,
        Answer: Send + 'static,
    {
        let mut rows = rows.into_iter().peekable();
        while rows.peek().is_some() && !stop.is_cancelled() {
            let mut writes = JoinSet::new();
            for chosen in rows.by_ref().take(WRITES_MAX) {
                let freezer = self.ports.freezer.clone();
                writes.spawn(freezer.guard(send(self, chosen)));
            }
            while let Some(answer) = writes.join_next().await {
                hear(self, answer.ok());
            }
        }
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

    async fn claim_all(&mut self, claims: Vec<Chosen>, stop: &CancellationToken) {
        self.in_waves(claims, stop, Self::send_claim, Self::hear_of_claim)
            .await;
    }

    fn send_claim(&self, (seen, reason): Chosen) -> impl Future<Output = WriteAnswer> + use<> {
        let (store, worker) = (Arc::clone(&self.ports.store), self.options.worker.clone());
        async move {
            let written = store.claim(&seen, &worker).await;
            WriteAnswer {
                seen,
                reason,
                written,
            }
        }
    }

    fn hear_of_claim(&mut self, answer: Option<WriteAnswer>) {
        self.hear_of(answer, "asked for the lease", |lease, error| {
            tracing::debug!(%lease, %error, "claim failed");
        });
    }

    /// Gives back what is this worker's by name only. What cannot be given back now is in the next
    /// plan again.
    async fn release_all(&mut self, releases: Vec<Chosen>, stop: &CancellationToken) {
        self.in_waves(releases, stop, Self::send_release, Self::hear_of_release)
            .await;
    }

    fn send_release(&self, (seen, reason): Chosen) -> impl Future<Output = WriteAnswer> + use<> {
        let store = Arc::clone(&self.ports.store);
        let token = seen.token(self.options.worker.clone());
        let progress = Progress {
            stuck: self.writes.stuck_of(&seen),
            ..Progress::default()
        };
        async move {
            let written = store.release(&token, &progress).await;
            WriteAnswer {
                seen,
                reason,
                written,
            }
        }
    }

    fn hear_of_release(&mut self, answer: Option<WriteAnswer>) {
        self.hear_of(
            answer,
            "released a lease whose row named this worker",
            |lease, error| {
                tracing::warn!(%lease, %error, "release failed");
            },
        );
    }

    /// A lost race is no news, and a failed write is in the next plan again.
    fn hear_of(
        &mut self,
        answer: Option<WriteAnswer>,
        done: &'static str,
        tell_failed: impl Fn(&LeaseKey, &StoreError),
    ) {
        self.observed.look_soon();
        let Some(answer) = answer else {
            return;
        };
        let (lease, reason) = (&answer.seen.key, &answer.reason);
        match answer.written {
            Ok(Written::Applied(_)) => {
                tracing::info!(%lease, %reason, "{done}");
                self.has_news = true;
            }
            Ok(Written::Conflict(_)) => {}
            Err(error) => tell_failed(lease, &error),
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
