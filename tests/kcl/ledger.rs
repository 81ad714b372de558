//! What was put into the stream, and what came out at each worker: theirs and ours write the same
//! two fields.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::Path;

use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::primitives::Blob;
use aws_sdk_kinesis::types::PutRecordsRequestEntry;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use flate2::read::GzDecoder;
use harness::flights;
use harness::setting::STREAM;
use serde_json::Value;

/// Data by sequence number. Those of the embedded stack have equal lengths, so text compares as
/// numbers.
pub(crate) type Shard = BTreeMap<String, Vec<u8>>;

/// The input, put piece by piece, and where Kinesis said that each record went.
pub(crate) struct Feed {
    client: Client,
    lines: Vec<String>,
    next: usize,
    /// By shard id.
    pub(crate) stored: BTreeMap<String, Shard>,
}

impl Feed {
    /// The flights, none of them put yet.
    pub(crate) fn new(client: Client) -> Self {
        let file = std::fs::File::open(flights::input()).expect("the flights");
        let lines = BufReader::new(GzDecoder::new(file))
            .lines()
            .map(|line| line.expect("a line"));
        Self {
            client,
            lines: lines.collect(),
            next: 0,
            stored: BTreeMap::new(),
        }
    }

    /// How many are not put yet.
    pub(crate) fn left(&self) -> usize {
        self.lines.len() - self.next
    }

    /// How many there are.
    pub(crate) fn total(&self) -> usize {
        self.lines.len()
    }

    /// Puts the next `count`, or what is left.
    pub(crate) async fn put(&mut self, count: usize) {
        self.put_under(None, count).await;
    }

    /// The same, all of them into the shard that holds this hash key.
    pub(crate) async fn put_under(&mut self, hash_key: Option<u128>, count: usize) {
        let until = self.lines.len().min(self.next + count);
        for lines in self.lines[self.next..until].chunks(500) {
            let entry = |line: &String| {
                let flight: Value = serde_json::from_str(line).expect("a flight");
                let entry = PutRecordsRequestEntry::builder().data(Blob::new(line.as_bytes()));
                let entry = entry.set_explicit_hash_key(hash_key.map(|key| key.to_string()));
                entry
                    .partition_key(flight["flight"].to_string())
                    .build()
                    .expect("an entry")
            };
            let request = self
                .client
                .put_records()
                .stream_name(STREAM)
                .set_records(Some(lines.iter().map(entry).collect()));
            let reply = request.send().await.expect("the records are stored");
            assert_eq!(
                reply.failed_record_count.unwrap_or(0),
                0,
                "the embedded stack throttles nothing"
            );
            for (line, result) in lines.iter().zip(reply.records()) {
                let (shard, sequence) = (
                    result.shard_id().expect("a shard"),
                    result.sequence_number().expect("a place"),
                );
                let shard = self.stored.entry(shard.to_owned()).or_default();
                shard.insert(sequence.to_owned(), line.clone().into_bytes());
            }
        }
        self.next = until;
    }
}

/// One record at one worker.
pub(crate) struct Handled {
    pub(crate) shard: String,
    pub(crate) sequence: String,
    /// Its place in the aggregate that it came in; 0 for a plain record.
    pub(crate) sub_sequence: u64,
    /// Absent if the worker does not write it down.
    data: Option<Vec<u8>>,
}

/// All that a worker handled, in its order. A line that is being written is left out.
pub(crate) fn read(path: &Path) -> Vec<Handled> {
    let text = std::fs::read(path).unwrap_or_default();
    let whole = text
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |end| end + 1);
    let handled = |line: &[u8]| {
        let line: Value = serde_json::from_slice(line).expect("a line of output");
        let text = |key: &str| line[key].as_str().expect("text").to_owned();
        let data = line["data"]
            .as_str()
            .map(|data| BASE64_STANDARD.decode(data).expect("base64"));
        let sub_sequence = line["sub_sequence_number"].as_u64().expect("a number");
        Handled {
            shard: text("shard"),
            sequence: text("sequence_number"),
            sub_sequence,
            data,
        }
    };
    text[..whole]
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(handled)
        .collect()
}

/// What came out over all workers, held against what was put.
#[derive(Debug, Default)]
pub(crate) struct Balance {
    /// Distinct records.
    pub(crate) distinct: usize,
    /// Records that came out again.
    pub(crate) repeats: usize,
}

impl Balance {
    /// Counts, and checks that each record is one that was put, unchanged, and that each worker met
    /// the records of a shard in order.
    ///
    /// # Panics
    ///
    /// If not.
    pub(crate) fn of(stored: &BTreeMap<String, Shard>, workers: &[Vec<Handled>]) -> Self {
        let mut balance = Self::default();
        let mut seen = BTreeSet::new();
        for worker in workers {
            let mut last: BTreeMap<&str, &str> = BTreeMap::new();
            for handled in worker {
                let (shard, sequence) = (handled.shard.as_str(), handled.sequence.as_str());
                let put = stored.get(shard).and_then(|shard| shard.get(sequence));
                let put = put.unwrap_or_else(|| panic!("{sequence} of {shard} was never put"));
                assert!(
                    handled.data.as_ref().is_none_or(|data| data == put),
                    "{sequence} of {shard} has other data"
                );
                if !seen.insert((shard, sequence)) {
                    balance.repeats += 1;
                    continue;
                }
                let before = last.insert(shard, sequence).unwrap_or_default();
                assert!(
                    before < sequence,
                    "{sequence} of {shard} came after {before}"
                );
            }
        }
        balance.distinct = seen.len();
        balance
    }
}
