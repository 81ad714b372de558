//! A restore onto another stream: a shard is known by its hash keys, and its place by a time.

use std::collections::{BTreeMap, BTreeSet};

use super::content::{BackedUpShard, Backup};
use super::place::{Since, since};
use super::refusal::RestoreRefusal;
use super::step::{
    RestorePlan, RestorePolicy, RestoreReason, RestoreRequest, RestoreStep, RestoredRow,
    ShardRestore, StatesKept, StreamRelation, decide, only_pause,
};
use crate::fleet::ApplicationStart;
use crate::lease::{Checkpoint, Lease};
use crate::ports::SavedState;
use crate::stream::{LeaseKey, Shard, ShardId};

/// What of the backup comes next in the hash keys of one shard.
struct Left<'a> {
    since: Since,
    /// The shards of the backup that it is made of.
    sources: Vec<&'a BackedUpShard>,
}

/// Closed shards of the stream, by the time from which each would be read, in milliseconds since
/// the Unix epoch: Kinesis is to say which of them were closed before. Without an answer they are
/// read.
pub fn closed_since(
    backup: &Backup,
    shards: &[Shard],
    policy: RestorePolicy,
) -> BTreeMap<u64, BTreeSet<ShardId>> {
    let mut asked: BTreeMap<u64, BTreeSet<ShardId>> = BTreeMap::new();
    for shard in shards.iter().filter(|shard| !shard.is_open()) {
        if let Since::Time(ms) = left(backup, shard, policy).since {
            asked.entry(ms).or_default().insert(shard.id.clone());
        }
    }
    asked
}

pub(super) fn plan(request: &RestoreRequest<'_>, relation: StreamRelation) -> RestorePlan {
    let mut plan = RestorePlan {
        relation,
        start: start(request.backup, request.policy),
        shards: Vec::new(),
        dropped: Vec::new(),
        refusals: Vec::new(),
    };
    let placed = plan_shards(request, &mut plan);
    let unplaced = unplaced(request, &placed);
    if request.policy.states == StatesKept::All && !unplaced.is_empty() {
        plan.refusals
            .push(RestoreRefusal::StatesFitNowhere(unplaced));
    } else {
        plan.dropped = unplaced;
    }
    plan
}

/// Whose states found a place.
fn plan_shards(request: &RestoreRequest<'_>, plan: &mut RestorePlan) -> BTreeSet<LeaseKey> {
    let to_read = to_read(request);
    let mut placed = BTreeSet::new();
    for shard in request.stream.shards {
        if !to_read.contains(&shard.id) {
            plan.shards.push(leave(shard, RestoreReason::ClosedBefore));
        } else if shard.parents.iter().any(|parent| to_read.contains(parent)) {
            plan.shards.push(leave(shard, RestoreReason::AfterParents));
        } else {
            let left = left(request.backup, shard, request.policy);
            placed.extend(left.whose_state_fits(shard).map(|it| it.lease.key.clone()));
            plan.shards.push(begin(request, shard, &left));
        }
    }
    placed
}

/// The shards of the backup whose states are not taken over.
fn unplaced(request: &RestoreRequest<'_>, placed: &BTreeSet<LeaseKey>) -> Vec<ShardId> {
    let is_none_wanted = request.policy.states == StatesKept::None;
    let with_state = request.backup.shards.iter();
    let with_state = with_state.filter(|it| it.state.is_some());
    let unplaced = with_state.filter(|it| is_none_wanted || !placed.contains(&it.lease.key));
    unplaced.map(|it| it.lease.key.shard_id()).collect()
}

/// The application begins at the earliest place of any shard. Rows say more exactly where each is.
fn start(backup: &Backup, policy: RestorePolicy) -> ApplicationStart {
    let all = backup.shards.iter();
    let earliest = earliest(backup, all.collect(), policy).since;
    ApplicationStart {
        position: earliest.position(),
        // No row means it. A second try of the same restore finds the same.
        looked_at_ms: backup.at_ms,
        found_leases: false,
    }
}

