//! What must hold whatever is opened.

use bytes::Bytes;
use md5::{Digest, Md5};
use shardmill_core::kpl::{EXPANDED_BYTES_MAX, Expansion, expand, may_be_aggregate};
use shardmill_core::stream::{Position, Record, SequenceNumber};

/// Opens the bytes as they are, and as what an aggregate's checksum vouches for: no fuzzer finds an
/// MD5.
///
/// # Panics
///
/// If something is lost, or costs too much.
pub(super) fn check(bytes: &[u8]) {
    check_record(Bytes::copy_from_slice(bytes));
    check_record(
        [&[0xf3, 0x89, 0x9a, 0xc2], bytes, &Md5::digest(bytes)[..]]
            .concat()
            .into(),
    );
}

fn check_record(data: Bytes) {
    let record = Record {
        data,
        partition_key: "outer".to_owned(),
        explicit_hash_key: None,
        position: Position::plain(SequenceNumber::parse("7").expect("digits")),
        arrival_ms: 5,
    };
    match expand(record.clone()) {
        Expansion::Plain(same) => {
            assert_eq!(same, record);
            assert!(
                !may_be_aggregate(&record),
                "it would not be looked at again"
            );
        }
        Expansion::Damaged(same, _) => {
            assert_eq!(same, record);
            assert!(may_be_aggregate(&record));
        }
        Expansion::Aggregate(opened) => {
            assert!(may_be_aggregate(&record));
            let held = record.data.as_ptr_range();
            for (user_record, number) in opened.iter().zip(0..) {
                let position = Position {
                    sub_sequence: number,
                    ..record.position.clone()
                };
                assert_eq!(
                    (&user_record.position, user_record.arrival_ms),
                    (&position, 5)
                );
                let data = user_record.data.as_ptr_range();
                assert!(
                    user_record.data.is_empty()
                        || (held.start <= data.start && data.end <= held.end),
                    "a slice"
                );
            }
            assert!(
                opened.iter().map(|record| record.data.len()).sum::<usize>() < record.data.len()
            );
            assert!(opened.iter().map(Record::cost_bytes).sum::<usize>() <= EXPANDED_BYTES_MAX);
        }
    }
}
