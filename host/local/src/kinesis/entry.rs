//! What the journal holds.

use std::collections::BTreeMap;

use ferrokinesis::store::Store;
use ferrokinesis::types::{Consumer, StoredRecord, Stream};
use serde::{Deserialize, Serialize};

/// One frame of the journal. The order of variants is the format: add at the end.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Entry {
    /// A stream as it now is; replaces what was known of it.
    Stream(SavedStream),
    /// A stream that is gone, with its records.
    StreamDeleted(String),
    /// New records of one stream, in order within each shard.
    Records(SavedRecords),
}

/// Records, each under the emulator's key: the shard's index in hex, `/`, the sequence number.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SavedRecords {
    pub(super) stream: String,
    pub(super) records: Vec<(String, StoredRecord)>,
}

/// A stream's description, and what the emulator's own serialisation leaves out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SavedStream {
    pub(super) name: String,
    /// JSON, because the emulator's type leaves absent fields out, which the journal's encoding
    /// cannot express.
    description: String,
    tags: BTreeMap<String, String>,
    key_id: Option<String>,
    warm_throughput_mibps: u32,
    max_record_size_kib: u32,
    /// JSON, one for each registered consumer.
    consumers: Vec<String>,
    /// The next sequence index of each shard when this was saved.
    pub(super) counters: Vec<u64>,
}

impl SavedStream {
    /// The stream as it is now, or `None` if it is gone.
    pub(super) async fn capture(store: &Store, name: &str) -> Option<Self> {
        let stream = store.get_stream(name).await.ok()?;
        let mut counters = Vec::with_capacity(stream.shards.len());
        for index in 0..stream.shards.len() {
            counters.push(
                store
                    .current_shard_seq(name, i64::try_from(index).ok()?)
                    .await,
            );
        }
        let consumers = store.list_consumers_for_stream(&stream.stream_arn).await;
        Some(Self {
            name: name.to_owned(),
            description: serde_json::to_string(&stream).ok()?,
            consumers: consumers
                .iter()
                .filter_map(|consumer| serde_json::to_string(consumer).ok())
                .collect(),
            counters,
            tags: stream.tags,
            key_id: stream.key_id,
            warm_throughput_mibps: stream.warm_throughput_mibps,
            max_record_size_kib: stream.max_record_size_kib,
        })
    }

    /// Whether anything but the counters differs; those follow from the records.
    pub(super) fn is_same_but_for_counters(&self, other: &Self) -> bool {
        let mut other = other.clone();
        other.counters.clone_from(&self.counters);
        *self == other
    }

    pub(super) fn stream(&self) -> Result<Stream, serde_json::Error> {
        let mut stream: Stream = serde_json::from_str(&self.description)?;
        stream.tags.clone_from(&self.tags);
        stream.key_id.clone_from(&self.key_id);
        stream.warm_throughput_mibps = self.warm_throughput_mibps;
        stream.max_record_size_kib = self.max_record_size_kib;
        Ok(stream)
    }

    pub(super) fn consumers(&self) -> Result<Vec<Consumer>, serde_json::Error> {
        self.consumers
            .iter()
            .map(|json| serde_json::from_str(json))
            .collect()
    }
}
