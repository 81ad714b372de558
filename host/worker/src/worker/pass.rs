//! One pass: list, plan, act.

use std::sync::Arc;
use std::time::Duration;

use shardmill_core::lease::{ConflictVerdict, Lease, LeaseObserver, LeaseToken, judge_conflict};
use shardmill_core::plan::{FleetView, ObservedLease, Phase, Plan, PlanLimits, Reason, Step, plan};
use shardmill_core::ports::{LeaseListing, StoreError, Written};
use shardmill_core::stream::Shard;
use shardmill_core::time::Moment;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{PassError, Worker};
use crate::grant::Grant;
use crate::metrics;
use crate::pipeline::ConsumerPorts;
use crate::status::ShardStatus;

/// Wait between a first pass, which leaves half to hosts starting at the same time, and the second. Long enough for a
/// host started by the same script to show up in the table, short against the promise of a first record in a second.
const START_SETTLE: Duration = Duration::from_millis(300);
/// Writes in flight at once in a pass: well below the DynamoDB client's connection pool.
const WRITES_MAX: usize = 16;

/// What a worker remembers from pass to pass.
#[derive(Default)]
pub(super) struct Observed {
    observer: LeaseObserver,
    passes: u64,
    listed_shards_at: Option<Moment>,
    listing_failures: u32,
}

impl Observed {
    /// Makes the next pass list the shards, since there are new ones.
    pub(super) fn expect_children(&mut self) {
        self.listed_shards_at = None;
    }
}

impl Worker {
    /// Looks at the table, decides, acts. Returns how long to wait for the next pass.
    ///
    /// `stop` cuts the looking short, never the acting: a take that was sent is followed by its grant, so that the
    /// lease is given back on the way out.
    pub(super) async fn pass(&mut self, stop: &CancellationToken) -> Result<Duration, PassError> {
        let looked = stop.run_until_cancelled(async {
            let listing = self.list_leases().await?;
            let shards = self.list_shards(&listing).await?;
            Ok::<_, PassError>((listing, shards))
        });
        let Some(looked) = looked.await else { return Ok(Duration::ZERO) };
        let (listing, shards) = looked?;
        let leases = self.observe(&listing);
        let phase = if self.observed.passes == 0 { Phase::Start } else { Phase::Steady };
        let view = FleetView { me: &self.options.worker, leases: &leases, shards: shards.as_deref(), phase };
        let limits =
            PlanLimits { initial_position: self.options.initial_position, max_leases: self.options.leases.max_leases };
        let decided = plan(&view, &limits);
        let left_some = decided.held_back.iter().any(|(_, reason)| *reason == Reason::LeftForOthersAtStart);
        let created = self.act(decided).await?;
        if created {
            // The new rows are taken in the next pass, at once. Only a pass that saw them counts as the first.
            return Ok(Duration::ZERO);
        }
        self.observed.passes += 1;
        self.status.update(|status| {
            status.passes += 1;
            status.lease_rows = listing.leases.len();
            status.unfinished_leases = listing.leases.iter().filter(|lease| !lease.is_finished()).count();
        });
        let jitter = 0.9 + fastrand::f64() * 0.2;
        Ok(if left_some { START_SETTLE } else { self.options.leases.scan_every.mul_f64(jitter) })
    }

    async fn list_leases(&mut self) -> Result<LeaseListing, PassError> {
        let listing = self.ports.store.list().await?;
        for bad in &listing.bad_rows {
            tracing::warn!(
                key = bad.key,
                problem = bad.problem,
                "a row of the lease table cannot be read, leaving it alone"
            );
        }
        self.observed.observer.observe(&listing.leases, self.ports.clock.now());
        Ok(listing)
    }

