//! Real departures, and what must come out for them.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use serde_json::Value;

use crate::process::repository;

/// Departures by carrier.
pub type ByCarrier = BTreeMap<String, u64>;

/// The input: a slice kept in the repository, or what `SHARDMILL_FLIGHTS` names, for runs on the whole.
pub fn input() -> PathBuf {
    std::env::var_os("SHARDMILL_FLIGHTS")
        .map_or_else(|| repository().join("examples/flights/sample.ndjson.gz"), PathBuf::from)
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
        *counts.entry(flight["carrier"].as_str().expect("a carrier").to_owned()).or_default() += 1;
    }
    counts
}

/// Lines that a processor emitted, over a file and what was rotated from it.
#[derive(Debug, Default)]
pub struct Output {
    /// How often each record came out, by shard and sequence number.
    pub seen: HashMap<(String, String), u64>,
    /// Distinct records by carrier.
    pub carriers: ByCarrier,
    /// Lines.
    pub lines: u64,
    /// Records that came out again after a later one of the same shard, or twice.
    pub repeats: u64,
    /// Records that came out for the first time after a later one of the same shard.
    pub disorder: u64,
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
            let Ok(file) = std::fs::File::open(path) else { continue };
            let mut last: HashMap<String, String> = HashMap::new();
            for line in BufReader::new(file).split(b'\n') {
                let line: Value = serde_json::from_slice(&line.expect("a line")).expect("a line of output");
                output.add(&line, &mut last);
            }
        }
        output
    }

    fn add(&mut self, line: &Value, last: &mut HashMap<String, String>) {
        let text = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
        let (shard, sequence) = (text("shard"), text("sequence_number"));
        self.lines += 1;
        let count = self.seen.entry((shard.clone(), sequence.clone())).or_default();
        *count += 1;
        if *count > 1 {
            self.repeats += 1;
            return;
        }
        // Sequence numbers of one shard of the embedded stack have equal lengths, so text compares as numbers.
        let previous = last.insert(shard, sequence.clone()).unwrap_or_default();
        self.disorder += u64::from(previous > sequence);
        *self.carriers.entry(text("carrier")).or_default() += 1;
        *self.versions.entry(text("version")).or_default() += 1;
    }
}
