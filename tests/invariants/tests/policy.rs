//! S17, and S4, S7 and S8 under policies other than the default: what each allows, and what it does
//! not.

use super::story::{Story, place};
use crate::Invariant::{NoLoss, S4, S7, S8, S9, S17};
use crate::history::{GivenUp, Outcome, What};
use crate::policy::{Cause, GiveUp, Policy};

/// Host `a` reads four records under `policy`; the keys of 1 and 3 are the same, those of 2 and 4
/// are their own.
pub(super) fn under(policy: Policy) -> Story {
    let mut story = Story::new();
    for (number, key) in [(1, "odd"), (2, "two"), (3, "odd"), (4, "four")] {
        story = story.push(What::Produced {
            shard: "p".to_owned(),
            at: place(number),
            key: key.to_owned(),
            arrived_at: 0,
        });
    }
    story.limits.policy = policy;
    story.create("p").take("a", "p")
}

pub(super) fn skip(attempts: u32) -> Policy {
    Policy {
        attempts: Some(attempts),
        then: Some(GiveUp::Skip),
        ..Policy::default()
    }
}

pub(super) fn by_key() -> Policy {
    Policy {
        by_key: true,
        ..Policy::default()
    }
}

impl Story {
    pub(super) fn fails(self, numbers: &[u64], attempt: u32) -> Self {
        self.start("a", "p", numbers, attempt, "v1")
            .ended(Outcome::Error, &[])
    }

    fn partly(self, numbers: &[u64], attempt: u32, failed: &[u64]) -> Self {
        self.start("a", "p", numbers, attempt, "v1")
            .ended(Outcome::Ok, failed)
    }

    fn given_up(self, number: u64, how: GiveUp, cause: Cause) -> Self {
        self.push(What::GivenUp(GivenUp {
            shard: "p".to_owned(),
            epoch: 1,
            at: place(number),
            how,
            cause,
        }))
    }

    pub(super) fn skipped(self, number: u64) -> Self {
        self.given_up(number, GiveUp::Skip, Cause::Attempts)
    }
}

#[test]
fn with_parallel_keys_a_record_waits_for_earlier_ones_of_its_key_and_the_checkpoint_for_all() {
    let parallel = |parallelism| {
        let policy = Policy {
            parallelism,
            ..by_key()
        };
        under(policy).start("a", "p", &[2], 1, "v1")
    };
    let handled = |story: Story, number| {
        let started = story.start("a", "p", &[number], 1, "v1");
        started.ended(Outcome::Ok, &[])
    };
    // The delivery of 2 still runs.
    let beside = || handled(handled(handled(parallel(2), 4), 1), 3);
    beside().checkpoint("a", "p", 1).passes();
    beside().checkpoint("a", "p", 3).breaks(&[S4]);
    handled(parallel(2), 3).breaks(&[S7]);
    let three = parallel(2).start("a", "p", &[4], 1, "v1");
    handled(three, 1).breaks(&[S7]);
}

#[test]
fn what_is_given_up_counts_as_settled() {
    let story = || under(skip(2)).fails(&[1], 1).fails(&[1], 2);
    story()
        .skipped(1)
        .partly(&[2, 3], 1, &[])
        .checkpoint("a", "p", 3)
        .passes();
    story()
        .skipped(1)
        .partly(&[2, 3, 4], 1, &[])
        .checkpoint("a", "p", 4)
        .healed()
        .passes();
    story().partly(&[2, 3], 1, &[]).breaks(&[S7]);
    story().checkpoint("a", "p", 1).breaks(&[S4]);
    story().healed().breaks(&[NoLoss]);
}

#[test]
fn only_what_has_used_up_its_attempts_is_given_up() {
    under(skip(2)).fails(&[1], 1).skipped(1).breaks(&[S17]);
    under(skip(2))
        .partly(&[1], 1, &[])
        .skipped(1)
        .breaks(&[S17]);
    under(Policy {
        attempts: Some(2),
        ..Policy::default()
    })
    .fails(&[1], 1)
    .fails(&[1], 2)
    .skipped(1)
    .breaks(&[S17]);
    under(skip(2))
        .fails(&[1], 1)
        .fails(&[1], 2)
        .given_up(1, GiveUp::DeadLetter, Cause::Attempts)
        .breaks(&[S17]);
    under(skip(2))
        .fails(&[1], 1)
        .given_up(1, GiveUp::Skip, Cause::Rejected)
        .breaks(&[S17]);
    under(skip(2))
        .fails(&[1], 1)
        .given_up(1, GiveUp::Skip, Cause::Age)
        .breaks(&[S17]);
}

#[test]
fn what_must_be_given_up_is_not_tried_again() {
    let story = || under(skip(2)).fails(&[1], 1).fails(&[1], 2);
    story().fails(&[1], 3).breaks(&[S17]);
    story().skipped(1).fails(&[1], 1).breaks(&[S17]);
    // Another version gets all attempts, but not if it does not start.
    story()
        .offered("a", "v2", false)
        .fails(&[1], 3)
        .breaks(&[S17]);
    story()
        .offered("a", "v2", true)
        .start("a", "p", &[1], 3, "v2")
        .ended(Outcome::Ok, &[])
        .passes();
}

#[test]
fn with_bisect_only_what_fails_alone_counts() {
    let cut = || {
        under(Policy {
            bisect: true,
            ..skip(1)
        })
        .fails(&[1, 2], 1)
    };
    cut()
        .fails(&[1], 2)
        .skipped(1)
        .partly(&[2], 2, &[])
        .checkpoint("a", "p", 2)
        .passes();
    cut().skipped(1).breaks(&[S17]);
    under(skip(1))
        .fails(&[1, 2], 1)
        .skipped(1)
        .skipped(2)
        .checkpoint("a", "p", 2)
        .passes();
}

