//! Aggregates that AWS' own library for Python made (`aggregate.py`), and what must come out of
//! them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use flate2::read::GzDecoder;
use serde_json::Value;
use shardmill_core::kpl::{Damage, Expansion, expand};
use shardmill_core::stream::{Position, Record, SequenceNumber};

/// One aggregate, and what was packed into it.
struct Vector {
    name: String,
    aggregate: Record,
    records: Vec<Record>,
}

impl Vector {
    fn parse(line: &str) -> Self {
        let vector: Value = serde_json::from_str(line).unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let data = |value: &Value| Bytes::from(STANDARD.decode(value.as_str().unwrap()).unwrap());
        let user_record = |(sub_sequence, parts): (u64, &Value)| Record {
            explicit_hash_key: parts[1].as_str().map(str::to_owned),
            ..record(sub_sequence, &text(&parts[0]), data(&parts[2]))
        };
        Self {
            name: text(&vector["name"]),
            aggregate: record(0, "outer", data(&vector["aggregate"])),
            records: (0..)
                .zip(vector["records"].as_array().unwrap())
                .map(user_record)
                .collect(),
        }
    }
}

fn record(sub_sequence: u64, partition_key: &str, data: Bytes) -> Record {
    Record {
        data,
        partition_key: partition_key.to_owned(),
        explicit_hash_key: None,
        position: Position {
            sequence: SequenceNumber::parse("77").unwrap(),
            sub_sequence,
        },
        arrival_ms: 3,
    }
}

fn vectors() -> Vec<Vector> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("kpl/vectors.ndjson.gz");
    let lines = BufReader::new(GzDecoder::new(File::open(path).unwrap())).lines();
    lines.map(|line| Vector::parse(&line.unwrap())).collect()
}

#[test]
fn what_another_encoder_packed_comes_out_as_it_went_in() {
    let vectors = vectors();
    assert_eq!(vectors.len(), 30);
    for Vector {
        name,
        aggregate,
        records,
    } in vectors
    {
        let Expansion::Aggregate(opened) = expand(aggregate) else {
            panic!("{name}: not opened")
        };
        assert_eq!(opened.len(), records.len(), "{name}");
        for (opened, expected) in opened.iter().zip(&records) {
            assert!(
                opened == expected,
                "{name}: {} is not {}",
                opened.position,
                expected.position
            );
        }
    }
}

#[test]
fn what_another_encoder_packed_comes_back_whole_if_it_is_cut_off() {
    for Vector {
        name, aggregate, ..
    } in vectors()
    {
        for kept in [aggregate.data.len() - 1, aggregate.data.len() / 2 + 12, 21] {
            let cut = Record {
                data: aggregate.data.slice(..kept),
                ..aggregate.clone()
            };
            assert_eq!(
                expand(cut.clone()),
                Expansion::Damaged(cut, Damage::Checksum),
                "{name}"
            );
        }
    }
}

#[test]
fn the_departures_in_aggregates_are_those_of_the_slice() {
    let mut packed = Vec::new();
    for (_, data) in harness::flights::aggregates() {
        let Expansion::Aggregate(opened) = expand(record(0, "outer", Bytes::from(data))) else {
            panic!("not opened")
        };
        packed.extend(opened.into_iter().map(|record| record.data));
    }
    let file = GzDecoder::new(File::open(harness::flights::input()).unwrap());
    let mut lines: Vec<_> = BufReader::new(file)
        .split(b'\n')
        .map(|line| Bytes::from(line.unwrap()))
        .collect();
    packed.sort_unstable();
    lines.sort_unstable();
    assert_eq!(packed.len(), lines.len());
    assert!(packed == lines, "other departures");
}
