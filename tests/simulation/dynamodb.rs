//! DynamoDB: dynoxide in memory, called without a socket; every applied write to a lease row goes
//! into the history.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use dynoxide::actions::delete_item::DeleteItemRequest;
use dynoxide::actions::get_item::GetItemRequest;
use dynoxide::actions::put_item::PutItemRequest;
use dynoxide::actions::transact_write_items::TransactWriteItemsRequest;
use dynoxide::actions::update_item::UpdateItemRequest;
use dynoxide::{AttributeValue, Database, DynoxideError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use shardmill_invariants::history::{
    Checkpoint, HostChange, Micros, Place, Row, Sequence, What, Write, WriteKind,
};

use crate::options::APPLICATION;
use crate::tables::note_rare;
use crate::weather::Fault;
use crate::wire::{Reply, Sent};
use crate::world::{World, lock};

type Item = HashMap<String, AttributeValue>;

/// All tables.
pub struct Dynamodb {
    database: Database,
    /// What every row was at any time, by table and key: the truth for histories and for stale
    /// reads.
    rows: Mutex<BTreeMap<String, BTreeMap<String, Vec<Version>>>>,
}

/// A row from some time on.
struct Version {
    since: Micros,
    item: Option<Item>,
}

/// A write that a request asks for.
struct Asked {
    table: String,
    key: Item,
    kind: WriteKind,
}

impl Default for Dynamodb {
    fn default() -> Self {
        Self::new()
    }
}

impl Dynamodb {
    /// No tables yet.
    pub fn new() -> Self {
        let database = Database::memory().expect("SQLite in memory");
        Self {
            database,
            rows: Mutex::default(),
        }
    }

    /// Answers a request.
    pub fn apply(&self, world: &World, sent: &Sent) -> Reply {
        match self.dispatch(world, sent) {
            Ok(body) => Reply::plain(200, body),
            Err(error) => {
                if let DynoxideError::ConditionalCheckFailedException(..) = error {
                    world.count("reached: condition failed");
                }
                Reply::plain(error.status_code(), error.to_json())
            }
        }
    }

    /// The lease rows as they are.
    pub fn leases(&self) -> BTreeMap<String, Row> {
        let rows = lock(&self.rows);
        let current = |(key, versions): (&String, &Vec<Version>)| {
            Some((key.clone(), read_row(versions.last()?.item.as_ref()?)))
        };
        rows.get(APPLICATION)
            .into_iter()
            .flatten()
            .filter_map(current)
            .collect()
    }

    /// Who leads, as the coordinator table has it, and since when it does.
    pub fn leader(&self) -> Option<(String, Micros)> {
        let rows = lock(&self.rows);
        let office = rows
            .get(&format!("{APPLICATION}-coordinator"))?
            .get("leader/fleet")?;
        let last = office.last()?;
        Some((text(last.item.as_ref()?.get("worker"))?, last.since))
    }

    fn dispatch(&self, world: &World, sent: &Sent) -> Result<Bytes, DynoxideError> {
        let (database, body) = (&self.database, &sent.body);
        match sent.operation.as_str() {
            "CreateTable" => run(body, |request| database.create_table(request)),
            "DescribeTable" => run(body, |request| database.describe_table(request)),
            "GetItem" => run(body, |request| database.get_item(request)),
            "Query" => match self.stale_query(world, body) {
                Some(reply) => Ok(reply),
                None => run(body, |request| database.query(request)),
            },
            "Scan" => match self.stale_scan(world, body) {
                Some(reply) => Ok(reply),
                None => run(body, |request| database.scan(request)),
            },
            "PutItem" => self.put(world, sent),
            "UpdateItem" => self.update(world, sent),
            "TransactWriteItems" => self.transact(world, sent),
            "DeleteItem" => self.delete(world, sent),
            other => Err(DynoxideError::ValidationException(format!(
                "{other} is not simulated"
            ))),
        }
    }

    fn put(&self, world: &World, sent: &Sent) -> Result<Bytes, DynoxideError> {
        let request: PutItemRequest = parse(&sent.body)?;
        let (table, item) = (request.table_name.clone(), request.item.clone());
        let key = key_of(&table, &item);
        let reply = self.database.put_item(request)?;
        self.applied(
            world,
            sent,
            &Asked {
                table,
                key,
                kind: WriteKind::Create,
            },
            Some(item),
        );
        to_json(&reply)
    }

    fn delete(&self, world: &World, sent: &Sent) -> Result<Bytes, DynoxideError> {
        let request: DeleteItemRequest = parse(&sent.body)?;
        let (table, key) = (request.table_name.clone(), request.key.clone());
        let reply = self.database.delete_item(request)?;
        self.applied(
            world,
            sent,
            &Asked {
                table,
                key,
                kind: WriteKind::Delete,
            },
            None,
        );
        to_json(&reply)
    }

    fn update(&self, world: &World, sent: &Sent) -> Result<Bytes, DynoxideError> {
        let mut request: UpdateItemRequest = parse(&sent.body)?;
        let expression = request.update_expression.as_deref().unwrap_or_default();
        let kind = kind_of(expression, request.expression_attribute_values.as_ref());
        let asked = Asked {
            table: request.table_name.clone(),
            key: request.key.clone(),
            kind,
        };
        // The image after the write comes with the reply; whoever sent the request did not ask for
        // it.
        let wants_none = request.return_values.is_none();
        request.return_values = Some("ALL_NEW".to_owned());
        let mut reply = self.database.update_item(request)?;
        let after = if wants_none {
            reply.attributes.take()
        } else {
            reply.attributes.clone()
        };
        self.applied(world, sent, &asked, after);
        to_json(&reply)
    }

    /// A lease's row and the state beside it.
    fn transact(&self, world: &World, sent: &Sent) -> Result<Bytes, DynoxideError> {
        let request: TransactWriteItemsRequest = parse(&sent.body)?;
        let lease = request
            .transact_items
            .iter()
            .find_map(|item| item.update.clone());
        let reply = self.database.transact_write_items(request)?;
        if let Some(lease) = lease {
            let kind = kind_of(
                &lease.update_expression,
                lease.expression_attribute_values.as_ref(),
            );
            let read =
                json!({"TableName": lease.table_name, "Key": lease.key, "ConsistentRead": true});
            let read: GetItemRequest = parse(&serde_json::to_vec(&read).unwrap_or_default())?;
            let after = self.database.get_item(read)?.item;
            if self.is_as_it_was(&lease.table_name, &lease.key, after.as_ref()) {
                // The same request again, which DynamoDB knows by its token: nothing happened.
                return to_json(&reply);
            }
            self.applied(
                world,
                sent,
                &Asked {
                    table: lease.table_name,
                    key: lease.key,
                    kind,
                },
                after,
            );
            world.count("reached: state written with a checkpoint");
        }
        to_json(&reply)
    }

    fn is_as_it_was(&self, table: &str, key: &Item, after: Option<&Item>) -> bool {
        let rows = lock(&self.rows);
        let last = rows
            .get(table)
            .and_then(|rows| rows.get(&key_text(key)))
            .and_then(|versions| versions.last());
        last.and_then(|version| version.item.as_ref()) == after
    }

    fn applied(&self, world: &World, sent: &Sent, asked: &Asked, after: Option<Item>) {
        let key = key_text(&asked.key);
        let mut tables = lock(&self.rows);
        let versions = tables
            .entry(asked.table.clone())
            .or_default()
            .entry(key.clone())
            .or_default();
        let before = versions
            .last()
            .and_then(|version| version.item.as_ref())
            .map(read_row);
        let now = world.now();
        let was_there = before.is_some();
        forget_old(versions, now);
        if asked.kind == WriteKind::Delete && !was_there {
            // Nothing to delete: nothing happened.
            return;
        }
        if asked.table == APPLICATION {
            let after = after.as_ref().map(read_row);
            note_rare(world, asked.kind, before.as_ref(), &sent.host);
            let by = Some(sent.host.to_string());
            world.note(What::Written(Write {
                key: key.clone(),
                by,
                kind: asked.kind,
                before,
                after,
                sent_at: sent.at,
            }));
        }
        if asked.kind == WriteKind::Delete && key == format!("worker#{}/fleet", sent.host) {
            world.note(What::Host {
                host: sent.host.to_string(),
                change: HostChange::SignedOff,
            });
        }
        versions.push(Version {
            since: now,
            item: after,
        });
    }

    /// The same for a query of one partition, which is how hosts look at each other.
    fn stale_query(&self, world: &World, body: &[u8]) -> Option<Bytes> {
        let request: serde_json::Value = serde_json::from_slice(body).ok()?;
        if request["ConsistentRead"] == true || !request["ExclusiveStartKey"].is_null() {
            return None;
        }
        let (chance, oldest) = {
            let weather = world.weather();
            (weather.chance(Fault::StaleQuery), weather.staleness_max)
        };
        if !world.happens(chance) {
            return None;
        }
        let kind = request["ExpressionAttributeValues"]
            .as_object()?
            .values()
            .next()?["S"]
            .as_str()?;
        let tables = lock(&self.rows);
        let rows = tables.get(request["TableName"].as_str()?)?;
        let is_asked_for =
            |key: &&String| key.strip_suffix(kind).is_some_and(|id| id.ends_with('/'));
        let mut items = Vec::new();
        for versions in rows
            .iter()
            .filter(|(key, _)| is_asked_for(key))
            .map(|(_, versions)| versions)
        {
            items.extend(as_it_was(world, versions, oldest));
        }
        world.count("fault: StaleQuery");
        to_json(&json!({"Items": items, "Count": items.len(), "ScannedCount": items.len()})).ok()
    }

    /// The rows as they were some time ago, each at its own time, as eventually consistent
    /// reads may show them.
    fn stale_scan(&self, world: &World, body: &[u8]) -> Option<Bytes> {
        let request: serde_json::Value = serde_json::from_slice(body).ok()?;
        if request["ConsistentRead"] == true || !request["ExclusiveStartKey"].is_null() {
            return None;
        }
        let (chance, oldest) = {
            let weather = world.weather();
            (weather.chance(Fault::StaleRead), weather.staleness_max)
        };
        if !world.happens(chance) {
            return None;
        }
        world.count("fault: StaleRead");
        let tables = lock(&self.rows);
        let mut items = Vec::new();
        for versions in tables.get(request["TableName"].as_str()?)?.values() {
            items.extend(as_it_was(world, versions, oldest));
        }
        to_json(&json!({"Items": items, "Count": items.len(), "ScannedCount": items.len()})).ok()
    }
}

/// A row as it was at some time that is at most `oldest` ago.
fn as_it_was<'a>(world: &World, versions: &'a [Version], oldest: Duration) -> Option<&'a Item> {
    let age = Duration::from_micros(world.dice().u64(..=micros(oldest)));
    let at = world.now().saturating_sub(micros(age));
    versions
        .iter()
        .rev()
        .find(|version| version.since <= at)?
        .item
        .as_ref()
}

