//! Names of recordings' files. They hold hashes: names of applications and shards come from
//! outside, and a folder is pruned by its names alone.

use std::path::Path;

use shardmill_core::hash::stable;
use shardmill_core::plugin::PluginDigest;
use shardmill_core::recording::Recording;

/// The ending of a recording's file.
const ENDING: &str = "recording";

/// What the name of a recording's file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileName {
    /// Of the application and its shard.
    pub(super) shard: u64,
    /// Of the batch. A later attempt at the same batch by the same version takes the place of the
    /// earlier one.
    batch: u64,
    /// The version that failed.
    pub(super) digest: PluginDigest,
}

impl FileName {
    pub(super) fn of(recording: &Recording) -> Self {
        let context = &recording.context;
        let shard = format!("{}\0{}", context.application, context.shard);
        let records = &recording.batch.records;
        let ends = records.first().zip(records.last());
        let batch = ends.map_or_else(String::new, |(first, last)| {
            format!("{}\0{}", first.position, last.position)
        });
        Self {
            shard: stable(shard.into_bytes()),
            batch: stable(batch.into_bytes()),
            digest: recording.digest.clone(),
        }
    }

    /// `None` for a file that is something else.
    pub(super) fn read(path: &Path) -> Option<Self> {
        if path.extension()? != ENDING {
            return None;
        }
        let mut parts = path.file_stem()?.to_str()?.splitn(3, '-');
        let mut hash = || u64::from_str_radix(parts.next()?, 16).ok();
        let (shard, batch) = (hash()?, hash()?);
        Some(Self {
            shard,
            batch,
            digest: PluginDigest::from_hex(parts.next()?)?,
        })
    }
}

impl std::fmt::Display for FileName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            shard,
            batch,
            digest,
        } = self;
        write!(f, "{shard:016x}-{batch:016x}-{}.{ENDING}", digest.as_str())
    }
}
