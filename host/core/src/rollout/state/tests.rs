use std::time::Duration;

use super::*;
use crate::plugin::PluginName;
use crate::rollout::{Quarantined, Sample};
use crate::stream::ShardId;

mod blame;
mod restarts;
mod steps;

const SITES: [&str; 3] = ["shardId-0", "shardId-1", "shardId-2"];

/// A host with three shards that all have records, and a clock.
struct Host {
    rollout: Rollout,
    offered: PluginDigest,
    at: At,
}

fn digest(version: u64) -> PluginDigest {
    PluginDigest::from_hex(&format!("{version:064x}")).unwrap()
}

fn site(index: usize) -> Site {
    Site {
        plugin: PluginName::new("plugin").unwrap(),
        shard: ShardId::new(SITES[index]).unwrap(),
    }
}

fn fault(reason: &str) -> Fault {
    Fault {
        kind: "trapped",
        reason: reason.to_owned(),
        is_deadly: true,
    }
}

fn is_suspect(blamed: &Blamed) -> bool {
    matches!(blamed, Blamed::Version { .. })
}

impl Host {
    fn new(policy: RolloutPolicy) -> Self {
        let rollout = Rollout::new(WorkerId::new("host").unwrap(), policy);
        let at = At {
            now: Moment::from_origin(Duration::from_secs(100)),
            wall_ms: 1_000_000,
        };
        Self {
            rollout,
            offered: digest(1),
            at,
        }
    }

    /// All three shards run version 1.
    fn running(policy: RolloutPolicy) -> Self {
        let mut host = Self::new(policy);
        assert_eq!(host.runs(), [1, 1, 1]);
        host.rollout.started(&digest(1));
        host
    }

    fn wait(&mut self, seconds: u64) {
        self.at.now = self.at.now + Duration::from_secs(seconds);
        self.at.wall_ms += seconds * 1_000;
    }

    fn offer(&mut self, version: u64) {
        self.offered = digest(version);
    }

    fn role(&mut self, index: usize) -> Role {
        self.rollout
            .role(&site(index), &self.offered, true, self.at)
    }

    /// What each shard runs; a probe that is asked for goes well.
    fn runs(&mut self) -> [u64; 3] {
        [0, 1, 2].map(|index| {
            for _ in 0..3 {
                match self.role(index) {
                    Role::Run(digest) => {
                        return u64::from_str_radix(&digest.as_str()[48..], 16).unwrap();
                    }
                    Role::Probe(digest) => self.rollout.probed(&digest, Ok(()), self.at),
                }
            }
            panic!("a probe that went well is asked for again");
        })
    }

    fn handles(&mut self, version: u64, batches: u64, millis: u64) {
        for _ in 0..batches {
            let sample = Sample {
                records: 100,
                took: Duration::from_millis(millis),
                memory_bytes: None,
            };
            self.rollout.handled(&digest(version), sample, self.at);
        }
    }

    fn states(&self) -> Vec<String> {
        self.rollout
            .rows()
            .into_iter()
            .map(|row| row.state)
            .collect()
    }
}

#[test]
fn a_version_is_tried_on_exactly_one_shard_and_then_runs_on_all() {
    let mut host = Host::running(RolloutPolicy::default());
    host.handles(1, 10, 5);
    host.offer(2);
    assert_eq!(host.runs(), [2, 1, 1]);
    assert_eq!(host.states(), ["active", "canary(shardId-0)"]);
    host.handles(2, 9, 5);
    assert_eq!(host.runs(), [2, 1, 1]);
    host.handles(2, 1, 5);
    assert_eq!(host.runs(), [2, 2, 2]);
    assert_eq!(host.states(), ["probation"]);
    host.wait(300);
    assert_eq!(host.runs(), [2, 2, 2]);
    assert_eq!(host.states(), ["active"]);
    let changes = host.rollout.take_changes();
    assert!(matches!(
        &changes[..],
        [
            Change::Offered(_),
            Change::Canary(..),
            Change::Promoted(_, Passed::Handled { .. }),
            Change::Proven(_)
        ]
    ));
}

#[test]
fn a_shard_without_records_is_no_canary_but_may_probe() {
    let mut host = Host::running(RolloutPolicy::default());
    host.offer(2);
    assert_eq!(
        host.rollout.role(&site(2), &digest(2), false, host.at),
        Role::Probe(digest(2))
    );
    assert_eq!(host.role(0), Role::Run(digest(1)), "the probe is made once");
    host.rollout.probed(&digest(2), Ok(()), host.at);
    assert_eq!(
        host.rollout.role(&site(2), &digest(2), false, host.at),
        Role::Run(digest(1))
    );
    assert_eq!(host.role(1), Role::Run(digest(2)));
    assert_eq!(host.role(0), Role::Run(digest(1)));
}