/// Keeps the newest version that is older than any stale read goes back, and all that are newer.
fn forget_old(versions: &mut Vec<Version>, now: Micros) {
    const KEPT: Micros = 10_000_000;
    let is_old = |version: &Version| version.since + KEPT < now;
    let old = versions
        .iter()
        .take_while(|version| is_old(version))
        .count();
    versions.drain(..old.saturating_sub(1));
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn run<Q: DeserializeOwned, P: Serialize>(
    body: &[u8],
    act: impl FnOnce(Q) -> Result<P, DynoxideError>,
) -> Result<Bytes, DynoxideError> {
    to_json(&act(parse(body)?)?)
}

fn parse<Q: DeserializeOwned>(body: &[u8]) -> Result<Q, DynoxideError> {
    serde_json::from_slice(body)
        .map_err(|error| DynoxideError::ValidationException(error.to_string()))
}

fn to_json(reply: &impl Serialize) -> Result<Bytes, DynoxideError> {
    let bytes = serde_json::to_vec(reply);
    bytes
        .map(Bytes::from)
        .map_err(|error| DynoxideError::InternalServerError(error.to_string()))
}

/// The key attributes of an item: `leaseKey`, or those of the coordinator's table.
fn key_of(table: &str, item: &Item) -> Item {
    let names: &[&str] = if table.ends_with("-coordinator") {
        &["kind", "id"]
    } else {
        &["leaseKey"]
    };
    names
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), item.get(*name)?.clone())))
        .collect()
}

