//! Real departures, and what must come out for them.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use serde_json::Value;

use crate::process::repository;

/// Departures by carrier.
pub type ByCarrier = BTreeMap<String, u64>;

/// The input: a slice kept in the repository, or what `SHARDMILL_FLIGHTS` names, for runs on the
/// whole.
pub fn input() -> PathBuf {
    std::env::var_os("SHARDMILL_FLIGHTS").map_or_else(
        || repository().join("examples/flights/sample.ndjson.gz"),
        PathBuf::from,
    )
}

/// What the input holds.
///
/// # Panics
///
/// If it cannot be read.
pub fn expected() -> ByCarrier {
    let file = std::fs::File::open(input()).expect("the flights");
    let mut counts = ByCarrier::new();
    for line in BufReader::new(GzDecoder::new(file)).lines() {
        let flight: Value = serde_json::from_str(&line.expect("a line")).expect("a flight");
        *counts
            .entry(flight["carrier"].as_str().expect("a carrier").to_owned())
            .or_default() += 1;
    }
    counts
}

/// The same departures in aggregates, a partition key and an aggregate each: a file kept in the
/// repository, made by `tests/kpl/aggregate.py`, or what `SHARDMILL_AGGREGATES` names, for runs on
/// the whole.
///
/// # Panics
///
/// If it cannot be read.
pub fn aggregates() -> Vec<(String, Vec<u8>)> {
    let path = std::env::var_os("SHARDMILL_AGGREGATES")
        .map_or_else(|| repository().join("tests/kpl/flights.gz"), PathBuf::from);
    let mut file = GzDecoder::new(BufReader::new(
        std::fs::File::open(path).expect("the aggregates"),
    ));
    let mut aggregates = Vec::new();
    let mut lengths = [0; 8];
    while file.read(&mut lengths[..1]).expect("readable") > 0 {
        file.read_exact(&mut lengths[1..]).expect("two lengths");
        let [key, data] = [0, 4]
            .map(|at| u32::from_be_bytes(lengths[at..at + 4].try_into().expect("four bytes")));
        let mut read = |length: u32| {
            let mut bytes = vec![0; length as usize];
            file.read_exact(&mut bytes).expect("all of it");
            bytes
        };
        aggregates.push((String::from_utf8(read(key)).expect("a key"), read(data)));
    }
    aggregates
}

/// A user record's place: shard, sequence number, number within its aggregate.
type Place = (String, String, u64);

/// Lines that a processor emitted, over a file and what was rotated from it.
#[derive(Debug, Default)]
pub struct Output {
    /// How often each record came out.
    pub seen: HashMap<Place, u64>,
    /// Distinct records by carrier.
    pub carriers: ByCarrier,
    /// Lines.
    pub lines: u64,
    /// Records that came out again after a later one of the same shard, or twice.
    pub repeats: u64,
    /// Records that came out for the first time after a later one of the same shard.
    pub disorder: u64,
    /// The same of the same shard and key, where lines name one.
    pub disorder_by_key: u64,
    /// Distinct records by version, where lines name one.
    pub versions: BTreeMap<String, u64>,
}

impl Output {
    /// Reads the lines of several files, one after the other.
    ///
    /// # Panics
    ///
    /// If a whole line is not what the processor emits.
    pub fn read(paths: &[&Path]) -> Self {
        let mut output = Self::default();
        for path in paths {
            let Ok(file) = std::fs::File::open(path) else {
                continue;
            };
            let mut last = HashMap::new();
            let mut last_of_key = HashMap::new();
            let mut file = BufReader::new(file);
            let mut line = Vec::new();
            // A host that is at work may have written half of its last line.
            while file.read_until(b'\n', &mut line).expect("a file") > 0 && line.ends_with(b"\n") {
                let value: Value = serde_json::from_slice(&line).expect("a line of output");
                output.add(&value, &mut last);
                output.add_key(&value, &mut last_of_key);
                line.clear();
            }
        }
        output
    }

    fn add_key(&mut self, line: &Value, last: &mut HashMap<(String, String), String>) {
        let text = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
        let (key, sequence) = ((text("shard"), text("key")), text("sequence_number"));
        let previous = last.insert(key, sequence.clone()).unwrap_or_default();
        self.disorder_by_key += u64::from(previous > sequence);
    }

    fn add(&mut self, line: &Value, last: &mut HashMap<String, (String, u64)>) {
        let text = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
        let (shard, sequence) = (text("shard"), text("sequence_number"));
        let sub_sequence = line["sub_sequence_number"].as_u64().unwrap_or_default();
        self.lines += 1;
        let count = self
            .seen
            .entry((shard.clone(), sequence.clone(), sub_sequence))
            .or_default();
        *count += 1;
        if *count > 1 {
            self.repeats += 1;
            return;
        }
        // Sequence numbers of one shard of the embedded stack have equal lengths, so text compares
        // as numbers.
        let place = (sequence, sub_sequence);
        let previous = last.insert(shard, place.clone()).unwrap_or_default();
        self.disorder += u64::from(previous > place);
        *self.carriers.entry(text("carrier")).or_default() += 1;
        *self.versions.entry(text("version")).or_default() += 1;
    }
}