#[test]
fn a_version_that_does_not_start_in_the_probe_never_runs_and_is_not_taken_again() {
    let mut host = Host::running(RolloutPolicy::default());
    host.offer(2);
    assert_eq!(host.role(0), Role::Probe(digest(2)));
    host.rollout.probed(
        &digest(2),
        Err(StartFailure::Failed("no config".into())),
        host.at,
    );
    assert_eq!(host.runs(), [1, 1, 1]);
    assert_eq!(host.states(), ["active", "quarantined"]);
    assert_eq!(
        host.rollout.rows()[1].reason.as_deref(),
        Some("it does not start: no config")
    );
    host.offer(1);
    assert_eq!(host.runs(), [1, 1, 1]);
    host.offer(2);
    assert_eq!(host.runs(), [1, 1, 1], "also if the file is copied again");
    host.rollout.release(&digest(2));
    assert_eq!(host.runs(), [2, 1, 1], "until it is released");
}

#[test]
fn a_probe_that_the_host_could_not_make_is_made_again_later_and_held_against_nobody() {
    let mut host = Host::running(RolloutPolicy::default());
    host.offer(2);
    assert_eq!(host.role(0), Role::Probe(digest(2)));
    host.rollout.probed(
        &digest(2),
        Err(StartFailure::NotMade("no memory".into())),
        host.at,
    );
    assert_eq!(host.role(1), Role::Run(digest(1)));
    assert_eq!(host.rollout.rows()[1].reason.as_deref(), Some("no memory"));
    host.wait(5);
    assert_eq!(host.role(1), Role::Probe(digest(2)));
}

#[test]
fn what_the_canary_fails_on_goes_to_the_version_before_and_is_a_regression_if_that_one_handles_it()
{
    let mut host = Host::running(RolloutPolicy::default());
    host.offer(2);
    assert_eq!(host.runs(), [2, 1, 1]);
    assert!(is_suspect(&host.rollout.failed(
        &site(0),
        &digest(2),
        fault("unreachable")
    )));
    assert_eq!(
        host.runs(),
        [1, 1, 1],
        "no other shard becomes the canary meanwhile"
    );
    host.rollout.verified(&site(0), true, host.at);
    assert_eq!(host.runs(), [1, 1, 1]);
    let entry = host.rollout.quarantined().next().unwrap();
    assert_eq!(
        entry.reason,
        "it failed on records that the previous version handled: unreachable"
    );
    assert_eq!(host.states(), ["active", "quarantined"]);
}

#[test]
fn what_the_version_before_fails_on_too_is_the_records_fault_and_the_trial_goes_on() {
    let mut host = Host::running(RolloutPolicy::default());
    host.offer(2);
    assert_eq!(host.runs(), [2, 1, 1]);
    assert!(is_suspect(&host.rollout.failed(
        &site(0),
        &digest(2),
        fault("poison")
    )));
    host.rollout.verified(&site(0), false, host.at);
    let busy = host.rollout.role(&site(0), &digest(2), false, host.at);
    assert_eq!(
        busy,
        Role::Run(digest(1)),
        "the version before deals with the records"
    );
    assert_eq!(
        host.role(1),
        Role::Run(digest(2)),
        "another shard goes on with the trial"
    );
    host.handles(2, 10, 1);
    assert_eq!(host.runs(), [2, 2, 2]);
}

#[test]
fn a_canary_that_loses_its_shard_is_followed_by_another() {
    let mut host = Host::running(RolloutPolicy::default());
    host.offer(2);
    assert_eq!(host.runs(), [2, 1, 1]);
    host.rollout.leave(&site(0));
    assert_eq!(host.role(1), Role::Run(digest(2)));
    assert!(is_suspect(&host.rollout.failed(
        &site(1),
        &digest(2),
        fault("unreachable")
    )));
    host.rollout.leave(&site(1));
    assert_eq!(
        host.role(2),
        Role::Run(digest(2)),
        "what was not verified tells nothing"
    );
    assert!(host.rollout.quarantined().next().is_none());
}

#[test]
fn a_slow_canary_is_rolled_back_at_once() {
    let mut host = Host::running(RolloutPolicy::default());
    host.handles(1, 20, 20);
    host.offer(2);
    assert_eq!(host.runs(), [2, 1, 1]);
    host.handles(2, 5, 200);
    assert_eq!(host.runs(), [1, 1, 1]);
    assert!(
        host.rollout
            .quarantined()
            .next()
            .unwrap()
            .reason
            .starts_with("it takes 2.0ms a record")
    );
}

