//! The shared shard list as items: an index row, and chunks, since an item holds 400 KB at most
//! (DynamoDB limit).

use serde::{Deserialize, Serialize};
use shardmill_core::fleet::{Incarnation, StreamIdentity};
use shardmill_core::ports::CachedShards;
use shardmill_core::stream::{HashKeyRange, SequenceNumber, Shard, ShardId};

use super::attributes::{Item, number, text};
use super::coordinator_item::{CREATED_AT, VERSION};
use super::row::{self, INCARNATION};

/// The partition of the shard list.
pub(super) const SHARDS: &str = "shards";
pub(super) const INDEX: &str = "index";
const CHUNKS: &str = "chunks";
const DATA: &str = "data";
/// A shard takes at most about 330 bytes here: a chunk stays below 330 KB.
const CHUNK_SHARDS: usize = 1_000;

/// A shard, as it is kept.
#[derive(Serialize, Deserialize)]
struct KeptShard {
    id: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    parents: Vec<String>,
    start: String,
    end: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    closed: Option<String>,
}

/// The index row and the chunks of `shards`; chunks carry the list's version, so that a reader
/// never mixes two lists.
pub(super) fn encode(shards: &CachedShards, version: &str) -> Result<(Item, Vec<Item>), String> {
    let mut chunks = Vec::new();
    for (number, shards) in shards.shards.chunks(CHUNK_SHARDS).enumerate() {
        chunks.push(encode_chunk(number, shards, version)?);
    }
    let mut index = row::key(SHARDS, INDEX);
    index.extend([
        (VERSION.to_owned(), text(version)),
        (CHUNKS.to_owned(), number(chunks.len() as u64)),
        (CREATED_AT.to_owned(), number(shards.identity.created_at_ms)),
        (INCARNATION.to_owned(), text(shards.listed_by.as_str())),
    ]);
    Ok((index, chunks))
}

fn encode_chunk(number: usize, shards: &[Shard], version: &str) -> Result<Item, String> {
    let kept: Vec<KeptShard> = shards.iter().map(keep).collect();
    let json = serde_json::to_string(&kept).map_err(|error| error.to_string())?;
    let mut item = row::key(SHARDS, &chunk_id(number));
    item.insert(VERSION.to_owned(), text(version));
    item.insert(DATA.to_owned(), text(&json));
    Ok(item)
}

/// The list, if `items` hold a whole one.
pub(super) fn decode(items: &[Item]) -> Option<CachedShards> {
    let index = by_id(items, INDEX)?;
    let version = row::string(index, VERSION).ok()?;
    let mut shards = Vec::new();
    for number in 0..row::unsigned(index, CHUNKS).ok()? {
        let id = chunk_id(usize::try_from(number).ok()?);
        shards.extend(decode_chunk(by_id(items, &id)?, version)?);
    }
    Some(CachedShards {
        identity: StreamIdentity {
            created_at_ms: row::unsigned(index, CREATED_AT).ok()?,
        },
        shards,
        listed_by: Incarnation::new(row::string(index, INCARNATION).ok()?)?,
    })
}

/// The shards of one chunk, if it is of this version of the list.
fn decode_chunk(item: &Item, version: &str) -> Option<Vec<Shard>> {
    if row::string(item, VERSION).ok()? != version {
        return None;
    }
    let kept: Vec<KeptShard> = serde_json::from_str(row::string(item, DATA).ok()?).ok()?;
    kept.into_iter().map(restore).collect()
}

fn by_id<'a>(items: &'a [Item], id: &str) -> Option<&'a Item> {
    items
        .iter()
        .find(|item| row::string(item, row::ID) == Ok(id))
}

fn chunk_id(number: usize) -> String {
    format!("chunk#{number:06}")
}

fn keep(shard: &Shard) -> KeptShard {
    KeptShard {
        id: shard.id.to_string(),
        parents: shard.parents.iter().map(ToString::to_string).collect(),
        start: shard.hash_range.start().to_string(),
        end: shard.hash_range.end().to_string(),
        closed: shard.ending_sequence.as_ref().map(ToString::to_string),
    }
}

fn restore(kept: KeptShard) -> Option<Shard> {
    Some(Shard {
        id: ShardId::new(kept.id).ok()?,
        parents: kept
            .parents
            .into_iter()
            .map(|id| ShardId::new(id).ok())
            .collect::<Option<_>>()?,
        hash_range: HashKeyRange::parse(&kept.start, &kept.end).ok()?,
        ending_sequence: match kept.closed {
            Some(text) => Some(SequenceNumber::parse(&text).ok()?),
            None => None,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(count: usize) -> CachedShards {
        let shard = |n: usize| Shard {
            id: ShardId::new(format!("shardId-{n:012}")).unwrap(),
            parents: (n > 0)
                .then(|| ShardId::new(format!("shardId-{:012}", n - 1)).unwrap())
                .into_iter()
                .collect(),
            hash_range: HashKeyRange::FULL,
            ending_sequence: n
                .is_multiple_of(2)
                .then(|| SequenceNumber::parse("49640871423056104321897561").unwrap()),
        };
        CachedShards {
            identity: StreamIdentity { created_at_ms: 5 },
            shards: (0..count).map(shard).collect(),
            listed_by: Incarnation::new("run").unwrap(),
        }
    }

    #[test]
    fn a_list_of_any_length_survives_a_round_trip_in_items_of_bounded_size() {
        for count in [0, 1, 1_000, 2_500] {
            let (index, chunks) = encode(&list(count), "v1").unwrap();
            assert_eq!(chunks.len(), count.div_ceil(CHUNK_SHARDS));
            assert!(
                chunks
                    .iter()
                    .all(|chunk| chunk[DATA].as_s().unwrap().len() < 380_000)
            );
            let items: Vec<_> = chunks.into_iter().rev().chain([index]).collect();
            assert_eq!(decode(&items), Some(list(count)));
        }
    }

    #[test]
    fn a_list_that_is_being_written_is_no_list() {
        let (index, mut chunks) = encode(&list(1_500), "v1").unwrap();
        let (_, newer) = encode(&list(1_500), "v2").unwrap();
        chunks[1] = newer[1].clone();
        assert_eq!(
            decode(&[index.clone(), chunks[0].clone(), chunks[1].clone()]),
            None
        );
        assert_eq!(decode(&[index, chunks[0].clone()]), None);
        assert_eq!(decode(&[]), None);
    }
}
