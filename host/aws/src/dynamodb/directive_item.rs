//! What operators want, as DynamoDB items: a map in a lease's row, and one row of the coordinator
//! table.

use std::collections::BTreeMap;

use aws_sdk_dynamodb::types::AttributeValue;
use shardmill_core::control::{
    Asked, Control, DRAINS_MAX, Directives, Pause, Place, RecordRange, ReloadAsked, Seek,
    SeekState, ShadowAsked, ShadowVerb, Skip, StateEdit,
};
use shardmill_core::lease::WorkerId;
use shardmill_core::plugin::PluginDigest;
use shardmill_core::stream::SequenceNumber;

use super::asked_item::{decode_asked, encode_asked, part};
use super::attributes::{Item, number, text};
use super::deploy_item;
use super::row::{FLEET, key, string, unsigned};
use super::state_edit_item;

/// The sort key of the row with what operators want of all hosts.
pub(super) const CONTROL: &str = "control";
/// Of a map of directives, and of the row.
pub(super) const VERSION: &str = "version";

const PAUSE: &str = "pause";
const SEEK: &str = "seek";
const SKIP: &str = "skip";
const STATE_EDIT: &str = "stateEdit";
const DRAINS: &str = "drains";
const RELOAD: &str = "reload";
const SHADOW: &str = "shadow";
const DEPLOY: &str = "deploy";
const DIGEST: &str = "digest";
const VERB: &str = "verb";
const WORKER: &str = "worker";

const UNTIL: &str = "untilMillis";
const TO: &str = "to";
const ONLY_FORWARD: &str = "onlyForward";
const STATE: &str = "state";
const ABSENT: &str = "absent";
const KEEP: &str = "keep";
const DROP: &str = "drop";
const FIRST: &str = "first";
const LAST: &str = "last";
const DEAD_LETTERS: &str = "deadLetters";
const HORIZON: &str = "horizon";

/// The map in a lease's row.
pub(super) fn encode(directives: &Directives) -> AttributeValue {
    let mut item = Item::from([(VERSION.to_owned(), number(directives.version))]);
    if let Some(pause) = &directives.pause {
        item.insert(PAUSE.to_owned(), encode_pause(pause));
    }
    if let Some(seek) = &directives.seek {
        item.insert(SEEK.to_owned(), encode_seek(seek));
    }
    if let Some(skip) = &directives.skip {
        item.insert(SKIP.to_owned(), encode_skip(skip));
    }
    if let Some(edit) = &directives.state {
        let map = state_edit_item::encode(edit, encode_asked(&edit.asked));
        item.insert(STATE_EDIT.to_owned(), map);
    }
    AttributeValue::M(item)
}

fn encode_pause(pause: &Pause) -> AttributeValue {
    let mut item = encode_asked(&pause.asked);
    if let Some(until) = pause.until_ms {
        item.insert(UNTIL.to_owned(), number(until));
    }
    AttributeValue::M(item)
}

fn encode_seek(seek: &Seek) -> AttributeValue {
    let to = match &seek.to {
        Place::Horizon => text(HORIZON),
        Place::Time(ms) => number(*ms),
        Place::Sequence(number) => text(number.as_str()),
    };
    let state = match seek.state {
        SeekState::Absent => ABSENT,
        SeekState::Keep => KEEP,
        SeekState::Drop => DROP,
    };
    let mut item = encode_asked(&seek.asked);
    item.insert(TO.to_owned(), to);
    if seek.only_forward {
        item.insert(ONLY_FORWARD.to_owned(), AttributeValue::Bool(true));
    }
    item.insert(STATE.to_owned(), text(state));
    AttributeValue::M(item)
}

fn encode_skip(skip: &Skip) -> AttributeValue {
    let mut item = encode_asked(&skip.asked);
    item.insert(FIRST.to_owned(), text(skip.records.first().as_str()));
    item.insert(LAST.to_owned(), text(skip.records.last().as_str()));
    if let Some(sink) = &skip.dead_letters {
        item.insert(DEAD_LETTERS.to_owned(), text(sink));
    }
    AttributeValue::M(item)
}

/// Reads the map of a lease's row.
///
/// What cannot be read, a newer command's for instance, pauses the shard: nothing is lost by that,
/// and whoever wrote it wanted something of it.
pub(super) fn decode(value: &AttributeValue) -> Directives {
    let Ok(item) = value.as_m() else {
        return unreadable(0, "they are not a map");
    };
    let version = unsigned(item, VERSION).unwrap_or(0);
    decode_map(item).unwrap_or_else(|problem| unreadable(version, &problem))
}

