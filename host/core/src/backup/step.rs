//! What a restore is asked, and what it answers for each shard.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use super::content::Backup;
use super::direction::goes_forward;
use super::refusal::{RestoreRefusal, ShardRefusal};
use crate::control::Directives;
use crate::fleet::{ApplicationStart, FleetRows, StreamIdentity};
use crate::lease::{Checkpoint, Lease, LeaseCounter};
use crate::ports::SavedState;
use crate::stream::{LeaseKey, Shard, ShardId, StreamName};

/// The input for deciding a restore.
#[derive(Debug, Clone, Copy)]
pub struct RestoreRequest<'a> {
    /// The backup that is restored.
    pub backup: &'a Backup,
    /// The stream that the application is to read.
    pub stream: &'a StreamNow<'a>,
    /// The tables that the application has already.
    pub tables: &'a TablesNow<'a>,
    /// What whoever asks allows.
    pub policy: RestorePolicy,
}

/// The stream as Kinesis shows it.
#[derive(Debug, Clone, Copy)]
pub struct StreamNow<'a> {
    /// Its name, without region and account.
    pub name: &'a StreamName,
    /// Its ARN, which names region and account; `None` if Kinesis did not say it.
    pub arn: Option<&'a str>,
    /// What distinguishes it from another of its name.
    pub identity: StreamIdentity,
    /// All of its shards, open and closed.
    pub shards: &'a [Shard],
    /// On another stream than the backup's: the shards that were closed before what is to be read
    /// of them, as Kinesis answered to [`closed_since`](super::closed_since).
    pub closed_before: &'a BTreeSet<ShardId>,
}

/// The rows of the application that is restored.
#[derive(Debug, Clone, Copy)]
pub struct TablesNow<'a> {
    /// Its lease rows, each as it is now.
    pub rows: &'a [Lease],
    /// The states of these, as far as they have one.
    pub states: &'a BTreeMap<LeaseKey, SavedState>,
    /// The rows of its coordinator table.
    pub fleet: &'a FleetRows,
}

/// What whoever asks for a restore allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestorePolicy {
    /// Rows that hosts have served since are replaced.
    pub overwrites: bool,
    /// Rows go forward too, over records that are then never delivered.
    pub skips: bool,
    /// Which states are kept.
    pub states: StatesKept,
    /// On another stream: everything is read from this time on, in milliseconds since the Unix
    /// epoch, and not from where each shard was.
    pub from_ms: Option<u64>,
    /// On another stream: so much before a shard's place it is read from.
    pub margin: Duration,
}

/// Which states are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatesKept {
    /// All of them, or nothing is restored.
    All,
    /// Those that fit a shard; the others are dropped.
    Fitting,
    /// None.
    None,
}

/// Whether the stream is the backup's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamRelation {
    /// It is: sequence numbers go on.
    Same,
    /// It has another name.
    OtherName,
    /// It has the name, and is another region's or account's.
    OtherArn,
    /// It has the name, and was created at another time.
    Recreated,
}

/// A row as it is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoredRow {
    /// The lease, which nobody holds.
    pub lease: Lease,
    /// The state that belongs to it.
    pub state: Option<SavedState>,
}

/// What happens to one shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardRestore {
    /// The shard, of the stream that is read from now on.
    pub shard: ShardId,
    /// Where its row is now; `None` if it has none.
    pub now: Option<Checkpoint>,
    /// What is written, if anything is.
    pub step: RestoreStep,
    /// Why that is its place.
    pub why: RestoreReason,
}

/// What is written for one shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RestoreStep {
    /// A row, if there is none.
    Create(Box<RestoredRow>),
    /// Another place in the row that there is, if it is unchanged.
    Replace {
        /// The row as seen.
        seen: Box<Lease>,
        /// As it is to be.
        to: Box<RestoredRow>,
        /// Whether records that follow its place are, or may be, left out.
        is_forward: bool,
    },
    /// Nothing: it is so already.
    Keep(Checkpoint),
    /// Nothing: it is left as it is.
    Leave,
    /// Nothing may be written.
    Refuse {
        /// Why not.
        why: ShardRefusal,
        /// Where the shard would go.
        to: Checkpoint,
    },
}

/// Why a shard has its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestoreReason {
    /// It goes on where it was.
    Continues,
    /// It was read to its end.
    Finished,
    /// It was not finished, and Kinesis does not list it any more.
    Gone,
    /// The backup has nothing of it, and the application has a row.
    NotInBackup,
    /// The backup has nothing of it: the hosts decide, as after an outage.
    ByHosts,
    /// On another stream: from what arrived since.
    ByTime,
    /// On another stream: from its oldest record, since no time is known.
    FromOldest,
    /// On another stream: its parents are read first.
    AfterParents,
    /// On another stream: it was closed before.
    ClosedBefore,
}

/// What a restore does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestorePlan {
    /// Whether the stream is the backup's own.
    pub relation: StreamRelation,
    /// Where the application begins.
    pub start: ApplicationStart,
    /// What happens to each shard, parents first.
    pub shards: Vec<ShardRestore>,
    /// Shards of the backup whose state is dropped.
    pub dropped: Vec<ShardId>,
    /// Why nothing is restored, if so.
    pub refusals: Vec<RestoreRefusal>,
}

impl RestorePlan {
    /// Whether anything forbids it.
    pub fn is_refused(&self) -> bool {
        let is_refused = |shard: &ShardRestore| matches!(shard.step, RestoreStep::Refuse { .. });
        !self.refusals.is_empty() || self.shards.iter().any(is_refused)
    }
}

