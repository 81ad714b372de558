//! What is written is read again, and what is damaged is refused or is something else that was
//! written whole: nothing is read from outside of a frame.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use proptest::prelude::*;
use shardmill_layout::{
    Batch, Commit, Failure, FailureKind, Malformed, Outcome, Piece, PieceWriter, Pieces, Record,
    write_batch,
};

#[derive(Debug, Clone)]
struct Owned {
    data: Vec<u8>,
    key: String,
    hash_key: Option<String>,
    sequence: String,
    sub: u64,
    arrival: u64,
}

impl Owned {
    fn record(&self) -> Record<'_> {
        Record {
            data: &self.data,
            partition_key: &self.key,
            explicit_hash_key: self.hash_key.as_deref(),
            sequence_number: &self.sequence,
            sub_sequence_number: self.sub,
            arrival_ms: self.arrival,
        }
    }
}

fn records() -> impl Strategy<Value = Vec<Owned>> {
    let record = (
        prop::collection::vec(any::<u8>(), 0..40),
        ".{0,8}",
        prop::option::of("[0-9]{0,39}"),
        "[0-9]{1,56}",
        any::<u64>(),
        any::<u64>(),
    );
    let record = record.prop_map(|(data, key, hash_key, sequence, sub, arrival)| Owned {
        data,
        key,
        hash_key,
        sequence,
        sub,
        arrival,
    });
    prop::collection::vec(record, 0..8)
}

fn failures() -> impl Strategy<Value = Vec<(u32, bool, String)>> {
    prop::collection::vec((any::<u32>(), any::<bool>(), ".{0,8}"), 0..8)
}

fn commits() -> impl Strategy<Value = Commit> {
    prop_oneof![
        Just(Commit::All),
        Just(Commit::Nothing),
        any::<u32>().prop_map(Commit::Through),
    ]
}

fn outcome(
    failures: &[(u32, bool, String)],
    commit: Commit,
    retry_after_ms: Option<u64>,
) -> Outcome<'_> {
    let failures = failures.iter().map(|(index, is_reject, message)| Failure {
        index: *index,
        kind: if *is_reject {
            FailureKind::Reject
        } else {
            FailureKind::Retry
        },
        message,
    });
    Outcome {
        failures: failures.collect(),
        commit,
        retry_after_ms,
    }
}

fn batch_of(records: &[Owned], attempt: u32, behind: u64) -> Vec<u8> {
    write_batch(records.iter().map(Owned::record), attempt, behind).unwrap()
}

fn pieces_of(pieces: &[(u32, String, Vec<u8>)]) -> Vec<u8> {
    let mut writer = PieceWriter::default();
    for (destination, key, data) in pieces {
        let destination = *destination;
        let piece = Piece {
            destination,
            key,
            data,
        };
        writer.push(piece).unwrap();
    }
    writer.frame().to_vec()
}

fn read_all(frame: &[u8]) -> Result<Vec<Piece<'_>>, Malformed> {
    let mut pieces = Pieces::read(frame)?;
    let mut read = Vec::new();
    while let Some(piece) = pieces.next_piece()? {
        read.push(piece);
    }
    Ok(read)
}

