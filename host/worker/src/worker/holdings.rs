//! The leases that this worker holds: what begins when one is taken, and what is left when it ends.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use shardmill_core::control::{Control, Directed, Pause};
use shardmill_core::kcl_metrics::Observation;
use shardmill_core::lease::{Generation, Lease, LeaseToken, WriteTrouble};
use shardmill_core::plan::{OVERDUE_LEASES, Reason};
use shardmill_core::ports::{InstanceContext, StartPosition};
use shardmill_core::seeded_bug::SeededBug;
use shardmill_core::stream::{LeaseKey, ShardId};
use shardmill_core::time::Moment;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use super::origin::Origin;
use super::run::Run;
use crate::fan_out::FanOutView;
use crate::heart::HeartWatch;
use crate::holding::{
    Gate, Holding, HoldingEnd, Keeper, KeeperHandle, KeeperPorts, Shown, Taken, Troubles,
};
use crate::metrics;
use crate::pipeline::{LogAllowance, PipelinePorts, ShardContext, ShardPipeline, ShardReports};
use crate::signs::Signs;
use crate::status::ShardStatus;

/// Others get this many lease durations to try a lease that was given up here: longer than a host
/// with its full share waits before it takes an overdue one.
const LEAVE_TO_OTHERS_LEASES: u32 = OVERDUE_LEASES + 1;

/// The holdings, and the leases that this host gave up.
pub(super) struct Holdings {
    run: Arc<Run>,
    held: HashMap<LeaseKey, HeldLease>,
    /// Leases that this host gave up.
    avoided: HashMap<LeaseKey, Avoided>,
    tasks: JoinSet<HoldingEnd>,
    /// Whether keepers renew each row.
    renews_rows: Arc<AtomicBool>,
    /// Set if shards are subscribed to where that is possible.
    fan_out: Option<FanOutView>,
    /// How much may be logged about records that are given up.
    given_up_lines: Arc<LogAllowance>,
    /// The pause of all shards, and the version of the row that has it.
    fleet_pause: Option<Pause>,
    control_version: u64,
}

/// A lease that this host gave up, and leaves to others.
struct Avoided {
    until: Moment,
    /// Whether another host was seen to have it since. If that host gave it back, this one takes it
    /// again, since all others may be gone.
    was_taken: bool,
}

/// What this worker knows of a lease that it holds.
struct HeldLease {
    /// Whether another worker claimed it and is to have it.
    is_handed_over: bool,
    /// Asks its pipeline to drain.
    drain: CancellationToken,
    /// Asks its keeper and its pipeline to give it up, with the reason. The keeper takes the wish
    /// back once it has written the row.
    give_up: watch::Sender<Option<String>>,
    keeper: KeeperHandle,
    /// What operators want of the shard.
    directed: watch::Sender<Directed>,
}

/// A take that was applied.
pub(super) struct Take {
    /// The row as it was before.
    pub(super) lease: Lease,
    pub(super) reason: Reason,
    pub(super) sent: Sent,
    pub(super) token: LeaseToken,
}

/// When a take was sent. The lease's deadline counts from there, and in the heart's generation of
/// that moment, since the answer may come long after others took the lease again.
#[derive(Clone, Copy)]
pub(super) struct Sent {
    pub(super) at: Moment,
    /// As the take wrote it into the row.
    pub(super) wall_ms: u64,
    pub(super) generation: Generation,
}

impl Holdings {
    pub(super) fn new(
        run: Arc<Run>,
        renews_rows: Arc<AtomicBool>,
        fan_out: Option<FanOutView>,
    ) -> Self {
        Self {
            given_up_lines: Arc::new(LogAllowance::new(run.now())),
            run,
            held: HashMap::new(),
            avoided: HashMap::new(),
            tasks: JoinSet::new(),
            renews_rows,
            fan_out,
            fleet_pause: None,
            control_version: 0,
        }
    }

