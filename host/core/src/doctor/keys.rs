//! Which shard each row belongs to.

use std::collections::BTreeSet;

use super::finding::{Findings, some_of};
use super::{LeaseTableFacts, Severity, Topic};
use crate::plugin::of_stream;
use crate::stream::{LeaseKey, ShardId};

pub(super) fn judge(application: &str, table: &LeaseTableFacts, findings: &mut Findings) {
    let streams: BTreeSet<&str> = keys(table).filter_map(LeaseKey::stream_prefix).collect();
    if !streams.is_empty() {
        let streams = some_of("stream", streams);
        match table.fleet.streams.first() {
            Some(served) => judge_in_parts(&of_stream(application, served), &streams, findings),
            None => judge_multi_stream(&streams, findings),
        }
    }
    judge_same_shard_twice(table, findings);
}

fn keys(table: &LeaseTableFacts) -> impl Iterator<Item = &LeaseKey> {
    table.leases.iter().map(|facts| &facts.lease.key)
}

/// The KCL's multi-stream mode keeps all streams of an application in one table. Unless a
/// plugin is told to, shardmill identifies rows by shard id, so it does not start on such a table.
fn judge_multi_stream(streams: &str, findings: &mut Findings) {
    findings.add(
        Severity::FixFirst,
        Topic::MultiStreamKeys,
        format!(
            "the keys are from the KCL's multi-stream mode, for {streams}, and shards of two \
                streams have the same ids"
        ),
        "once the KCL has stopped, a plugin with these `streams` and multi-stream-table = true \
            uses the table in place; or `shardmill import` copies a stream's rows into a table of \
            its own",
    );
}

/// Hosts that are configured for it have used the table.
fn judge_in_parts(one: &str, streams: &str, findings: &mut Findings) {
    findings.add(
        Severity::Note,
        Topic::MultiStreamKeys,
        format!("the table holds leases of {streams}, and hosts use it in parts, such as {one}"),
        "",
    );
}

/// The same shard under both kinds of keys: one of the rows is no longer written.
fn judge_same_shard_twice(table: &LeaseTableFacts, findings: &mut Findings) {
    let ids_of = |has_prefix: bool| -> BTreeSet<ShardId> {
        let keys = keys(table).filter(|key| key.stream_prefix().is_some() == has_prefix);
        keys.map(LeaseKey::shard_id).collect()
    };
    let (bare, prefixed) = (ids_of(false), ids_of(true));
    let twice: Vec<&ShardId> = bare.intersection(&prefixed).collect();
    if twice.is_empty() {
        return;
    }
    findings.add(
        Severity::FixFirst,
        Topic::SameShardTwice,
        format!(
            "{} with two rows, one under the bare id and one under a multi-stream key",
            some_of("shard", twice)
        ),
        "use another application: `shardmill import` copies what is under the multi-stream keys \
            into it and leaves this table as it is",
    );
}
