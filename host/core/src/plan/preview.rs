//! A dry run: what a host would do now, shown before it is done.

use super::{FleetView, ObservedLease, Plan, PlanLimits, plan};
use crate::lease::{Availability, Lease, WorkerId};

/// What a host would do in its next passes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preview {
    /// The plan of this pass.
    pub now: Plan,
    /// The plan of the pass that follows at once, if this one creates rows: they are taken there.
    pub then: Option<Plan>,
}

/// Plans the pass, and the next one on what the table would show after it.
pub fn preview(view: &FleetView<'_>, limits: &PlanLimits) -> Preview {
    let now = plan(view, limits);
    if now.created().is_empty() {
        return Preview { now, then: None };
    }
    let leases = after(view.me, view.leases, &now);
    let view_then = FleetView {
        leases: &leases,
        shards: None,
        is_bootstrapped: true,
        ..*view
    };
    let then = Some(plan(&view_then, limits));
    Preview { now, then }
}

/// The rows as they would be if every write of `decided` were applied.
fn after(me: &WorkerId, leases: &[ObservedLease], decided: &Plan) -> Vec<ObservedLease> {
    let deleted = decided.deleted();
    let taken = decided.taken();
    let mut after = Vec::new();
    for observed in leases {
        let key = &observed.lease.key;
        if taken.contains(key) {
            after.push(taken_by(me, observed));
        } else if !deleted.contains(key) {
            after.push(observed.clone());
        }
    }
    after.extend(decided.created().into_iter().map(ObservedLease::fresh));
    after
}

fn taken_by(me: &WorkerId, observed: &ObservedLease) -> ObservedLease {
    let lease = Lease {
        owner: Some(me.clone()),
        claimant: None,
        ..observed.lease.clone()
    };
    ObservedLease {
        lease,
        availability: Availability::Held,
        is_mine: true,
        ..observed.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use super::*;
    use crate::plan::{Balance, GoneShards, Reason, ShardList, Step};
    use crate::stream::{HashKeyRange, InitialPosition, LeaseKey, Shard, ShardId};

    #[test]
    fn rows_that_a_pass_makes_are_taken_in_the_next_parents_only() {
        let id = |n| ShardId::new(format!("shardId-{n:012}")).unwrap();
        let shard = |n, parents| Shard {
            id: id(n),
            parents,
            hash_range: HashKeyRange::FULL,
            ending_sequence: None,
        };
        let shards = [shard(0, vec![]), shard(1, vec![id(0)])];
        let limits = PlanLimits {
            initial_position: InitialPosition::TrimHorizon,
            max_leases: usize::MAX,
            balance: Balance::Count,
            shared_with_kcl: false,
            overdue_after: Duration::from_secs(30),
            finished_rows_stay: Duration::from_secs(20),
        };
        let list = ShardList {
            shards: &shards,
            gone: &GoneShards::default(),
            before_start: None,
        };
        let me = WorkerId::new("me").unwrap();
        let view = FleetView {
            me: &me,
            leases: &[],
            workers: &[],
            shards: Some(list),
            is_bootstrapped: false,
        };
        let found = preview(&view, &limits);
        assert_eq!(
            found.now.steps.iter().map(Step::code).collect::<Vec<_>>(),
            ["create", "create"]
        );
        let then = found.then.unwrap();
        let taken: Vec<_> = then
            .steps
            .iter()
            .map(|step| (step.code(), step.key().shard_id()))
            .collect();
        assert_eq!(taken, [("take", id(0))]);
        let held_back = [(
            LeaseKey::of_shard(&id(1)),
            Reason::WaitsForParents {
                parents: vec![id(0)],
            },
        )];
        assert_eq!(then.held_back, held_back);
        assert_eq!(
            preview(
                &FleetView {
                    shards: None,
                    ..view
                },
                &limits
            )
            .then,
            None
        );
    }

    #[test]
    fn the_pass_that_follows_counts_what_this_one_takes_and_forgets_what_it_deletes() {
        let id = |n| ShardId::new(format!("shardId-{n:012}")).unwrap();
        let shard = |n, parents| Shard {
            id: id(n),
            parents,
            hash_range: HashKeyRange::FULL,
            ending_sequence: None,
        };
        let row = |shard: &Shard| {
            ObservedLease::fresh(Lease::fresh(shard, crate::lease::Checkpoint::TrimHorizon))
        };
        let shards = [shard(1, vec![]), shard(2, vec![])];
        let gone = GoneShards {
            confirmed: BTreeSet::from([id(0)]),
            ..GoneShards::default()
        };
        let mut held = row(&shard(0, vec![]));
        (held.lease.owner, held.availability) = (WorkerId::new("other"), Availability::Held);
        let leases = [held, row(&shards[0])];
        let limits = PlanLimits {
            initial_position: InitialPosition::TrimHorizon,
            max_leases: 1,
            balance: Balance::Count,
            shared_with_kcl: false,
            overdue_after: Duration::from_secs(30),
            finished_rows_stay: Duration::from_secs(20),
        };
        let me = WorkerId::new("me").unwrap();
        let list = ShardList {
            shards: &shards,
            gone: &gone,
            before_start: None,
        };
        let view = FleetView {
            me: &me,
            leases: &leases,
            workers: &[],
            shards: Some(list),
            is_bootstrapped: true,
        };
        let found = preview(&view, &limits);
        let steps: Vec<_> = found
            .now
            .steps
            .iter()
            .map(|step| (step.code(), step.key().shard_id()))
            .collect();
        assert_eq!(
            steps,
            [("delete", id(0)), ("create", id(2)), ("take", id(1))]
        );
        let then = found.then.unwrap();
        assert_eq!(
            (then.steps.len(), then.held_back),
            (0, vec![(LeaseKey::of_shard(&id(2)), Reason::AtMaxLeases)])
        );
    }
}