#[test]
fn the_newest_version_supersedes_the_one_under_trial() {
    let mut host = Host::running(RolloutPolicy::default());
    host.offer(2);
    assert_eq!(host.runs(), [2, 1, 1]);
    host.offer(3);
    assert_eq!(host.runs(), [3, 1, 1]);
    host.offer(1);
    assert_eq!(host.runs(), [1, 1, 1], "back to what runs is no trial");
    assert_eq!(host.states(), ["active"]);
}

#[test]
fn in_probation_three_verified_failures_roll_back_and_records_own_faults_do_not() {
    let mut host = Host::running(RolloutPolicy::default());
    host.offer(2);
    assert_eq!(host.runs(), [2, 1, 1]);
    host.handles(2, 10, 1);
    assert_eq!(host.runs(), [2, 2, 2]);
    for (index, is_handled) in [(0, true), (1, false), (1, true)] {
        assert!(is_suspect(&host.rollout.failed(
            &site(index),
            &digest(2),
            fault("now and then")
        )));
        let mut expected = [2, 2, 2];
        expected[index] = 1;
        assert_eq!(
            host.runs(),
            expected,
            "the version before looks into it, on that shard"
        );
        host.rollout.verified(&site(index), is_handled, host.at);
        if !is_handled {
            assert_eq!(host.runs(), expected, "and deals with them");
            host.rollout.settled(&site(index));
        }
        assert_eq!(host.runs(), [2, 2, 2]);
    }
    assert!(is_suspect(&host.rollout.failed(
        &site(2),
        &digest(2),
        fault("now and then")
    )));
    host.rollout.verified(&site(2), true, host.at);
    assert_eq!(host.runs(), [1, 1, 1]);
    let reason = &host.rollout.quarantined().next().unwrap().reason;
    assert_eq!(
        reason,
        "it failed 3 times on records that the previous version handled, last: now and then"
    );
}

#[test]
fn a_promoted_version_that_does_not_start_on_another_shard_is_rolled_back_everywhere() {
    let mut host = Host::running(RolloutPolicy::default());
    host.offer(2);
    assert_eq!(host.runs(), [2, 1, 1]);
    host.handles(2, 10, 1);
    host.rollout.did_not_start(
        &site(2),
        &digest(2),
        StartFailure::Failed("not on this shard".into()),
        host.at,
    );
    assert_eq!(host.runs(), [1, 1, 1]);
}

#[test]
fn after_probation_nothing_is_rolled_back_and_deaths_in_a_row_are_shown() {
    let mut host = Host::running(RolloutPolicy::default());
    for deaths in 1..=3 {
        assert_eq!(
            host.rollout
                .failed(&site(0), &digest(1), fault("unreachable")),
            Blamed::Records,
            "there is nothing to go back to"
        );
        assert_eq!(
            host.states(),
            [if deaths < 3 {
                "active"
            } else {
                "crash-looping"
            }]
        );
    }
    assert_eq!(
        host.rollout.rows()[0].reason.as_deref(),
        Some("unreachable")
    );
    host.handles(1, 1, 1);
    assert_eq!(host.states(), ["active"]);
    (0..3).for_each(|_| {
        host.rollout.did_not_start(
            &site(1),
            &digest(1),
            StartFailure::Failed("no config".into()),
            host.at,
        );
    });
    assert_eq!(host.states(), ["crash-looping"]);
    assert_eq!(host.runs(), [1, 1, 1]);
}

#[test]
fn going_back_to_the_version_before_needs_no_trial() {
    let mut host = Host::running(RolloutPolicy::default());
    host.offer(2);
    host.runs();
    host.handles(2, 10, 1);
    assert_eq!(host.runs(), [2, 2, 2]);
    host.offer(1);
    assert_eq!(host.runs(), [1, 1, 1]);
}

#[test]
fn before_anything_has_started_the_newest_is_as_good() {
    let mut host = Host::new(RolloutPolicy::default());
    assert_eq!(host.runs(), [1, 1, 1]);
    host.offer(2);
    assert_eq!(host.runs(), [2, 2, 2]);
}

#[test]
fn a_host_without_shards_simply_takes_the_version_and_may_still_go_back() {
    let mut host = Host::running(RolloutPolicy::default());
    (0..3).for_each(|index| host.rollout.leave(&site(index)));
    host.offer(2);
    assert_eq!(host.runs(), [2, 2, 2]);
    assert_eq!(host.states(), ["probation"]);
    host.rollout.did_not_start(
        &site(1),
        &digest(2),
        StartFailure::Failed("broken".into()),
        host.at,
    );
    assert_eq!(host.runs(), [1, 1, 1]);
}

