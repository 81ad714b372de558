//! The attributes of a checkpoint, in the row of a lease, of a state, or of a change of one.

use aws_sdk_dynamodb::types::AttributeValue;
use shardmill_core::lease::{Checkpoint, Sought};

use super::attributes::{Item, number, require, string, text, unsigned};

pub(super) const CHECKPOINT: &str = "checkpoint";
pub(super) const SUB_SEQUENCE: &str = "checkpointSubSequenceNumber";
/// shardmill's own: where an operator sent the shard. Valid only beside the checkpoint
/// `AT_TIMESTAMP`: what another program writes over that leaves it behind.
pub(super) const SOUGHT: &str = "soughtPlace";

/// Adds the attributes of a checkpoint.
pub(super) fn put(item: &mut Item, checkpoint: &Checkpoint) {
    item.insert(CHECKPOINT.to_owned(), text(checkpoint.text()));
    let sub_sequence = number(checkpoint.sub_sequence());
    item.insert(SUB_SEQUENCE.to_owned(), sub_sequence);
    if let Some(place) = sought(checkpoint) {
        item.insert(SOUGHT.to_owned(), place);
    }
}

/// The attribute that a checkpoint needs beside its own two.
pub(super) fn sought(checkpoint: &Checkpoint) -> Option<AttributeValue> {
    checkpoint.sought().map(|sought| text(&sought.text()))
}

/// The checkpoint of a row, of a lease or of a state.
pub(super) fn checkpoint(item: &Item) -> Result<Checkpoint, String> {
    let checkpoint = require(string(item, CHECKPOINT)?, CHECKPOINT)?;
    let sentinels = [Checkpoint::AtTimestamp, Checkpoint::TrimHorizon];
    if sentinels
        .iter()
        .any(|sentinel| checkpoint == sentinel.text())
        && let Some(place) = string(item, SOUGHT)?
    {
        let sought = Sought::parse(place).map(Checkpoint::Sought);
        let sought = sought.ok_or_else(|| format!("{SOUGHT} {place:?} is not a place"))?;
        // Beside another sentinel it is what somebody else left.
        if sought.text() == checkpoint {
            return Ok(sought);
        }
    }
    let sub_sequence = unsigned(item, SUB_SEQUENCE)?.unwrap_or(0);
    Checkpoint::parse(checkpoint, sub_sequence).ok_or_else(|| {
        format!("{CHECKPOINT} {checkpoint:?} is neither a sequence number nor a sentinel")
    })
}
