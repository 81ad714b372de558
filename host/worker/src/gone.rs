//! Asks Kinesis whether shards are gone, for the rule in [`shardmill_core::plan::MissingShards`].

use std::collections::BTreeSet;

use shardmill_core::fleet::StreamIdentity;
use shardmill_core::plan::{GoneShards, MissingShards};
use shardmill_core::ports::StreamReader;
use shardmill_core::stream::ShardId;

/// Asks about each of `questions`, then whether the stream is still the one with `identity`, and
/// judges by the answers. A question that gets no answer is answered with "it is there".
pub async fn confirm_gone(
    missing: &MissingShards,
    questions: Vec<ShardId>,
    reader: &dyn StreamReader,
    identity: StreamIdentity,
) -> GoneShards {
    let mut unknown = BTreeSet::new();
    for shard in questions {
        if matches!(reader.knows(&shard).await, Ok(false)) {
            unknown.insert(shard);
        }
    }
    let is_same_stream =
        unknown.is_empty() || matches!(reader.identity().await, Ok(Some(same)) if same == identity);
    missing.judge(&unknown, is_same_stream)
}