    /// Begins to serve a lease that was just taken.
    pub(super) fn begin(&mut self, take: Take, heart: HeartWatch, origin: &Origin) {
        self.show_take(&take);
        let key = take.lease.key.clone();
        debug_assert!(
            !self.held.contains_key(&key),
            "a lease has one keeper, the only writer of its row"
        );
        let (held, holding) = self.hold(take, heart, origin);
        self.tasks.spawn(self.run.guard(holding.run()));
        self.held.insert(key, held);
        self.show_count();
    }

    fn hold(&self, take: Take, heart: HeartWatch, origin: &Origin) -> (HeldLease, Holding) {
        let run = &self.run;
        let shard = take.lease.key.shard_id();
        let clock = Arc::clone(&run.ports.clock);
        let signs = Signs::new(run.status.clone(), run.plugin(), shard.clone(), clock);
        let (drain, (give_up, given_up)) = (CancellationToken::new(), watch::channel(None));
        let (directed, directions) = watch::channel(self.directed(&take.lease));
        let taken = take.taken(&heart);
        let ports = self.keeper_ports(&heart, &give_up);
        let troubles = Troubles::new(signs.clone(), shard.clone());
        let (keeper, handle, state) = Keeper::new(ports, run.options.leases, taken, troubles);
        let gate = Gate {
            state,
            heart,
            drain: drain.clone(),
            give_up: given_up,
            clock: Arc::clone(&run.ports.clock),
        };
        let instance = self.instance_context(shard.clone(), &take.token);
        let context = self.shard_context(shard, signs.clone(), handle.clone(), origin);
        let holding = Holding {
            key: take.lease.key.clone(),
            keeper,
            pipeline: ShardPipeline::new(context, instance, gate, take.lease, directions),
            status: run.status.clone(),
            freezer: run.ports.freezer.clone(),
            signs: signs.owner(),
        };
        let held = HeldLease {
            is_handed_over: false,
            drain,
            give_up,
            keeper: handle,
            directed,
        };
        (held, holding)
    }

    fn shard_context(
        &self,
        shard: ShardId,
        signs: Signs,
        keeper: KeeperHandle,
        origin: &Origin,
    ) -> ShardContext {
        let options = Arc::clone(&self.run.options);
        let ports = self.pipeline_ports(origin);
        let reports = ShardReports {
            status: self.run.status.clone(),
            signs,
            meter: self.run.meters.of_shard(&shard),
        };
        ShardContext::new(shard, options, ports, reports, keeper)
    }

    fn keeper_ports(
        &self,
        heart: &HeartWatch,
        give_up: &watch::Sender<Option<String>>,
    ) -> KeeperPorts {
        KeeperPorts {
            store: self.run.store(),
            clock: Arc::clone(&self.run.ports.clock),
            heart: heart.clone(),
            renews_rows: Arc::clone(&self.renews_rows),
            give_up: give_up.clone(),
        }
    }

    fn show_take(&self, take: &Take) {
        let Take {
            lease,
            reason,
            token,
            ..
        } = take;
        tracing::info!(
            lease = %lease.key,
            %reason,
            checkpoint = %lease.checkpoint,
            epoch = %token.counter,
            "lease taken"
        );
        self.run.counter(metrics::TAKES).increment(1);
        let starting = ShardStatus::starting(token.counter.0, lease.checkpoint.clone());
        self.run.status.begin_shard(&lease.key.shard_id(), starting);
    }

    /// What an instance learns about where it runs.
    fn instance_context(&self, shard: ShardId, token: &LeaseToken) -> Arc<InstanceContext> {
        let options = &self.run.options;
        Arc::new(InstanceContext {
            plugin: options.plugin.clone(),
            application: options.application.clone(),
            stream: options.stream.clone(),
            shard,
            worker: options.worker.clone(),
            epoch: token.counter,
            destinations: options.destinations.clone(),
            limits: options.limits,
            config: options.config.clone(),
            permissions: Arc::clone(&options.permissions),
            // Each instance that is made is told its own.
            start: StartPosition::default(),
        })
    }

