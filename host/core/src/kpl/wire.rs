//! The messages of the aggregation format, and a count of their entries that allocates nothing.

use bytes::{Buf, BufMut, Bytes};
use prost::encoding::{DecodeContext, WireType, skip_field};
use prost::{DecodeError, Message};

/// `AggregatedRecord` of the format.
#[derive(Clone, PartialEq, Message)]
pub(super) struct AggregatedRecord {
    #[prost(string, repeated, tag = "1")]
    pub(super) partition_keys: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    pub(super) explicit_hash_keys: Vec<String>,
    #[prost(message, repeated, tag = "3")]
    pub(super) records: Vec<UserRecord>,
}

/// `Record` of the format. Index and data are required there; here they are optional, so that
/// absence differs from zero. Its tags, which the format reserves and no consumer reads, are
/// skipped.
#[derive(Clone, PartialEq, Message)]
pub(super) struct UserRecord {
    #[prost(uint64, optional, tag = "1")]
    pub(super) partition_key_index: Option<u64>,
    #[prost(uint64, optional, tag = "2")]
    pub(super) explicit_hash_key_index: Option<u64>,
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub(super) data: Option<Bytes>,
}

/// Decodes from any message as the number of its fields: two bytes may demand a hundred in memory,
/// so fields are counted before any is built.
#[derive(Debug, Default)]
pub(super) struct FieldCount(pub(super) usize);

impl Message for FieldCount {
    fn encode_raw(&self, _: &mut impl BufMut) {}

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buf: &mut impl Buf,
        ctx: DecodeContext,
    ) -> Result<(), DecodeError> {
        self.0 += 1;
        skip_field(wire_type, tag, buf, ctx)
    }

    fn encoded_len(&self) -> usize {
        0
    }

    fn clear(&mut self) {
        self.0 = 0;
    }
}
