//! A dry run: what a host would do now, told before it is done.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{FleetView, ObservedLease, Plan, PlanLimits, Step, plan};
use crate::lease::{Lease, Standing, WorkerId};
use crate::stream::LeaseKey;

/// What a host would do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preview {
    /// In this pass.
    pub now: Plan,
    /// In the pass that follows at once, if this one makes rows: they are taken there.
    pub then: Option<Plan>,
}

/// Plans the pass, and the next one on what the table would show after it.
pub fn preview(view: &FleetView<'_>, limits: &PlanLimits) -> Preview {
    let now = plan(view, limits);
    let has_created = now
        .steps
        .iter()
        .any(|step| matches!(step, Step::Create { .. }));
    let then = has_created.then(|| {
        let leases = after(view.me, view.leases, &now);
        plan(
            &FleetView {
                leases: &leases,
                shards: None,
                is_bootstrapped: true,
                ..*view
            },
            limits,
        )
    });
    Preview { now, then }
}

/// The rows as they would be if every write of `decided` were applied.
fn after(me: &WorkerId, leases: &[ObservedLease], decided: &Plan) -> Vec<ObservedLease> {
    let of_kind = |is_it: fn(&Step) -> bool| -> BTreeSet<&LeaseKey> {
        decided
            .steps
            .iter()
            .filter(|step| is_it(step))
            .map(Step::key)
            .collect()
    };
    let deleted = of_kind(|step| matches!(step, Step::Delete { .. }));
    let taken = of_kind(|step| matches!(step, Step::Take { .. }));
    let kept = leases
        .iter()
        .filter(|observed| !deleted.contains(&observed.lease.key))
        .cloned()
        .map(|observed| {
            if !taken.contains(&observed.lease.key) {
                return observed;
            }
            let lease = Lease {
                owner: Some(me.clone()),
                claimant: None,
                ..observed.lease
            };
            ObservedLease {
                lease,
                standing: Standing::Held,
                is_mine: true,
                ..observed
            }
        });
    let created = decided.steps.iter().filter_map(|step| match step {
        Step::Create { lease, .. } => Some(ObservedLease {
            lease: lease.as_ref().clone(),
            standing: Standing::Free,
            idle_for: Duration::ZERO,
            is_mine: false,
            is_claim_fresh: false,
            has_owner_left: false,
            is_owner_new: false,
            is_avoided: false,
        }),
        Step::Delete { .. }
        | Step::Take { .. }
        | Step::Claim { .. }
        | Step::Release { .. }
        | Step::HandOver { .. } => None,
    });
    kept.chain(created).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Balance, GoneShards, Reason, ShardList};
    use crate::stream::{HashKeyRange, InitialPosition, Shard, ShardId};

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
        let row = |shard: &Shard| ObservedLease {
            lease: Lease::fresh(shard, crate::lease::Checkpoint::TrimHorizon),
            standing: Standing::Free,
            idle_for: Duration::ZERO,
            is_mine: false,
            is_claim_fresh: false,
            has_owner_left: false,
            is_owner_new: false,
            is_avoided: false,
        };
        let shards = [shard(1, vec![]), shard(2, vec![])];
        let gone = GoneShards {
            confirmed: BTreeSet::from([id(0)]),
            ..GoneShards::default()
        };
        let mut held = row(&shard(0, vec![]));
        (held.lease.owner, held.standing) = (WorkerId::new("other"), Standing::Held);
        let leases = [held, row(&shards[0])];
        let limits = PlanLimits {
            initial_position: InitialPosition::TrimHorizon,
            max_leases: 1,
            balance: Balance::Count,
            shared_with_kcl: false,
            overdue_after: Duration::from_secs(30),
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
