//! Records, and the batches they are delivered in.

use std::sync::Arc;

use bytes::Bytes;
use md5::{Digest, Md5};

use super::Position;
use crate::trace::TraceContext;

/// A record as a plugin gets it: a Kinesis record, or one out of a KPL aggregate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// What the producer put; opaque bytes, possibly empty, at most 10 MiB (AWS limit).
    pub data: Bytes,
    /// What the producer chose the shard by.
    pub partition_key: String,
    /// The producer's explicit hash key, where it is known (only inside KPL aggregates).
    pub explicit_hash_key: Option<String>,
    /// Its place in the shard.
    pub position: Position,
    /// When Kinesis received it, in milliseconds since the Unix epoch; 0 if Kinesis did not say.
    pub arrival_ms: u64,
}

impl Record {
    /// What it costs a byte budget: data and keys, and a little for the rest.
    #[inline]
    pub fn cost_bytes(&self) -> usize {
        let hash_key = self.explicit_hash_key.as_ref().map_or(0, String::len);
        Self::cost_of(self.data.len(), self.partition_key.len(), hash_key)
    }

    /// The cost of a record whose data and keys have these lengths in bytes.
    #[inline]
    pub(crate) fn cost_of(data: usize, partition_key: usize, explicit_hash_key: usize) -> usize {
        /// The struct itself and a small string, measured roughly; keeps empty records from being
        /// free.
        const OVERHEAD_BYTES: usize = 128;
        data + partition_key + explicit_hash_key + OVERHEAD_BYTES
    }

    /// Copies the data, to release the reply that it was a slice of: for a record that waits for a
    /// long time and may keep a much larger reply alive. A large record is not copied, because
    /// replies are cut into pieces no larger than that.
    pub fn detach(&mut self) {
        const LARGE_BYTES: usize = 512 * 1024;
        if self.data.len() < LARGE_BYTES {
            self.data = Bytes::copy_from_slice(&self.data);
        }
    }

    /// The hash key that Kinesis makes of the partition key: its MD5, as a number. Tells keys apart
    /// in logs, where a key itself does not belong, since it may name a person.
    pub fn key_hash(&self) -> u128 {
        u128::from_be_bytes(Md5::digest(self.partition_key.as_bytes()).into())
    }
}

/// Records delivered to a processor in one call, in shard order, never empty.
#[derive(Debug, Clone)]
pub struct Batch {
    /// The records; shared, since a failing batch is delivered again.
    pub records: Arc<Vec<Record>>,
    /// 1 for the first delivery, one more for each delivery after a failure.
    pub attempt: u32,
    /// How far the shard's tip was ahead when the last of these records was fetched.
    pub millis_behind_latest: u64,
    /// The span of this delivery, if the batch is traced.
    pub trace: Option<TraceContext>,
}

/// Something a processor put out through `emit`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Emitted {
    /// The name of a sink.
    pub destination: String,
    /// For sinks that order or partition by key; may be empty.
    pub key: String,
    /// The payload, which the host does not interpret.
    pub data: Bytes,
}

impl Emitted {
    /// What it costs to keep, in bytes.
    pub fn cost_bytes(&self) -> usize {
        size_of::<Self>() + self.destination.len() + self.key.len() + self.data.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::SequenceNumber;

    #[test]
    fn the_hash_of_a_key_is_its_md5_as_kinesis_has_it() {
        let record = Record {
            data: Bytes::new(),
            partition_key: "abc".to_owned(),
            explicit_hash_key: None,
            position: Position::plain(SequenceNumber::parse("1").unwrap()),
            arrival_ms: 0,
        };
        // RFC 1321, A.5.
        assert_eq!(
            format!("{:032x}", record.key_hash()),
            "900150983cd24fb0d6963f7d28e17f72"
        );
    }

    #[test]
    fn a_record_that_was_detached_keeps_its_data_and_nothing_else() {
        let reply = Bytes::from(vec![7; 1_000]);
        let mut record = Record {
            data: reply.slice(10..20),
            partition_key: String::new(),
            explicit_hash_key: None,
            position: Position::plain(SequenceNumber::parse("1").unwrap()),
            arrival_ms: 0,
        };
        record.detach();
        assert_eq!(&record.data[..], &[7; 10]);
        assert!(reply.is_unique());
    }

    #[test]
    fn a_record_costs_its_data_and_its_keys_and_is_never_free() {
        let empty = Record {
            data: Bytes::new(),
            partition_key: String::new(),
            explicit_hash_key: None,
            position: Position::plain(SequenceNumber::parse("1").unwrap()),
            arrival_ms: 0,
        };
        let full = Record {
            data: Bytes::from_static(b"seven b"),
            partition_key: "abc".to_owned(),
            explicit_hash_key: Some("12".to_owned()),
            ..empty.clone()
        };
        assert!(empty.cost_bytes() > 0);
        assert_eq!(full.cost_bytes() - empty.cost_bytes(), 7 + 3 + 2);
    }
}
