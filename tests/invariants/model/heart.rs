//! The heartbeat, exhaustively: one host that holds a lease by its heart, one that watches both
//! tables and takes what is dead.
//!
//! What decides is the product's own: what an observer takes for dead, what a heartbeat holds, what
//! a row says of a lost answer, and whom a host takes for a KCL's worker. The model brings what may
//! happen between: answers that come late or never, requests that arrive long after their senders
//! gave up, either table out of reach for the holder, and a row that somebody removes.

mod decided;
mod observer;
mod protocol;
mod state;
mod steps;

use std::time::Instant;

use shardmill_invariants::{Invariant, check};
use stateright::{Checker, HasDiscoveries, Model};

use super::recorder::Recorder;
use super::state::TICK;
use protocol::{Action, Heartbeats, Mutation, RULE};
use state::{Broken, Budget, HOLD_TICKS, LEASE_TICKS, State};

const NONE: Budget = Budget {
    lost_answers: 0,
    coordinator_cuts: 0,
    lease_cuts: 0,
    removals: 0,
    slow_beats: 0,
    slow_writes: 0,
    slow_looks: 0,
    checkpoints: 0,
};
/// A write whose answer comes after a heart could miss its deadline, and others take the lease.
const VERY_LATE_ANSWER: Budget = Budget {
    slow_writes: 7,
    coordinator_cuts: 1,
    ..NONE
};

fn limits() -> shardmill_invariants::Limits {
    let mut limits = shardmill_invariants::Limits::new(u64::from(LEASE_TICKS) * TICK, 0);
    limits.margin = u64::from(LEASE_TICKS - HOLD_TICKS) * TICK;
    limits
}

/// What `check` says of a path.
fn verdict(model: &Heartbeats, actions: &[Action]) -> (State, Vec<Invariant>) {
    let mut log = Recorder::one_shard();
    let mut state = model.start();
    for action in actions {
        state = model.step(&state, *action, &mut log);
    }
    let mut found: Vec<_> = check(&log.events, &limits())
        .iter()
        .map(|violation| violation.invariant)
        .collect();
    found.dedup();
    (state, found)
}

fn holds(name: &str, budget: Budget) {
    let began = Instant::now();
    let model = Heartbeats {
        budget,
        mutation: None,
    };
    let checker = model.clone().checker().spawn_bfs().join();
    let (unique, depth) = (checker.unique_state_count(), checker.max_depth());
    println!(
        "{name}: {unique} states, {} steps, depth {depth}, {:?}",
        checker.state_count(),
        began.elapsed()
    );
    if let Some(path) = checker.discovery(RULE) {
        let actions = path.into_actions();
        let verdict = verdict(&model, &actions);
        panic!("{actions:#?}\n{verdict:#?}");
    }
    checker.assert_no_discovery(RULE);
}

/// A mistake is found, and so is its history where it makes two owners.
#[track_caller]
fn finds(mutation: Mutation, budget: Budget, expected: Broken) {
    let model = Heartbeats {
        budget,
        mutation: Some(mutation),
    };
    let checker = model
        .clone()
        .checker()
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let path = checker
        .discovery(RULE)
        .unwrap_or_else(|| panic!("{mutation:?} was not found"));
    let actions = path.into_actions();
    let (state, found) = verdict(&model, &actions);
    println!(
        "{mutation:?}: {:?} after {} steps, {} states",
        state.broken,
        actions.len(),
        checker.unique_state_count()
    );
    assert_eq!(state.broken, Some(expected), "{actions:#?}");
    if expected == Broken::TwoOwners {
        assert!(
            found.contains(&Invariant::S10),
            "check says {found:?} of {actions:#?}"
        );
    }
}

#[test]
fn a_heart_holds_its_leases_and_no_others_when_answers_are_slow() {
    holds(
        "slow heartbeats",
        Budget {
            slow_beats: 4,
            ..NONE
        },
    );
    holds(
        "slow looks",
        Budget {
            slow_looks: 4,
            ..NONE
        },
    );
}

#[test]
fn a_heart_holds_its_leases_and_no_others_when_answers_are_lost() {
    holds(
        "lost answers",
        Budget {
            lost_answers: 2,
            checkpoints: 1,
            slow_writes: 1,
            ..NONE
        },
    );
}

#[test]
fn a_heart_holds_nothing_that_was_taken_while_its_take_was_not_answered() {
    holds("a very late answer", VERY_LATE_ANSWER);
}

