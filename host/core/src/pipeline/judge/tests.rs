use std::collections::BTreeSet;

use bytes::Bytes;

use super::*;
use crate::pipeline::GiveUp;
use crate::ports::RecordFailure;
use crate::stream::SequenceNumber;

const NOW_MS: u64 = 1_000_000;

fn records(count: u64) -> Vec<Record> {
    let position = |n: u64| Position::plain(SequenceNumber::parse(&n.to_string()).unwrap());
    let record = |n| Record {
        data: Bytes::new(),
        partition_key: String::new(),
        explicit_hash_key: None,
        position: position(n),
        arrival_ms: NOW_MS - 1_000,
    };
    (0..count).map(record).collect()
}

fn failing(failures: &[(u32, FailureKind)]) -> Outcome {
    let failure = |(index, kind): &(u32, FailureKind)| RecordFailure {
        index: *index,
        kind: *kind,
        message: "no".into(),
    };
    Outcome {
        failures: failures.iter().map(failure).collect(),
        ..Outcome::default()
    }
}

fn trapped() -> ProcessorError {
    ProcessorError::Trapped {
        message: "unreachable".into(),
    }
}

fn skipping(attempts: Option<u32>) -> FailurePolicy {
    FailurePolicy {
        attempts,
        then: Some(GiveUp::Skip),
        ..FailurePolicy::default()
    }
}

fn judged(
    count: u64,
    tried: Tried,
    result: Result<&Outcome, &ProcessorError>,
    policy: &FailurePolicy,
) -> (Vec<(usize, Tried, Fate)>, Option<usize>, u32) {
    let verdict = judge(&records(count), &|_| tried, result, policy, NOW_MS);
    let rulings = verdict
        .rulings
        .iter()
        .map(|ruling| (ruling.index, ruling.tried, ruling.fate))
        .collect();
    (
        rulings,
        verdict.split_at,
        verdict.failure.map_or(0, |failure| failure.in_a_row),
    )
}

fn tried(deliveries: u32, attempts: u32) -> Tried {
    Tried {
        deliveries,
        attempts,
        ..Tried::default()
    }
}

#[test]
fn by_default_what_fails_goes_again_for_ever_and_nothing_is_split() {
    let policy = FailurePolicy::default();
    let long = tried(u32::MAX, u32::MAX);
    let (rulings, split_at, in_a_row) = judged(2, long, Err(&trapped()), &policy);
    assert_eq!(rulings, [(0, long, Fate::Again), (1, long, Fate::Again)]);
    assert_eq!((split_at, in_a_row), (None, u32::MAX));
    let (rulings, ..) = judged(3, long, Ok(&failing(&[(1, FailureKind::Reject)])), &policy);
    assert_eq!(
        rulings,
        [(1, long, Fate::Again)],
        "without a word on what then, even what is rejected"
    );
}

#[test]
fn a_record_is_given_up_at_its_last_attempt_and_not_before() {
    let policy = skipping(Some(3));
    let outcome = failing(&[(1, FailureKind::Retry)]);
    let fate = |attempts| judged(2, tried(9, attempts), Ok(&outcome), &policy).0[0];
    assert_eq!(fate(1), (1, tried(10, 2), Fate::Again));
    assert_eq!(fate(2), (1, tried(10, 3), Fate::GivenUp(Cause::Attempts)));
}

#[test]
fn a_record_that_is_rejected_is_given_up_at_once_and_others_are_not() {
    let outcome = failing(&[(0, FailureKind::Retry), (2, FailureKind::Reject)]);
    let (rulings, ..) = judged(3, Tried::default(), Ok(&outcome), &skipping(None));
    assert_eq!(
        rulings,
        [
            (0, tried(1, 1), Fate::Again),
            (2, tried(1, 1), Fate::GivenUp(Cause::Rejected))
        ]
    );
}

#[test]
fn by_key_only_the_first_failed_record_of_a_key_counts_an_attempt() {
    let keys = ["a", "b", "a", "a", "b"];
    let named = |(record, key): (Record, &&str)| Record {
        partition_key: (*key).to_owned(),
        ..record
    };
    let records: Vec<Record> = records(5).into_iter().zip(&keys).map(named).collect();
    let (retry, reject) = (FailureKind::Retry, FailureKind::Reject);
    let outcome = failing(&[(0, retry), (1, retry), (2, retry), (3, reject), (4, retry)]);
    for (order, attempts) in [(Order::Key, [1, 1, 0, 1, 0]), (Order::Shard, [1; 5])] {
        let policy = FailurePolicy {
            order,
            ..skipping(Some(9))
        };
        let verdict = judge(
            &records,
            &|_| Tried::default(),
            Ok(&outcome),
            &policy,
            NOW_MS,
        );
        let counted: Vec<u32> = verdict
            .rulings
            .iter()
            .map(|ruling| ruling.tried.attempts)
            .collect();
        assert_eq!(counted, attempts, "{order:?}");
        assert_eq!(verdict.rulings[3].fate, Fate::GivenUp(Cause::Rejected));
    }
}

