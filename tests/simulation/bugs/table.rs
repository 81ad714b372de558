//! A lease table with a bug: what a wrong expression or condition of an adapter leaves in a row.
//! Only over the ports.

use shardmill_core::lease::{Checkpoint, Lease, LeaseToken};
use shardmill_core::ports::{ObeyWrite, Written};
use shardmill_fakes::lease_rows::LeaseRows;
use shardmill_invariants::history::WriteKind;

use super::PortBug;

/// Lets a holder write to its row, with what the condition of its write lacks.
pub(crate) fn held_write(
    bug: Option<PortBug>,
    kind: WriteKind,
    rows: &mut LeaseRows,
    token: &LeaseToken,
    write: impl FnOnce(&mut LeaseRows, &LeaseToken) -> Written,
) -> Written {
    let Some(forged) = forged(bug, kind, rows, token) else {
        return write(rows, token);
    };
    match write(rows, &forged) {
        Written::Applied(_) => Written::Applied(token.advanced()),
        conflict @ Written::Conflict(_) => conflict,
    }
}

/// What the row shows, if the write does not ask for what the holder knows.
fn forged(
    bug: Option<PortBug>,
    kind: WriteKind,
    rows: &LeaseRows,
    token: &LeaseToken,
) -> Option<LeaseToken> {
    let row = rows.get(&token.key)?;
    let owner = row.owner.clone()?;
    let is_unasked = match bug? {
        PortBug::HeldWritesWithoutCondition => true,
        PortBug::CheckpointWithoutCondition => {
            matches!(kind, WriteKind::Checkpoint | WriteKind::End)
        }
        PortBug::ConditionOnOwnerOnly => owner == token.owner,
        _ => false,
    };
    is_unasked.then(|| row.token(owner))
}

/// What a take asks the row to be.
pub(crate) fn asked_of_take(bug: Option<PortBug>, rows: &LeaseRows, seen: &Lease) -> Lease {
    let asks_for_nothing = bug == Some(PortBug::TakeWithoutCondition);
    rows.get(&seen.key)
        .filter(|_| asks_for_nothing)
        .unwrap_or(seen)
        .clone()
}

/// What a command asks the row to be.
pub(crate) fn asked_of_direct(bug: Option<PortBug>, rows: &LeaseRows, seen: &Lease) -> Lease {
    let asks_for_nothing = bug == Some(PortBug::DirectWithoutCondition);
    rows.get(&seen.key)
        .filter(|_| asks_for_nothing)
        .unwrap_or(seen)
        .clone()
}

/// What a holder that has done something asks the row to be.
pub(crate) fn asked_of_obey(
    bug: Option<PortBug>,
    rows: &LeaseRows,
    token: &LeaseToken,
    write: &ObeyWrite,
) -> ObeyWrite {
    let mut write = write.clone();
    if bug == Some(PortBug::ObeyWithoutVersion)
        && let Some(row) = rows.get(&token.key)
    {
        write.seen_version = row.directives.version;
    }
    write
}

/// The row that a write leaves, which turned `before` into `after`.
pub(crate) fn spoilt(bug: PortBug, kind: WriteKind, before: &Lease, after: &Lease) -> Lease {
    let mut row = after.clone();
    match (bug, kind) {
        (PortBug::TakeKeepsCounter, WriteKind::Take { .. })
        | (PortBug::CheckpointKeepsCounter, WriteKind::Checkpoint | WriteKind::End)
        | (PortBug::ReleaseKeepsCounter, WriteKind::Release | WriteKind::GiveUp) => {
            row.counter = before.counter;
        }
        (PortBug::ClaimRaisesCounter, WriteKind::Claim) => row.counter = before.counter.next(),
        (PortBug::TakeWritesBackOldCheckpoint, WriteKind::Take { .. }) => {
            row.checkpoint = Checkpoint::TrimHorizon;
        }
        (PortBug::TakeKeepsClaim, WriteKind::Take { .. }) => {
            row.claimant.clone_from(&before.claimant);
        }
        (PortBug::ObeyKeepsDirective, WriteKind::Obey) => {
            row.directives.clone_from(&before.directives);
        }
        (PortBug::ObeyKeepsPlace, WriteKind::Obey) => {
            row.checkpoint.clone_from(&before.checkpoint);
        }
        (PortBug::ReleaseDropsClaim, WriteKind::Release | WriteKind::GiveUp) => row.claimant = None,
        _ => {}
    }
    row
}
