use super::*;
use crate::lease::WorkerId;
use crate::pipeline::{FailurePolicy, Tried, judge};
use crate::plugin::{PluginName, ProcessorError};
use crate::ports::Outcome;
use crate::rollout::{Role, RolloutPolicy};
use crate::stream::{SequenceNumber, ShardId};

/// A shard of a host that runs version 1, and a clock that stands.
struct Shard {
    rollout: Rollout,
    trial: ShardTrial,
    retries: Retries,
}

const AT: At = At {
    now: Moment::from_origin(Duration::from_secs(100)),
    wall_ms: 1_000_000,
};

fn digest(version: u64) -> PluginDigest {
    PluginDigest::from_hex(&format!("{version:064x}")).unwrap()
}

fn record(number: u64) -> Record {
    Record {
        data: "x".into(),
        partition_key: "k".to_owned(),
        explicit_hash_key: None,
        position: Position::plain(SequenceNumber::parse(&number.to_string()).unwrap()),
        arrival_ms: 0,
    }
}

fn trapped() -> ProcessorError {
    ProcessorError::Trapped {
        message: "unreachable".to_owned(),
    }
}

impl Shard {
    /// Its version 2 is the canary.
    fn with_canary() -> Self {
        let site = Site {
            plugin: PluginName::new("plugin").unwrap(),
            shard: ShardId::new("shardId-0").unwrap(),
        };
        let mut shard = Self {
            rollout: Rollout::new(WorkerId::new("host").unwrap(), RolloutPolicy::default()),
            trial: ShardTrial::new(site),
            retries: Retries::default(),
        };
        shard.role(1);
        shard.rollout.started(&digest(1));
        let role = shard.role(2);
        assert_eq!(role, Role::Probe(digest(2)));
        shard.rollout.probed(&digest(2), Ok(()), AT);
        assert_eq!(shard.role(2), Role::Run(digest(2)));
        shard.rollout.started(&digest(2));
        shard
    }

    fn may_try(&mut self) -> bool {
        self.trial
            .may_try(&mut self.rollout, std::iter::once(&self.retries), true)
    }

    fn role(&mut self, offered: u64) -> Role {
        let may_try = self.may_try();
        let site = self.trial.site().clone();
        self.rollout.role(&site, &digest(offered), may_try, AT)
    }

    fn deliver(
        &mut self,
        version: u64,
        records: &[Record],
        result: Result<&Outcome, &ProcessorError>,
    ) -> Report {
        self.deliver_beside(version, records, result, false)
    }

    fn deliver_beside(
        &mut self,
        version: u64,
        records: &[Record],
        result: Result<&Outcome, &ProcessorError>,
        is_overtaken: bool,
    ) -> Report {
        let untried = |_: &Position| Tried::default();
        let policy = FailurePolicy::default();
        let verdict = judge(records, &untried, result, &policy, AT.wall_ms);
        let attempt = Attempt {
            digest: &digest(version),
            records,
            verdict: &verdict,
            took: Duration::from_millis(1),
            memory_bytes: None,
            is_deadly: result.is_err(),
            is_overtaken,
        };
        self.trial.report(&mut self.rollout, &attempt, AT)
    }
}

#[test]
fn what_a_canary_fails_on_counts_against_no_record_and_the_version_before_gets_it() {
    let mut shard = Shard::with_canary();
    let report = shard.deliver(2, &[record(1)], Err(&trapped()));
    assert_eq!(report.held_against, HeldAgainst::Nothing);
    assert!(report.ends_instance);
    assert!(!shard.may_try(), "not for a third version");
    assert_eq!(shard.role(2), Role::Run(digest(1)));
    let report = shard.deliver(1, &[record(1)], Ok(&Outcome::default()));
    assert_eq!(report, Report::of(HeldAgainst::Records));
    assert!(
        shard
            .rollout
            .quarantined()
            .any(|one| one.digest == digest(2))
    );
}

#[test]
fn calls_beside_the_one_that_was_held_against_a_version_say_nothing_more_of_it() {
    let mut shard = Shard::with_canary();
    shard.deliver(2, &[record(1)], Err(&trapped()));
    let report = shard.deliver_beside(2, &[record(2)], Ok(&Outcome::default()), true);
    assert_eq!(report, Report::of(HeldAgainst::Records), "it is handled");
    let report = shard.deliver_beside(2, &[record(3)], Err(&trapped()), true);
    assert_eq!(report.held_against, HeldAgainst::Nothing);
    assert!(report.ends_instance);
    // The verdict is that of the version before, as without them.
    assert_eq!(shard.role(2), Role::Run(digest(1)));
    shard.deliver(1, &[record(1)], Ok(&Outcome::default()));
    let mut quarantined = shard.rollout.quarantined();
    assert!(quarantined.any(|one| one.digest == digest(2)));
}

#[test]
fn what_the_version_before_fails_on_too_is_the_records_fault_until_it_is_settled() {
    let mut shard = Shard::with_canary();
    shard.deliver(2, &[record(1)], Err(&trapped()));
    let failed = Tried {
        deliveries: 1,
        ..Tried::default()
    };
    shard.retries.note(&record(1).position, failed);
    let report = shard.deliver(1, &[record(1)], Err(&trapped()));
    assert_eq!(report, Report::of(HeldAgainst::Records));
    assert!(!shard.may_try());
    let mixed = shard.deliver(1, &[record(1), record(2)], Err(&trapped()));
    let excused = BTreeSet::from([record(1).position]);
    assert_eq!(mixed.held_against, HeldAgainst::Only(excused));
    shard.retries.settled(&record(1).position);
    assert!(shard.may_try());
    assert!(shard.rollout.quarantined().next().is_none());
}

#[test]
fn a_shard_that_cannot_go_back_sits_out_after_some_failures() {
    let mut shard = Shard::with_canary();
    for _ in 0..STAYS_MAX {
        shard.trial.suspects = Some(Suspects {
            failed_by: digest(2),
            judge: digest(1),
            positions: BTreeSet::from([record(1).position]),
        });
        assert!(!shard.trial.sits_out);
        shard.deliver(2, &[record(1)], Err(&trapped()));
    }
    assert!(shard.trial.sits_out && !shard.may_try());
}

#[test]
fn a_version_that_did_not_start_is_made_again_once_what_it_lacked_may_be_there() {
    let mut shard = Shard::with_canary();
    let Shard { rollout, trial, .. } = &mut shard;
    let failed = StartFailure::Failed("init failed".to_owned());
    let not_made = StartFailure::NotMade("no memory".to_owned());
    assert!(trial.refuse(rollout, &digest(3), &failed, AT.now));
    assert!(
        !trial.refuse(rollout, &digest(3), &not_made, AT.now),
        "no news"
    );
    assert!(trial.has_refused(rollout, &digest(3), AT.now));
    let later = AT.now + START_AGAIN_AFTER;
    assert!(!trial.has_refused(rollout, &digest(3), later));
    trial.refuse(rollout, &digest(3), &failed, AT.now);
    assert!(
        trial.has_refused(rollout, &digest(3), later),
        "not by itself"
    );
    trial.forget_refusal();
    assert!(!trial.has_refused(rollout, &digest(3), AT.now));
}
