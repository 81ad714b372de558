//! What a restore does to each shard.

use std::collections::{BTreeMap, BTreeSet};

use super::content::{BackedUpShard, Backup};
use super::other_stream;
use super::refusal::{RestoreRefusal, ShardRefusal};
use super::step::{
    RestorePlan, RestoreReason, RestoreRequest, RestoreStep, RestoredRow, ShardRestore, StatesKept,
    StreamNow, StreamRelation, decide, unheld,
};
use crate::fleet::{StreamRow, StreamVerdict};
use crate::lease::{Checkpoint, Lease};
use crate::stream::{Shard, ShardId};

/// Decides for each shard, parents first.
pub fn plan_restore(request: &RestoreRequest<'_>) -> RestorePlan {
    let relation = relation(request.backup, request.stream);
    let mut plan = match relation {
        StreamRelation::Same => on_same_stream(request),
        StreamRelation::OtherName | StreamRelation::OtherArn | StreamRelation::Recreated => {
            other_stream::plan(request, relation)
        }
    };
    if request.backup.shards.is_empty() {
        plan.refusals.push(RestoreRefusal::Empty);
    }
    plan.refusals.extend(other_stream_row(request));
    plan.refusals.extend(other_start(request, &plan));
    leave_the_rest(request, &mut plan);
    plan.shards.sort_by(|a, b| a.shard.cmp(&b.shard));
    plan
}

/// Whether `stream` is the one that the checkpoints of `backup` belong to. Streams of one name in
/// two regions may have been created in the same second: only the ARN tells them apart.
pub fn relation(backup: &Backup, stream: &StreamNow<'_>) -> StreamRelation {
    let ours = &backup.stream;
    match StreamRow::judge(Some(&ours.row), stream.name, stream.identity) {
        StreamVerdict::OtherName => return StreamRelation::OtherName,
        StreamVerdict::Recreated => return StreamRelation::Recreated,
        StreamVerdict::Same | StreamVerdict::Unknown => {}
    }
    match (ours.arn.as_deref(), stream.arn) {
        (Some(ours), Some(theirs)) if ours != theirs => StreamRelation::OtherArn,
        _ => StreamRelation::Same,
    }
}

/// Each row as it was, as if the fleet had been down since.
fn on_same_stream(request: &RestoreRequest<'_>) -> RestorePlan {
    let backup = request.backup;
    let listed: BTreeMap<&ShardId, &Shard> = by_id(request.stream.shards);
    let mut plan = RestorePlan {
        relation: StreamRelation::Same,
        start: backup.start,
        shards: Vec::new(),
        dropped: Vec::new(),
        refusals: Vec::new(),
    };
    for shard in &backup.shards {
        let id = shard.lease.key.shard_id();
        let found = listed.get(&id);
        let why = match found {
            _ if shard.lease.is_finished() => RestoreReason::Finished,
            Some(_) => RestoreReason::Continues,
            None => RestoreReason::Gone,
        };
        let wanted = restored(shard, request.policy.states);
        if wanted.state.is_none() && shard.state.is_some() {
            plan.dropped.push(id.clone());
        }
        let is_open = found.is_some_and(|found| found.is_open());
        let mut restore = decide(request, id, wanted, why);
        if why == RestoreReason::Finished && is_open {
            restore.step = RestoreStep::Refuse {
                why: ShardRefusal::FinishedButOpen,
                to: Checkpoint::ShardEnd,
            };
        }
        plan.shards.push(restore);
    }
    plan
}

fn by_id(shards: &[Shard]) -> BTreeMap<&ShardId, &Shard> {
    shards.iter().map(|shard| (&shard.id, shard)).collect()
}

/// The row of a shard as it was, held by nobody.
fn restored(shard: &BackedUpShard, states: StatesKept) -> RestoredRow {
    let lease = &shard.lease;
    let state = match states {
        StatesKept::None => None,
        StatesKept::All | StatesKept::Fitting => shard.state.clone(),
    };
    RestoredRow {
        lease: Lease {
            state_fill: state.as_ref().and(lease.state_fill),
            ..unheld(lease)
        },
        state,
    }
}

/// The application has a stream already, and it is another.
fn other_stream_row(request: &RestoreRequest<'_>) -> Option<RestoreRefusal> {
    let row = request.tables.fleet.stream.as_ref()?;
    match StreamRow::judge(Some(row), request.stream.name, request.stream.identity) {
        StreamVerdict::Same | StreamVerdict::Unknown => None,
        StreamVerdict::OtherName | StreamVerdict::Recreated => Some(RestoreRefusal::OtherStream {
            theirs: row.name.clone(),
        }),
    }
}

/// Where an application began never changes, and some rows mean that moment.
fn other_start(request: &RestoreRequest<'_>, plan: &RestorePlan) -> Option<RestoreRefusal> {
    let theirs = request.tables.fleet.start?;
    let depends = plan.relation != StreamRelation::Same
        || plan.shards.iter().any(|shard| is_at_start(&shard.step));
    (theirs != plan.start && depends).then_some(RestoreRefusal::OtherStart {
        theirs,
        ours: plan.start,
    })
}

fn is_at_start(step: &RestoreStep) -> bool {
    let at = match step {
        RestoreStep::Create(row) | RestoreStep::Replace { to: row, .. } => &row.lease.checkpoint,
        RestoreStep::Keep(checkpoint) => checkpoint,
        RestoreStep::Leave | RestoreStep::Refuse { .. } => return false,
    };
    matches!(at, Checkpoint::Latest | Checkpoint::AtTimestamp)
}

/// Rows and shards that the backup says nothing of.
fn leave_the_rest(request: &RestoreRequest<'_>, plan: &mut RestorePlan) {
    let decided: BTreeSet<ShardId> = plan.shards.iter().map(|it| it.shard.clone()).collect();
    let rows = request.tables.rows.iter();
    let rows: BTreeMap<ShardId, &Lease> = rows.map(|row| (row.key.shard_id(), row)).collect();
    let listed = request.stream.shards.iter().map(|shard| shard.id.clone());
    let others: BTreeSet<ShardId> = listed.chain(rows.keys().cloned()).collect();
    for shard in others.difference(&decided) {
        let now = rows.get(shard).map(|row| row.checkpoint.clone());
        let why = match now {
            Some(_) => RestoreReason::NotInBackup,
            None => RestoreReason::ByHosts,
        };
        plan.shards.push(ShardRestore {
            shard: shard.clone(),
            now,
            step: RestoreStep::Leave,
            why,
        });
    }
}
