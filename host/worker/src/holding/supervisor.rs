//! Runs a holding's two tasks and says how it ended.

use shardmill_core::lease::LossReason;
use shardmill_core::stream::LeaseKey;
use tokio::task::JoinSet;

use super::keeper::Keeper;
use crate::freezer::Freezer;
use crate::pipeline::{PipelineEnd, ShardPipeline};
use crate::signs::SignsOwner;
use crate::status::{ShardState, StatusBoard};

/// How a holding ended.
#[derive(Debug)]
pub(crate) struct HoldingEnd {
    pub(crate) key: LeaseKey,
    pub(crate) end: PipelineEnd,
}

/// One worker's holding of one lease, from a successful take on.
pub(crate) struct Holding {
    pub(crate) key: LeaseKey,
    pub(crate) keeper: Keeper,
    pub(crate) pipeline: ShardPipeline,
    pub(crate) status: StatusBoard,
    pub(crate) freezer: Freezer,
    /// Ends the shard's gauges with the holding.
    pub(crate) signs: SignsOwner,
}

impl Holding {
    /// Runs keeper and pipeline until the pipeline is over. Dropping the future aborts both, as a
    /// crash would.
    pub(crate) async fn run(self) -> HoldingEnd {
        let Self {
            key,
            keeper,
            pipeline,
            status,
            freezer,
            signs: _signs,
        } = self;
        let shard = key.shard_id();
        let mut keeper_task = JoinSet::new();
        keeper_task.spawn(freezer.clone().guard(keeper.run()));
        let mut pipeline_task = JoinSet::new();
        pipeline_task.spawn(freezer.guard(pipeline.run()));
        let end = match pipeline_task.join_next().await {
            Some(Ok(end)) => end,
            Some(Err(error)) => PipelineEnd::Failed(error.to_string()),
            None => PipelineEnd::Lost(LossReason::DeadlinePassed),
        };
        let state = match &end {
            PipelineEnd::Ended => ShardState::Ended,
            PipelineEnd::Released => ShardState::Released,
            PipelineEnd::Lost(_) => ShardState::Lost,
            PipelineEnd::GaveUp(_) | PipelineEnd::Unreleased(_) | PipelineEnd::Failed(_) => {
                ShardState::GaveUp
            }
        };
        status.update_shard(&shard, |status| status.state = state);
        HoldingEnd { key, end }
    }
}
