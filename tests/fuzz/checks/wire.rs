//! What must hold whatever a reply of Kinesis holds.

use bytes::Bytes;
use shardmill_wire::{Format, read_event, read_message, read_put_results, read_reply};

/// Reads the bytes as each kind of reply.
///
/// # Panics
///
/// If two ways of reading differ, if more is read than others read, or if data appears from
/// nowhere.
pub(super) fn check(bytes: &[u8]) {
    let _ = read_put_results(&Bytes::copy_from_slice(bytes));
    let _ = read_message(bytes);
    let body = Bytes::copy_from_slice(bytes);
    let reply = read_reply(&body);
    assert_eq!(reply, read_event(bytes), "sliced and copied");
    let Ok(reply) = reply else {
        return;
    };
    match Format::of(bytes) {
        // The other reader takes numbers that it can hold alone.
        Format::Json => match serde_json::from_slice::<serde_json::Value>(bytes) {
            Ok(value) => assert!(value.is_object()),
            Err(error) => assert!(error.to_string().contains("number out of range"), "{error}"),
        },
        Format::Cbor => {
            for record in reply
                .records
                .iter()
                .filter(|record| !record.data.is_empty())
            {
                let data = &record.data[..];
                // What comes in pieces is put together, and is nowhere in one piece.
                let is_there = bytes.windows(data.len()).any(|window| window == data);
                assert!(is_there || bytes.contains(&0x5F), "data from nowhere");
            }
        }
    }
    let data: usize = reply.records.iter().map(|record| record.data.len()).sum();
    assert!(data < bytes.len(), "data from nowhere");
}