fn unreadable(version: u64, problem: &str) -> Directives {
    let why = format!(
        "the row's directives cannot be read, and may be a newer shardmill's: {problem}. `shardmill \
            resume` removes them; if they have no version, remove the attribute from the row"
    );
    Directives {
        // Above 0, which would count as seen.
        version: version.max(1),
        pause: Some(Pause {
            asked: Asked {
                by: "shardmill".to_owned(),
                why,
                at_ms: 0,
            },
            until_ms: None,
        }),
        ..Directives::default()
    }
}

fn decode_map(item: &Item) -> Result<Directives, String> {
    let known = [VERSION, PAUSE, SEEK, SKIP, STATE_EDIT];
    if let Some(other) = item.keys().find(|name| !known.contains(&name.as_str())) {
        return Err(format!("{other} is unknown"));
    }
    Ok(Directives {
        version: unsigned(item, VERSION)?,
        pause: part(item, PAUSE)?.map(decode_pause).transpose()?,
        seek: part(item, SEEK)?.map(decode_seek).transpose()?,
        skip: part(item, SKIP)?.map(decode_skip).transpose()?,
        state: part(item, STATE_EDIT)?.map(decode_edit).transpose()?,
    })
}

fn decode_pause(item: &Item) -> Result<Pause, String> {
    let has_end = item.contains_key(UNTIL);
    Ok(Pause {
        asked: decode_asked(item)?,
        until_ms: has_end.then(|| unsigned(item, UNTIL)).transpose()?,
    })
}

fn decode_seek(item: &Item) -> Result<Seek, String> {
    Ok(Seek {
        to: decode_place(item)?,
        only_forward: decode_only_forward(item)?,
        state: match string(item, STATE)? {
            ABSENT => SeekState::Absent,
            KEEP => SeekState::Keep,
            DROP => SeekState::Drop,
            other => {
                return Err(format!(
                    "{STATE} {other} is none of {ABSENT}, {KEEP} and {DROP}"
                ));
            }
        },
        asked: decode_asked(item)?,
    })
}

fn decode_only_forward(item: &Item) -> Result<bool, String> {
    let value = item.get(ONLY_FORWARD).map(AttributeValue::as_bool);
    let value = value.transpose();
    let value = value.map_err(|_| format!("{ONLY_FORWARD} is neither true nor false"))?;
    Ok(value.copied().unwrap_or(false))
}

fn decode_place(item: &Item) -> Result<Place, String> {
    match item.get(TO) {
        Some(AttributeValue::N(_)) => unsigned(item, TO).map(Place::Time),
        Some(AttributeValue::S(place)) if place == HORIZON => Ok(Place::Horizon),
        _ => sequence(item, TO).map(Place::Sequence),
    }
}

fn decode_skip(item: &Item) -> Result<Skip, String> {
    let (first, last) = (sequence(item, FIRST)?, sequence(item, LAST)?);
    let stores = item.contains_key(DEAD_LETTERS);
    let sink = stores.then(|| string(item, DEAD_LETTERS)).transpose()?;
    Ok(Skip {
        records: RecordRange::new(first, last)
            .ok_or_else(|| format!("{LAST} comes before {FIRST}"))?,
        dead_letters: sink.map(str::to_owned),
        asked: decode_asked(item)?,
    })
}

fn decode_edit(item: &Item) -> Result<StateEdit, String> {
    state_edit_item::decode(item, decode_asked(item)?)
}

fn sequence(item: &Item, name: &str) -> Result<SequenceNumber, String> {
    SequenceNumber::parse(string(item, name)?).map_err(|error| format!("{name}: {error}"))
}

