//! The stream: what is put into it and how its shards change, and the truth about both, whichever
//! service holds it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use shardmill_invariants::history::{Micros, Place, ShardInfo, Start, Topology, What};

use crate::kinesis::Kinesis;
use crate::memory::MemoryStream;
use crate::producer::Entry;
use crate::weather::Fault;
use crate::world::{Run, World, lock};

/// Reads a second that one shard allows (AWS limit).
const READS_PER_SECOND: usize = 5;
/// How long a subscription lasts (AWS limit).
const LIFETIME: Duration = Duration::from_mins(5);

/// One stream.
pub struct Stream {
    run: Arc<Run>,
    service: StreamService,
    /// Whose histories tell what happens to it.
    readers: Mutex<Vec<Weak<World>>>,
    shards: Mutex<BTreeMap<String, Truth>>,
    reads: Mutex<BTreeMap<String, VecDeque<Micros>>>,
    subscription_lasts: Mutex<Duration>,
}

/// Who holds it.
pub enum StreamService {
    /// An emulator that speaks Kinesis' protocol.
    Emulated(Kinesis),
    /// A fake of the port.
    Memory(MemoryStream),
}

/// What is true of a shard.
#[derive(Debug, Clone, Default)]
pub struct Truth {
    /// Its part of the hash key space.
    pub range: (u128, u128),
    /// Whether it was split or merged.
    pub is_closed: bool,
    /// Everything put into it, in order.
    pub places: Vec<Place>,
    /// When it came to be.
    pub since: Micros,
    /// When the last of it arrived, by the stream's clock.
    pub last_arrived_at: Micros,
    /// Through where retention has taken records.
    pub trimmed_through: Option<Place>,
    /// Whether retention has taken all of it, so that it is not listed any more.
    pub is_gone: bool,
}

/// Where a record was stored.
#[derive(Debug, Clone)]
pub struct Stored {
    /// Its shard.
    pub shard: String,
    /// Its sequence number.
    pub sequence: String,
}

/// A shard as the service lists it.
#[derive(Debug, Clone)]
pub struct Listed {
    /// Its id.
    pub id: String,
    /// Its part of the hash key space.
    pub range: (u128, u128),
    /// Whether it was split or merged.
    pub is_closed: bool,
}

impl Truth {
    /// The last record that an application which began at `start` is to settle, if it is still
    /// there.
    pub fn last_due(&self, start: Option<Start>) -> Option<&Place> {
        let is_before_start =
            matches!(start, Some(Start::At(moment)) if self.last_arrived_at < moment);
        let last = self.places.last().filter(|_| !is_before_start)?;
        self.trimmed_through
            .as_ref()
            .is_none_or(|trimmed| last > trimmed)
            .then_some(last)
    }
}

impl Stream {
    /// A stream yet to be made, held by `service`.
    pub fn new(run: Arc<Run>, service: StreamService) -> Arc<Self> {
        Arc::new(Self {
            run,
            service,
            readers: Mutex::default(),
            shards: Mutex::default(),
            reads: Mutex::default(),
            subscription_lasts: Mutex::new(LIFETIME),
        })
    }

    /// From here on `world` is told what happens to it.
    pub fn is_read_by(&self, world: &Arc<World>) {
        lock(&self.readers).push(Arc::downgrade(world));
    }

    /// A reply told `host` that a shard has ended: whoever of its plugins asked for it, all of them
    /// that read the stream know.
    pub fn said_end(&self, host: &str, shard: &str) {
        self.note(&What::SaidEnd {
            host: host.to_owned(),
            shard: shard.to_owned(),
        });
    }

    fn note(&self, what: &What) {
        for world in lock(&self.readers).iter().filter_map(Weak::upgrade) {
            world.note(what.clone());
        }
    }

    /// Who holds it.
    pub fn service(&self) -> &StreamService {
        &self.service
    }

