//! What a checkpoint does to a shard's state.

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use bytes::Bytes;
use shardmill_core::ports::{CheckpointWrite, ObeyState, SavedState};
use shardmill_core::stream::LeaseKey;

use super::attributes::{Item, text};
use super::checkpoint_item;
use super::lease_item::LEASE_KEY;

pub(super) const STATE: &str = "state";
pub(super) const PLUGIN_DIGEST: &str = "pluginDigest";

/// What happens to a shard's state.
pub(super) enum StateChange {
    /// The checkpoint comes with this state.
    Put(Box<Item>),
    /// The shard has no state any more.
    Remove,
    /// The shard has the state that was left in the row of that key, which goes away.
    Import(Box<Item>, LeaseKey),
}

impl StateChange {
    /// The state that goes with a checkpoint.
    pub(super) fn saved(key: &LeaseKey, write: &CheckpointWrite, state: &Bytes) -> Self {
        let saved = SavedState {
            bytes: state.clone(),
            checkpoint: write.checkpoint.clone(),
            plugin_digest: write.progress.plugin_digest.clone(),
        };
        Self::Put(Box::new(encode(key, &saved)))
    }

    /// What goes with what a holder obeys; `None` if the state is left alone.
    pub(super) fn obeyed(key: &LeaseKey, state: &ObeyState) -> Option<Self> {
        match state {
            ObeyState::Untouched => None,
            ObeyState::Moved(saved) => Some(Self::Put(Box::new(encode(key, saved)))),
            ObeyState::Removed => Some(Self::Remove),
            ObeyState::Imported { state, staged } => {
                let item = Box::new(encode(key, state));
                Some(Self::Import(item, staged.clone()))
            }
        }
    }
}

/// The row of a state.
pub(super) fn encode(key: &LeaseKey, saved: &SavedState) -> Item {
    let bytes = AttributeValue::B(Blob::new(saved.bytes.to_vec()));
    let mut item = Item::from([
        (LEASE_KEY.to_owned(), text(key.as_str())),
        (STATE.to_owned(), bytes),
    ]);
    checkpoint_item::put(&mut item, &saved.checkpoint);
    if let Some(digest) = &saved.plugin_digest {
        item.insert(PLUGIN_DIGEST.to_owned(), text(digest.as_str()));
    }
    item
}
