//! A deploy, as a map in the row with what operators want of all hosts.

use aws_sdk_dynamodb::types::AttributeValue;
use shardmill_core::artifact::ArtifactRef;
use shardmill_core::control::{DeployAsked, Deployed, Finding};
use shardmill_core::plugin::PluginDigest;

use super::asked_item::{decode_asked, encode_asked, part};
use super::attributes::{Item, number, text};
use super::row::{for_people, string, unsigned};

pub(super) const REFERENCE: &str = "reference";
const DIGEST: &str = "digest";
const BEFORE: &str = "before";
const BEFORE_DIGEST: &str = "beforeDigest";
const IN_TURNS: &str = "inTurns";
const PROVEN: &str = "proven";
const FAILED: &str = "failed";

const BY: &str = "by";
const WHY: &str = "why";
const AT: &str = "atMillis";

pub(super) fn encode(deploy: &DeployAsked) -> AttributeValue {
    let mut item = encode_asked(&deploy.asked);
    item.insert(REFERENCE.to_owned(), text(&deploy.reference.as_text()));
    item.insert(DIGEST.to_owned(), text(deploy.version.as_str()));
    if let Some(before) = &deploy.before {
        item.extend(encode_before(before));
    }
    item.insert(
        IN_TURNS.to_owned(),
        AttributeValue::Bool(deploy.is_in_turns),
    );
    for (name, found) in [(PROVEN, &deploy.proven), (FAILED, &deploy.failed)] {
        if let Some(found) = found {
            item.insert(name.to_owned(), AttributeValue::M(encode_finding(found)));
        }
    }
    AttributeValue::M(item)
}

fn encode_before(before: &Deployed) -> Item {
    let mut item = Item::from([(BEFORE.to_owned(), text(&before.reference.as_text()))]);
    if let Some(version) = &before.version {
        item.insert(BEFORE_DIGEST.to_owned(), text(version.as_str()));
    }
    item
}

fn encode_finding(found: &Finding) -> Item {
    Item::from([
        (BY.to_owned(), text(&found.by)),
        (WHY.to_owned(), text(&found.why)),
        (AT.to_owned(), number(found.at_ms)),
    ])
}

/// Reads it. An earlier version that cannot be read is none: hosts then go back to what is
/// configured. Whatever else cannot be read, a newer command may have written.
pub(super) fn decode(item: &Item) -> Result<DeployAsked, String> {
    let reference = |name: &str| {
        let text = string(item, name)?;
        ArtifactRef::parse(text).map_err(|fault| format!("{name}: it {fault}"))
    };
    let in_turns = item.get(IN_TURNS).map(AttributeValue::as_bool);
    let in_turns = in_turns.and_then(Result::ok).copied();
    Ok(DeployAsked {
        asked: decode_asked(item)?,
        reference: reference(REFERENCE)?,
        version: digest(item, DIGEST)?,
        before: reference(BEFORE).ok().map(|reference| Deployed {
            reference,
            version: digest(item, BEFORE_DIGEST).ok(),
        }),
        is_in_turns: in_turns.ok_or_else(|| format!("{IN_TURNS} is neither true nor false"))?,
        proven: finding(item, PROVEN)?,
        failed: finding(item, FAILED)?,
    })
}

fn digest(item: &Item, name: &str) -> Result<PluginDigest, String> {
    PluginDigest::from_hex(string(item, name)?).ok_or_else(|| format!("{name} is no SHA-256"))
}

fn finding(item: &Item, name: &str) -> Result<Option<Finding>, String> {
    let found = part(item, name)?;
    let read = |item: &Item| {
        Ok(Finding {
            by: for_people(item, BY)?,
            why: for_people(item, WHY)?,
            at_ms: unsigned(item, AT)?,
        })
    };
    found.map(read).transpose()
}
