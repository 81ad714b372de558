//! A change of a plugin's state that operators want, as a map in a lease's row.

use aws_sdk_dynamodb::types::AttributeValue;
use shardmill_core::control::{Asked, NewState, StateAt, StateEdit};
use shardmill_core::lease::Checkpoint;
use shardmill_core::stream::LeaseKey;

use super::attributes::{Item, text};
use super::checkpoint_item;
use super::row::string;

/// The row of the state that is to be taken over; absent if the state is removed.
const STAGED: &str = "staged";
/// Where the state belongs to, beside the checkpoint: one of those below.
const AT: &str = "at";
const ANYWHERE: &str = "anywhere";
const ONLY: &str = "only";
const GO_TO: &str = "goTo";
const REFUSED: &str = "refused";

/// The map; `item` has who wants it.
pub(super) fn encode(edit: &StateEdit, mut item: Item) -> AttributeValue {
    if let NewState::Staged(key) = &edit.to {
        item.insert(STAGED.to_owned(), text(key.as_str()));
    }
    let (at, checkpoint) = match &edit.at {
        StateAt::Anywhere => (ANYWHERE, None),
        StateAt::Only(checkpoint) => (ONLY, Some(checkpoint)),
        StateAt::GoTo(checkpoint) => (GO_TO, Some(checkpoint)),
    };
    item.insert(AT.to_owned(), text(at));
    if let Some(checkpoint) = checkpoint {
        checkpoint_item::put(&mut item, checkpoint);
    }
    if let Some(why) = &edit.refused {
        item.insert(REFUSED.to_owned(), text(why));
    }
    AttributeValue::M(item)
}

/// Reads the map.
pub(super) fn decode(item: &Item, asked: Asked) -> Result<StateEdit, String> {
    let has = |name: &str| item.contains_key(name);
    let staged = has(STAGED).then(|| string(item, STAGED)).transpose()?;
    let staged = staged.map(LeaseKey::new).transpose();
    let staged = staged.map_err(|error| format!("{STAGED}: {error}"))?;
    let refused = has(REFUSED).then(|| string(item, REFUSED)).transpose()?;
    Ok(StateEdit {
        to: staged.map_or(NewState::None, NewState::Staged),
        at: decode_at(item)?,
        asked,
        refused: refused.map(str::to_owned),
    })
}

fn decode_at(item: &Item) -> Result<StateAt, String> {
    Ok(match string(item, AT)? {
        ANYWHERE => StateAt::Anywhere,
        ONLY => StateAt::Only(place(item)?),
        GO_TO => StateAt::GoTo(place(item)?),
        other => return Err(format!("{AT} {other} is unknown")),
    })
}

/// No state belongs to the end of a shard: it ends with the shard.
fn place(item: &Item) -> Result<Checkpoint, String> {
    match checkpoint_item::checkpoint(item)? {
        Checkpoint::ShardEnd => Err("the end of a shard has no state".to_owned()),
        checkpoint => Ok(checkpoint),
    }
}