/// The row of the coordinator table.
pub(super) fn encode_control(control: &Control) -> Item {
    let mut item = key(FLEET, CONTROL);
    item.insert(VERSION.to_owned(), number(control.version));
    if let Some(pause) = &control.pause {
        item.insert(PAUSE.to_owned(), encode_pause(pause));
    }
    let drains = control.drains.iter();
    let drains: Item = drains
        .map(|(worker, asked)| {
            let asked = AttributeValue::M(encode_asked(asked));
            (worker.as_str().to_owned(), asked)
        })
        .collect();
    if !drains.is_empty() {
        item.insert(DRAINS.to_owned(), AttributeValue::M(drains));
    }
    if let Some(reload) = &control.reload {
        item.insert(RELOAD.to_owned(), encode_reload(reload));
    }
    if let Some(shadow) = &control.shadow {
        item.insert(SHADOW.to_owned(), encode_shadow(shadow));
    }
    if let Some(deploy) = &control.deploy {
        item.insert(DEPLOY.to_owned(), deploy_item::encode(deploy));
    } else if let Some(problem) = &control.unread_deploy {
        // Never written: it stands for what is there, which only goes once it is not wanted.
        item.insert(DEPLOY.to_owned(), text(problem));
    }
    item
}

/// What turns the row that was read into the next one: attributes to set, and to remove. Whatever
/// else is in the row stays, also what a newer command wrote.
pub(super) fn control_changes(seen: &Control, next: &Control) -> (Item, Vec<String>) {
    let (seen, next) = (encode_control(seen), encode_control(next));
    let is_gone = |name: &&String| !next.contains_key(*name);
    let gone = seen.keys().filter(is_gone).cloned().collect();
    let is_news = |(name, value): &(String, AttributeValue)| seen.get(name) != Some(value);
    let set = next.clone().into_iter().filter(is_news).collect();
    (set, gone)
}

fn encode_reload(reload: &ReloadAsked) -> AttributeValue {
    let mut item = encode_asked(&reload.asked);
    if let Some(worker) = &reload.worker {
        item.insert(WORKER.to_owned(), text(worker.as_str()));
    }
    AttributeValue::M(item)
}

fn encode_shadow(shadow: &ShadowAsked) -> AttributeValue {
    let mut item = encode_asked(&shadow.asked);
    item.insert(DIGEST.to_owned(), text(shadow.digest.as_str()));
    item.insert(VERB.to_owned(), text(shadow.verb.code()));
    AttributeValue::M(item)
}

/// Reads the row. A pause that cannot be read is one, for the reason that directives are; a deploy
/// that cannot be read keeps what hosts run; anything else that cannot be read is not wanted.
pub(super) fn decode_control(item: &Item) -> Result<Control, String> {
    let version = unsigned(item, VERSION)?;
    let drains = part(item, DRAINS).ok().flatten();
    let deploy = part(item, DEPLOY).and_then(|it| it.map(deploy_item::decode).transpose());
    Ok(Control {
        version,
        pause: pause_or_unreadable(item, version),
        drains: drains.map(decode_drains).unwrap_or_default(),
        reload: part(item, RELOAD).ok().flatten().and_then(decode_reload),
        shadow: part(item, SHADOW).ok().flatten().and_then(decode_shadow),
        unread_deploy: deploy.as_ref().err().cloned(),
        deploy: deploy.ok().flatten(),
    })
}

fn pause_or_unreadable(item: &Item, version: u64) -> Option<Pause> {
    match part(item, PAUSE).and_then(|pause| pause.map(decode_pause).transpose()) {
        Ok(pause) => pause,
        Err(problem) => unreadable(version, &problem).pause,
    }
}

fn decode_reload(item: &Item) -> Option<ReloadAsked> {
    let worker = item.contains_key(WORKER).then(|| string(item, WORKER).ok());
    let worker = match worker {
        Some(name) => Some(WorkerId::new(name?)?),
        None => None,
    };
    let asked = decode_asked(item).ok()?;
    Some(ReloadAsked { asked, worker })
}

fn decode_shadow(item: &Item) -> Option<ShadowAsked> {
    Some(ShadowAsked {
        asked: decode_asked(item).ok()?,
        digest: PluginDigest::from_hex(string(item, DIGEST).ok()?)?,
        verb: ShadowVerb::of_code(string(item, VERB).ok()?)?,
    })
}

fn decode_drains(item: &Item) -> BTreeMap<WorkerId, Asked> {
    item.iter()
        .filter_map(|(id, asked)| decode_drain(id, asked))
        .take(DRAINS_MAX)
        .collect()
}

fn decode_drain(id: &str, asked: &AttributeValue) -> Option<(WorkerId, Asked)> {
    let asked = decode_asked(asked.as_m().ok()?).ok()?;
    Some((WorkerId::new(id)?, asked))
}

#[cfg(test)]
#[path = "directive_item_tests.rs"]
mod tests;