    /// The shards as they are.
    pub fn shards(&self) -> MutexGuard<'_, BTreeMap<String, Truth>> {
        lock(&self.shards)
    }

    /// How many records were put into it.
    pub fn records(&self) -> u64 {
        let shards = self.shards();
        shards.values().map(|truth| truth.places.len() as u64).sum()
    }

    /// The ids of those that are open.
    pub fn open_shards(&self) -> Vec<String> {
        self.shards()
            .iter()
            .filter(|(_, truth)| !truth.is_closed)
            .map(|(id, _)| id.clone())
            .collect()
    }

    /// Makes the stream.
    pub async fn create(&self, shards: u32) {
        match &self.service {
            StreamService::Emulated(kinesis) => kinesis.create(shards).await,
            // It was made with the world.
            StreamService::Memory(_) => {}
        }
        let created = self.refresh().await;
        self.note(&What::Topology(Topology::Created {
            identity: 1,
            shards: created,
        }));
    }

    /// Puts these records, as a producer who always gets its answer.
    pub async fn put(&self, entries: &[Entry]) {
        let stored = match &self.service {
            StreamService::Emulated(kinesis) => kinesis.put(entries).await,
            StreamService::Memory(memory) => memory.put(&self.run, entries),
        };
        let mut shards = lock(&self.shards);
        for (entry, stored) in entries.iter().zip(stored) {
            let Some(Stored { shard, sequence }) = stored else {
                continue;
            };
            let truth = shards.get_mut(&shard).expect("a known shard");
            for (sub, key) in (0..).zip(&entry.inside) {
                let at = Place {
                    sub,
                    ..Place::plain(&sequence)
                };
                truth.places.push(at.clone());
                let arrived_at = self.run.now() / 1_000 * 1_000;
                truth.last_arrived_at = arrived_at;
                self.note(&What::Produced {
                    shard: shard.clone(),
                    at,
                    key: key.clone(),
                    arrived_at,
                });
            }
        }
    }

    /// How long a subscription lasts.
    pub fn subscription_lasts(&self) -> Duration {
        *lock(&self.subscription_lasts)
    }

    /// From here on subscriptions last only so long, so that a run of a minute sees several.
    pub fn shorten_subscriptions(&self, lasts: Duration) {
        *lock(&self.subscription_lasts) = lasts;
    }

    /// Somebody deregisters the hosts' consumer.
    pub async fn deregister(&self) {
        let was_there = match &self.service {
            StreamService::Emulated(kinesis) => kinesis.deregister().await,
            StreamService::Memory(memory) => memory.deregister(),
        };
        if was_there {
            self.run.count("fault: consumer deregistered");
        }
    }

    /// Somebody else subscribes to a shard with the hosts' consumer, and leaves at once.
    pub async fn intrude(&self, shard: &str) {
        let has_subscribed = match &self.service {
            StreamService::Emulated(kinesis) => kinesis.intrude(shard).await,
            StreamService::Memory(memory) => memory.intrude(shard),
        };
        if has_subscribed {
            self.run.count("fault: intruder subscribes");
        }
    }

    /// Splits an open shard in two.
    pub async fn split(&self, parent: &str) {
        let Some((range, is_closed)) = self
            .shards()
            .get(parent)
            .map(|truth| (truth.range, truth.is_closed))
        else {
            return;
        };
        let (start, end) = range;
        if is_closed || end - start < 4 {
            return;
        }
        let middle = start + (end - start) / 2;
        match &self.service {
            StreamService::Emulated(kinesis) => kinesis.split(parent, middle).await,
            StreamService::Memory(memory) => memory.split(&self.run, parent, middle),
        }
        let children = self.refresh().await;
        self.run.count("reached: split");
        self.note(&What::Topology(Topology::Split {
            parent: parent.to_owned(),
            children,
        }));
    }

    /// Merges two open shards that lie next to each other.
    pub async fn merge(&self, parents: [&str; 2]) {
        match &self.service {
            StreamService::Emulated(kinesis) => kinesis.merge(parents).await,
            StreamService::Memory(memory) => memory.merge(&self.run, parents),
        }
        let mut children = self.refresh().await;
        let Some(child) = children.pop() else { return };
        self.run.count("reached: merge");
        let parents = parents.map(str::to_owned).to_vec();
        self.note(&What::Topology(Topology::Merged { parents, child }));
    }

    /// Lets retention take what is older than `retention`. Only of a stream in memory.
    pub fn trim(&self, retention: Duration) {
        let StreamService::Memory(memory) = &self.service else {
            return;
        };
        for (shard, through) in memory.trim(&self.run, retention) {
            let mut shards = lock(&self.shards);
            let truth = shards.get_mut(&shard).expect("a known shard");
            truth.is_gone |= through.is_none();
            truth.trimmed_through = through.clone().or_else(|| truth.places.last().cloned());
            self.run.count(if truth.is_gone {
                "reached: shard trimmed away"
            } else {
                "reached: records trimmed"
            });
            drop(shards);
            self.note(&What::Topology(Topology::Trimmed { shard, through }));
        }
    }

    /// Learns the shards; returns the new ones.
    async fn refresh(&self) -> Vec<ShardInfo> {
        let listed = match &self.service {
            StreamService::Emulated(kinesis) => kinesis.list().await,
            StreamService::Memory(memory) => memory.list(),
        };
        let mut shards = lock(&self.shards);
        let mut fresh = Vec::new();
        for Listed {
            id,
            range,
            is_closed,
        } in listed
        {
            if let Some(known) = shards.get_mut(&id) {
                known.is_closed = is_closed;
            } else {
                fresh.push(ShardInfo {
                    id: id.clone(),
                    range,
                });
                let since = self.run.now();
                shards.insert(
                    id,
                    Truth {
                        range,
                        is_closed,
                        since,
                        ..Truth::default()
                    },
                );
            }
        }
        fresh
    }

    /// Tells which shards are so young that a listing which lags may not show them yet.
    pub fn newborn(&self) -> impl Fn(&str) -> bool + use<> {
        let oldest = self.run.weather().staleness_max;
        let lag = Micros::try_from(oldest.as_micros()).unwrap_or(Micros::MAX);
        let from = self.run.now().saturating_sub(lag);
        let is_new = |truth: &Truth| truth.since > from && truth.since > 0;
        let shards = self.shards();
        let newborn = shards
            .iter()
            .filter(|(_, truth)| is_new(truth))
            .map(|(id, _)| id.clone());
        let newborn: BTreeSet<String> = newborn.collect();
        move |id| newborn.contains(id)
    }

    /// Five reads a second of a shard, by all readers together.
    pub fn is_too_fast(&self, shard: &str) -> bool {
        if self.run.weather().chance(Fault::Unlimited) > 0.0 {
            return false;
        }
        let now = self.run.now();
        let mut reads = lock(&self.reads);
        let recent = reads.entry(shard.to_owned()).or_default();
        recent.retain(|at| at + 1_000_000 > now);
        if recent.len() >= READS_PER_SECOND {
            return true;
        }
        recent.push_back(now);
        false
    }
}

/// Two open shards that lie next to each other, if there are any.
pub fn neighbours(shards: &BTreeMap<String, Truth>, start: usize) -> Option<[String; 2]> {
    let mut open: Vec<_> = shards
        .iter()
        .filter(|(_, truth)| !truth.is_closed)
        .collect();
    open.sort_by_key(|(_, truth)| truth.range);
    let pairs: Vec<_> = open
        .windows(2)
        .filter(|pair| pair[0].1.range.1 + 1 == pair[1].1.range.0)
        .collect();
    let pair = pairs.get(start.checked_rem(pairs.len())?)?;
    Some([pair[0].0.clone(), pair[1].0.clone()])
}
