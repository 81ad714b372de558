//! Which rows stand for which shard.

use std::collections::{BTreeMap, BTreeSet};

use super::finding::{Findings, some_of};
use super::{LeaseTableFacts, Severity, Topic};
use crate::stream::{LeaseKey, ShardId};

/// The KCL's multi-stream mode keeps all streams of an application in one table; shardmill reads one stream, and knows
/// a row by its shard id.
pub(super) fn judge(table: &LeaseTableFacts, findings: &mut Findings) {
    let keys = || table.leases.iter().map(|facts| &facts.lease.key);
    let streams: BTreeSet<&str> = keys().filter_map(stream_of).collect();
    if streams.len() > 1 {
        findings.add(
            Severity::MendFirst,
            Topic::MultiStreamKeys,
            format!(
                "the leases are of {} in one table, and shards of two streams have the same ids",
                some_of("stream", streams)
            ),
            "use one application a stream: copy a stream's rows into a table of its own, with the shard id as leaseKey",
        );
        return;
    }
    if let Some(stream) = streams.first() {
        findings.add(
            Severity::Warning,
            Topic::MultiStreamKeys,
            format!(
                "the keys are those of the KCL's multi-stream mode ({stream}:SHARD); shardmill goes on with these rows \
                 but makes new ones under the bare shard id, which a multi-stream KCL does not see"
            ),
            "to be able to go back, copy the rows under bare shard ids, and go back to a single-stream KCL",
        );
    }
    let mut by_shard: BTreeMap<ShardId, usize> = BTreeMap::new();
    for key in keys() {
        *by_shard.entry(key.shard_id()).or_default() += 1;
    }
    let twice: Vec<&ShardId> = by_shard.iter().filter(|(_, rows)| **rows > 1).map(|(shard, _)| shard).collect();
    if !twice.is_empty() {
        findings.add(
            Severity::MendFirst,
            Topic::SameShardTwice,
            format!(
                "{} with two rows, one under the bare id and one under a multi-stream key",
                some_of("shard", twice)
            ),
            "keep the row with the checkpoint that counts and delete the other: each would be read from its own place",
        );
    }
}

/// What comes before the shard id: `account:stream:epoch`.
fn stream_of(key: &LeaseKey) -> Option<&str> {
    key.as_str().rsplit_once(':').map(|(stream, _)| stream)
}
