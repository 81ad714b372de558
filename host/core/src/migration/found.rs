//! What a library wrote about one application on one stream.

use std::collections::BTreeMap;

use super::Library;
use crate::lease::Checkpoint;
use crate::ports::BadRow;
use crate::stream::{Position, SequenceNumber, ShardId, Utc};

/// The place of one application on one stream, as its library keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The library that wrote the rows.
    pub library: Library,
    /// lifion-kinesis' consumer group; other libraries have a table for each application.
    pub group: Option<String>,
    /// The stream as the library names it: a name or an ARN; `None` if its table does not name it.
    pub stream: Option<String>,
    /// What distinguishes the stream from another of the same name, as the library writes it.
    pub(super) stream_created: Option<StreamCreated>,
    /// The shards that have rows, by id.
    pub shards: Vec<FoundShard>,
    /// Rows that cannot be read.
    pub bad_rows: Vec<BadRow>,
    /// Every worker that owns a shard or is registered, and what it keeps writing.
    pub(super) signs: BTreeMap<String, String>,
    /// Why this place cannot be imported, independently of the stream.
    pub obstacle: Option<String>,
}

/// When the stream was created, in the library's format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StreamCreated {
    /// As JavaScript writes a date (lifion-kinesis).
    IsoMillis(String),
    /// Seconds since the Unix epoch (KCL).
    Seconds(u64),
}

impl StreamCreated {
    /// The time as JavaScript writes it: always with three decimal places.
    pub(super) fn iso(created_at_ms: u64) -> String {
        const MILLIS: u64 = 1_000;
        let text = Utc(created_at_ms).to_string();
        if created_at_ms.is_multiple_of(MILLIS) {
            text.replace('Z', ".000Z")
        } else {
            text
        }
    }

    /// Whether it is the time at which the stream was created, in milliseconds since the Unix
    /// epoch. Some clients get it from Kinesis in whole seconds, so only these count.
    pub(super) fn is(&self, created_at_ms: u64) -> bool {
        const MILLIS: u64 = 1_000;
        match self {
            Self::IsoMillis(theirs) => {
                let second = |text: &str| text.split('.').next().map(str::to_owned);
                second(theirs) == second(&Self::iso(created_at_ms))
            }
            Self::Seconds(theirs) => *theirs == created_at_ms / MILLIS,
        }
    }
}

/// What a library keeps of one shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundShard {
    /// The shard that the row is for.
    pub shard: ShardId,
    /// How far the library got; `None` if it wrote no checkpoint.
    pub checkpoint: Option<Checkpoint>,
    /// The worker that owns it.
    pub owner: Option<String>,
}

impl Found {
    pub(super) fn new(library: Library) -> Self {
        Self {
            library,
            group: None,
            stream: None,
            stream_created: None,
            shards: Vec::new(),
            bad_rows: Vec::new(),
            signs: BTreeMap::new(),
            obstacle: None,
        }
    }

    /// The workers that own a shard or are registered.
    pub fn workers(&self) -> impl Iterator<Item = &str> {
        self.signs.keys().map(String::as_str)
    }

    /// How many unfinished shards `worker` owns.
    pub(crate) fn shards_of(&self, worker: &str) -> usize {
        let is_its = |found: &&FoundShard| {
            found.owner.as_deref() == Some(worker) && found.checkpoint != Some(Checkpoint::ShardEnd)
        };
        self.shards.iter().filter(is_its).count()
    }

    /// Whether the place is on the stream with this name. A table that does not name its stream may
    /// be on any.
    pub fn is_on(&self, stream: &str) -> bool {
        self.stream.as_deref().is_none_or(|theirs| {
            theirs == stream
                || theirs
                    .rsplit_once('/')
                    .is_some_and(|(_, name)| name == stream)
        })
    }

    /// Takes a checkpoint at the sequence number that its shard begins with for none: no record has
    /// it, so a host would look for it in vain and report a gap. lifion-kinesis gives it to the
    /// children of a shard that has ended.
    pub fn forget_beginnings(&mut self, first: &BTreeMap<ShardId, SequenceNumber>) {
        for found in &mut self.shards {
            if let Some(Checkpoint::At(position)) = &found.checkpoint
                && first.get(&found.shard) == Some(&position.sequence)
            {
                found.checkpoint = Some(Checkpoint::TrimHorizon);
            }
        }
    }

    /// Adds a shard, or the problem with its row. `sign` is what its owner keeps writing to it.
    pub(super) fn add(&mut self, key: &str, sign: &str, shard: Result<FoundShard, String>) {
        match shard {
            Ok(shard) => {
                if let Some(owner) = &shard.owner {
                    let signs = self.signs.entry(owner.clone()).or_default();
                    signs.push_str(key);
                    signs.push('=');
                    signs.push_str(sign);
                    signs.push(';');
                }
                self.shards.push(shard);
            }
            Err(problem) => self.bad_rows.push(BadRow {
                key: key.to_owned(),
                problem,
            }),
        }
    }

    /// Notes a worker that is registered, with its heartbeat.
    pub(super) fn register(&mut self, worker: &str, heartbeat: &str) {
        let signs = self.signs.entry(worker.to_owned()).or_default();
        signs.push_str("heartbeat=");
        signs.push_str(heartbeat);
        signs.push(';');
    }
}

/// A shard's id, or the problem with it.
pub(super) fn shard_id(text: &str) -> Result<ShardId, String> {
    ShardId::new(text).map_err(|error| error.to_string())
}

/// A checkpoint that is only a sequence number. If it names an aggregate, the library may have
/// stopped inside it: all user records but the first are delivered again, rather than lost.
pub(super) fn after(text: &str) -> Result<Checkpoint, String> {
    let sequence = SequenceNumber::parse(text).map_err(|error| error.to_string())?;
    Ok(Checkpoint::At(Position::plain(sequence)))
}