#[test]
fn a_heart_holds_its_leases_and_no_others_while_one_table_is_out_of_reach() {
    holds(
        "one table after the other",
        Budget {
            coordinator_cuts: 1,
            lease_cuts: 1,
            ..NONE
        },
    );
    holds(
        "lost answers besides",
        Budget {
            coordinator_cuts: 1,
            lost_answers: 1,
            ..NONE
        },
    );
}

#[test]
fn a_heart_whose_row_is_removed_by_hand_is_not_robbed() {
    holds(
        "removed row",
        Budget {
            removals: 1,
            slow_looks: 1,
            lost_answers: 1,
            ..NONE
        },
    );
    holds(
        "removed row, no coordinator",
        Budget {
            removals: 1,
            coordinator_cuts: 1,
            ..NONE
        },
    );
}

#[test]
fn every_rule_of_the_heart_is_put_to_the_test() {
    let model = Heartbeats {
        budget: Budget {
            coordinator_cuts: 1,
            lease_cuts: 1,
            removals: 1,
            ..NONE
        },
        mutation: None,
    };
    model.checker().spawn_bfs().join().assert_properties();
}

#[test]
fn paths_of_the_heart_are_fine_histories() {
    let budget = Budget {
        lost_answers: 3,
        coordinator_cuts: 2,
        lease_cuts: 2,
        removals: 1,
        slow_beats: 4,
        slow_writes: 6,
        slow_looks: 3,
        checkpoints: 3,
    };
    let model = Heartbeats {
        budget,
        mutation: None,
    };
    let mut dice = 0x9e37_79b9_7f4a_7c15_u64;
    let (mut steps, mut taken_over) = (0, 0);
    for _ in 0..1_500 {
        let (mut state, mut actions) = (model.start(), Vec::new());
        for _ in 0..120 {
            let mut possible = Vec::new();
            model.actions(&state, &mut possible);
            if possible.is_empty() {
                break;
            }
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            let action = possible[(dice % possible.len() as u64) as usize];
            actions.push(action);
            state = model.step(&state, action, &mut Recorder::off());
            if state.may_deliver() {
                actions.push(Action::Deliver);
            }
        }
        steps += actions.len();
        taken_over += usize::from(state.row.owner == Some(state::Name::Watcher));
        let (_, found) = verdict(&model, &actions);
        assert!(found.is_empty(), "{found:?} on {actions:#?}");
    }
    println!("{steps} steps, {taken_over} leases taken over");
    assert!(taken_over > 20);
}

#[test]
fn a_heart_that_never_holds_again_after_a_missed_deadline_is_found() {
    finds(
        Mutation::NeverHeldAgain,
        Budget {
            coordinator_cuts: 1,
            ..NONE
        },
        Broken::NeedlessRenewal,
    );
}

#[test]
fn a_host_that_takes_a_vanished_owner_for_dead_at_once_is_found() {
    finds(
        Mutation::VanishedIsDead,
        Budget {
            removals: 1,
            ..NONE
        },
        Broken::TwoOwners,
    );
}

#[test]
fn a_leader_that_removes_the_row_of_an_owner_whose_leases_move_is_found() {
    finds(
        Mutation::ReapsOwnersOfMovingRows,
        Budget {
            coordinator_cuts: 1,
            ..NONE
        },
        Broken::TakenForKcl,
    );
}

#[test]
fn a_take_that_belongs_to_the_generation_of_its_answer_is_found() {
    finds(
        Mutation::TakeCountsFromItsAnswer,
        VERY_LATE_ANSWER,
        Broken::TwoOwners,
    );
}

#[test]
fn a_late_heartbeat_that_revives_is_found() {
    finds(
        Mutation::LateHeartbeatRevives,
        VERY_LATE_ANSWER,
        Broken::TwoOwners,
    );
}

#[test]
fn a_heartbeat_that_counts_from_its_answer_is_found() {
    finds(
        Mutation::HeartbeatCountsFromItsAnswer,
        Budget {
            slow_beats: 4,
            ..NONE
        },
        Broken::TwoOwners,
    );
}

#[test]
fn a_take_without_a_second_look_is_found() {
    finds(
        Mutation::NoSecondLook,
        Budget {
            slow_looks: 4,
            ..NONE
        },
        Broken::TwoOwners,
    );
}