#[test]
fn age_counts_from_arrival_and_only_where_it_is_known() {
    let policy = |age_ms| FailurePolicy {
        max_age: Some(Duration::from_millis(age_ms)),
        ..skipping(None)
    };
    let fate = |arrival_ms: u64, age_ms| {
        let record = Record {
            arrival_ms,
            ..records(1).remove(0)
        };
        judge(
            &[record],
            &|_| Tried::default(),
            Err(&trapped()),
            &policy(age_ms),
            NOW_MS,
        )
        .rulings[0]
            .fate
    };
    assert_eq!(fate(NOW_MS - 500, 500), Fate::Again);
    assert_eq!(fate(NOW_MS - 501, 500), Fate::GivenUp(Cause::Age));
    assert_eq!(
        fate(NOW_MS + 501, 500),
        Fate::Again,
        "arrived in the future"
    );
    assert_eq!(fate(0, 500), Fate::Again, "arrival unknown");
}

#[test]
fn with_bisect_a_whole_batch_is_cut_until_a_record_is_alone_and_counts_nothing_before() {
    let policy = FailurePolicy {
        bisect: true,
        ..skipping(Some(1))
    };
    for (count, at) in [(1_000, 500), (3, 1), (2, 1)] {
        let (rulings, split_at, in_a_row) = judged(count, tried(4, 0), Err(&trapped()), &policy);
        assert_eq!((split_at, in_a_row), (Some(at), 1));
        assert!(
            rulings
                .iter()
                .all(|(_, after, fate)| *after == tried(5, 0) && *fate == Fate::Again)
        );
    }
    let (rulings, split_at, _) = judged(1, tried(4, 0), Err(&trapped()), &policy);
    assert_eq!(
        (rulings, split_at),
        (vec![(0, tried(5, 1), Fate::GivenUp(Cause::Attempts))], None)
    );
}

#[test]
fn without_bisect_the_attempts_of_a_batch_are_those_of_each_of_its_records() {
    let (rulings, split_at, in_a_row) = judged(2, tried(1, 1), Err(&trapped()), &skipping(Some(3)));
    assert_eq!(
        (rulings[1], split_at, in_a_row),
        ((1, tried(2, 2), Fate::Again), None, 2)
    );
    let (rulings, ..) = judged(2, tried(2, 2), Err(&trapped()), &skipping(Some(3)));
    assert!(
        rulings
            .iter()
            .all(|(.., fate)| *fate == Fate::GivenUp(Cause::Attempts))
    );
}

#[test]
fn what_the_host_could_not_do_counts_against_no_record() {
    for error in [
        ProcessorError::Host {
            message: "no thread".into(),
        },
        ProcessorError::HostMemory { limit: 1 },
    ] {
        let policy = FailurePolicy {
            bisect: true,
            max_age: Some(Duration::from_millis(1)),
            ..skipping(Some(1))
        };
        let (rulings, split_at, in_a_row) = judged(2, tried(6, 0), Err(&error), &policy);
        assert_eq!((split_at, in_a_row), (None, 7));
        assert!(
            rulings
                .iter()
                .all(|(_, after, fate)| *after == tried(7, 0) && *fate == Fate::Again)
        );
    }
}

/// What the plugin lacks, as a guest, the host and the report of one record tell it.
fn lacking() -> [(Lack, ProcessorError); 3] {
    let not_ready = |lack| {
        (
            lack,
            ProcessorError::NotReady {
                lack,
                message: "503".into(),
            },
        )
    };
    let unknown = trapped().after_unknown_destination("alerts".into(), "stdout".into());
    [
        not_ready(Lack::Service),
        not_ready(Lack::Configuration),
        (Lack::Configuration, unknown),
    ]
}

