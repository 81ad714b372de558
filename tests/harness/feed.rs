//! A steady feed of small records to every shard, and the moments at which they come out.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::primitives::Blob;
use aws_sdk_kinesis::types::PutRecordsRequestEntry;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::setting::STREAM;

/// A running feed.
pub struct Feed {
    put: Arc<AtomicU64>,
    stop: CancellationToken,
    task: JoinSet<()>,
}

/// Follows the output of a host from where it was.
pub struct Follower {
    path: PathBuf,
    offset: u64,
}

impl Feed {
    /// Puts one record to each of `shards` equal parts of the hash key space, again and again.
    ///
    /// # Panics
    ///
    /// If a put fails.
    pub fn start(client: Client, shards: u32, every: Duration) -> Self {
        let (put, stop) = (Arc::new(AtomicU64::new(0)), CancellationToken::new());
        let (counted, stopped) = (Arc::clone(&put), stop.clone());
        let mut task = JoinSet::new();
        task.spawn(async move {
            let width = u128::MAX / u128::from(shards);
            while stopped.run_until_cancelled(tokio::time::sleep(every)).await.is_some() {
                let entry = |shard: u32| {
                    let line = format!(
                        r#"{{"year":2013,"dep_delay":2,"carrier":"UA","flight":{},"origin":"EWR","dest":"IAH","distance":1400}}"#,
                        counted.load(Ordering::Relaxed)
                    );
                    let hash_key = (u128::from(shard) * width + width / 2).to_string();
                    let entry = PutRecordsRequestEntry::builder().partition_key("key").explicit_hash_key(hash_key);
                    entry.data(Blob::new(line)).build().expect("complete")
                };
                let request =
                    client.put_records().stream_name(STREAM).set_records(Some((0..shards).map(entry).collect()));
                let reply = request.send().await.expect("the records are stored");
                assert_eq!(reply.failed_record_count.unwrap_or(0), 0);
                counted.fetch_add(u64::from(shards), Ordering::Relaxed);
            }
        });
        Self { put, stop, task }
    }

    /// Stops, and gives the number of records put.
    pub async fn stop(mut self) -> u64 {
        self.stop.cancel();
        while let Some(ended) = self.task.join_next().await {
            ended.expect("the feed went well");
        }
        self.put.load(Ordering::Relaxed)
    }
}

impl Follower {
    /// From the end of `path` as it is now.
    pub fn at_end(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            offset: path.metadata().map_or(0, |metadata| metadata.len()),
        }
    }

    /// Shards that came out since.
    pub fn shards(&self) -> BTreeSet<String> {
        let mut text = String::new();
        let read = std::fs::File::open(&self.path).and_then(|mut file| {
            file.seek(SeekFrom::Start(self.offset))?;
            file.read_to_string(&mut text)
        });
        if read.is_err() {
            return BTreeSet::new();
        }
        let shard = |line: &str| -> Option<String> {
            let line: serde_json::Value = serde_json::from_str(line).ok()?;
            Some(line["shard"].as_str()?.to_owned())
        };
        text.lines().filter_map(shard).collect()
    }

    /// Waits until each of `shards` came out; gives the longest wait.
    ///
    /// # Panics
    ///
    /// If one never does.
    pub async fn until_all(&self, shards: &BTreeSet<String>) -> Duration {
        let (started, mut waits) = (tokio::time::Instant::now(), BTreeMap::new());
        while waits.len() < shards.len() {
            assert!(
                started.elapsed() < Duration::from_mins(2),
                "{shards:?} never came out again: {waits:?}"
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
            for shard in self.shards().intersection(shards) {
                waits
                    .entry(shard.clone())
                    .or_insert_with(|| started.elapsed());
            }
        }
        waits.values().max().copied().unwrap_or_default()
    }
}
