//! The application's history in the coordinator table: a partition of its own, that no host reads.

use aws_sdk_dynamodb::types::AttributeValue;
use shardmill_core::control::{Deed, HISTORY_KEPT_DAYS, HistoryEntry};
use shardmill_core::stream::ShardId;
use shardmill_core::text::shortened;

use super::attributes::{Item, number, text};
use super::row::{for_people, key, string, unsigned};

/// The partition key of all rows of the history.
pub(super) const HISTORY: &str = "history";
/// The attribute that DynamoDB's time to live removes rows by, in seconds since the Unix epoch.
pub(super) const EXPIRES: &str = "expiresAtSeconds";

const AT: &str = "atMillis";
const BY: &str = "by";
const DEED: &str = "deed";
const SHARD: &str = "shard";
const DETAILS: &str = "details";
const WHY: &str = "why";

/// What is said of a deed, in characters: an entry of up to 1 KB costs one unit.
const TEXT_CHARS_MAX: usize = 300;
const SECONDS_A_DAY: u64 = 86_400;

/// The sort key of an entry: by time, and apart from others of the same moment.
fn id(at_ms: u64, apart: u32) -> String {
    format!("{at_ms:015}#{apart:08x}")
}

/// The least sort key of entries at or after a time.
pub(super) fn since(at_ms: u64) -> String {
    format!("{at_ms:015}")
}

/// `apart` differs from that of another entry of the same moment.
pub(super) fn encode(entry: &HistoryEntry, apart: u32) -> Item {
    let expires = entry.at_ms / 1_000 + HISTORY_KEPT_DAYS * SECONDS_A_DAY;
    let mut item = key(HISTORY, &id(entry.at_ms, apart));
    item.extend([
        (AT.to_owned(), number(entry.at_ms)),
        (BY.to_owned(), short(&entry.by)),
        (DEED.to_owned(), text(entry.deed.code())),
        (DETAILS.to_owned(), short(&entry.details)),
        (WHY.to_owned(), short(&entry.why)),
        (EXPIRES.to_owned(), number(expires)),
    ]);
    if let Some(shard) = &entry.shard {
        item.insert(SHARD.to_owned(), text(shard.as_str()));
    }
    item
}

fn short(words: &str) -> AttributeValue {
    text(&shortened(words, TEXT_CHARS_MAX))
}

/// Reads an entry, or says what is wrong with it.
pub(super) fn decode(item: &Item) -> Result<HistoryEntry, String> {
    let code = string(item, DEED)?;
    let shard = item.contains_key(SHARD).then(|| string(item, SHARD));
    let shard = shard.transpose()?.map(ShardId::new).transpose();
    Ok(HistoryEntry {
        at_ms: unsigned(item, AT)?,
        by: for_people(item, BY)?,
        deed: Deed::of_code(code).ok_or_else(|| format!("{DEED} {code} is unknown"))?,
        shard: shard.map_err(|error| error.to_string())?,
        details: for_people(item, DETAILS)?,
        why: for_people(item, WHY)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_survives_a_round_trip_and_later_ones_come_later() {
        let entry = HistoryEntry {
            at_ms: 1_767_225_600_000,
            by: "ops".to_owned(),
            deed: Deed::Seek,
            shard: Some(ShardId::new("shardId-000000000001").unwrap()),
            details: "5 to horizon".to_owned(),
            why: String::new(),
        };
        let item = encode(&entry, 7);
        assert_eq!(decode(&item), Ok(entry.clone()));
        let seconds = entry.at_ms / 1_000 + 90 * 86_400;
        assert_eq!(item[EXPIRES], number(seconds));
        assert!(id(999, u32::MAX) < since(1_000));
        assert!(since(1_000) < id(1_000, 0));
        let fleet = HistoryEntry {
            shard: None,
            ..entry
        };
        assert_eq!(decode(&encode(&fleet, 0)), Ok(fleet));
    }

    #[test]
    fn a_deed_that_is_not_known_is_named() {
        let entry = HistoryEntry {
            at_ms: 1,
            by: String::new(),
            deed: Deed::Pause,
            shard: None,
            details: String::new(),
            why: String::new(),
        };
        let mut item = encode(&entry, 0);
        item.insert(DEED.to_owned(), text("teleport"));
        assert_eq!(decode(&item), Err("deed teleport is unknown".to_owned()));
    }
}