#[test]
fn switched_off_every_version_is_taken_at_once_and_none_is_quarantined() {
    let mut host = Host::running(RolloutPolicy::off());
    host.offer(2);
    assert_eq!(host.runs(), [2, 2, 2]);
    host.rollout.started(&digest(2));
    assert_eq!(
        host.rollout
            .failed(&site(0), &digest(2), fault("unreachable")),
        Blamed::Records
    );
    let entry = Quarantined {
        digest: digest(3),
        host: WorkerId::new("other").unwrap(),
        reason: "bad".into(),
        at_ms: 1,
    };
    host.rollout.learn(&entry, host.at);
    host.offer(3);
    assert_eq!(host.runs(), [3, 3, 3]);
}

#[test]
fn a_host_waits_for_its_turn_in_the_fleet_but_not_for_ever() {
    let policy = RolloutPolicy {
        share: 0.5,
        ..RolloutPolicy::default()
    };
    let mut host = Host::running(policy);
    host.offer(2);
    assert_eq!(host.runs(), [1, 1, 1]);
    assert_eq!(
        (host.states()[1].as_str(), host.rollout.waiting()),
        ("waiting", Some(&digest(2)))
    );
    host.rollout.let_start(&digest(2), host.at);
    assert_eq!(host.runs(), [2, 1, 1]);
    host.offer(3);
    assert_eq!(host.runs(), [1, 1, 1]);
    host.wait(15 * 60);
    assert_eq!(host.runs(), [3, 1, 1]);
}

#[test]
fn what_another_host_quarantined_is_not_tried_and_not_kept_in_probation() {
    let entry = |version, at_ms| Quarantined {
        digest: digest(version),
        host: WorkerId::new("other").unwrap(),
        reason: "it leaks".into(),
        at_ms,
    };
    let mut host = Host::running(RolloutPolicy::default());
    host.offer(2);
    assert_eq!(host.runs(), [2, 1, 1]);
    host.rollout.learn(&entry(2, 999_000), host.at);
    assert_eq!(host.runs(), [1, 1, 1]);
    assert_eq!(host.rollout.rows()[1].reason.as_deref(), Some("it leaks"));
    host.offer(3);
    host.runs();
    host.handles(3, 10, 1);
    assert_eq!(host.runs(), [3, 3, 3]);
    host.rollout.learn(&entry(3, 999_000), host.at);
    assert_eq!(host.runs(), [1, 1, 1]);
    host.rollout.learn(&entry(1, 999_000), host.at);
    assert_eq!(
        host.runs(),
        [1, 1, 1],
        "what runs as active has nothing to go back to"
    );
}

#[test]
fn a_quarantine_ends_with_time() {
    let mut host = Host::running(RolloutPolicy::default());
    host.offer(2);
    host.role(0);
    host.rollout
        .probed(&digest(2), Err(StartFailure::Failed("no".into())), host.at);
    assert!(host.rollout.blocked(Some(&digest(2))).is_some());
    host.wait(7 * 24 * 3_600 + 1);
    assert_eq!(host.runs(), [2, 1, 1]);
}

#[test]
fn a_version_in_probation_judges_no_other_and_is_nobodys_last_good() {
    let mut host = Host::running(RolloutPolicy::default());
    (0..3).for_each(|index| host.rollout.leave(&site(index)));
    host.offer(2);
    assert_eq!(host.runs(), [2, 2, 2], "taken as it is, in probation");
    host.rollout.started(&digest(2));
    host.offer(3);
    assert_eq!(host.runs(), [3, 2, 2]);
    assert!(is_suspect(&host.rollout.failed(
        &site(0),
        &digest(3),
        fault("poison")
    )));
    assert_eq!(host.runs(), [1, 2, 2], "the last proven version judges");
    host.rollout.verified(&site(0), false, host.at);
    assert_eq!(host.role(1), Role::Run(digest(3)), "another shard goes on");
    assert_eq!(
        host.role(0),
        Role::Run(digest(1)),
        "and deals with the records"
    );
    host.rollout.settled(&site(0));
    host.handles(3, 10, 1);
    assert_eq!(host.runs(), [3, 3, 3]);
    host.offer(1);
    assert_eq!(host.runs(), [1, 1, 1], "1 is what 3 goes back to");
}

#[test]
fn a_canary_that_only_failed_is_not_promoted_as_if_nothing_had_happened() {
    let mut host = Host::running(RolloutPolicy::default());
    host.offer(2);
    assert_eq!(host.runs(), [2, 1, 1]);
    assert!(is_suspect(&host.rollout.failed(
        &site(0),
        &digest(2),
        fault("poison")
    )));
    host.rollout.verified(&site(0), false, host.at);
    host.wait(15);
    host.rollout.tick(host.at);
    assert_eq!(host.states()[0], "active");
    host.wait(15);
    host.rollout.tick(host.at);
    assert_eq!(
        host.states(),
        ["probation"],
        "nor kept waiting for ever: what it is to mend may be in the way"
    );
}
