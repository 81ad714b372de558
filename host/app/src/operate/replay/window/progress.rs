//! How far a replay of a window has come, in a file of its own. Checkpoints of the live fleet are
//! not touched.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use shardmill_config::files::read_text;
use shardmill_core::plugin::PluginDigest;
use shardmill_core::stream::{Position, SequenceNumber, ShardId};

use super::order::WindowOrder;

/// A stream of ten thousand shards has a few MiB.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// See the module's description.
pub(super) struct Progress {
    path: PathBuf,
    kept: Kept,
    shards: BTreeMap<ShardId, Reached>,
    /// Of this run alone, while it runs.
    _lock: File,
}

/// How far a shard is.
enum Reached {
    Position(Position),
    End,
}

/// What the file holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Kept {
    stream: String,
    from_millis: u64,
    to_millis: u64,
    plugin: String,
    digest: String,
    #[serde(default)]
    shards: BTreeMap<String, KeptShard>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct KeptShard {
    /// `None` at the end of the window.
    sequence: Option<String>,
    #[serde(default)]
    sub_sequence: u64,
}

impl Progress {
    /// What an earlier run of the same replay left, or nothing yet.
    pub(super) fn open(order: &WindowOrder, digest: &PluginDigest) -> anyhow::Result<Self> {
        let path = &order.progress;
        let name = path.display();
        let lock = lock(path)?;
        let this = Kept::nothing_of(order, digest);
        let shards = match read(path).with_context(|| format!("cannot read {name}"))? {
            Some(kept) if kept.is_of(&this) => reached(&kept),
            Some(_) => bail!(
                "{name} is the progress of another replay (another stream, window, plugin or \
                    component): name another file with --progress"
            ),
            None => Ok(BTreeMap::new()),
        };
        Ok(Self {
            path: path.clone(),
            kept: this,
            shards: shards.with_context(|| format!("cannot read {name}"))?,
            _lock: lock,
        })
    }

    pub(super) fn is_done(&self, shard: &ShardId) -> bool {
        matches!(self.shards.get(shard), Some(Reached::End))
    }

    pub(super) fn position(&self, shard: &ShardId) -> Option<&Position> {
        match self.shards.get(shard) {
            Some(Reached::Position(position)) => Some(position),
            Some(Reached::End) | None => None,
        }
    }

    pub(super) fn settled(&mut self, shard: &ShardId, position: Position) {
        self.shards
            .insert(shard.clone(), Reached::Position(position));
    }

    pub(super) fn ended(&mut self, shard: &ShardId) {
        self.shards.insert(shard.clone(), Reached::End);
    }

    /// Writes a new file and puts it in the place of the old one: whatever happens, one of them is
    /// whole.
    pub(super) fn save(&self) -> anyhow::Result<()> {
        let kept = Kept {
            shards: self
                .shards
                .iter()
                .map(|(shard, reached)| (shard.to_string(), kept(reached)))
                .collect(),
            ..self.kept.clone()
        };
        let new = with_ending(&self.path, ".new");
        let write = || -> std::io::Result<()> {
            let mut file = File::create(&new)?;
            file.write_all(&serde_json::to_vec(&kept)?)?;
            file.sync_all()?;
            std::fs::rename(&new, &self.path)
        };
        let name = self.path.display();
        write().with_context(|| format!("cannot write {name}"))
    }
}

impl Kept {
    /// Of a replay that has not begun.
    fn nothing_of(order: &WindowOrder, digest: &PluginDigest) -> Self {
        Self {
            stream: order.stream.to_string(),
            from_millis: order.from_ms,
            to_millis: order.to_ms,
            plugin: order.plugin.to_string(),
            digest: digest.as_str().to_owned(),
            shards: BTreeMap::new(),
        }
    }

    fn is_of(&self, this: &Self) -> bool {
        let without = Self {
            shards: BTreeMap::new(),
            ..self.clone()
        };
        without == *this
    }
}

/// Two runs at a time would each deliver all of it.
fn lock(path: &Path) -> anyhow::Result<File> {
    let name = with_ending(path, ".lock");
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(false).open(&name);
    let file = file.with_context(|| format!("cannot create {}", name.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => bail!(
            "another replay uses {}: wait for it, or name another file with --progress",
            path.display()
        ),
        Err(TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("cannot lock {}", name.display()))
        }
    }
}

fn read(path: &Path) -> anyhow::Result<Option<Kept>> {
    match read_text(path, FILE_BYTES_MAX) {
        Ok(text) => Ok(Some(serde_json::from_str(&text)?)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn reached(kept: &Kept) -> anyhow::Result<BTreeMap<ShardId, Reached>> {
    let mut shards = BTreeMap::new();
    for (id, shard) in &kept.shards {
        let reached = match &shard.sequence {
            Some(sequence) => Reached::Position(Position {
                sequence: SequenceNumber::parse(sequence)?,
                sub_sequence: shard.sub_sequence,
            }),
            None => Reached::End,
        };
        shards.insert(ShardId::new(id)?, reached);
    }
    Ok(shards)
}

fn kept(reached: &Reached) -> KeptShard {
    match reached {
        Reached::Position(position) => KeptShard {
            sequence: Some(position.sequence.to_string()),
            sub_sequence: position.sub_sequence,
        },
        Reached::End => KeptShard {
            sequence: None,
            sub_sequence: 0,
        },
    }
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}
