//! The stream reader behind the network.

use std::sync::Arc;

use shardmill_core::fleet::StreamIdentity;
use shardmill_core::ports::{Fetched, PortFuture, ReadError, ShardIterator, StreamReader};
use shardmill_core::stream::{ReadFrom, Shard, ShardId, check_listing};

use super::net::{Answer, Ask, Failed, Net};
use super::stream::{memory, wall_ms};
use crate::network::RequestKind;
use crate::weather::{Fault, Service};
use crate::world::World;

/// An iterator is good for so long (AWS limit).
const ITERATOR_LIVES_MS: u64 = 5 * 60 * 1_000;
/// A listing is begun so often, as the real adapter does.
const LISTINGS_MAX: usize = 3;

/// The adapter.
#[derive(Clone)]
pub struct NetReader {
    net: Net,
    page_shards: usize,
}

/// The page of the shard list that is asked for.
struct Wanted {
    /// Only shards that are open or were closed since then.
    since_ms: Option<u64>,
    /// Only those that follow this one.
    after: Option<ShardId>,
    most: usize,
}

/// A page of the shard list.
struct Page {
    shards: Vec<Shard>,
    is_last: bool,
}

impl NetReader {
    /// The stream of the run, as `net`'s host reaches it, listed in pages of so many shards.
    pub fn new(net: Net, page_shards: usize) -> Self {
        Self { net, page_shards }
    }

    async fn ask<T: Send + 'static>(
        &self,
        kind: RequestKind,
        operation: &'static str,
        about: &str,
        serve: impl Fn(&World) -> Answer<T> + Send + Sync + 'static,
    ) -> Result<T, Failed> {
        let world = Arc::clone(&self.net.world);
        let action = match operation {
            "identity" | "now" => "DescribeStreamSummary",
            "list_shards" => "ListShards",
            "iterator" => "GetShardIterator",
            _ => "GetRecords",
        };
        let ask = Ask {
            service: Service::Kinesis,
            kind,
            operation,
            action,
            about,
        };
        self.net.call(ask, move || serve(&world)).await
    }

    async fn list(&self, since_ms: Option<u64>) -> Result<Vec<Shard>, ReadError> {
        for _ in 0..LISTINGS_MAX {
            match self.list_once(since_ms).await {
                Err(Failed::ExpiredNextToken) => {}
                Err(failed) => return Err(failed.into()),
                Ok(shards) if since_ms.is_some() => return Ok(shards),
                Ok(shards) => {
                    let unreadable = |problem| ReadError::Unavailable {
                        message: format!("unreadable: {problem}"),
                    };
                    return check_listing(&shards).map(|()| shards).map_err(unreadable);
                }
            }
        }
        Err(Failed::ExpiredNextToken.into())
    }

    async fn list_once(&self, since_ms: Option<u64>) -> Result<Vec<Shard>, Failed> {
        let mut shards: Vec<Shard> = Vec::new();
        loop {
            let wanted = Wanted {
                since_ms,
                after: shards.last().map(|shard| shard.id.clone()),
                most: self.page_shards,
            };
            let kind = if wanted.after.is_some() {
                RequestKind::NextPage
            } else {
                RequestKind::Other
            };
            let page = self
                .ask(kind, "list_shards", "", move |world| page(world, &wanted))
                .await?;
            shards.extend(page.shards);
            if page.is_last {
                return Ok(shards);
            }
        }
    }
}

/// That page of the list; it may not show yet what was resharded a moment ago.
fn page(world: &World, wanted: &Wanted) -> Answer<Page> {
    let stream = &memory(world).stream;
    let mut shards = stream.shards();
    if let Some(since_ms) = wanted.since_ms {
        let since = stream.shards_since(since_ms);
        shards.retain(|shard| since.contains(&shard.id));
    }
    shards.sort_by(|one, other| one.id.cmp(&other.id));
    shards.retain(|shard| wanted.after.as_ref().is_none_or(|after| shard.id > *after));
    let is_last = shards.len() <= wanted.most;
    shards.truncate(wanted.most);
    let chance = world.weather().chance(Fault::StaleListing);
    if world.happens(chance) {
        let is_new = world.stream.newborn();
        let before = shards.len();
        shards.retain(|shard| shard.parents.is_empty() || !is_new(shard.id.as_str()));
        if shards.len() < before {
            world.count("fault: StaleListing");
        }
    }
    Answer::of(Ok(Page { shards, is_last }))
}