    fn pipeline_ports(&self, origin: &Origin) -> PipelinePorts {
        let ports = &self.run.ports;
        PipelinePorts {
            reader: Arc::clone(&ports.reader),
            fan_out: self.fan_out.clone(),
            store: Arc::clone(&ports.store),
            coordinator: Arc::clone(&ports.coordinator),
            chronicle: Arc::clone(&self.run.chronicle),
            sink: Arc::clone(&ports.sink),
            dead_letters: Arc::clone(&ports.dead_letters),
            clock: Arc::clone(&ports.clock),
            tick_clock: ports.tick_clock.clone(),
            budget: ports.budget.clone(),
            versions: ports.versions.clone(),
            freezer: ports.freezer.clone(),
            identity: origin.identity(),
            start: origin.start(),
            doubts: origin.doubts(),
            rollout: ports.rollout.view(),
            given_up_lines: Arc::clone(&self.given_up_lines),
            recordings: ports.recordings.clone(),
            tap: ports.tap.clone(),
            tracer: ports.tracer.clone(),
        }
    }

    /// Whether a pipeline of this worker runs on the lease.
    pub(super) fn has(&self, key: &LeaseKey) -> bool {
        self.held.contains_key(key)
    }

    /// Whether this host leaves the lease of a row to others for now.
    pub(super) fn avoids(&self, row: &Lease) -> bool {
        let Some(avoided) = self.avoided.get(&row.key) else {
            return false;
        };
        let was_given_back = avoided.was_taken && row.owner.is_none();
        avoided.until > self.run.now() && !was_given_back
    }

    /// Notes which of the leases that this host gave up another host has.
    pub(super) fn see_owners(&mut self, rows: &[Lease]) {
        if self.avoided.is_empty() {
            return;
        }
        for row in rows {
            let is_taken = row.owner.as_ref().is_some_and(|id| id != self.run.me());
            if is_taken && let Some(avoided) = self.avoided.get_mut(&row.key) {
                avoided.was_taken = true;
            }
        }
    }

    /// How many more leases this host may hold.
    pub(super) fn room(&self) -> usize {
        let max = self.run.options.leases.max_leases;
        max.saturating_sub(self.held.len())
    }

    /// How many holdings have not ended.
    pub(super) fn running(&self) -> usize {
        self.tasks.len()
    }

    /// Asks the pipeline of a lease to finish its batch, checkpoint and release.
    pub(super) fn hand_over(&mut self, key: &LeaseKey, reason: &Reason) {
        if let Some(held) = self.held.get_mut(key)
            && !held.drain.is_cancelled()
        {
            tracing::info!(lease = %key, %reason, "handing the lease over");
            held.is_handed_over = true;
            held.drain.cancel();
        }
    }

    /// Asks all pipelines to drain.
    pub(super) fn drain(&self) {
        for held in self.held.values() {
            held.drain.cancel();
        }
    }

    /// Has the keeper check each lease whose row, among `rows`, is gone or names another owner. The
    /// listing may be stale, so it decides nothing.
    pub(super) fn verify(&self, rows: &[Lease]) {
        let me = self.run.me();
        let mine = rows.iter().filter(|row| row.owner.as_ref() == Some(me));
        let mine: BTreeSet<&LeaseKey> = mine.map(|row| &row.key).collect();
        for (key, held) in &self.held {
            if !mine.contains(key) {
                held.keeper.verify();
            }
        }
    }

    /// Tells the pipelines what operators want of their shards, as far as these rows show news.
    pub(super) fn see_directives(&self, rows: &[Lease]) {
        let me = self.run.me();
        for row in rows.iter().filter(|row| row.owner.as_ref() == Some(me)) {
            if let Some(held) = self.held.get(&row.key) {
                held.directed
                    .send_if_modified(|directed| directed.see(&row.directives));
            }
        }
    }

