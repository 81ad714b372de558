//! What each step tells the shards, and what it leaves alone.

use super::*;

/// Does something after which a shard may have another role: whoever watches the revision must look
/// again.
fn rises(host: &mut Host, what: &str, step: impl FnOnce(&mut Host)) {
    let before = host.rollout.revision();
    step(host);
    assert!(host.rollout.revision() > before, "{what}");
}

fn entry(version: u64, at_ms: u64) -> Quarantined {
    Quarantined {
        digest: digest(version),
        host: WorkerId::new("other").unwrap(),
        reason: "it leaks".into(),
        at_ms,
    }
}

/// All shards run version 2, which is in probation after version 1.
fn in_probation() -> Host {
    let mut host = Host::running(RolloutPolicy::default());
    host.offer(2);
    host.runs();
    host.handles(2, 10, 1);
    assert_eq!(host.runs(), [2, 2, 2]);
    host
}

#[test]
fn the_revision_rises_with_each_step_of_a_trial() {
    let policy = RolloutPolicy {
        share: 0.5,
        ..RolloutPolicy::default()
    };
    let mut host = Host::new(policy);
    rises(&mut host, "the first version", |host| {
        assert_eq!(host.runs(), [1, 1, 1]);
    });
    host.rollout.started(&digest(1));
    host.offer(2);
    rises(&mut host, "another version", |host| {
        assert_eq!(host.role(0), Role::Run(digest(1)));
    });
    rises(&mut host, "its turn", |host| {
        host.rollout.let_start(&digest(2), host.at);
    });
    assert_eq!(host.role(0), Role::Probe(digest(2)));
    rises(&mut host, "a probe that was not made", |host| {
        host.rollout.probed(
            &digest(2),
            Err(StartFailure::NotMade("no memory".into())),
            host.at,
        );
    });
    host.wait(5);
    assert_eq!(host.role(0), Role::Probe(digest(2)));
    rises(&mut host, "a probe that went well", |host| {
        host.rollout.probed(&digest(2), Ok(()), host.at);
    });
    rises(&mut host, "a canary", |host| {
        assert_eq!(host.role(0), Role::Run(digest(2)));
    });
    rises(&mut host, "the end of the trial", |host| {
        host.handles(2, 10, 1);
    });
    let mut host = Host::running(policy);
    host.offer(2);
    host.role(0);
    host.wait(15 * 60);
    rises(&mut host, "the wait for its turn is over", |host| {
        host.rollout.tick(host.at);
    });
}

#[test]
fn the_revision_rises_with_each_step_of_a_probation() {
    let mut host = in_probation();
    rises(&mut host, "a failure", |host| {
        host.rollout
            .failed(&site(0), &digest(2), fault("now and then"));
    });
    rises(&mut host, "the version before it handled that", |host| {
        host.rollout.verified(&site(0), true, host.at);
    });
    host.rollout.failed(&site(1), &digest(2), fault("poison"));
    rises(&mut host, "the version before it did not", |host| {
        host.rollout.verified(&site(1), false, host.at);
    });
    rises(&mut host, "the records are settled", |host| {
        host.rollout.settled(&site(1));
    });
    assert_eq!(host.runs(), [2, 2, 2]);
    host.rollout.failed(&site(2), &digest(2), fault("poison"));
    rises(&mut host, "the shard that looked into it is gone", |host| {
        host.rollout.leave(&site(2));
    });
}

#[test]
fn a_shard_that_leaves_frees_its_part_in_every_trial_at_once() {
    let mut host = in_probation();
    host.offer(3);
    assert_eq!(host.role(0), Role::Probe(digest(3)));
    assert!(is_suspect(&host.rollout.failed(
        &site(0),
        &digest(2),
        fault("poison")
    )));
    rises(
        &mut host,
        "both the probe and the search for the fault are free",
        |host| host.rollout.leave(&site(0)),
    );
    assert_eq!(host.role(1), Role::Probe(digest(3)));
}