/// What of a row does not depend on who holds it.
pub(super) fn unheld(lease: &Lease) -> Lease {
    Lease {
        owner: None,
        counter: LeaseCounter(0),
        owner_switches: 0,
        millis_behind_latest: None,
        checkpoint_owner: None,
        claimant: None,
        held_since_ms: None,
        bytes_per_second: None,
        stuck: None,
        directives: only_pause(&lease.directives),
        ..lease.clone()
    }
}

/// What waited to be done was asked of another run of the application: only a pause stays.
pub(super) fn only_pause(directives: &Directives) -> Directives {
    let pause = directives.pause.clone();
    Directives {
        version: u64::from(pause.is_some()),
        pause,
        ..Directives::default()
    }
}

/// What is written for a shard, given the row that it has.
pub(super) fn decide(
    request: &RestoreRequest<'_>,
    shard: ShardId,
    wanted: RestoredRow,
    why: RestoreReason,
) -> ShardRestore {
    let mut rows = request.tables.rows.iter();
    let seen = rows.find(|row| row.key == wanted.lease.key);
    let step = match seen {
        None => RestoreStep::Create(Box::new(wanted)),
        Some(seen) => step_over(request, seen, wanted),
    };
    ShardRestore {
        shard,
        now: seen.map(|row| row.checkpoint.clone()),
        step,
        why,
    }
}

fn step_over(request: &RestoreRequest<'_>, seen: &Lease, wanted: RestoredRow) -> RestoreStep {
    let state = request.tables.states.get(&seen.key);
    let is_there = seen.checkpoint == wanted.lease.checkpoint;
    let is_alike = is_same_state(state, wanted.state.as_ref());
    if is_there && is_alike {
        return RestoreStep::Keep(wanted.lease.checkpoint);
    }
    let is_forward = goes_forward(&request.backup.start, seen, &wanted.lease);
    let at = || Box::new(seen.checkpoint.clone());
    let refusal = if is_forward && !request.policy.skips {
        Some(ShardRefusal::Forward { at: at() })
    } else if request.policy.overwrites || !seen.was_held() {
        None
    } else if is_there {
        Some(ShardRefusal::OtherState)
    } else {
        Some(ShardRefusal::HasProgress { at: at() })
    };
    if let Some(why) = refusal {
        let to = wanted.lease.checkpoint;
        return RestoreStep::Refuse { why, to };
    }
    RestoreStep::Replace {
        to: Box::new(over(seen, wanted)),
        seen: Box::new(seen.clone()),
        is_forward,
    }
}

fn is_same_state(one: Option<&SavedState>, other: Option<&SavedState>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one.bytes == other.bytes && one.checkpoint == other.checkpoint,
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
}

/// The versions of what operators want go on, or an old read would look like a new one.
fn over(seen: &Lease, mut wanted: RestoredRow) -> RestoredRow {
    if seen.directives.version > 0 {
        let pause = wanted.lease.directives.pause.take();
        wanted.lease.directives = seen.directives.changed(|next| {
            *next = Directives {
                version: next.version,
                pause,
                ..Directives::default()
            };
        });
    }
    wanted
}

impl RestoreStep {
    /// The row that is written, if one is.
    pub fn row(&self) -> Option<&RestoredRow> {
        match self {
            Self::Create(row) | Self::Replace { to: row, .. } => Some(row),
            Self::Keep(_) | Self::Leave | Self::Refuse { .. } => None,
        }
    }

    /// Where the shard is then; where it would be, if that is refused.
    pub fn place(&self) -> Option<&Checkpoint> {
        match self {
            Self::Create(row) | Self::Replace { to: row, .. } => Some(&row.lease.checkpoint),
            Self::Keep(place) | Self::Refuse { to: place, .. } => Some(place),
            Self::Leave => None,
        }
    }

    /// The step's stable name for programs; it never changes.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Create(_) => "create",
            Self::Replace {
                is_forward: true, ..
            } => "forward",
            Self::Replace { .. } => "replace",
            Self::Keep(_) => "keep",
            Self::Leave => "leave",
            Self::Refuse { .. } => "refuse",
        }
    }
}

impl RestoreReason {
    /// The reason's stable name for programs; it never changes.
    pub fn code(self) -> &'static str {
        match self {
            Self::Continues => "continues",
            Self::Finished => "finished",
            Self::Gone => "gone",
            Self::NotInBackup => "not-in-backup",
            Self::ByHosts => "by-hosts",
            Self::ByTime => "by-time",
            Self::FromOldest => "from-oldest",
            Self::AfterParents => "after-parents",
            Self::ClosedBefore => "closed-before",
        }
    }
}

impl fmt::Display for RestoreReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Continues => "after the backup's checkpoint",
            Self::Finished => "it was read to its end",
            Self::Gone => "Kinesis does not list it any more: what was left of it is lost",
            Self::NotInBackup => "the backup has nothing of it: its row stays as it is",
            Self::ByHosts => "the backup has nothing of it: the hosts decide, as after an outage",
            Self::ByTime => "from what arrived since its place in the backup, and a little before",
            Self::FromOldest => "from the oldest record: when its place arrived is not known",
            Self::AfterParents => "its parents are read first",
            Self::ClosedBefore => "it was closed before anything that is left to read",
        })
    }
}

impl StreamRelation {
    /// The word for it; it never changes.
    pub fn code(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::OtherName => "other-name",
            Self::OtherArn => "other-arn",
            Self::Recreated => "recreated",
        }
    }
}

impl fmt::Display for StreamRelation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Same => "the backup's own",
            Self::OtherName => "another than the backup's: it has another name",
            Self::OtherArn => "another than the backup's: of another region or account",
            Self::Recreated => "another than the backup's: created at another time",
        })
    }
}
