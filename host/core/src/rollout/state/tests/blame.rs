//! What is held against whom: records, a version, the host.

use super::*;

#[test]
fn what_a_version_fails_on_in_a_call_during_which_it_was_taken_away_is_held_against_nothing() {
    let mut host = Host::running(RolloutPolicy::default());
    host.offer(2);
    assert_eq!(host.runs(), [2, 1, 1]);
    host.handles(2, 10, 1);
    assert_eq!(host.runs(), [2, 2, 2]);
    host.rollout.did_not_start(
        &site(2),
        &digest(2),
        StartFailure::Failed("not here".into()),
        host.at,
    );
    assert_eq!(
        host.rollout
            .failed(&site(0), &digest(2), fault("unreachable")),
        Blamed::Nothing { instead: digest(1) }
    );
    assert_eq!(
        host.rollout
            .failed(&site(0), &digest(1), fault("unreachable")),
        Blamed::Records
    );
    assert_eq!(host.runs(), [1, 1, 1]);
}

#[test]
fn the_version_that_is_to_show_whose_fault_it_was_is_named_and_is_charged_itself() {
    let mut host = Host::running(RolloutPolicy::default());
    host.offer(2);
    host.runs();
    let judge = digest(1);
    assert_eq!(
        host.rollout.failed(&site(0), &digest(2), fault("poison")),
        Blamed::Version {
            judge: judge.clone()
        }
    );
    host.rollout.verified(&site(0), false, host.at);
    host.handles(2, 10, 1);
    assert_eq!(host.runs(), [2, 2, 2]);
    assert_eq!(
        host.rollout.failed(&site(1), &digest(2), fault("poison")),
        Blamed::Version { judge }
    );
    assert_eq!(
        host.rollout.failed(&site(1), &digest(1), fault("poison")),
        Blamed::Records
    );
    assert_eq!(
        host.rollout.failed(&site(0), &digest(1), fault("poison")),
        Blamed::Nothing { instead: digest(2) },
        "it looks into nothing there"
    );
}

#[test]
fn a_version_in_probation_that_does_not_start_is_rolled_back_and_not_the_one_that_is_tried_after_it()
 {
    let mut host = Host::running(RolloutPolicy::default());
    host.offer(2);
    host.runs();
    host.handles(2, 10, 1);
    host.offer(3);
    assert_eq!(host.runs(), [3, 2, 2]);
    host.rollout.did_not_start(
        &site(2),
        &digest(2),
        StartFailure::Failed("not here".into()),
        host.at,
    );
    let entry = host.rollout.quarantined().next().unwrap();
    assert_eq!(entry.digest, digest(2));
    assert_eq!(host.runs(), [3, 1, 1], "the trial goes on");
}

#[test]
fn what_may_pass_is_waited_for_and_what_takes_too_long_is_tried_three_times() {
    let mut host = Host::running(RolloutPolicy::default());
    host.offer(2);
    for _ in 0..10 {
        assert_eq!(host.role(0), Role::Probe(digest(2)));
        host.rollout.probed(
            &digest(2),
            Err(StartFailure::NotMade("the service is away".into())),
            host.at,
        );
        assert_eq!(host.role(0), Role::Run(digest(1)));
        host.wait(5);
    }
    assert_eq!(host.runs(), [2, 1, 1]);
    let slow = || StartFailure::TooSlow("init took 5 s".into());
    for _ in 0..2 {
        host.rollout
            .did_not_start(&site(0), &digest(2), slow(), host.at);
        assert_eq!(host.states(), ["active", "probing"]);
        host.wait(5);
        assert_eq!(host.runs(), [2, 1, 1]);
    }
    host.rollout
        .did_not_start(&site(0), &digest(2), slow(), host.at);
    assert_eq!(host.states(), ["active", "quarantined"]);
}

