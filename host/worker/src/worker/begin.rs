//! What begins when a lease was taken: its keeper, its pipeline, and what is shown of them.

use std::sync::Arc;

use shardmill_core::lease::{Generation, Lease, LeaseToken};
use shardmill_core::plan::Reason;
use shardmill_core::ports::InstanceContext;
use shardmill_core::seeded_bug::SeededBug;
use shardmill_core::stream::ShardId;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::take::Sent;
use super::{HeldLease, Worker};
use crate::heart::HeartWatch;
use crate::holding::{Gate, Holding, Keeper, Overseer, Taken, Troubles};
use crate::metrics;
use crate::pipeline::{Consumer, ConsumerPorts};
use crate::signs::Signs;
use crate::status::ShardStatus;

impl Worker {
    /// Begins to serve a lease that was just taken.
    pub(super) fn begin(&mut self, lease: Lease, reason: &Reason, sent: Sent, token: LeaseToken) {
        let Some(heart) = self.heart.clone() else {
            return;
        };
        self.tell_of_take(&lease, reason, &token);
        let shard = lease.key.shard_id();
        let context = self.context(shard.clone(), &token);
        let signs = self.signs(shard.clone());
        let (owner, troubles) = (signs.owner(), Troubles::new(signs.clone(), shard));
        let taken = Taken {
            token,
            sent_at: sent.at,
            held_since_ms: sent.wall_ms,
            generation: held_in(sent, &heart),
            stuck: lease.stuck.clone(),
        };
        let (give_up, told_to_give_up) = watch::channel(None);
        let ports = &self.ports;
        let (keeper, handle, state) = Keeper::new(
            (Arc::clone(&ports.store), Arc::clone(&ports.clock)),
            self.options.leases,
            taken,
            heart.clone(),
            Arc::clone(&self.renews_rows),
            Overseer {
                troubles,
                give_up: told_to_give_up.clone(),
            },
        );
        let drain = CancellationToken::new();
        let gate = Gate {
            state,
            heart,
            drain: drain.clone(),
            give_up: told_to_give_up,
            clock: Arc::clone(&ports.clock),
        };
        let held = HeldLease {
            is_handed_over: false,
            drain,
            give_up,
            keeper: handle.clone(),
        };
        let consumer = Consumer::new(
            self.consumer_ports(),
            Arc::clone(&self.options),
            (self.status.clone(), signs),
            context,
            (gate, handle),
            lease.checkpoint,
        );
        let holding = Holding {
            key: lease.key.clone(),
            keeper,
            consumer,
            status: self.status.clone(),
            freezer: ports.freezer.clone(),
            signs: owner,
        };
        self.holdings
            .spawn(ports.freezer.clone().guard(holding.run()));
        self.held.insert(lease.key, held);
        self.count_leases();
    }

    fn tell_of_take(&self, lease: &Lease, reason: &Reason, token: &LeaseToken) {
        tracing::info!(
            lease = %lease.key,
            %reason,
            checkpoint = %lease.checkpoint,
            epoch = %token.counter,
            "lease taken"
        );
        ::metrics::counter!(metrics::TAKES, "plugin" => self.options.plugin.to_string())
            .increment(1);
        let shard = lease.key.shard_id();
        let starting = ShardStatus::starting(token.counter.0, lease.checkpoint.clone());
        self.status.update(|status| {
            let earlier = status.shards.remove(shard.as_str());
            let starting = starting.after(earlier);
            status.shards.insert(shard.to_string(), starting);
        });
    }

    /// What an instance is told about where it runs.
    fn context(&self, shard: ShardId, token: &LeaseToken) -> Arc<InstanceContext> {
        let options = &self.options;
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
        })
    }

    fn signs(&self, shard: ShardId) -> Signs {
        let (plugin, clock) = (self.options.plugin.clone(), Arc::clone(&self.ports.clock));
        Signs::new(self.status.clone(), plugin, shard, clock)
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
            given_up_lines: Arc::clone(&self.given_up_lines),
        }
    }
}

/// The heart's generation in which the lease is held: that of the moment when the take was sent,
/// since the answer may come long after others took the lease again.
fn held_in(sent: Sent, heart: &HeartWatch) -> Generation {
    if SeededBug::HeartGenerationAtAnswer.is_on() {
        return heart.generation();
    }
    sent.generation
}