proptest! {
    #[test]
    fn a_batch_is_read_as_it_was_written(
        records in records(), attempt: u32, behind: u64
    ) {
        let frame = batch_of(&records, attempt, behind);
        let read = Batch::read(&frame).unwrap();
        let expected: Vec<_> = records.iter().map(Owned::record).collect();
        prop_assert_eq!(read.records, expected);
        prop_assert_eq!((read.attempt, read.millis_behind_latest), (attempt, behind));
    }

    #[test]
    fn an_outcome_is_read_as_it_was_written(
        failures in failures(), commit in commits(), retry: Option<u64>
    ) {
        let outcome = outcome(&failures, commit, retry);
        let frame = outcome.write().unwrap();
        prop_assert_eq!(Outcome::read(&frame).unwrap(), outcome);
    }

    #[test]
    fn pieces_are_read_as_they_were_written(
        pieces in prop::collection::vec(
            (any::<u32>(), ".{0,8}", prop::collection::vec(any::<u8>(), 0..40)), 1..8)
    ) {
        let frame = pieces_of(&pieces);
        let read = read_all(&frame).unwrap();
        let expected: Vec<_> = pieces.iter().map(|(destination, key, data)| Piece {
            destination: *destination, key, data
        }).collect();
        prop_assert_eq!(read, expected);
    }

    #[test]
    fn a_frame_that_ends_early_or_goes_on_is_refused(
        records in records(), failures in failures(), extra in 1_usize..9
    ) {
        let batch = batch_of(&records, 1, 0);
        let outcome = outcome(&failures, Commit::Nothing, None).write().unwrap();
        for cut in 0..batch.len() {
            prop_assert!(Batch::read(&batch[..cut]).is_err());
        }
        for cut in 1..outcome.len() {
            prop_assert!(Outcome::read(&outcome[..cut]).is_err());
        }
        let more = vec![0; extra];
        prop_assert!(Batch::read(&[batch, more.clone()].concat()).is_err());
        prop_assert!(Outcome::read(&[outcome, more].concat()).is_err());
    }

    #[test]
    fn a_damaged_frame_is_refused_or_is_what_it_says(
        records in records(), at: prop::sample::Index, byte: u8
    ) {
        let mut frame = batch_of(&records, 1, 0);
        let at = at.index(frame.len());
        frame[at] = byte;
        if let Ok(read) = Batch::read(&frame) {
            let again = write_batch(
                read.records.iter().copied(), read.attempt, read.millis_behind_latest
            );
            prop_assert_eq!(again.unwrap(), frame);
        }
    }

    #[test]
    fn whatever_a_guest_writes_is_read_without_a_panic_and_means_one_thing(
        frame in prop::collection::vec(any::<u8>(), 0..80), is_begun: bool
    ) {
        let mut frame = frame;
        if is_begun && frame.len() >= 8 {
            frame[..8].copy_from_slice(&[1, 0, 0, 0, 1, 0, 0, 0]);
        }
        let _read = Batch::read(&frame);
        let _read = read_all(&frame);
        if let Ok(read) = Outcome::read(&frame) {
            prop_assert!(read.write().unwrap() == frame || frame.len() == 28);
        }
    }
}

#[test]
fn a_count_beyond_what_there_is_room_for_reserves_no_memory() {
    let mut frame = batch_of(&[], 1, 0);
    frame[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(Batch::read(&frame), Err(Malformed::Ends));
    let mut frame = pieces_of(&[(0, String::new(), Vec::new())]);
    frame[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(
        Pieces::read(&frame).map(|pieces| pieces.left()),
        Err(Malformed::Ends)
    );
}

#[test]
fn another_layout_is_refused_by_its_number() {
    let mut frame = batch_of(&[], 1, 0);
    frame[0] = 2;
    let refused = Batch::read(&frame).unwrap_err();
    assert_eq!(refused, Malformed::Layout(2));
    assert_eq!(
        refused.to_string(),
        "has layout 2, where layout 1 is expected"
    );
}

#[test]
fn an_outcome_without_anything_to_say_is_empty() {
    assert_eq!(Outcome::default().write().unwrap(), Vec::<u8>::new());
    assert_eq!(Outcome::read(&[]), Ok(Outcome::default()));
}

#[test]
fn an_outcome_with_more_failures_than_records_is_refused_before_it_is_read() {
    let said = [(0, true, "a".to_owned()), (1, true, "b".to_owned())];
    let frame = outcome(&said, Commit::All, None).write().unwrap();
    assert!(Outcome::read_of(&frame, 2).is_ok());
    let refused = Outcome::read_of(&frame, 1);
    assert_eq!(
        refused,
        Err(Malformed::Meaningless("more failures than records"))
    );
}
