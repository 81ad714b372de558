//! What each live worker would do about a shard: the planner, asked from each one's point of view.

use std::fmt;

use super::{Cause, Evidence};
use crate::lease::WorkerId;
use crate::plan::{
    FleetView, ObservedLease, PlanLimits, Reason, ShardList, observed_workers, plan,
};
use crate::stream::ShardId;

/// What one worker would do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opinion {
    /// Who.
    pub worker: WorkerId,
    /// What it would do at its next look.
    pub intent: Intent,
}

/// What a worker would do about a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Intent {
    /// A step.
    Do {
        /// In a word.
        verb: &'static str,
        /// Why.
        reason: Reason,
    },
    /// It leaves it for now.
    HoldBack {
        /// Why.
        reason: Reason,
    },
    /// It holds it, and goes on with it.
    Keep,
    /// It sees no reason to do anything.
    Nothing,
}

/// Every live worker's opinion, in order of id. What a worker gave up lately only that worker
/// knows.
pub(super) fn of_live_workers(shard: &ShardId, evidence: &Evidence<'_>) -> Vec<Opinion> {
    let workers = observed_workers(evidence.observer, evidence.now);
    let leader = evidence.live_leader();
    let living = workers
        .iter()
        .filter(|worker| worker.is_alive && !worker.is_draining);
    living
        .map(|worker| {
            let me = &worker.id;
            let leases = evidence.view_of(me);
            let shards: Option<ShardList<'_>> = evidence.shards.filter(|_| leader == Some(me));
            let is_bootstrapped = evidence.is_bootstrapped;
            let view = FleetView {
                me,
                leases: &leases,
                workers: &workers,
                shards,
                is_bootstrapped,
            };
            let limits = PlanLimits {
                max_leases: worker.max_leases,
                ..evidence.limits
            };
            Opinion {
                worker: me.clone(),
                intent: intent(shard, &view, &limits),
            }
        })
        .collect()
}

fn intent(shard: &ShardId, view: &FleetView<'_>, limits: &PlanLimits) -> Intent {
    let decided = plan(view, limits);
    if let Some(step) = decided
        .steps
        .iter()
        .find(|step| step.key().shard_id() == *shard)
    {
        return Intent::Do {
            verb: step.code(),
            reason: step.reason().clone(),
        };
    }
    if let Some((_, reason)) = decided
        .held_back
        .iter()
        .find(|(key, _)| key.shard_id() == *shard)
    {
        return Intent::HoldBack {
            reason: reason.clone(),
        };
    }
    let is_mine =
        |observed: &&ObservedLease| observed.lease.key.shard_id() == *shard && observed.is_mine;
    if view.leases.iter().any(|observed| is_mine(&observed)) {
        Intent::Keep
    } else {
        Intent::Nothing
    }
}

impl Intent {
    /// Whether it tells more than `causes`, the shard's own, do.
    pub fn is_telling(&self, causes: &[Cause]) -> bool {
        match self {
            Self::Do { .. } => true,
            Self::HoldBack { reason } => !causes.contains(&Cause::Planned(reason.clone())),
            Self::Keep | Self::Nothing => false,
        }
    }
}

impl fmt::Display for Intent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Do {
                verb: "claim",
                reason,
            } => write!(f, "would ask for it: {reason}"),
            Self::Do {
                verb: "hand over",
                reason,
            } => write!(f, "would hand it over: {reason}"),
            Self::Do {
                verb: "delete",
                reason,
            } => write!(f, "would remove its row: {reason}"),
            Self::Do { verb, reason } => write!(f, "would {verb} it: {reason}"),
            Self::HoldBack { reason } => write!(f, "would leave it: {reason}"),
            Self::Keep => f.write_str("keeps it"),
            Self::Nothing => f.write_str("leaves it alone"),
        }
    }
}