#[test]
fn what_the_plugin_lacks_holds_the_shard_and_counts_against_no_record() {
    let policy = FailurePolicy {
        bisect: true,
        max_age: Some(Duration::from_millis(1)),
        ..skipping(Some(1))
    };
    for (_, error) in lacking() {
        let verdict = judge(&records(2), &|_| tried(6, 0), Err(&error), &policy, NOW_MS);
        let all: Vec<_> = verdict
            .rulings
            .iter()
            .map(|ruling| (ruling.tried, ruling.fate))
            .collect();
        assert_eq!(all, [(tried(7, 0), Fate::Again); 2], "{error}");
        let failure = verdict.failure.unwrap();
        assert_eq!(
            (verdict.split_at, failure.of, failure.in_a_row),
            (None, Blame::Surroundings, 7)
        );
        assert!(failure.is_of_nobody());
    }
    let one = failing(&[(1, FailureKind::Misconfigured)]);
    let (rulings, _, in_a_row) = judged(2, tried(6, 0), Ok(&one), &policy);
    assert_eq!(
        (rulings, in_a_row),
        (vec![(1, tried(7, 0), Fate::Again)], 7)
    );
}

#[test]
fn what_the_plugin_lacks_counts_apart_where_the_operator_says_so_and_never_by_age() {
    let policy = FailurePolicy {
        unavailable_attempts: Some(2),
        misconfigured_attempts: Some(3),
        max_age: Some(Duration::from_millis(1)),
        ..skipping(Some(1))
    };
    for (lack, error) in lacking() {
        let (most, cause) = match lack {
            Lack::Service => (2, Cause::Unavailable),
            Lack::Configuration => (3, Cause::Misconfigured),
        };
        let mut so_far = Tried::default();
        for count in 1..=most {
            let ruling = judge(&records(1), &|_| so_far, Err(&error), &policy, NOW_MS)
                .rulings
                .remove(0);
            let fate = if count == most {
                Fate::GivenUp(cause)
            } else {
                Fate::Again
            };
            assert_eq!(
                (ruling.fate, ruling.tried.attempts, ruling.tried.counted()),
                (fate, 0, count),
                "{error}"
            );
            so_far = ruling.tried;
        }
        assert_eq!(so_far.forgiven(), tried(most, 0));
        let bisecting = FailurePolicy {
            bisect: true,
            ..policy.clone()
        };
        let verdict = judge(
            &records(2),
            &|_| Tried::default(),
            Err(&error),
            &bisecting,
            NOW_MS,
        );
        assert_eq!(
            (verdict.split_at, verdict.failure.unwrap().of),
            (Some(1), Blame::Batch)
        );
    }
}

#[test]
fn the_wait_that_the_plugin_asks_for_and_its_commit_are_passed_on() {
    let wait = Some(Duration::from_secs(7));
    let outcome = Outcome {
        commit: Some(Commit::Through(0)),
        retry_after: wait,
        ..failing(&[(1, FailureKind::Retry)])
    };
    let verdict = judge(
        &records(2),
        &|_| Tried::default(),
        Ok(&outcome),
        &FailurePolicy::default(),
        NOW_MS,
    );
    assert_eq!(verdict.commit, Some(Commit::Through(0)));
    let failure = verdict.failure.unwrap();
    assert_eq!((failure.retry_after, failure.kind), (wait, "records"));
    assert_eq!(failure.reason, "1 record(s) failed, the first at 1: no");
    let for_ages = Outcome {
        retry_after: Some(Duration::from_hours(1)),
        ..outcome
    };
    let verdict = judge(
        &records(2),
        &|_| Tried::default(),
        Ok(&for_ages),
        &FailurePolicy::default(),
        NOW_MS,
    );
    assert_eq!(verdict.failure.unwrap().retry_after, Some(RETRY_AFTER_MAX));
    let clean = judge(
        &records(2),
        &|_| Tried::default(),
        Ok(&Outcome::default()),
        &FailurePolicy::default(),
        NOW_MS,
    );
    assert!(clean.is_clean() && clean.rulings.is_empty());
}

#[test]
fn what_a_guest_cannot_know_settles_nothing() {
    let retry = FailureKind::Retry;
    let beyond = Outcome {
        commit: Some(Commit::Through(5)),
        ..Outcome::default()
    };
    for bad in [
        failing(&[(5, retry)]),
        failing(&[(1, retry), (1, retry)]),
        failing(&[(3, retry), (1, retry)]),
        failing(&[(u32::MAX, retry)]),
        beyond,
    ] {
        let error = bad.check(5).unwrap_err();
        let verdict = judge(
            &records(5),
            &|_| Tried::default(),
            Err(&error),
            &FailurePolicy::default(),
            NOW_MS,
        );
        assert_eq!(verdict.failure.unwrap().kind, "invalid_outcome", "{bad:?}");
        assert_eq!(
            (verdict.rulings.len(), verdict.commit),
            (5, Some(Commit::Nothing))
        );
    }
}

