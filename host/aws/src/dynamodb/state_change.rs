//! What a checkpoint does to a shard's state.

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use bytes::Bytes;
use shardmill_core::ports::CheckpointWrite;
use shardmill_core::stream::LeaseKey;

use super::lease_item::{Item, LEASE_KEY, number, text};

pub(super) const STATE: &str = "state";
pub(super) const CHECKPOINT: &str = "checkpoint";
pub(super) const SUB_SEQUENCE: &str = "checkpointSubSequenceNumber";
pub(super) const PLUGIN_DIGEST: &str = "pluginDigest";

/// What happens to a shard's state.
pub(super) enum StateChange {
    /// The checkpoint comes with this state.
    Put(Box<Item>),
    /// The shard has no state any more.
    Remove,
}

impl StateChange {
    /// The state that goes with a checkpoint.
    pub(super) fn saved(key: &LeaseKey, write: &CheckpointWrite, state: &Bytes) -> Self {
        let checkpoint = write.checkpoint();
        let mut item = Item::from([
            (LEASE_KEY.to_owned(), text(key.as_str())),
            (
                STATE.to_owned(),
                AttributeValue::B(Blob::new(state.to_vec())),
            ),
            (CHECKPOINT.to_owned(), text(checkpoint.text())),
            (SUB_SEQUENCE.to_owned(), number(checkpoint.sub_sequence())),
        ]);
        if let Some(digest) = &write.progress.plugin_digest {
            item.insert(PLUGIN_DIGEST.to_owned(), text(digest.as_str()));
        }
        Self::Put(Box::new(item))
    }
}
