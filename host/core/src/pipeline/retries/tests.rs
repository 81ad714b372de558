use super::*;
use crate::stream::SequenceNumber;

const NONE: Duration = Duration::ZERO;

fn at(seconds: u64) -> Moment {
    Moment::from_origin(Duration::from_secs(seconds))
}

fn record(key: &str, number: u64) -> Record {
    Record {
        data: "0123456789".into(),
        partition_key: key.to_owned(),
        explicit_hash_key: None,
        position: Position::plain(SequenceNumber::parse(&number.to_string()).unwrap()),
        arrival_ms: 0,
    }
}

fn failed_once() -> Tried {
    Tried {
        deliveries: 1,
        attempts: 1,
        ..Tried::default()
    }
}

/// `records` failed, and their keys are parked until `until`.
fn parked(records: &[Record], until: Moment) -> Retries {
    let mut retries = Retries::default();
    for record in records {
        retries.note(&record.position, failed_once());
    }
    retries.park(records.to_vec(), until);
    retries
}

fn numbers(records: &[Record]) -> Vec<String> {
    let number = |record: &Record| record.position.sequence.to_string();
    records.iter().map(number).collect()
}

#[test]
fn a_parked_key_keeps_its_later_records_in_order_and_lets_others_pass() {
    let mut retries = parked(&[record("a", 1)], at(5));
    assert!(retries.join(record("a", 7)).is_none());
    assert!(retries.join(record("a", 3)).is_none(), "came back late");
    assert!(retries.join(record("b", 4)).is_some());
    assert_eq!(
        (retries.parked().keys(), retries.parked().records()),
        (1, 3)
    );
    let limits = BatchLimits::default();
    assert_eq!(retries.take_parked(&limits, at(4)), None, "not due");
    let batch = retries.take_parked(&limits, at(5)).unwrap();
    assert_eq!(numbers(&batch), ["1"], "what did not fail waits behind");
    let lane = retries.lane_of(&batch).unwrap();
    retries.forget(&batch[0].position);
    let freed: Vec<_> = retries.leave(&lane).into();
    assert_eq!(numbers(&freed), ["3", "7"]);
    assert!(retries.parked().is_empty());
    assert_eq!(retries.parked().bytes(), 0);
}

#[test]
fn a_lane_stays_while_something_of_it_is_to_be_tried_again() {
    let mut retries = parked(&[record("a", 1), record("a", 2)], at(0));
    let one = BatchLimits {
        records: 1,
        ..BatchLimits::default()
    };
    let batch = retries.take_parked(&one, at(0)).unwrap();
    assert_eq!(numbers(&batch), ["1"]);
    retries.forget(&batch[0].position);
    let lane = retries.lane_of(&batch).unwrap();
    assert!(retries.leave(&lane).is_empty());
    assert!(retries.join(record("a", 9)).is_none());
}

#[test]
fn the_key_that_has_been_due_for_longest_goes_first_and_a_batch_ends_where_it_was_cut() {
    let mut retries = parked(&[record("a", 1), record("a", 2)], at(2));
    retries.note(&record("b", 3).position, failed_once());
    retries.park(vec![record("b", 3)], at(1));
    retries.end_at(&record("a", 1));
    let limits = BatchLimits::default();
    let first = retries.take_parked(&limits, at(3)).unwrap();
    assert_eq!(numbers(&first), ["3"]);
    retries.forget(&first[0].position);
    retries.leave(&LaneKey::of(&first[0]));
    let second = retries.take_parked(&limits, at(3)).unwrap();
    assert_eq!(numbers(&second), ["1"], "the cut behind the first");
}

#[test]
fn a_shard_that_waits_as_a_whole_is_due_when_its_wait_is_over() {
    let mut retries = Retries::default();
    assert_eq!(retries.next_retry(Others::None), None);
    retries.wait_until(at(4));
    retries.end_wait(at(3));
    assert!(retries.is_waiting());
    assert_eq!(retries.next_retry(Others::None), Some(at(4)));
    retries.end_wait(at(4));
    assert!(!retries.is_waiting());
}

#[test]
fn a_parked_key_waits_longer_while_others_are_due_if_its_last_try_took_long() {
    let mut retries = parked(&[record("a", 1)], at(0));
    assert_eq!(retries.next_turn(Others::None, at(0)), Some(Turn::Lane));
    retries.took(Duration::from_secs(8), at(8));
    assert_eq!(retries.next_retry(Others::Due), Some(at(16)));
    assert_eq!(retries.next_retry(Others::None), Some(at(0)));
    assert_eq!(retries.next_turn(Others::Due, at(9)), Some(Turn::Others));
    retries.took(NONE, at(9));
    assert_eq!(retries.next_turn(Others::Due, at(16)), Some(Turn::Lane));
}

#[test]
fn what_is_settled_is_forgotten_and_a_delivery_is_numbered_by_the_record_tried_most() {
    let mut retries = parked(&[record("a", 1), record("a", 5)], at(0));
    let batch = [record("a", 1), record("b", 4)];
    assert_eq!(retries.attempt(&batch), 2);
    retries.end_at(&batch[1]);
    retries.settled(&batch[1].position);
    assert_eq!(retries.attempt(&batch), 1);
    assert!(!retries.is_end(&batch[1].position));
    assert!(retries.has_failed(&record("a", 5).position) && !retries.is_clear());
}

#[test]
fn another_version_tries_at_once_what_failed_and_what_was_halted() {
    let mut retries = parked(&[record("a", 1)], at(90));
    retries.wait_until(at(90));
    retries.halt(Halt {
        deliveries: 3,
        why: "halted".to_owned(),
    });
    retries.try_at_once(at(2));
    assert!(!retries.is_waiting() && retries.halted().is_none());
    assert_eq!(retries.next_retry(Others::None), Some(at(2)));
    let position = record("a", 1).position;
    assert_eq!(retries.tried(&position).attempts, 1);
    retries.start_over(at(3));
    let tried = retries.tried(&position);
    assert_eq!((tried.deliveries, tried.attempts), (1, 0));
}