#[test]
fn a_failure_held_against_no_record_costs_no_attempt_cuts_nothing_and_gives_nothing_up() {
    let policy = FailurePolicy {
        bisect: true,
        ..skipping(Some(1))
    };
    let held_against_none = |result: Result<&Outcome, &ProcessorError>| {
        let earlier = |_: &Position| tried(4, 3);
        let verdict = judge(&records(2), &earlier, result, &policy, NOW_MS)
            .without_blame(&records(2), &earlier);
        let rulings = verdict
            .rulings
            .iter()
            .map(|ruling| (ruling.index, ruling.tried, ruling.fate))
            .collect::<Vec<_>>();
        (
            rulings,
            verdict.split_at,
            verdict.failure.map(|failure| failure.of),
        )
    };
    let again = |index| (index, tried(5, 3), Fate::Again);
    assert_eq!(
        held_against_none(Err(&trapped())),
        (vec![again(0), again(1)], None, Some(Blame::Host))
    );
    let rejected = failing(&[(1, FailureKind::Reject)]);
    assert_eq!(
        held_against_none(Ok(&rejected)),
        (vec![again(1)], None, Some(Blame::Records)),
        "the other was handled"
    );
}

#[test]
fn a_failure_of_a_batch_that_is_held_against_some_of_its_records_costs_the_others_nothing() {
    let policy = skipping(Some(4));
    let earlier = |_: &Position| tried(4, 3);
    let counted = BTreeSet::from([records(3)[1].position.clone()]);
    let verdict = judge(&records(3), &earlier, Err(&trapped()), &policy, NOW_MS);
    assert!(
        verdict
            .rulings
            .iter()
            .all(|ruling| ruling.fate != Fate::Again),
        "all of them are out of attempts"
    );
    let verdict = verdict.held_against(&counted, &records(3), &earlier);
    let goes_again: Vec<_> = verdict
        .rulings
        .iter()
        .map(|ruling| ruling.fate == Fate::Again)
        .collect();
    assert_eq!(goes_again, [true, false, true]);
    assert_eq!(
        (verdict.rulings[0].tried, verdict.rulings[1].tried),
        (tried(5, 3), tried(5, 4))
    );
}

#[test]
fn a_delivery_is_clean_only_if_all_was_handled_and_has_more_only_if_some_goes_again() {
    let verdict = |outcome: Result<&Outcome, &ProcessorError>, policy: &FailurePolicy| {
        let verdict = judge(&records(2), &|_| Tried::default(), outcome, policy, NOW_MS);
        (verdict.is_clean(), verdict.has_again())
    };
    let policy = FailurePolicy::default();
    let rejected = failing(&[(1, FailureKind::Reject)]);
    assert_eq!(verdict(Ok(&Outcome::default()), &policy), (true, false));
    assert_eq!(verdict(Ok(&rejected), &policy), (false, true));
    assert_eq!(
        verdict(Ok(&rejected), &skipping(None)),
        (false, false),
        "given up, which is not handled"
    );
    assert_eq!(verdict(Err(&trapped()), &policy), (false, true));
    let one_of_each = failing(&[(0, FailureKind::Reject), (1, FailureKind::Retry)]);
    assert_eq!(verdict(Ok(&one_of_each), &skipping(None)), (false, true));
}

#[test]
fn why_a_record_is_given_up_has_a_word_for_metrics_and_one_for_people() {
    let words = [
        Cause::Rejected,
        Cause::Attempts,
        Cause::Unavailable,
        Cause::Misconfigured,
        Cause::Age,
    ]
    .map(|cause| (cause.code(), cause.to_string()));
    let told = words
        .each_ref()
        .map(|(metric, people)| (*metric, people.as_str()));
    let expected = [
        ("rejected", "rejected"),
        ("attempts", "out of attempts"),
        ("unavailable", "out of unavailable-attempts"),
        ("misconfigured", "out of misconfigured-attempts"),
        ("age", "too old"),
    ];
    assert_eq!(told, expected);
}

/// Why a batch of so many records is shown to have failed, if the call trapped.
fn reason_of(count: u64) -> String {
    let verdict = judge(
        &records(count),
        &|_| Tried::default(),
        Err(&trapped()),
        &FailurePolicy::default(),
        NOW_MS,
    );
    verdict.failure.unwrap().reason
}

#[test]
fn a_failed_call_names_its_records_so_that_somebody_can_look_at_them_or_skip_one() {
    assert_eq!(reason_of(1), format!("record 0: {}", trapped()));
    assert_eq!(reason_of(3), format!("3 records, 0 to 2: {}", trapped()));
}
