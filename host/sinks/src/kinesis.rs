//! A Kinesis stream as a sink.
//!
//! Order is kept by key: AWS promises no order within a `PutRecords`, and a refused record may be
//! followed by one of the same key that was stored. So a request holds at most one record of a key,
//! and the next one of that key goes out once the first is acknowledged. The price: a batch takes
//! as many requests as its most frequent key has pieces. If speed matters more than order, set
//! `order = "none"`.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use shardmill_aws::{PutEntry, PutOutcome, Putter};
use shardmill_core::ports::{Origin, ReadError};
use shardmill_core::stream::Emitted;

use super::network::{Attempt, Carrier, NetworkSink, Traffic};

/// Records of one request (AWS limit).
const REQUEST_RECORDS_MAX: usize = 500;
/// Characters of a partition key (AWS limit).
const KEY_CHARS_MAX: usize = 256;
/// Bytes that such a key may take: four a character.
pub(super) const KEY_BYTES_MAX: usize = KEY_CHARS_MAX * 4;
/// How far ahead a request looks for keys that it does not hold yet: ten requests' worth, so that
/// one frequent key does not make a batch of 100,000 pieces be gone through at each request.
const LOOK_AHEAD: usize = 10 * REQUEST_RECORDS_MAX;
/// Every shard of this host may send at once: what a stream takes is limited by the stream.
const TRAFFIC: Traffic = Traffic {
    requests_max: 256,
    turn_max: Duration::from_secs(30),
};

/// What order a stream gets its records in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyOrder {
    /// Records of one key in the order they were emitted in.
    #[default]
    Key,
    /// As it comes: full requests.
    None,
}

/// How a Kinesis sink writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KinesisSinkOptions {
    /// Whether records of one key keep their order.
    pub order: KeyOrder,
    /// Largest record, data and key, that the stream takes, in bytes.
    pub record_bytes: usize,
    /// Most bytes of a request, data and keys.
    pub request_bytes: usize,
}

/// Sends emitted pieces to a stream: the key is the partition key.
pub(super) struct KinesisCarrier {
    putter: Putter,
    options: KinesisSinkOptions,
}

/// Makes the sink.
pub(super) fn kinesis_sink(
    name: &str,
    putter: Putter,
    options: KinesisSinkOptions,
) -> NetworkSink<KinesisCarrier> {
    NetworkSink::new(name, KinesisCarrier { putter, options }, TRAFFIC)
}

impl KinesisSinkOptions {
    /// The first of `left` that may go together.
    fn select(&self, pieces: &[Emitted], left: &BTreeSet<usize>) -> Result<Vec<usize>, String> {
        let (mut selected, mut keys, mut bytes) = (Vec::new(), HashSet::new(), 0);
        for &index in left.iter().take(LOOK_AHEAD) {
            let piece = &pieces[index];
            let is_ordered = self.order == KeyOrder::Key && !piece.key.is_empty();
            if is_ordered && !keys.insert(piece.key.as_str()) {
                continue;
            }
            let cost = self.checked_cost(index, piece)?;
            let is_full =
                selected.len() == REQUEST_RECORDS_MAX || bytes + cost > self.request_bytes;
            if is_full && !selected.is_empty() {
                break;
            }
            selected.push(index);
            bytes += cost;
        }
        Ok(selected)
    }

    fn checked_cost(&self, index: usize, piece: &Emitted) -> Result<usize, String> {
        let cost = piece.data.len() + piece.key.len();
        if piece.key.chars().count() > KEY_CHARS_MAX {
            let start: String = piece.key.chars().take(40).collect();
            return Err(format!(
                "piece {index} of the batch has a key of more than {KEY_CHARS_MAX} characters \
                    ({start:?}...), which cannot be a partition key: emit a shorter one"
            ));
        }
        if cost > self.record_bytes {
            return Err(format!(
                "piece {index} of the batch has {cost} bytes with its key, and the stream takes \
                    {}: emit less, or allow more on the stream (UpdateMaxRecordSize) and here \
                    (record-bytes)",
                self.record_bytes
            ));
        }
        Ok(cost)
    }
}

impl Carrier for KinesisCarrier {
    type Request = Vec<PutEntry>;

    fn request(
        &self,
        _origin: &Origin,
        pieces: &[Emitted],
        left: &BTreeSet<usize>,
    ) -> Result<(Vec<usize>, Self::Request), String> {
        let selected = self.options.select(pieces, left)?;
        let entries = selected
            .iter()
            .map(|&index| entry(&pieces[index]))
            .collect();
        Ok((selected, entries))
    }

    async fn send(&self, request: &Self::Request) -> Attempt {
        match self.putter.put(request).await {
            Ok(outcomes) => attempt(outcomes),
            Err(ReadError::Throttled { message }) => Attempt::Throttled {
                problem: message,
                wait: None,
            },
            Err(error) => Attempt::Failed {
                problem: error.to_string(),
                wait: None,
            },
        }
    }
}