/// A fresh iterator is the fake's, with the time when it was made.
fn fresh(world: &World, iterator: &ShardIterator) -> ShardIterator {
    ShardIterator(format!("{}@{}", iterator.0, wall_ms(world)))
}

/// The fake's iterator, if it is young enough.
fn still_good(world: &World, iterator: &ShardIterator) -> Option<ShardIterator> {
    let (iterator, made_at) = iterator.0.split_once('@')?;
    let made_at: u64 = made_at.parse().ok()?;
    (made_at + ITERATOR_LIVES_MS > wall_ms(world)).then(|| ShardIterator(iterator.to_owned()))
}

fn shard_of(iterator: &ShardIterator) -> Option<&str> {
    iterator.0.split('/').nth(1)
}

fn fetch(
    world: &World,
    iterator: &ShardIterator,
    limit: u32,
) -> Answer<Result<Fetched, ReadError>> {
    let shard = shard_of(iterator).unwrap_or_default();
    if world.stream.is_too_fast(shard) {
        world.count("fault: ReadThrottle");
        return Answer::of(Err(Failed::Throttled));
    }
    let Some(place) = still_good(world, iterator) else {
        return Answer::of(Err(Failed::ExpiredIterator));
    };
    let stream = &memory(world).stream;
    stream.set_now_ms(wall_ms(world));
    let fetched = stream.look_on(&place, limit).map(|fetched| {
        let next = fetched.next.map(|next| fresh(world, &next));
        Fetched { next, ..fetched }
    });
    let has_ended = fetched.as_ref().is_ok_and(|fetched| fetched.next.is_none());
    Answer {
        result: Ok(fetched),
        ended_shard: has_ended.then(|| shard.to_owned()),
    }
}

impl StreamReader for NetReader {
    fn identity(&self) -> PortFuture<'_, Result<Option<StreamIdentity>, ReadError>> {
        let identity = |_: &World| {
            Answer::of(Ok(Some(StreamIdentity {
                created_at_ms: 1_000_000,
            })))
        };
        Box::pin(async move {
            Ok(self
                .ask(RequestKind::Other, "identity", "", identity)
                .await?)
        })
    }

    fn list_shards(&self) -> PortFuture<'_, Result<Vec<Shard>, ReadError>> {
        Box::pin(self.list(None))
    }

    fn list_shards_since(
        &self,
        since_ms: u64,
    ) -> PortFuture<'_, Result<Option<Vec<Shard>>, ReadError>> {
        Box::pin(async move { Ok(Some(self.list(Some(since_ms)).await?)) })
    }

    fn now_ms(&self) -> PortFuture<'_, Result<Option<u64>, ReadError>> {
        // In whole seconds, as services put it on their replies.
        let serve = |world: &World| Answer::of(Ok(Some(wall_ms(world) / 1_000 * 1_000)));
        Box::pin(async move { Ok(self.ask(RequestKind::Other, "now", "", serve).await?) })
    }

    fn iterator<'a>(
        &'a self,
        shard: &'a ShardId,
        from: &'a ReadFrom,
    ) -> PortFuture<'a, Result<ShardIterator, ReadError>> {
        let (asked, from) = (shard.clone(), from.clone());
        let serve = move |world: &World| {
            let placed = memory(world).stream.place(&asked, &from);
            Answer::of(Ok(placed.map(|iterator| fresh(world, &iterator))))
        };
        Box::pin(async move {
            self.ask(RequestKind::Other, "iterator", shard.as_str(), serve)
                .await?
        })
    }

    fn fetch<'a>(
        &'a self,
        iterator: &'a ShardIterator,
        limit: u32,
    ) -> PortFuture<'a, Result<Fetched, ReadError>> {
        let place = iterator.clone();
        let serve = move |world: &World| fetch(world, &place, limit);
        Box::pin(async move {
            self.ask(RequestKind::Fetch, "fetch", &iterator.0, serve)
                .await?
        })
    }
}
