//! Which shard each row belongs to.

use std::collections::{BTreeMap, BTreeSet};

use super::finding::{Findings, some_of};
use super::{LeaseTableFacts, Severity, Topic};
use crate::stream::{LeaseKey, ShardId};

/// The KCL's multi-stream mode keeps all streams of an application in one table. Unless a
/// plugin is told to, shardmill identifies rows by shard id, so it does not start on such a table.
pub(super) fn judge(table: &LeaseTableFacts, findings: &mut Findings) {
    let keys = || table.leases.iter().map(|facts| &facts.lease.key);
    let streams: BTreeSet<&str> = keys().filter_map(LeaseKey::stream_prefix).collect();
    if !streams.is_empty() {
        findings.add(
            Severity::FixFirst,
            Topic::MultiStreamKeys,
            format!(
                "the keys are from the KCL's multi-stream mode, for {}, and shards of two streams \
                    have the same ids",
                some_of("stream", streams)
            ),
            "once the KCL has stopped, a plugin with these `streams` and multi-stream-table = true \
                uses the table in place; or `shardmill import` copies a stream's rows into a table of \
                its own",
        );
    }
    let mut by_shard: BTreeMap<ShardId, usize> = BTreeMap::new();
    for key in keys() {
        *by_shard.entry(key.shard_id()).or_default() += 1;
    }
    let twice: Vec<&ShardId> = by_shard
        .iter()
        .filter(|(_, rows)| **rows > 1)
        .map(|(shard, _)| shard)
        .collect();
    if !twice.is_empty() {
        findings.add(
            Severity::FixFirst,
            Topic::SameShardTwice,
            format!(
                "{} with two rows, one under the bare id and one under a multi-stream key",
                some_of("shard", twice)
            ),
            "use another application: `shardmill import` copies what is under the multi-stream \
                keys into it and leaves this table as it is",
        );
    }
}
