//! The lease protocol, exhaustively: two hosts, a shard that has split, its children, and every
//! order of what may happen.
//!
//! The model judges each step by the rules of the library. Its paths are also written down as
//! histories and judged by `check`: random ones must be fine, and a path that breaks a rule must
//! break it there too.
//!
//! Here each row is renewed by itself; what holds leases without that is in [`heart`].

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::cast_possible_truncation,
    reason = "a test fails by panicking and prints its counts; hosts are few"
)]

mod effects;
mod heart;
mod judge;
mod protocol;
mod recorder;
mod state;

use std::time::Instant;

use protocol::{Action, Mutation, Protocol};
use recorder::Recorder;
use shardmill_invariants::{Invariant, check};
use state::{Budget, State, limits};
use stateright::{Checker, HasDiscoveries, Model};

const RULE: &str = "no invariant is broken";

/// Faults in any one run: each scope is searched to its end, so that together they stay small.
const NONE: Budget = Budget {
    crashes: 0,
    pauses: 0,
    lost_answers: 0,
    claims: 0,
    delays: 0,
};

fn protocol(counter_max: u8, budget: Budget, mutation: Option<Mutation>) -> Protocol {
    Protocol {
        records: 2,
        counter_max,
        budget,
        mutation,
    }
}

/// What `check` says of a path.
fn verdict(
    protocol: &Protocol,
    actions: impl IntoIterator<Item = Action>,
) -> (State, Vec<Invariant>) {
    let mut log = Recorder::on(protocol.records);
    let mut state = protocol.start();
    for action in actions {
        state = protocol.step(&state, action, &mut log);
    }
    let mut found: Vec<_> = check(&log.events, &limits())
        .iter()
        .map(|violation| violation.invariant)
        .collect();
    found.dedup();
    (state, found)
}

fn holds(name: &str, counter_max: u8, budget: Budget) {
    let began = Instant::now();
    let protocol = protocol(counter_max, budget, None);
    let checker = protocol.clone().checker().spawn_bfs().join();
    let (unique, depth) = (checker.unique_state_count(), checker.max_depth());
    println!(
        "{name}: {unique} states, {} steps, depth {depth}, {:?}",
        checker.state_count(),
        began.elapsed()
    );
    if let Some(path) = checker.discovery(RULE) {
        let actions = path.into_actions();
        let verdict = verdict(&protocol, actions.iter().copied());
        panic!("{actions:#?}\n{verdict:?}");
    }
    checker.assert_properties();
}

#[test]
fn the_protocol_holds_without_faults() {
    holds("no fault", 6, NONE);
}

#[test]
fn the_protocol_holds_when_a_host_crashes_and_an_answer_is_lost() {
    holds(
        "crash, lost answer",
        5,
        Budget {
            crashes: 1,
            lost_answers: 1,
            ..NONE
        },
    );
}

#[test]
fn the_protocol_holds_when_a_lease_is_claimed_and_an_answer_is_lost() {
    holds(
        "claim, lost answer",
        5,
        Budget {
            claims: 1,
            lost_answers: 1,
            ..NONE
        },
    );
}

#[test]
fn the_protocol_holds_when_answers_are_slow_and_lost() {
    holds(
        "delay, lost answer",
        4,
        Budget {
            delays: 1,
            lost_answers: 1,
            ..NONE
        },
    );
}

#[test]
fn the_protocol_holds_when_a_host_is_paused() {
    holds("pause", 5, Budget { pauses: 1, ..NONE });
}

