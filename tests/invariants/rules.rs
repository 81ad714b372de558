//! The rules that need no history beside one write: shared by [`crate::check`] and the exhaustive
//! model.

use std::collections::BTreeSet;

use crate::history::{Checkpoint, Micros, Place, Row, Write, WriteKind};
use crate::limits::Limits;

/// S1: what is wrong with the counter that `write` left behind.
pub fn counter(write: &Write) -> Option<String> {
    let after = write.after.as_ref()?.counter;
    let expected = match (write.kind, &write.before) {
        (WriteKind::Admin | WriteKind::Delete, _) => return None,
        (WriteKind::Create, _) => 0,
        (WriteKind::Claim | WriteKind::Direct, Some(before)) => before.counter,
        (_, Some(before)) => before.counter + 1,
        (_, None) => return None,
    };
    (after != expected).then(|| {
        format!(
            "{:?} of {} left counter {after}, not {expected}",
            write.kind, write.key
        )
    })
}

/// S2: what is wrong with `write` as a write of one who knew the row; `row_epoch` is the counter
/// after the row's last take, `sender_epoch` the one that the sender believes in.
pub fn fence(write: &Write, row_epoch: Option<u64>, sender_epoch: Option<u64>) -> Option<String> {
    let (kind, key) = (write.kind, &write.key);
    let wrong = |what: String| Some(format!("{kind:?} of {key} by {:?}: {what}", write.by));
    match (kind, &write.before) {
        (WriteKind::Admin | WriteKind::Delete, _) | (WriteKind::Create, None) => None,
        (WriteKind::Create, Some(_)) => wrong("there was a row already".to_owned()),
        (_, None) => wrong("there was no row".to_owned()),
        (WriteKind::Take { seen }, Some(before)) if before.counter != seen => wrong(format!(
            "the counter was {}, the taker had seen {seen}",
            before.counter
        )),
        (WriteKind::Take { .. } | WriteKind::Claim | WriteKind::Direct, Some(_)) => None,
        (_, Some(before)) if before.owner.is_none() || before.owner != write.by => {
            wrong(format!("the owner was {:?}", before.owner))
        }
        (_, Some(_)) if row_epoch != sender_epoch => wrong(format!(
            "the row was under epoch {row_epoch:?}, the writer under {sender_epoch:?}"
        )),
        _ => None,
    }
}

/// S2: whether a write of this kind changed only what it may change.
pub fn shape(write: &Write) -> Option<String> {
    let after = write.after.as_ref();
    let before = write.before.as_ref();
    let is_right = match (write.kind, before, after) {
        // A write to a row that was not there breaks the fence, which is said there.
        (WriteKind::Admin, _, _) | (WriteKind::Delete, _, None) => true,
        (kind, None, _) if kind != WriteKind::Create => true,
        (WriteKind::Create, _, Some(after)) => after.owner.is_none() && after.claimant.is_none(),
        (WriteKind::Take { .. }, Some(before), Some(after)) => {
            let expected = Row {
                owner: write.by.clone(),
                claimant: None,
                counter: after.counter,
                ..before.clone()
            };
            *after == expected
        }
        (WriteKind::Claim, Some(before), Some(after)) => {
            let expected = Row {
                claimant: write.by.clone(),
                counter: after.counter,
                ..before.clone()
            };
            *after == expected && before.owner.is_some() && before.owner != write.by
        }
        (WriteKind::Release | WriteKind::GiveUp, Some(before), Some(after)) => {
            *after
                == Row {
                    owner: None,
                    counter: after.counter,
                    ..before.clone()
                }
        }
        (WriteKind::Renew, Some(before), Some(after)) => {
            *after
                == Row {
                    counter: after.counter,
                    ..before.clone()
                }
        }
        (WriteKind::Direct, Some(before), Some(after)) => after == before,
        (WriteKind::Checkpoint | WriteKind::Obey, Some(before), Some(after)) => {
            let checkpoint = after.checkpoint.clone();
            *after
                == Row {
                    counter: after.counter,
                    checkpoint,
                    ..before.clone()
                }
                && after.checkpoint != Checkpoint::End
        }
        (WriteKind::End, Some(before), Some(after)) => {
            after.checkpoint == Checkpoint::End
                && (after.owner.is_none() || after.owner == before.owner)
        }
        _ => false,
    };
    (!is_right).then(|| format!("{:?} turned {before:?} into {after:?}", write.kind))
}

/// S2: a condition on the counter cannot have been written down before that counter existed, at
/// `counter_at`.
pub fn foreknown(write: &Write, counter_at: Micros) -> Option<String> {
    let is_conditional = !matches!(
        write.kind,
        WriteKind::Create
            | WriteKind::Claim
            | WriteKind::Direct
            | WriteKind::Delete
            | WriteKind::Admin
    );
    (is_conditional && write.sent_at < counter_at).then(|| {
        format!(
            "{:?} of {} was sent at {}, before the counter it met, at {counter_at}",
            write.kind, write.key, write.sent_at
        )
    })
}

/// S3: whether the checkpoint went back.
pub fn monotone(write: &Write) -> Option<String> {
    let (before, after) = (write.before.as_ref()?, write.after.as_ref()?);
    let is_free = matches!(
        write.kind,
        WriteKind::Admin | WriteKind::Create | WriteKind::Obey
    );
    (!is_free && after.checkpoint < before.checkpoint).then(|| {
        format!(
            "{} went back from {:?} to {:?}",
            write.key, before.checkpoint, after.checkpoint
        )
    })
}

/// S4, S5: the first of `records` in `(start, through]` that is not settled; all after `start` if
/// `through` is the end.
pub fn unsettled<'a>(
    mut records: impl Iterator<Item = &'a Place>,
    start: &Checkpoint,
    through: &Checkpoint,
    is_settled: impl Fn(&Place) -> bool,
) -> Option<&'a Place> {
    let is_in = |place: &Place| !start.covers(place) && through.covers(place);
    records.find(|place| is_in(place) && !is_settled(place))
}

/// S5: the children that have no row.
pub fn without_row(children: &BTreeSet<String>, has_row: impl Fn(&str) -> bool) -> Vec<&str> {
    children
        .iter()
        .map(String::as_str)
        .filter(|child| !has_row(child))
        .collect()
}

/// S10: until when a holder may start deliveries, on the clock that `sent_at` was read from.
pub fn hold_until(sent_at: Micros, limits: &Limits) -> Micros {
    sent_at.saturating_add(limits.hold_for())
}

/// S10: whether a lease that moved last at `moved_at` may be taken from its owner by a write sent
/// at `sent_at`.
pub fn may_expire(moved_at: Micros, sent_at: Micros, limits: &Limits) -> bool {
    sent_at >= moved_at.saturating_add(limits.unmoved_for())
}
