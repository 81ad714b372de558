//! Runs a grant's two tasks and says how it ended.

use std::sync::Arc;

use shardmill_core::lease::{Lease, LeaseToken, LossReason};
use shardmill_core::ports::InstanceContext;
use shardmill_core::stream::LeaseKey;
use shardmill_core::time::Moment;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::keeper::Keeper;
use super::standing::Gate;
use crate::options::WorkerOptions;
use crate::pipeline::{Consumer, ConsumerPorts, PipelineEnd};
use crate::status::{ShardState, StatusBoard};

/// How a grant ended.
#[derive(Debug)]
pub(crate) struct GrantEnd {
    pub(crate) key: LeaseKey,
    pub(crate) end: PipelineEnd,
}

/// One worker's holding of one lease, from a successful take on.
pub(crate) struct Grant {
    pub(crate) ports: ConsumerPorts,
    pub(crate) options: Arc<WorkerOptions>,
    pub(crate) status: StatusBoard,
    /// The row as seen before the take.
    pub(crate) lease: Lease,
    /// The right to write, from the take.
    pub(crate) token: LeaseToken,
    /// When the take was sent.
    pub(crate) sent_at: Moment,
    /// Asks the pipeline to drain.
    pub(crate) drain: CancellationToken,
}

impl Grant {
    /// Runs keeper and pipeline until the pipeline is over. Dropping the future aborts both, as a crash would.
    pub(crate) async fn run(self) -> GrantEnd {
        let Self { ports, options, status, lease, token, sent_at, drain } = self;
        let shard = lease.key.shard_id();
        let context = Arc::new(InstanceContext {
            plugin: options.plugin.clone(),
            application: options.application.clone(),
            stream: options.stream.clone(),
            shard: shard.clone(),
            worker: options.worker.clone(),
            epoch: token.counter,
            destinations: options.destinations.clone(),
            config: options.config.clone(),
        });
        let (keeper, handle, state) =
            Keeper::new(Arc::clone(&ports.store), Arc::clone(&ports.clock), options.leases, token, sent_at);
        let gate = Gate { state, drain, clock: Arc::clone(&ports.clock) };
        let consumer = Consumer::new(ports, options, status.clone(), context, (gate, handle), lease.checkpoint);

        let mut keeper_task = JoinSet::new();
        keeper_task.spawn(keeper.run());
        let mut pipeline_task = JoinSet::new();
        pipeline_task.spawn(consumer.run());
        let end = match pipeline_task.join_next().await {
            Some(Ok(end)) => end,
            // A panic in the pipeline: the row is left to expire, as after a crash, and another take starts afresh.
            Some(Err(error)) => {
                tracing::error!(%shard, %error, "a pipeline panicked; its lease will expire and be taken again");
                PipelineEnd::Lost(LossReason::DeadlinePassed)
            }
            None => PipelineEnd::Lost(LossReason::DeadlinePassed),
        };
        let state = match end {
            PipelineEnd::Ended => ShardState::Ended,
            PipelineEnd::Released => ShardState::Released,
            PipelineEnd::Lost(_) => ShardState::Lost,
        };
        status.update_shard(&shard, |status| status.state = state);
        GrantEnd { key: lease.key, end }
    }
}
