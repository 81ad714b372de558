//! Aggregates as the KPL makes them, and some as no producer should: for tests of what the pipeline
//! does with them. How well they are read is tested on those of another encoder, in `tests/kpl`.

use md5::{Digest, Md5};
use prost::Message;

#[derive(Clone, PartialEq, Message)]
struct Aggregate {
    #[prost(string, repeated, tag = "1")]
    partition_keys: Vec<String>,
    #[prost(message, repeated, tag = "3")]
    records: Vec<UserRecord>,
}

#[derive(Clone, PartialEq, Message)]
struct UserRecord {
    #[prost(uint64, required, tag = "1")]
    partition_key_index: u64,
    #[prost(bytes = "vec", required, tag = "3")]
    data: Vec<u8>,
}

/// An aggregate of these data, each under the key `key-DATA`.
pub fn aggregate(data: impl IntoIterator<Item = String>) -> Vec<u8> {
    let mut aggregate = Aggregate::default();
    for (index, data) in (0..).zip(data) {
        aggregate.partition_keys.push(format!("key-{data}"));
        aggregate.records.push(UserRecord {
            partition_key_index: index,
            data: data.into_bytes(),
        });
    }
    sealed(&aggregate.encode_to_vec())
}

/// An aggregate of this many records of the same data under one key.
pub fn aggregate_of_copies(count: usize, data: &[u8]) -> Vec<u8> {
    let record = UserRecord {
        partition_key_index: 0,
        data: data.to_vec(),
    };
    sealed(
        &Aggregate {
            partition_keys: vec!["key".to_owned()],
            records: vec![record; count],
        }
        .encode_to_vec(),
    )
}

/// An aggregate of two records, the second with a key that is not there.
pub fn with_a_lost_key() -> Vec<u8> {
    let record = |partition_key_index| UserRecord {
        partition_key_index,
        data: b"lost".to_vec(),
    };
    let aggregate = Aggregate {
        partition_keys: vec!["key".to_owned()],
        records: vec![record(0), record(1)],
    };
    sealed(&aggregate.encode_to_vec())
}

/// Any bytes between magic and the right checksum.
pub fn sealed(body: &[u8]) -> Vec<u8> {
    [&[0xf3, 0x89, 0x9a, 0xc2], body, &Md5::digest(body)[..]].concat()
}
