//! What each live worker would do about a shard, by running the planner from its point of view.

use std::fmt;

use super::{Cause, Evidence};
use crate::lease::WorkerId;
use crate::plan::{FleetView, ObservedWorker, PlanLimits, Reason, Step, observed_workers, plan};
use crate::stream::ShardId;

/// What one live worker would do about the shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opinion {
    /// The worker from whose view the plan was made.
    pub worker: WorkerId,
    /// What it would do at its next look.
    pub intent: Intent,
}

/// What a worker would do about a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Intent {
    /// It would take this step, which includes its reason.
    Do(Step),
    /// It would leave the shard for now.
    HoldBack {
        /// Why the planner did not choose a step.
        reason: Reason,
    },
    /// It holds the lease, and keeps it.
    Keep,
    /// It sees no reason to do anything.
    Nothing,
}

/// Every live worker's opinion, in order of id. Only a worker itself knows which leases it gave up
/// a short while ago, so these are not considered here.
pub(super) fn of_live_workers(shard: &ShardId, evidence: &Evidence<'_>) -> Vec<Opinion> {
    let workers = observed_workers(evidence.observer, evidence.now);
    let living = workers
        .iter()
        .filter(|worker| worker.is_alive && !worker.is_draining);
    living
        .map(|worker| Opinion {
            worker: worker.id.clone(),
            intent: intent_of(worker, &workers, shard, evidence),
        })
        .collect()
}

fn intent_of(
    worker: &ObservedWorker,
    workers: &[ObservedWorker],
    shard: &ShardId,
    evidence: &Evidence<'_>,
) -> Intent {
    let is_leader = evidence.live_leader() == Some(&worker.id);
    let leases = evidence.view_of(&worker.id);
    let view = FleetView {
        me: &worker.id,
        leases: &leases,
        workers,
        shards: if is_leader { evidence.shards } else { None },
        is_bootstrapped: evidence.is_bootstrapped,
    };
    let limits = PlanLimits {
        max_leases: worker.max_leases,
        ..evidence.limits
    };
    intent(shard, &view, &limits)
}

fn intent(shard: &ShardId, view: &FleetView<'_>, limits: &PlanLimits) -> Intent {
    let plan = plan(view, limits);
    let mut steps = plan.steps.into_iter();
    if let Some(step) = steps.find(|step| step.key().shard_id() == *shard) {
        return Intent::Do(step);
    }
    let mut held_back = plan.held_back.into_iter();
    if let Some((_, reason)) = held_back.find(|(key, _)| key.shard_id() == *shard) {
        return Intent::HoldBack { reason };
    }
    let mut leases = view.leases.iter();
    if leases.any(|observed| observed.is_mine && observed.lease.key.shard_id() == *shard) {
        Intent::Keep
    } else {
        Intent::Nothing
    }
}

impl Intent {
    /// Whether it says more than `causes`, the causes of the shard itself.
    pub fn adds_to(&self, causes: &[Cause]) -> bool {
        match self {
            Self::Do(_) => true,
            Self::HoldBack { reason } => !causes.contains(&Cause::Planned(reason.clone())),
            Self::Keep | Self::Nothing => false,
        }
    }
}

impl fmt::Display for Intent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Do(step) => {
                let action = match step {
                    Step::Create { .. } => "create it",
                    Step::Delete { .. } => "remove its row",
                    Step::Take { .. } => "take it",
                    Step::Claim { .. } => "ask for it",
                    Step::Release { .. } => "release it",
                    Step::HandOver { .. } => "hand it over",
                };
                write!(f, "would {action}: {}", step.reason())
            }
            Self::HoldBack { reason } => write!(f, "would leave it: {reason}"),
            Self::Keep => f.write_str("keeps it"),
            Self::Nothing => f.write_str("leaves it alone"),
        }
    }
}