#[test]
fn a_rejected_record_is_given_up_at_once() {
    let rejected = |numbers: &[u64]| {
        let places = numbers.iter().copied().map(place).collect();
        let story = under(skip(9))
            .start("a", "p", &[1, 2], 1, "v1")
            .push(What::Rejected { id: 1, places });
        story.ended(Outcome::Ok, &[1])
    };
    rejected(&[1])
        .given_up(1, GiveUp::Skip, Cause::Rejected)
        .checkpoint("a", "p", 2)
        .passes();
    rejected(&[])
        .given_up(1, GiveUp::Skip, Cause::Rejected)
        .breaks(&[S17]);
}

#[test]
fn a_dead_letter_is_stored_before_its_record_is_settled() {
    let policy = Policy {
        then: Some(GiveUp::DeadLetter),
        ..skip(1)
    };
    let failed = || under(policy.clone()).fails(&[1], 1);
    let stored = failed().push(What::DeadLettered {
        shard: "p".to_owned(),
        at: place(1),
    });
    stored
        .given_up(1, GiveUp::DeadLetter, Cause::Attempts)
        .checkpoint("a", "p", 1)
        .passes();
    failed()
        .given_up(1, GiveUp::DeadLetter, Cause::Attempts)
        .breaks(&[S17]);
}

#[test]
fn an_attempt_is_counted_by_its_records() {
    under(Policy::default())
        .fails(&[1, 2], 1)
        .fails(&[1, 2], 3)
        .breaks(&[S9]);
    under(Policy::default())
        .partly(&[1, 2], 1, &[1])
        .partly(&[1], 1, &[])
        .breaks(&[S9]);
}

#[test]
fn by_key_only_records_of_the_same_key_wait() {
    let parked = || under(by_key()).partly(&[1, 2], 1, &[1]);
    parked()
        .partly(&[4], 1, &[])
        .partly(&[1], 2, &[])
        .partly(&[3], 1, &[])
        .checkpoint("a", "p", 4)
        .passes();
    parked().partly(&[3, 4], 1, &[]).breaks(&[S7]);
    parked()
        .partly(&[4], 1, &[])
        .checkpoint("a", "p", 2)
        .breaks(&[S4]);
    parked()
        .partly(&[1], 2, &[])
        .partly(&[4], 1, &[])
        .breaks(&[S8]);
    parked()
        .partly(&[4], 1, &[])
        .partly(&[2], 1, &[])
        .breaks(&[S9]);
}

#[test]
fn by_key_what_waits_in_memory_for_a_failed_one_holds_the_checkpoint_also_once_it_is_trimmed() {
    let handed_over = |story: Story| {
        story
            .checkpoint("a", "p", 2)
            .release("a", "p")
            .take("b", "p")
            .deliver("b", "p", &[4])
    };
    let parked = || {
        under(by_key())
            .partly(&[1, 2], 1, &[1])
            .partly(&[4], 1, &[])
            .trimmed("p", Some(3))
            .partly(&[1], 2, &[])
    };
    handed_over(parked()).passes();
    handed_over(parked().partly(&[3], 1, &[])).breaks(&[S9]);
}

#[test]
fn by_key_the_next_instance_gets_again_what_lies_behind_one_that_waited_and_is_trimmed() {
    let begun = || {
        let failed = under(by_key()).partly(&[1, 2], 1, &[1]);
        failed.partly(&[4], 1, &[]).produced("p", [5])
    };
    let held_back = |story: Story| {
        let held = story.start("a", "p", &[5], 1, "v1").held_back(None);
        held.ended(Outcome::Ok, &[]).trimmed("p", Some(3))
    };
    // 3 waits in memory for 1, which has its key: 2 is the last that its host knows to be settled.
    held_back(begun())
        .partly(&[1], 2, &[])
        .reborn()
        .partly(&[4, 5], 1, &[])
        .checkpoint("a", "p", 5)
        .passes();
    let settled = || held_back(begun().partly(&[1], 2, &[]).partly(&[3], 1, &[])).reborn();
    settled().partly(&[5], 1, &[]).passes();
    settled().partly(&[4, 5], 1, &[]).breaks(&[S9]);
}

#[test]
fn by_key_an_instance_that_held_back_and_died_gets_everything_again() {
    let held = under(by_key())
        .partly(&[1, 2], 1, &[1])
        .start("a", "p", &[4], 1, "v1")
        .held_back(None);
    let held = held.ended(Outcome::Ok, &[]);
    let died = held
        .clone()
        .start("a", "p", &[1], 2, "v1")
        .ended(Outcome::Trap, &[]);
    died.partly(&[1], 3, &[])
        .partly(&[2, 3, 4], 1, &[])
        .checkpoint("a", "p", 4)
        .passes();
    held.partly(&[1], 2, &[])
        .partly(&[2, 3, 4], 1, &[])
        .breaks(&[S9]);
}

#[test]
fn where_versions_are_tried_nothing_is_given_up_that_only_a_hopeless_one_failed_on() {
    let tried = || {
        let policy = Policy {
            tries_versions: true,
            hopeless: ["v2".to_owned()].into(),
            ..skip(1)
        };
        let story = under(policy).partly(&[1], 1, &[]).offered("a", "v2", true);
        story
            .start("a", "p", &[2], 1, "v2")
            .ended(Outcome::Trap, &[])
    };
    tried().skipped(2).breaks(&[S17]);
    // Back to the version before, which S14 forbids elsewhere.
    tried()
        .start("a", "p", &[2], 2, "v1")
        .ended(Outcome::Ok, &[])
        .checkpoint("a", "p", 2)
        .passes();
    tried()
        .fails(&[2], 2)
        .skipped(2)
        .checkpoint("a", "p", 2)
        .passes();
}
