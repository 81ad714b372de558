//! Where a read begins, in the SDK's types.

use aws_sdk_kinesis::primitives::DateTime;
use aws_sdk_kinesis::types::ShardIteratorType;
use shardmill_core::stream::ReadFrom;

/// The members that `GetShardIterator` and `SubscribeToShard` have in common.
pub(super) struct Start {
    pub(super) kind: ShardIteratorType,
    pub(super) timestamp: Option<DateTime>,
    pub(super) sequence_number: Option<String>,
}

impl From<&ReadFrom> for Start {
    fn from(from: &ReadFrom) -> Self {
        let mut start = Self {
            kind: ShardIteratorType::TrimHorizon,
            timestamp: None,
            sequence_number: None,
        };
        match from {
            ReadFrom::TrimHorizon => {}
            ReadFrom::Latest => start.kind = ShardIteratorType::Latest,
            ReadFrom::AtTimestamp(ms) => {
                let millis = i64::try_from(*ms).unwrap_or(i64::MAX);
                start.kind = ShardIteratorType::AtTimestamp;
                start.timestamp = Some(DateTime::from_millis(millis));
            }
            ReadFrom::AtSequenceNumber(sequence) => {
                start.kind = ShardIteratorType::AtSequenceNumber;
                start.sequence_number = Some(sequence.as_str().to_owned());
            }
            ReadFrom::AfterSequenceNumber(sequence) => {
                start.kind = ShardIteratorType::AfterSequenceNumber;
                start.sequence_number = Some(sequence.as_str().to_owned());
            }
        }
        start
    }
}
