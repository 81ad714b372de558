//! The two numbers that name a span.

use std::fmt;

use crate::hash;
use crate::stream::{Position, ShardId};

/// The id of a trace, never zero (W3C Trace Context, 3.2.2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId(u128);

/// The id of a span within its trace, never zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId(u64);

impl TraceId {
    /// `None` for zero, which names no trace.
    pub fn new(id: u128) -> Option<Self> {
        (id != 0).then_some(Self(id))
    }

    /// The trace of a batch that begins with the record at `first`. The same on every host and in
    /// every attempt, so that what is delivered again after a crash shows in the trace that it
    /// began in.
    pub fn of_batch(application: &str, shard: &ShardId, first: &Position) -> Self {
        let half = |salt: u8| {
            let name = application.bytes().chain([0]);
            let shard = shard.as_str().bytes().chain([0]);
            let sequence = first.sequence.as_str().bytes().chain([0]);
            let place = sequence.chain(first.sub_sequence.to_be_bytes());
            hash::stable([salt].into_iter().chain(name).chain(shard).chain(place))
        };
        // One in 2^128 batches would have no id.
        Self((u128::from(half(0)) << 64 | u128::from(half(1))).max(1))
    }

    /// Its number, for the wire: big-endian, 16 bytes.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// The part that samplers go by: 56 bits (W3C Trace Context, level 2, 3.2.2.3.2).
    pub(super) fn random_part(self) -> u64 {
        const BITS: u128 = (1 << 56) - 1;
        u64::try_from(self.0 & BITS).unwrap_or_default()
    }
}

impl SpanId {
    /// `None` for zero, which names no span.
    pub fn new(id: u64) -> Option<Self> {
        (id != 0).then_some(Self(id))
    }

    /// The id that a random number stands for. Zero stands for another one.
    pub fn of_random(number: u64) -> Self {
        Self(number.max(1))
    }

    /// Its number, for the wire: big-endian, 8 bytes.
    pub fn to_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }
}

/// 32 digits in small letters, as headers and logs have it.
impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// 16 digits in small letters, as headers and logs have it.
impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::stream::SequenceNumber;

    fn at(number: u64, sub_sequence: u64) -> Position {
        Position {
            sequence: SequenceNumber::parse(&number.to_string()).unwrap(),
            sub_sequence,
        }
    }

    #[test]
    fn a_batch_has_the_same_trace_on_every_host_and_never_shares_it_with_another() {
        let shard = |number: u32| ShardId::new(format!("shardId-{number:012}")).unwrap();
        let id = |application: &str, number: u32, at: &Position| {
            TraceId::of_batch(application, &shard(number), at)
        };
        assert_eq!(id("orders", 0, &at(7, 0)), id("orders", 0, &at(7, 0)));
        assert_eq!(
            id("orders", 0, &at(7, 0)).to_string(),
            id("orders", 0, &at(7, 0)).to_string()
        );
        let all = [
            id("orders", 0, &at(7, 0)),
            id("orders", 0, &at(7, 1)),
            id("orders", 0, &at(70, 0)),
            id("orders", 1, &at(7, 0)),
            id("alerts", 0, &at(7, 0)),
        ];
        let texts: BTreeSet<String> = all.iter().map(ToString::to_string).collect();
        assert_eq!(texts.len(), all.len());
        assert!(texts.iter().all(|text| text.len() == 32));
    }

    #[test]
    fn zero_names_nothing() {
        assert_eq!((TraceId::new(0), SpanId::new(0)), (None, None));
        assert_eq!(SpanId::of_random(0), SpanId::of_random(1));
        assert_eq!(SpanId::of_random(255).to_string(), "00000000000000ff");
    }
}
