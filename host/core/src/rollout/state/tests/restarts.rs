//! The workers restart with other settings, and a version came with these.

use super::*;

/// All shards have left for a restart with other settings, and version 2 is on offer.
fn restarting(how: Restart) -> Host {
    let mut host = Host::running(RolloutPolicy::default());
    host.handles(1, 20, 20);
    host.rollout.restarts(how);
    (0..3).for_each(|index| host.rollout.leave(&site(index)));
    host.offer(2);
    host.rollout.take_changes();
    host
}

/// All shards run the version, in probation, because of this.
fn is_taken_untried(host: &mut Host, version: u64, why: Passed) {
    assert_eq!(host.runs(), [version; 3]);
    assert_eq!(host.states(), ["probation"]);
    let promoted = Change::Promoted(digest(version), why);
    let changes = host.rollout.take_changes();
    assert_eq!(changes.last(), Some(&promoted), "{changes:?}");
    let withdrawn = |change: &Change| matches!(change, Change::Withdrawn(_));
    assert!(!changes.iter().any(withdrawn), "{changes:?}");
}

/// Version 1 cannot be started on a shard that it serves.
fn fails_to_start(host: &mut Host, failure: fn(String) -> StartFailure) {
    let failure = failure("no destination".to_owned());
    host.rollout
        .did_not_start(&site(1), &digest(1), failure, host.at);
}

#[test]
fn a_version_that_comes_with_other_settings_is_tried_on_one_shard_as_any() {
    let mut host = restarting(Restart::OneShard);
    assert_eq!(host.role(0), Role::Probe(digest(2)));
    assert_eq!(host.runs(), [2, 1, 1]);
    assert_eq!(host.states(), ["active", "canary(shardId-0)"]);
    host.handles(2, 5, 200);
    assert_eq!(host.runs(), [1, 1, 1]);
    let reason = &host.rollout.quarantined().next().unwrap().reason;
    assert!(reason.starts_with("it takes 2.0ms a record"), "{reason}");
}

#[test]
fn a_version_that_comes_while_the_first_shard_is_back_finds_it_too() {
    let mut host = restarting(Restart::OneShard);
    host.offer(1);
    assert_eq!(host.role(0), Role::Run(digest(1)));
    host.offer(2);
    assert_eq!(host.runs(), [2, 1, 1]);
}

#[test]
fn two_restarts_in_a_row_forget_no_shard_and_one_without_shards_promises_none() {
    let mut host = restarting(Restart::OneShard);
    host.rollout.restarts(Restart::AllShards);
    assert_eq!(host.runs(), [2, 1, 1], "as of the first one");
    let mut host = Host::running(RolloutPolicy::default());
    (0..3).for_each(|index| host.rollout.leave(&site(index)));
    host.rollout.restarts(Restart::OneShard);
    host.offer(2);
    is_taken_untried(&mut host, 2, Passed::NoShard);
}

#[test]
fn what_was_deployed_with_other_settings_is_tried_by_the_host_as_a_whole() {
    let mut host = restarting(Restart::AllShards);
    is_taken_untried(&mut host, 2, Passed::WithSettings);
    host.rollout.did_not_start(
        &site(1),
        &digest(2),
        StartFailure::Failed("broken".into()),
        host.at,
    );
    assert_eq!(host.runs(), [1, 1, 1]);
}

#[test]
fn a_version_before_that_does_not_start_with_the_settings_gives_way_and_is_not_blamed() {
    let mut host = restarting(Restart::OneShard);
    host.runs();
    fails_to_start(&mut host, StartFailure::Failed);
    is_taken_untried(&mut host, 2, Passed::NothingBefore);
    assert!(host.rollout.quarantined().next().is_none());

    let waits = RolloutPolicy {
        share: 0.5,
        ..RolloutPolicy::default()
    };
    let mut host = restarting(Restart::OneShard);
    host.rollout.set_policy(waits);
    assert_eq!(host.runs(), [1, 1, 1]);
    fails_to_start(&mut host, StartFailure::Failed);
    is_taken_untried(&mut host, 2, Passed::NothingBefore);
}

#[test]
fn what_is_missing_may_come_back_before_the_version_before_gives_way() {
    let mut host = restarting(Restart::OneShard);
    host.runs();
    fails_to_start(&mut host, StartFailure::NotMade);
    fails_to_start(&mut host, StartFailure::TooSlow);
    assert_eq!(host.runs(), [2, 1, 1]);
    fails_to_start(&mut host, StartFailure::NotMade);
    is_taken_untried(&mut host, 2, Passed::NothingBefore);
}

#[test]
fn a_version_before_that_has_started_with_the_settings_gives_way_to_none() {
    let mut host = restarting(Restart::OneShard);
    host.runs();
    host.rollout.started(&digest(1));
    (0..9).for_each(|_| fails_to_start(&mut host, StartFailure::Failed));
    assert_eq!(host.runs(), [2, 1, 1]);
    let mut host = Host::running(RolloutPolicy::default());
    host.offer(2);
    host.runs();
    fails_to_start(&mut host, StartFailure::Failed);
    assert_eq!(host.runs(), [2, 1, 1], "its settings are the same");
}

#[test]
fn a_version_in_probation_is_not_quarantined_for_settings_that_came_with_the_next() {
    let mut host = restarting(Restart::OneShard);
    host.runs();
    host.handles(2, 10, 1);
    assert_eq!(host.runs(), [2, 2, 2]);
    host.rollout.started(&digest(2));
    host.rollout.restarts(Restart::OneShard);
    (0..3).for_each(|index| host.rollout.leave(&site(index)));
    host.offer(3);
    host.rollout.take_changes();
    assert_eq!(host.runs(), [3, 2, 2]);
    let failure = StartFailure::Failed("no destination".into());
    host.rollout
        .did_not_start(&site(1), &digest(2), failure, host.at);
    is_taken_untried(&mut host, 3, Passed::NothingBefore);
    assert!(host.rollout.quarantined().next().is_none());
    host.offer(1);
    assert_eq!(host.runs(), [1, 1, 1], "the last one that was proven");
}
