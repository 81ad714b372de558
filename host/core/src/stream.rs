//! The concepts of Kinesis: streams, shards, positions, records.

mod consumer;
mod coverage;
mod ids;
mod lineage;
mod listing;
mod position;
mod record;
mod region;
mod sequence_number;
mod shard;
mod stream_ref;
mod trimming;

pub use consumer::{ConsumerArn, FanOutConsumer, InvalidConsumerArn};
pub use coverage::holes;
pub use ids::{ConsumerName, InvalidName, LeaseKey, ShardId, StreamName};
pub use lineage::parents_first;
pub use listing::{InvalidListing, check_listing, missing_from_listing};
pub use position::{InitialPosition, Position, ReadFrom, Utc};
pub use record::{Batch, Emitted, Record};
pub use region::{InvalidRegion, check_region};
pub use sequence_number::{InvalidSequenceNumber, SequenceNumber};
pub use shard::{HashKeyRange, InvalidHashKeyRange, Shard};
pub use stream_ref::{InvalidStreamRef, StreamRef};
pub use trimming::Gap;
pub(crate) use trimming::{Anchor, is_near_trimming, look_for, may_be_trimmed};
