//! A lease row as a DynamoDB item, in the words of the KCL 2.x (`DynamoDBLeaseSerializer`).
//!
//! Only a create writes a whole row; every other write names the attributes that it changes. So the
//! attributes that other programs keep on a row survive.

use aws_sdk_dynamodb::types::AttributeValue;
use shardmill_core::control::Directives;
use shardmill_core::lease::{Lease, LeaseCounter, WorkerId};
use shardmill_core::plugin::{PluginDigest, StateFill};
use shardmill_core::ports::BadRow;
use shardmill_core::stream::{HashKeyRange, LeaseKey, ShardId};
use shardmill_core::text::one_line;

use super::attributes::{Item, number, require, string, text, unsigned};
use super::checkpoint_item;
use super::directive_item;

pub(super) const LEASE_KEY: &str = "leaseKey";
const LEASE_OWNER: &str = "leaseOwner";
const LEASE_COUNTER: &str = "leaseCounter";
const OWNER_SWITCHES: &str = "ownerSwitchesSinceCheckpoint";
/// A string set, despite its name.
const PARENTS: &str = "parentShardId";
const CHILDREN: &str = "childShardIds";
const HASH_KEY_START: &str = "startingHashKey";
const HASH_KEY_END: &str = "endingHashKey";
/// KCL 3.x, during a hand-off.
const CHECKPOINT_OWNER: &str = "checkpointOwner";
/// KCL 3.5; absent means lease.
pub(super) const ENTITY_TYPE: &str = "entityType";
const ENTITY_TYPE_LEASE: &str = "LEASE";
/// shardmill's own; the KCL ignores and keeps it.
const PLUGIN_DIGEST: &str = "pluginDigest";
/// shardmill's own; the KCL ignores and keeps it.
const MILLIS_BEHIND_LATEST: &str = "millisBehindLatest";
/// shardmill's own: the worker that asked the owner for the lease.
const CLAIMED_BY: &str = "claimedBy";
/// shardmill's own, for people.
const SETTLED_ARRIVAL: &str = "settledArrivalMillis";
const HELD_SINCE: &str = "heldSinceMillis";
/// shardmill's own, for people.
const STUCK: &str = "stuckBecause";
/// shardmill's own, for people.
const GIVEN_UP: &str = "lastGivenUp";
/// shardmill's own, for people.
const STATE_PERCENT: &str = "statePercent";
/// shardmill's own: what operators want of the shard.
pub(super) const DIRECTIVES: &str = "directives";
/// KCL 3.x: KB a second with a fraction; the KCL 2.x ignores and keeps it.
const THROUGHPUT: &str = "throughputKBps";

/// The highest counter that can still be raised: the KCL reads it into a signed 64-bit integer.
const COUNTER_MAX: u64 = i64::MAX.cast_unsigned() - 1;

/// What an item of the lease table is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Row {
    Lease(Box<Lease>),
    Bad(BadRow),
    /// Another kind of row, which KCL 3.5 keeps in the same table.
    Foreign,
}

/// A new row, with every attribute that the KCL gives one and none that is empty.
pub(super) fn encode(lease: &Lease) -> Item {
    let mut item = Item::from([
        (LEASE_KEY.to_owned(), text(lease.key.as_str())),
        (LEASE_COUNTER.to_owned(), number(lease.counter.0)),
        (OWNER_SWITCHES.to_owned(), number(lease.owner_switches)),
    ]);
    checkpoint_item::put(&mut item, &lease.checkpoint);
    if lease.directives.version > 0 {
        put(
            &mut item,
            DIRECTIVES,
            directive_item::encode(&lease.directives),
        );
    }
    put_shard(&mut item, lease);
    put_holding(&mut item, lease);
    put_progress(&mut item, lease);
    item
}

/// What the shard list says of the shard.
fn put_shard(item: &mut Item, lease: &Lease) {
    put_some(item, PARENTS, shard_set(&lease.parents));
    put_some(item, CHILDREN, shard_set(&lease.children));
    if let Some(range) = lease.hash_range {
        put(item, HASH_KEY_START, text(&range.start().to_string()));
        put(item, HASH_KEY_END, text(&range.end().to_string()));
    }
}

/// Which worker holds the lease or asked for it, and what it runs.
fn put_holding(item: &mut Item, lease: &Lease) {
    if let Some(owner) = &lease.owner {
        put(item, LEASE_OWNER, text(owner.as_str()));
    }
    if let Some(claimant) = &lease.claimant {
        put(item, CLAIMED_BY, text(claimant.as_str()));
    }
    if let Some(digest) = &lease.plugin_digest {
        put(item, PLUGIN_DIGEST, text(digest.as_str()));
    }
    put_some(item, HELD_SINCE, lease.held_since_ms.map(number));
}

fn put_progress(item: &mut Item, lease: &Lease) {
    let behind = lease.millis_behind_latest.map(number);
    put_some(item, MILLIS_BEHIND_LATEST, behind);
    put_some(item, SETTLED_ARRIVAL, lease.settled_arrival_ms.map(number));
    put_some(item, THROUGHPUT, lease.bytes_per_second.map(throughput));
    put_some(item, STUCK, lease.stuck.as_deref().map(text));
    put_some(item, GIVEN_UP, lease.given_up.as_deref().map(text));
    put_some(item, STATE_PERCENT, lease.state_fill.map(state_percent));
}

fn put(item: &mut Item, name: &str, value: AttributeValue) {
    item.insert(name.to_owned(), value);
}

fn put_some(item: &mut Item, name: &str, value: Option<AttributeValue>) {
    if let Some(value) = value {
        put(item, name, value);
    }
}