    /// Lists shards when the table is empty, when children are expected, and now and then.
    async fn list_shards(&mut self, listing: &LeaseListing) -> Result<Option<Vec<Shard>>, PassError> {
        let now = self.ports.clock.now();
        let is_fresh = |listed_at: Moment| now.since(listed_at) < self.options.leases.shard_sync_every;
        if !listing.leases.is_empty() && self.observed.listed_shards_at.is_some_and(is_fresh) {
            return Ok(None);
        }
        let shards = match self.ports.reader.list_shards().await {
            Ok(shards) => shards,
            // What has rows already is served all the same; only new shards wait for a listing.
            Err(error) if !listing.leases.is_empty() => {
                self.observed.listing_failures += 1;
                let failures = self.observed.listing_failures;
                if failures.is_power_of_two() {
                    tracing::warn!(%error, failures, "cannot list shards, going on with those that have leases");
                }
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        self.observed.listing_failures = 0;
        self.observed.listed_shards_at = Some(now);
        Ok(Some(shards))
    }

    fn observe(&self, listing: &LeaseListing) -> Vec<ObservedLease> {
        let now = self.ports.clock.now();
        let observe = |lease: &Lease| ObservedLease {
            lease: lease.clone(),
            standing: self.observed.observer.standing(lease, now, self.options.leases.duration),
            is_mine: self.drains.contains_key(&lease.key),
        };
        listing.leases.iter().map(observe).collect()
    }

    /// Performs the steps; returns whether rows were created.
    async fn act(&mut self, decided: Plan) -> Result<bool, PassError> {
        let (mut creates, mut takes) = (Vec::new(), Vec::new());
        for step in decided.steps {
            match step {
                Step::Create { lease, reason } => creates.push((lease, reason)),
                Step::Take { seen, reason } => takes.push((seen, reason)),
            }
        }
        let has_creates = !creates.is_empty();
        self.create_all(creates).await?;
        self.take_all(takes).await;
        Ok(has_creates)
    }

    /// Parents first: a wave of creates ends before the next begins.
    async fn create_all(&self, creates: Vec<(Box<Lease>, Reason)>) -> Result<(), StoreError> {
        for wave in creates.chunks(WRITES_MAX) {
            let mut writes = JoinSet::new();
            for (lease, reason) in wave.iter().cloned() {
                tracing::info!(lease = %lease.key, %reason, "creating lease");
                let store = Arc::clone(&self.ports.store);
                writes.spawn(async move { store.create(&lease).await });
            }
            while let Some(created) = writes.join_next().await {
                created.map_err(|error| StoreError::Unknown { message: error.to_string() })??;
            }
        }
        Ok(())
    }

    /// A take that fails is nothing: the next pass sees how things stand.
    async fn take_all(&mut self, takes: Vec<(Box<Lease>, Reason)>) {
        for wave in takes.chunks(WRITES_MAX) {
            let mut writes = JoinSet::new();
            for (seen, reason) in wave.iter().cloned() {
                let (store, worker) = (Arc::clone(&self.ports.store), self.options.worker.clone());
                let sent_at = self.ports.clock.now();
                writes.spawn(async move {
                    let taken = store.take(&seen, &worker).await;
                    let token = match taken {
                        Ok(Written::Applied(token)) => Some(token),
                        Ok(Written::Conflict(row)) => {
                            let asked = seen.token(worker);
                            let verdict = judge_conflict(&asked, row.as_deref());
                            (verdict == ConflictVerdict::AppliedEarlier).then(|| asked.advanced())
                        }
                        Err(error) => {
                            tracing::warn!(lease = %seen.key, %error, "take failed");
                            None
                        }
                    };
                    (seen, reason, sent_at, token)
                });
            }
            while let Some(taken) = writes.join_next().await {
                if let Ok((seen, reason, sent_at, Some(token))) = taken {
                    self.start_grant(*seen, &reason, sent_at, token);
                }
            }
        }
    }

    fn start_grant(&mut self, lease: Lease, reason: &Reason, sent_at: Moment, token: LeaseToken) {
        tracing::info!(lease = %lease.key, %reason, checkpoint = %lease.checkpoint, epoch = %token.counter, "lease taken");
        ::metrics::counter!(metrics::TAKES, "plugin" => self.options.plugin.to_string()).increment(1);
        let shard = lease.key.shard_id();
        let starting = ShardStatus::starting(token.counter.0, lease.checkpoint.clone());
        self.status.update(|status| {
            status.shards.insert(shard.to_string(), starting);
        });
        let drain = CancellationToken::new();
        self.drains.insert(lease.key.clone(), drain.clone());
        self.count_leases();
        let ports = &self.ports;
        let grant = Grant {
            ports: ConsumerPorts {
                reader: Arc::clone(&ports.reader),
                store: Arc::clone(&ports.store),
                sink: Arc::clone(&ports.sink),
                clock: Arc::clone(&ports.clock),
                budget: ports.budget.clone(),
                versions: ports.versions.clone(),
            },
            options: Arc::clone(&self.options),
            status: self.status.clone(),
            lease,
            token,
            sent_at,
            drain,
        };
        self.grants.spawn(grant.run());
    }
}
