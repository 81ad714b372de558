//! How often decoding allocates. In a program of its own, since the count is of the whole process.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::alloc::System;

use bytes::Bytes;
use serde_json::json;
use shardmill_wire::{CborWriter, read_event, read_reply};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const RECORDS: usize = 2_000;
/// For the reply as a whole: its list of records, its blocks, its texts.
const OF_THE_REPLY: usize = 20;

fn in_json() -> Vec<u8> {
    let record = json!({
        "SequenceNumber": "7".repeat(56),
        "ApproximateArrivalTimestamp": 1_441_215_410.867,
        "Data": "QUJD".repeat(100),
        "PartitionKey": "a key",
    });
    let reply = json!({"Records": vec![record; RECORDS], "NextShardIterator": "n"});
    serde_json::to_vec(&reply).unwrap()
}

fn in_cbor() -> Vec<u8> {
    let mut body = CborWriter::default();
    body.open_map();
    body.text("Records");
    body.open_list();
    for _ in 0..RECORDS {
        body.open_map();
        body.text("SequenceNumber");
        body.text(&"7".repeat(56));
        body.text("ApproximateArrivalTimestamp");
        body.time_ms(1_441_215_410_867);
        body.text("Data");
        body.bytes(&[7; 300]);
        body.text("PartitionKey");
        body.text("a key");
        body.end();
    }
    body.end();
    body.end();
    body.finish()
}

/// Allocations while `decode` gives that many records, which are dropped afterwards.
fn allocations(decode: impl FnOnce() -> usize) -> usize {
    let region = Region::new(ALLOCATOR);
    assert_eq!(decode(), RECORDS);
    let change = region.change();
    change.allocations + change.reallocations
}

#[test]
fn a_record_costs_one_allocation_and_that_is_its_key() {
    let bodies = [Bytes::from(in_json()), Bytes::from(in_cbor())];
    for body in bodies {
        for counted in [
            allocations(|| read_reply(&body).unwrap().records.len()),
            allocations(|| read_event(&body).unwrap().records.len()),
        ] {
            assert!(counted <= RECORDS + OF_THE_REPLY, "{counted} allocations");
        }
    }
}
