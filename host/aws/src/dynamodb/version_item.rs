//! What hosts report about their plugin's versions, as DynamoDB items: a list in a worker's row,
//! and a row for each bad one.

use aws_sdk_dynamodb::types::AttributeValue;
use shardmill_core::plugin::PluginDigest;
use shardmill_core::rollout::{Quarantined, VersionRow};

use super::attributes::{Item, number, text};
use super::row::{FLEET, WORKER, for_people, key, string, unsigned, worker};

/// Before a digest, as the sort key of a quarantined version.
pub(super) const QUARANTINE_PREFIX: &str = "quarantine#";
/// Versions in a worker's row: what runs, what is tried, what is refused.
const VERSIONS_MAX: usize = 4;

const DIGEST: &str = "digest";
const STATE: &str = "state";
const SINCE: &str = "sinceMillis";
const REASON: &str = "reason";

pub(super) fn encode_all(versions: &[VersionRow]) -> AttributeValue {
    AttributeValue::L(versions.iter().take(VERSIONS_MAX).map(encode).collect())
}

fn encode(version: &VersionRow) -> AttributeValue {
    let mut item = Item::from([
        (DIGEST.to_owned(), text(version.digest.as_str())),
        (STATE.to_owned(), text(&version.state)),
        (SINCE.to_owned(), number(version.since_ms)),
    ]);
    if let Some(reason) = &version.reason {
        item.insert(REASON.to_owned(), text(reason));
    }
    AttributeValue::M(item)
}

/// Decodes the entries that can be read: a bad one must not make the host's whole row unreadable,
/// since that row holds its leases.
pub(super) fn decode_all(value: &AttributeValue) -> Vec<VersionRow> {
    let items = value.as_l().map(Vec::as_slice).unwrap_or_default();
    items.iter().take(VERSIONS_MAX).filter_map(decode).collect()
}

fn decode(value: &AttributeValue) -> Option<VersionRow> {
    let item = value.as_m().ok()?;
    Some(VersionRow {
        digest: PluginDigest::from_hex(string(item, DIGEST).ok()?)?,
        state: for_people(item, STATE).ok()?,
        since_ms: unsigned(item, SINCE).ok()?,
        reason: for_people(item, REASON).ok(),
    })
}

pub(super) fn quarantine_key(digest: &PluginDigest) -> Item {
    key(FLEET, &format!("{QUARANTINE_PREFIX}{}", digest.as_str()))
}

pub(super) fn encode_quarantined(entry: &Quarantined) -> Item {
    let mut item = quarantine_key(&entry.digest);
    item.extend([
        (DIGEST.to_owned(), text(entry.digest.as_str())),
        (WORKER.to_owned(), text(entry.host.as_str())),
        (REASON.to_owned(), text(&entry.reason)),
        (SINCE.to_owned(), number(entry.at_ms)),
    ]);
    item
}

pub(super) fn decode_quarantined(item: &Item) -> Result<Quarantined, String> {
    let digest = string(item, DIGEST)?;
    Ok(Quarantined {
        digest: PluginDigest::from_hex(digest)
            .ok_or_else(|| format!("{DIGEST} {digest} is not 64 hex digits"))?,
        host: worker(item)?,
        reason: for_people(item, REASON)?,
        at_ms: unsigned(item, SINCE)?,
    })
}