    /// Tells all pipelines what operators want of all shards. Returns whether that is news: an old
    /// look takes nothing back.
    pub(super) fn see_control(&mut self, control: &Control) -> bool {
        if control.version <= self.control_version {
            return false;
        }
        self.control_version = control.version;
        self.fleet_pause.clone_from(&control.pause);
        for held in self.held.values() {
            held.directed.send_modify(|directed| {
                directed.fleet_pause.clone_from(&control.pause);
            });
        }
        true
    }

    fn directed(&self, lease: &Lease) -> Directed {
        Directed {
            own: lease.directives.clone(),
            fleet_pause: if SeededBug::PauseMissesTakes.is_on() {
                None
            } else {
                self.fleet_pause.clone()
            },
        }
    }

    /// The leases that are held.
    pub(super) fn keys(&self) -> Vec<LeaseKey> {
        self.held.keys().cloned().collect()
    }

    /// The next holding that ends; `None` if there is none. Cancel-safe.
    pub(super) async fn next_ended(&mut self) -> Option<Result<HoldingEnd, JoinError>> {
        self.tasks.join_next().await
    }

    /// A holding that has ended already.
    pub(super) fn try_next_ended(&mut self) -> Option<Result<HoldingEnd, JoinError>> {
        self.tasks.try_join_next()
    }

    /// Forgets a holding that ended. Returns whether it was to be handed over.
    pub(super) fn forget(&mut self, key: &LeaseKey) -> bool {
        let held = self.held.remove(key);
        self.show_count();
        held.is_some_and(|held| held.is_handed_over)
    }

    /// Leaves a lease that was given up to others for a while.
    pub(super) fn leave_to_others(&mut self, key: LeaseKey, reason: &str) {
        tracing::warn!(lease = %key, reason, code = "lease-given-up", "lease given up");
        self.run.counter(metrics::GIVEN_UP).increment(1);
        let now = self.run.now();
        self.avoided.retain(|_, avoided| avoided.until > now);
        let avoided = Avoided {
            until: now + self.run.lease_duration() * LEAVE_TO_OTHERS_LEASES,
            was_taken: false,
        };
        self.avoided.insert(key, avoided);
    }

    /// Ends everything at once.
    pub(super) async fn abort(&mut self) {
        self.tasks.shutdown().await;
    }

    /// Asks a holding to give its lease up, unless it was asked before.
    pub(super) fn give_up(&self, key: &LeaseKey, reason: String) {
        if let Some(held) = self.held.get(key)
            && held.give_up.borrow().is_none()
        {
            held.give_up.send_replace(Some(reason));
        }
    }

    /// The write to a lease's row that does not get through, if there is one.
    pub(super) fn trouble(&self, key: &LeaseKey) -> Option<WriteTrouble> {
        self.held.get(key)?.keeper.trouble()
    }

    /// The leases with a write that does not get through.
    pub(super) fn troubles(&self) -> impl Iterator<Item = (&LeaseKey, WriteTrouble)> {
        let held = self.held.iter();
        held.filter_map(|(key, held)| Some((key, held.keeper.trouble()?)))
    }

    /// Shows how many leases this host holds.
    pub(super) fn show_count(&self) {
        self.run.gauge(metrics::LEASES, self.held.len() as f64);
    }

    /// Notes how many leases this host holds, and how many it has just lost.
    pub(super) fn note_leases(&self, lost: u64) {
        let held = self.held.len() as u64;
        let leases = Observation::Leases { held, lost };
        self.run.meters.of_worker().note(&leases);
    }
}

impl Take {
    /// What the keeper of the lease begins with. The lease is held in the heart's generation of the
    /// moment when the take was sent.
    fn taken(&self, heart: &HeartWatch) -> Taken {
        let generation = if SeededBug::HeartGenerationAtAnswer.is_on() {
            heart.generation()
        } else {
            self.sent.generation
        };
        Taken {
            token: self.token.clone(),
            sent_at: self.sent.at,
            held_since_ms: self.sent.wall_ms,
            generation,
            shown: Shown {
                stuck: self.lease.stuck.clone(),
                lag_ms: self.lease.millis_behind_latest,
            },
        }
    }
}