/// The shards that have anything to read. With one parent of a merge the other is read as well, if
/// only to its end: a closed shard without a row would be read from the beginning, were its child
/// not begun.
fn to_read(request: &RestoreRequest<'_>) -> BTreeSet<ShardId> {
    let shards = request.stream.shards;
    let listed: BTreeSet<&ShardId> = shards.iter().map(|shard| &shard.id).collect();
    let is_left = |shard: &&Shard| !request.stream.closed_before.contains(&shard.id);
    let mut to_read: BTreeSet<ShardId> = shards
        .iter()
        .filter(is_left)
        .map(|shard| shard.id.clone())
        .collect();
    for shard in shards {
        if shard.parents.iter().any(|parent| to_read.contains(parent)) {
            let parents = shard.parents.iter();
            to_read.extend(parents.filter(|parent| listed.contains(parent)).cloned());
        }
    }
    to_read
}

fn left<'a>(backup: &'a Backup, shard: &Shard, policy: RestorePolicy) -> Left<'a> {
    let overlaps = |it: &&BackedUpShard| {
        let theirs = it.lease.hash_range;
        // A row without hash keys, as old programs write them, may be of any.
        theirs.is_none_or(|theirs| theirs.overlaps(shard.hash_range))
    };
    earliest(
        backup,
        backup.shards.iter().filter(overlaps).collect(),
        policy,
    )
}

fn earliest<'a>(
    backup: &'a Backup,
    mut sources: Vec<&'a BackedUpShard>,
    policy: RestorePolicy,
) -> Left<'a> {
    sources.retain(|it| since(backup, it).is_some());
    let places = sources.iter().filter_map(|it| since(backup, it));
    let own = places.min().unwrap_or(Since::Time(backup.at_ms));
    let since = match policy.from_ms {
        Some(ms) => Since::Time(ms),
        None => own.less(policy.margin),
    };
    Left { since, sources }
}

impl<'a> Left<'a> {
    /// The one shard of the backup that it is made of and that had the same hash keys.
    fn twin(&self, shard: &Shard) -> Option<&'a BackedUpShard> {
        match self.sources[..] {
            [one] if one.lease.hash_range == Some(shard.hash_range) => Some(one),
            _ => None,
        }
    }

    fn whose_state_fits(&self, shard: &Shard) -> impl Iterator<Item = &'a BackedUpShard> {
        let twin = self.twin(shard).into_iter();
        twin.filter(|twin| twin.state.is_some())
    }
}

fn begin(request: &RestoreRequest<'_>, shard: &Shard, left: &Left<'_>) -> ShardRestore {
    let checkpoint = left.since.checkpoint();
    let twin = left.twin(shard);
    let state = twin.and_then(|twin| restored_state(request, twin, &checkpoint));
    let why = match left.since {
        Since::Oldest => RestoreReason::FromOldest,
        Since::Time(_) => RestoreReason::ByTime,
    };
    let directives = twin.map(|twin| only_pause(&twin.lease.directives));
    let lease = Lease {
        directives: directives.unwrap_or_default(),
        plugin_digest: twin.and_then(|twin| twin.lease.plugin_digest.clone()),
        ..Lease::fresh(shard, checkpoint)
    };
    decide(request, shard.id.clone(), RestoredRow { lease, state }, why)
}

/// The state of a shard, as it belongs to the checkpoint at which the new one begins.
fn restored_state(
    request: &RestoreRequest<'_>,
    twin: &BackedUpShard,
    checkpoint: &Checkpoint,
) -> Option<SavedState> {
    if request.policy.states == StatesKept::None {
        return None;
    }
    let state = twin.state.clone()?;
    Some(SavedState {
        checkpoint: checkpoint.clone(),
        ..state
    })
}

fn leave(shard: &Shard, why: RestoreReason) -> ShardRestore {
    ShardRestore {
        shard: shard.id.clone(),
        now: None,
        step: RestoreStep::Leave,
        why,
    }
}