/// Says what kind of row an item of a scan is.
pub(super) fn classify(item: &Item) -> Row {
    let entity_type = item.get(ENTITY_TYPE).and_then(|value| value.as_s().ok());
    if entity_type.is_some_and(|kind| kind != ENTITY_TYPE_LEASE) {
        return Row::Foreign;
    }
    match decode(item) {
        Ok(lease) => Row::Lease(Box::new(lease)),
        Err(problem) => Row::Bad(BadRow {
            key: for_people(item, LEASE_KEY).unwrap_or_default(),
            problem: one_line(&problem).into_owned(),
        }),
    }
}

/// Reads a lease, or says what is wrong with it.
pub(super) fn decode(item: &Item) -> Result<Lease, String> {
    let key = require(string(item, LEASE_KEY)?, LEASE_KEY)?;
    let checkpoint = checkpoint_item::checkpoint(item)?;
    let digest = lenient(string(item, PLUGIN_DIGEST));
    Ok(Lease {
        key: LeaseKey::new(key).map_err(|error| error.to_string())?,
        owner: worker(item, LEASE_OWNER)?,
        counter: counter(item)?,
        owner_switches: unsigned(item, OWNER_SWITCHES)?.unwrap_or(0),
        checkpoint,
        parents: shards(item, PARENTS)?,
        children: shards(item, CHILDREN)?,
        hash_range: hash_range(item)?,
        plugin_digest: digest.and_then(PluginDigest::from_hex),
        millis_behind_latest: lenient(unsigned(item, MILLIS_BEHIND_LATEST)),
        checkpoint_owner: worker(item, CHECKPOINT_OWNER)?,
        claimant: worker(item, CLAIMED_BY)?,
        settled_arrival_ms: lenient(unsigned(item, SETTLED_ARRIVAL)),
        held_since_ms: lenient(unsigned(item, HELD_SINCE)),
        bytes_per_second: read_throughput(item),
        stuck: for_people(item, STUCK),
        given_up: for_people(item, GIVEN_UP),
        state_fill: read_state_percent(item),
        directives: directives(item),
    })
}

/// Kilobytes of 1,000 bytes; the KCL writes six decimals, three are exact here.
pub(super) fn throughput(bytes_per_second: u64) -> AttributeValue {
    AttributeValue::N(format!(
        "{}.{:03}",
        bytes_per_second / 1_000,
        bytes_per_second % 1_000
    ))
}

/// Used for balancing only, so a value that cannot be read counts as absent.
fn read_throughput(item: &Item) -> Option<u64> {
    let kilobytes: f64 = item.get(THROUGHPUT)?.as_n().ok()?.parse().ok()?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rate; the cast saturates"
    )]
    (kilobytes.is_finite() && kilobytes >= 0.0).then_some((kilobytes * 1_000.0).round() as u64)
}

/// How full a state is.
pub(super) fn state_percent(fill: StateFill) -> AttributeValue {
    number(u64::from(fill.0))
}

fn read_state_percent(item: &Item) -> Option<StateFill> {
    let percent = lenient(unsigned(item, STATE_PERCENT))?;
    Some(StateFill(u8::try_from(percent).unwrap_or(u8::MAX)))
}

/// `None` instead of an empty set, which DynamoDB does not have.
pub(super) fn shard_set(shards: &[ShardId]) -> Option<AttributeValue> {
    let names: Vec<String> = shards
        .iter()
        .map(|shard| shard.as_str().to_owned())
        .collect();
    (!names.is_empty()).then_some(AttributeValue::Ss(names))
}

/// Text for people, on one line.
fn for_people(item: &Item, name: &str) -> Option<String> {
    lenient(string(item, name)).map(|text| one_line(text).into_owned())
}

/// For attributes that only people read: a value that cannot be read counts as absent.
fn lenient<T>(read: Result<Option<T>, String>) -> Option<T> {
    read.ok().flatten()
}

/// What operators want, as a row has it.
pub(super) fn directives(item: &Item) -> Directives {
    let value = item.get(DIRECTIVES);
    value.map(directive_item::decode).unwrap_or_default()
}

fn counter(item: &Item) -> Result<LeaseCounter, String> {
    let counter = require(unsigned(item, LEASE_COUNTER)?, LEASE_COUNTER)?;
    // A counter that cannot rise cannot fence.
    if counter > COUNTER_MAX {
        return Err(format!(
            "{LEASE_COUNTER} {counter} is above 2^63-2 and cannot be raised"
        ));
    }
    Ok(LeaseCounter(counter))
}

fn worker(item: &Item, name: &str) -> Result<Option<WorkerId>, String> {
    let Some(id) = string(item, name)? else {
        return Ok(None);
    };
    WorkerId::new(id)
        .map(Some)
        .ok_or_else(|| format!("{name} is an empty string"))
}

fn shards(item: &Item, name: &str) -> Result<Vec<ShardId>, String> {
    let mut names = match item.get(name) {
        None | Some(AttributeValue::Null(_)) => return Ok(Vec::new()),
        Some(AttributeValue::Ss(names)) => names
            .iter()
            .map(ShardId::new)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| error.to_string())?,
        Some(_) => return Err(format!("{name} is not a string set")),
    };
    // A set comes in any order.
    names.sort();
    Ok(names)
}

fn hash_range(item: &Item) -> Result<Option<HashKeyRange>, String> {
    match (string(item, HASH_KEY_START)?, string(item, HASH_KEY_END)?) {
        (None, None) => Ok(None),
        (Some(start), Some(end)) => HashKeyRange::parse(start, end)
            .map(Some)
            .map_err(|error| error.to_string()),
        _ => Err(format!(
            "{HASH_KEY_START} and {HASH_KEY_END} must come together"
        )),
    }
}

#[cfg(test)]
#[path = "lease_item_tests.rs"]
mod tests;