#[test]
fn in_probation_a_start_that_may_go_well_another_time_rolls_nothing_back() {
    let mut host = Host::running(RolloutPolicy::default());
    host.offer(2);
    host.runs();
    host.handles(2, 10, 1);
    for failure in [
        StartFailure::NotMade("no secret".into()),
        StartFailure::TooSlow("5 s".into()),
    ] {
        (0..9).for_each(|_| {
            host.rollout
                .did_not_start(&site(1), &digest(2), failure.clone(), host.at);
        });
    }
    assert_eq!(host.states(), ["probation"]);
}

#[test]
fn a_version_that_cannot_save_its_state_is_rolled_back() {
    let mut host = Host::running(RolloutPolicy::default());
    host.offer(2);
    assert_eq!(host.runs(), [2, 1, 1]);
    assert!(
        !host
            .rollout
            .did_not_save(&digest(1), "too large".into(), host.at),
        "there is nothing to go back to"
    );
    assert!(
        host.rollout
            .did_not_save(&digest(2), "too large".into(), host.at)
    );
    assert_eq!(host.runs(), [1, 1, 1]);
    assert_eq!(
        host.rollout.quarantined().next().unwrap().reason,
        "it cannot save its state: too large"
    );
    host.offer(3);
    host.runs();
    host.handles(3, 10, 1);
    assert_eq!(host.runs(), [3, 3, 3]);
    let saves = [1, 2, 3].map(|_| {
        host.rollout
            .did_not_save(&digest(3), "too large".into(), host.at)
    });
    assert_eq!((saves, host.runs()), ([false, false, true], [1, 1, 1]));
}

#[test]
fn a_version_that_fails_at_ticks_is_rolled_back() {
    let mut host = Host::running(RolloutPolicy::default());
    let did_not_tick = |host: &mut Host, version| {
        let at = host.at;
        host.rollout
            .did_not_tick(&digest(version), "no time".into(), at)
    };
    assert!(
        !did_not_tick(&mut host, 1),
        "there is nothing to go back to"
    );
    host.offer(2);
    host.runs();
    assert!(did_not_tick(&mut host, 2));
    assert_eq!(host.runs(), [1, 1, 1]);
    assert_eq!(
        host.rollout.quarantined().next().unwrap().reason,
        "it fails at ticks: no time"
    );
}

#[test]
fn the_time_of_a_trial_does_not_run_while_the_host_cannot_do_its_part() {
    let mut host = Host::running(RolloutPolicy::default());
    host.offer(2);
    assert_eq!(host.runs(), [2, 1, 1]);
    for _ in 0..20 {
        host.wait(9);
        host.rollout.hindered(&digest(2), host.at);
    }
    assert_eq!(host.runs(), [2, 1, 1], "nothing is known of it");
    host.wait(10);
    assert_eq!(host.runs(), [2, 2, 2]);
}

#[test]
fn after_going_back_since_another_host_found_a_version_bad_the_next_one_is_tried_as_any() {
    let mut host = Host::running(RolloutPolicy::default());
    host.offer(2);
    host.runs();
    host.handles(2, 10, 1);
    assert_eq!(host.runs(), [2, 2, 2]);
    let other = WorkerId::new("other").unwrap();
    let entry = Quarantined {
        digest: digest(2),
        host: other,
        reason: "it leaks".into(),
        at_ms: 999_000,
    };
    host.rollout.learn(&entry, host.at);
    host.offer(3);
    assert_eq!(host.runs(), [3, 1, 1]);
}

#[test]
fn a_version_that_a_host_died_of_is_not_taken_though_versions_are_not_tried() {
    let mut host = Host::running(RolloutPolicy::off());
    let other = WorkerId::new("other").unwrap();
    let reason = crate::deaths::describe(&[]);
    let entry = Quarantined {
        digest: digest(2),
        host: other,
        reason,
        at_ms: host.at.wall_ms,
    };
    assert!(entry.is_deadly());
    host.rollout.learn(&entry, host.at);
    host.offer(2);
    assert_eq!(host.runs(), [1, 1, 1]);
    assert_eq!(host.states(), ["active", "quarantined"]);
    host.rollout.release(&digest(2));
    assert_eq!(host.runs(), [2, 2, 2]);
}