fn key_text(key: &Item) -> String {
    let ordered: BTreeMap<_, _> = key.iter().collect();
    let texts: Vec<_> = ordered
        .values()
        .filter_map(|value| text(Some(value)))
        .collect();
    texts.join("/")
}

/// What an update is meant to be, by the expressions that the product's `conditions.rs` makes.
fn kind_of(update: &str, values: Option<&Item>) -> WriteKind {
    let (set, remove) = update.split_once(" REMOVE ").unwrap_or((update, ""));
    let value = |name: &str| values.and_then(|values| values.get(name));
    if set.contains("directives = ") {
        return if set.contains("leaseCounter = ") {
            WriteKind::Obey
        } else {
            WriteKind::Direct
        };
    }
    let removes_owner = remove.split([',', ' ']).any(|name| name == "leaseOwner");
    if let Some(checkpoint) = text(value(":checkpoint")) {
        return if checkpoint == "SHARD_END" {
            WriteKind::End
        } else {
            WriteKind::Checkpoint
        };
    }
    if set.contains("leaseOwner = ") {
        return WriteKind::Take {
            seen: number(value(":seen")).unwrap_or(0),
        };
    }
    if set.contains("claimedBy = ") {
        return WriteKind::Claim;
    }
    match (removes_owner, set.contains("leaseCounter = ")) {
        (true, _) if value(":stuck").is_some() => WriteKind::GiveUp,
        (true, _) => WriteKind::Release,
        (false, true) => WriteKind::Renew,
        (false, false) => WriteKind::Admin,
    }
}