#[test]
fn paths_of_the_protocol_are_fine_histories() {
    let budget = Budget {
        crashes: 1,
        pauses: 1,
        lost_answers: 2,
        claims: 2,
        delays: 2,
    };
    let protocol = protocol(9, budget, None);
    let mut dice = 0x9e37_79b9_7f4a_7c15_u64;
    let (mut ends, mut steps) = (0, 0);
    for _ in 0..3_000 {
        let (mut state, mut actions) = (protocol.start(), Vec::new());
        for _ in 0..60 {
            let mut possible = Vec::new();
            protocol.actions(&state, &mut possible);
            if possible.is_empty() {
                break;
            }
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            let action = possible[(dice % possible.len() as u64) as usize];
            actions.push(action);
            state = protocol.step(&state, action, &mut Recorder::off());
        }
        ends += usize::from(state.row.checkpoint == state::END);
        steps += actions.len();
        let (_, found) = verdict(&protocol, actions.iter().copied());
        assert!(found.is_empty(), "{found:?} on {actions:#?}");
    }
    println!("{steps} steps, {ends} ended shards");
    assert!(ends > 100);
}

#[track_caller]
fn finds(mutation: Mutation, budget: Budget, expected: &[Invariant]) {
    let protocol = protocol(5, budget, Some(mutation));
    let checker = protocol
        .clone()
        .checker()
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let path = checker
        .discovery(RULE)
        .unwrap_or_else(|| panic!("{mutation:?} was not found"));
    let actions = path.into_actions();
    let (state, found) = verdict(&protocol, actions.iter().copied());
    println!(
        "{mutation:?}: {:?} after {} steps, {} states",
        state.broken,
        actions.len(),
        checker.unique_state_count()
    );
    assert!(
        state
            .broken
            .is_some_and(|broken| expected.contains(&broken)),
        "{state:#?} after {actions:#?}"
    );
    // The history may show it by more than one rule, but never by none.
    assert!(
        found.iter().any(|broken| expected.contains(broken)),
        "check says {found:?} of {actions:#?}"
    );
}

#[test]
fn no_condition_is_found() {
    finds(
        Mutation::NoCondition,
        Budget { crashes: 1, ..NONE },
        &[Invariant::S2],
    );
}

#[test]
fn a_condition_on_the_owner_only_is_found() {
    finds(
        Mutation::OwnerOnlyCondition,
        Budget {
            lost_answers: 1,
            ..NONE
        },
        &[Invariant::S2],
    );
}

#[test]
fn a_take_that_does_not_raise_the_counter_is_found() {
    finds(Mutation::CounterNotRaisedOnTake, NONE, &[Invariant::S1]);
}

#[test]
fn a_deadline_from_the_reply_is_found() {
    finds(
        Mutation::DeadlineFromReply,
        Budget { delays: 3, ..NONE },
        &[Invariant::S10],
    );
}

#[test]
fn going_on_after_an_unknown_outcome_is_found() {
    finds(
        Mutation::ContinueAfterUnknown,
        Budget {
            lost_answers: 1,
            ..NONE
        },
        &[Invariant::S11],
    );
}

#[test]
fn an_end_without_children_is_found() {
    finds(Mutation::EndWithoutChildren, NONE, &[Invariant::S5]);
}

#[test]
fn an_end_without_kinesis_word_is_found() {
    finds(Mutation::EndWithoutWord, NONE, &[Invariant::S5]);
}

#[test]
fn a_child_before_its_parents_end_is_found() {
    finds(Mutation::ChildBeforeParentEnd, NONE, &[Invariant::S6]);
}

#[test]
fn a_take_of_a_live_lease_is_found() {
    finds(Mutation::TakeOfLiveLease, NONE, &[Invariant::S10]);
}

#[test]
fn a_checkpoint_before_settling_is_found() {
    finds(Mutation::CheckpointBeforeSettling, NONE, &[Invariant::S4]);
}

#[test]
fn a_hand_over_without_a_checkpoint_is_found() {
    finds(
        Mutation::HandOverWithoutCheckpoint,
        Budget { claims: 1, ..NONE },
        &[Invariant::S9],
    );
}

#[test]
fn a_delivery_past_the_deadline_is_found() {
    finds(Mutation::DeliverPastDeadline, NONE, &[Invariant::S10]);
}

#[test]
fn a_checkpoint_that_goes_back_is_found() {
    finds(Mutation::CheckpointGoesBack, NONE, &[Invariant::S3]);
}