#[test]
fn a_shard_that_has_no_part_in_a_trial_leaves_it_as_it_is() {
    let mut host = Host::running(RolloutPolicy::default());
    let leaves = |host: &mut Host| {
        let before = host.rollout.revision();
        host.rollout.leave(&site(1));
        assert_eq!(host.rollout.revision(), before);
    };
    host.offer(2);
    assert_eq!(host.role(0), Role::Probe(digest(2)));
    leaves(&mut host);
    assert_eq!(
        [host.role(2), host.role(0)],
        [Role::Run(digest(1)), Role::Probe(digest(2))],
        "0 makes the probe"
    );
    host.rollout.probed(&digest(2), Ok(()), host.at);
    assert_eq!(host.role(0), Role::Run(digest(2)));
    leaves(&mut host);
    assert_eq!(
        [host.role(2), host.role(0)],
        [Role::Run(digest(1)), Role::Run(digest(2))],
        "0 is the canary"
    );
    assert!(is_suspect(&host.rollout.failed(
        &site(0),
        &digest(2),
        fault("poison")
    )));
    leaves(&mut host);
    assert_eq!(
        [host.role(2), host.role(0)],
        [Role::Run(digest(1)), Role::Run(digest(1))],
        "0 looks into it"
    );
    assert_eq!(host.states(), ["active", "canary(shardId-0)"]);
}

#[test]
fn a_shard_that_leaves_in_the_middle_of_a_probe_leaves_it_to_another() {
    let mut host = Host::running(RolloutPolicy::default());
    host.offer(2);
    assert_eq!(host.role(0), Role::Probe(digest(2)));
    rises(&mut host, "the probe is free", |host| {
        host.rollout.leave(&site(0));
    });
    assert_eq!(host.role(2), Role::Probe(digest(2)));
}

#[test]
fn the_versions_that_are_needed_are_those_that_a_shard_may_be_told_to_run() {
    let needed = |host: &Host| {
        let versions: BTreeSet<_> = host.rollout.needed().map(PluginDigest::as_str).collect();
        versions
            .into_iter()
            .map(|digest| u64::from_str_radix(&digest[48..], 16).unwrap())
            .collect::<Vec<_>>()
    };
    let mut host = Host::new(RolloutPolicy::default());
    assert_eq!(
        (
            needed(&host),
            host.rollout.active(),
            host.rollout.last_started()
        ),
        (vec![], None, None)
    );
    host.runs();
    assert_eq!(
        (needed(&host), host.rollout.active()),
        (vec![1], Some(&digest(1)))
    );
    host.rollout.started(&digest(1));
    host.offer(2);
    assert_eq!(host.runs(), [2, 1, 1]);
    assert_eq!(needed(&host), [1, 2], "what is tried");
    host.handles(2, 10, 1);
    assert_eq!(needed(&host), [1, 2], "what may be gone back to");
    assert_eq!(
        host.rollout.last_started(),
        Some(&digest(1)),
        "no instance of 2 was said to have started"
    );
    host.rollout.started(&digest(2));
    host.wait(300);
    host.rollout.tick(host.at);
    assert_eq!(
        (needed(&host), host.rollout.last_started()),
        (vec![2], Some(&digest(2)))
    );
}

#[test]
fn after_a_version_that_started_nowhere_the_next_one_is_tried_against_the_one_that_stands_in_for_it()
 {
    let mut host = Host::new(RolloutPolicy::default());
    assert_eq!(host.role(0), Role::Run(digest(1)));
    host.offer(2);
    assert_eq!(
        host.role(1),
        Role::Run(digest(2)),
        "before the first instance of 1 is made"
    );
    host.rollout.started(&digest(1));
    let failure = StartFailure::Failed("no config".into());
    host.rollout
        .did_not_start(&site(1), &digest(2), failure, host.at);
    host.offer(3);
    assert_eq!(host.runs(), [3, 1, 1]);
    assert!(is_suspect(&host.rollout.failed(
        &site(0),
        &digest(3),
        fault("hopeless")
    )));
    host.rollout.verified(&site(0), true, host.at);
    assert_eq!(host.runs(), [1, 1, 1]);
    assert_eq!(host.states(), ["active", "quarantined"]);
}

#[test]
fn what_stands_in_for_a_version_that_started_nowhere_is_taken_at_once_if_it_is_offered_again() {
    let mut host = Host::new(RolloutPolicy::default());
    host.role(0);
    host.offer(2);
    host.role(1);
    host.rollout.started(&digest(1));
    host.offer(1);
    assert_eq!(
        (host.runs(), host.states()),
        ([1, 1, 1], vec!["active".to_owned()])
    );
    host.offer(3);
    assert_eq!(host.runs(), [3, 1, 1]);
}