/// What has no key has no order, and spreads evenly.
fn entry(piece: &Emitted) -> PutEntry {
    let partition_key = if piece.key.is_empty() {
        format!("{:016x}", fastrand::u64(..))
    } else {
        piece.key.clone()
    };
    PutEntry {
        partition_key,
        explicit_hash_key: None,
        data: piece.data.clone(),
    }
}

fn attempt(outcomes: Vec<PutOutcome>) -> Attempt {
    let (mut refused, mut problem) = (Vec::new(), String::new());
    for (at, outcome) in outcomes.into_iter().enumerate() {
        if let PutOutcome::Refused { message } = outcome {
            refused.push(at);
            problem = message;
        }
    }
    if refused.is_empty() {
        Attempt::Stored
    } else {
        Attempt::Partly { refused, problem }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn options(order: KeyOrder) -> KinesisSinkOptions {
        KinesisSinkOptions {
            order,
            record_bytes: 1 << 20,
            request_bytes: 5 << 20,
        }
    }

    fn piece(key: &str, bytes: usize) -> Emitted {
        Emitted {
            destination: "out".into(),
            key: key.into(),
            data: vec![0; bytes].into(),
        }
    }

    fn all(pieces: &[Emitted]) -> BTreeSet<usize> {
        (0..pieces.len()).collect()
    }

    fn sizes(options: KinesisSinkOptions, pieces: &[Emitted]) -> Vec<usize> {
        let (mut left, mut sizes) = (all(pieces), Vec::new());
        while !left.is_empty() {
            let selected = options.select(pieces, &left).unwrap();
            for index in &selected {
                assert!(left.remove(index));
            }
            sizes.push(selected.len());
        }
        sizes
    }

    #[test]
    fn a_request_has_at_most_500_records_and_its_bytes() {
        assert_eq!(
            sizes(options(KeyOrder::None), &vec![piece("k", 1); 1_001]),
            [500, 500, 1]
        );
        assert_eq!(
            sizes(options(KeyOrder::None), &vec![piece("k", 1_000_000); 7]),
            [5, 2]
        );
    }

    #[test]
    fn one_record_of_a_key_goes_out_at_a_time_and_other_keys_do_not_wait() {
        let pieces =
            [("a", 1), ("a", 2), ("b", 3), ("", 4), ("", 5)].map(|(key, bytes)| piece(key, bytes));
        let select = |left| options(KeyOrder::Key).select(&pieces, &left).unwrap();
        assert_eq!(select(all(&pieces)), [0, 2, 3, 4]);
        assert_eq!(select([1].into()), [1]);
    }

    #[test]
    fn a_record_that_the_stream_would_refuse_is_named_with_the_mend() {
        let large = [piece("k", 1), piece("k", 1 << 20)];
        let error = options(KeyOrder::None)
            .select(&large, &all(&large))
            .unwrap_err();
        assert!(
            error.contains("piece 1 ")
                && error.contains("1048577 bytes")
                && error.contains("record-bytes"),
            "{error}"
        );
        let long = [piece(&"é".repeat(257), 1)];
        let error = options(KeyOrder::Key)
            .select(&long, &all(&long))
            .unwrap_err();
        assert!(error.contains("more than 256 characters"), "{error}");
        let fits = [piece(&"é".repeat(256), 1)];
        assert_eq!(
            options(KeyOrder::Key).select(&fits, &all(&fits)),
            Ok(vec![0])
        );
    }

    proptest! {
        /// Whatever is refused, and however often: what is stored has each piece once, and each key
        /// in order.
        #[test]
        fn order_is_kept_by_key_whatever_is_refused(
            keys in prop::collection::vec(0_u8..5, 1..60),
            refusals in prop::collection::vec(any::<bool>(), 1..200),
        ) {
            let pieces: Vec<_> = keys.iter().map(|key| piece(&key.to_string(), 1)).collect();
            let (mut left, mut stored) = (all(&pieces), Vec::new());
            // Kinesis takes the records of a request in any order, here from the back.
            let mut refusals = refusals.into_iter().chain(std::iter::repeat(false));
            while !left.is_empty() {
                let selected = options(KeyOrder::Key).select(&pieces, &left).unwrap();
                for index in selected.into_iter().rev() {
                    if refusals.next() == Some(false) {
                        left.remove(&index);
                        stored.push(index);
                    }
                }
            }
            for key in 0..5 {
                let of_key: Vec<_> = stored.iter().filter(|index| keys[**index] == key).collect();
                prop_assert!(of_key.is_sorted());
            }
            stored.sort_unstable();
            prop_assert_eq!(stored, (0..pieces.len()).collect::<Vec<_>>());
        }
    }
}

#[cfg(test)]
mod server_tests;