fn text(value: Option<&AttributeValue>) -> Option<String> {
    match value? {
        AttributeValue::S(text) | AttributeValue::N(text) => Some(text.clone()),
        _ => None,
    }
}

fn number(value: Option<&AttributeValue>) -> Option<u64> {
    text(value)?.parse().ok()
}

fn names(value: Option<&AttributeValue>) -> std::collections::BTreeSet<String> {
    match value {
        Some(AttributeValue::SS(names)) => names.iter().cloned().collect(),
        _ => std::collections::BTreeSet::new(),
    }
}

fn read_row(item: &Item) -> Row {
    let get = |name: &str| text(item.get(name));
    let bound = |name: &str| get(name)?.parse::<u128>().ok();
    let checkpoint = match get("checkpoint").unwrap_or_default().as_str() {
        "SHARD_END" => Checkpoint::End,
        number if number.starts_with(|first: char| first.is_ascii_digit()) => {
            Checkpoint::At(Place {
                sequence: Sequence::new(number),
                sub: self::number(item.get("checkpointSubSequenceNumber")).unwrap_or(0),
            })
        }
        _ => Checkpoint::Initial,
    };
    Row {
        owner: get("leaseOwner"),
        counter: number(item.get("leaseCounter")).unwrap_or(0),
        checkpoint,
        parents: names(item.get("parentShardId")),
        children: names(item.get("childShardIds")),
        range: bound("startingHashKey").zip(bound("endingHashKey")),
        claimant: get("claimedBy"),
    }
}