#[test]
fn right_after_going_back_as_told_the_next_version_is_tried_as_any() {
    let mut host = in_probation();
    host.rollout.started(&digest(2));
    host.offer(1);
    assert_eq!(host.role(0), Role::Run(digest(1)));
    host.offer(3);
    assert_eq!(
        host.runs(),
        [3, 1, 1],
        "also before an instance of 1 is made again"
    );
}

#[test]
fn another_policy_holds_from_the_next_step_on() {
    let mut host = Host::running(RolloutPolicy::default());
    host.rollout.set_policy(RolloutPolicy::off());
    assert_eq!(host.rollout.policy(), &RolloutPolicy::off());
    host.offer(2);
    assert_eq!(host.runs(), [2, 2, 2], "nothing is tried any more");
}

#[test]
fn a_release_is_reported_even_of_a_version_that_this_host_never_refused() {
    let mut host = Host::running(RolloutPolicy::default());
    assert_eq!(host.rollout.releases(), 0);
    host.rollout.release(&digest(7));
    assert_eq!(
        (host.rollout.releases(), host.rollout.take_changes()),
        (1, vec![])
    );
    host.rollout.learn(&entry(7, 999_000), host.at);
    host.rollout.release(&digest(7));
    assert_eq!(
        (host.rollout.releases(), host.rollout.take_changes()),
        (2, vec![Change::Released(digest(7))])
    );
}

#[test]
fn what_others_found_is_learned_once_while_it_holds_and_only_where_versions_are_tried() {
    let learned = |policy: RolloutPolicy, at_ms| {
        let mut host = Host::running(policy);
        host.at.wall_ms = 8 * 24 * 3_600_000;
        host.rollout.learn(&entry(2, at_ms), host.at);
        host.rollout
            .quarantined()
            .map(|entry| entry.reason.clone())
            .collect::<Vec<_>>()
    };
    let day = 24 * 3_600_000;
    assert_eq!(
        learned(RolloutPolicy::default(), day),
        ["it leaks"],
        "seven days ago"
    );
    assert_eq!(
        learned(RolloutPolicy::default(), day - 1),
        [""; 0],
        "longer ago"
    );
    assert_eq!(learned(RolloutPolicy::off(), day), [""; 0]);
    let mut host = in_probation();
    host.rollout.learn(&entry(2, 999_000), host.at);
    host.rollout.set_policy(RolloutPolicy {
        share: 0.5,
        ..RolloutPolicy::default()
    });
    host.rollout.take_changes();
    host.rollout.learn(&entry(2, 999_500), host.at);
    assert_eq!(host.rollout.take_changes(), [], "told twice, it is no news");
}

#[test]
fn with_nothing_to_go_back_to_instances_that_cannot_be_made_are_shown() {
    let mut host = Host::running(RolloutPolicy::default());
    for failure in [
        StartFailure::NotMade("no secret".into()),
        StartFailure::TooSlow("no secret".into()),
    ] {
        (0..2).for_each(|_| {
            host.rollout
                .did_not_start(&site(1), &digest(1), failure.clone(), host.at);
        });
    }
    assert_eq!(host.states(), ["crash-looping"]);
    assert_eq!(host.rollout.rows()[0].reason.as_deref(), Some("no secret"));
}

#[test]
fn a_failure_that_needs_no_verdict_counts_among_the_deaths_of_the_version_at_work() {
    let mut host = Host::running(RolloutPolicy::default());
    (0..9).for_each(|_| {
        host.rollout
            .failed_again(&digest(2), fault("of another version"));
    });
    let harmless = Fault {
        is_deadly: false,
        ..fault("an error")
    };
    (0..9).for_each(|_| host.rollout.failed_again(&digest(1), harmless.clone()));
    assert_eq!(host.states(), ["active"]);
    (0..3).for_each(|_| host.rollout.failed_again(&digest(1), fault("unreachable")));
    assert_eq!(host.states(), ["crash-looping"]);
}

#[test]
fn a_shard_is_shown_with_its_plugin() {
    assert_eq!(site(1).to_string(), "shardId-1 of plugin");
}
