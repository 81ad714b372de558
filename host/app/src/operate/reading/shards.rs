//! The shards of the stream, as a leader would see them that lists for the first time.

use std::collections::BTreeSet;

use shardmill_aws::KinesisReader;
use shardmill_core::fleet::StreamIdentity;
use shardmill_core::lease::Lease;
use shardmill_core::plan::{GoneShards, MissingShards, ShardList};
use shardmill_core::ports::{ReadError, StreamReader};
use shardmill_core::stream::{Shard, ShardId};
use shardmill_worker::confirm_gone;

/// The listed shards, and what a leader would find out about them.
pub(super) struct Shards {
    listed: Vec<Shard>,
    /// Shards that have rows and that Kinesis does not know.
    gone: GoneShards,
    /// Shards that were closed before the application began; `None` if that cannot be known.
    before_start: Option<BTreeSet<ShardId>>,
}

/// Where in the stream an application begins.
pub(super) enum Beginning {
    /// This cannot be known.
    Unknown,
    /// At the oldest record: no shard was closed before.
    Oldest,
    /// At this time, in milliseconds since 1970.
    At(u64),
    /// Now.
    Latest,
}

impl Shards {
    pub(super) async fn read(
        reader: &KinesisReader,
        identity: StreamIdentity,
        beginning: Beginning,
        leases: &[Lease],
    ) -> Result<Self, ReadError> {
        let listed = reader.list_shards().await?;
        let mut missing = MissingShards::default();
        missing.listed(leases.iter().map(|lease| lease.key.shard_id()), &listed);
        let questions = missing.to_ask_ahead();
        Ok(Self {
            gone: confirm_gone(&missing, questions, reader, identity).await,
            before_start: closed_before(beginning, reader, &listed).await,
            listed,
        })
    }

    pub(super) fn as_list(&self) -> ShardList<'_> {
        ShardList {
            shards: &self.listed,
            gone: &self.gone,
            before_start: self.before_start.as_ref(),
        }
    }
}

async fn closed_before(
    beginning: Beginning,
    reader: &KinesisReader,
    listed: &[Shard],
) -> Option<BTreeSet<ShardId>> {
    let closed = listed.iter().filter(|shard| !shard.is_open());
    let mut closed: BTreeSet<ShardId> = closed.map(|shard| shard.id.clone()).collect();
    match beginning {
        Beginning::Unknown => None,
        Beginning::Oldest => Some(BTreeSet::new()),
        Beginning::Latest => Some(closed),
        Beginning::At(since_ms) => {
            for shard in reader.list_shards_since(since_ms).await.ok()?? {
                closed.remove(&shard.id);
            }
            Some(closed)
        }
    }
}
