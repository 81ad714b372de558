//! The library's rules, put to a write of the model.

use shardmill_invariants::history::{What, Write, WriteKind};
use shardmill_invariants::{Invariant, rules};

use super::recorder::Recorder;
use super::state::{
    Child, HOSTS, Intent, Message, ModelRow, SHARDS, State, TICK, checkpoint, limits, place,
};

/// Writes down an applied write, as the rules want it.
pub(crate) fn record(
    before: &ModelRow,
    after: &ModelRow,
    by: usize,
    kind: WriteKind,
    sent_at: u64,
    log: &mut Recorder,
) -> Write {
    let write = Write {
        key: SHARDS[0].to_owned(),
        by: Some(HOSTS[by].to_owned()),
        kind,
        before: Some(before.to_row()),
        after: Some(after.to_row()),
        sent_at,
    };
    log.push(What::Written(write.clone()));
    write
}

/// The library's rules. The model has no absolute time: a counter is as good a clock for what was
/// known when.
pub(crate) fn judge(
    state: &State,
    before: &ModelRow,
    write: &Write,
    message: &Message,
    records: u8,
) -> Option<Invariant> {
    let is_take = message.intent == Intent::Take;
    let sender = if is_take { before.epoch } else { message.epoch };
    let (counter_then, quiet_then) = message.at_sending;
    let known = Write {
        sent_at: counter_then.into(),
        ..write.clone()
    };
    let places: Vec<_> = (1..=records).map(place).collect();
    let (from, to) = (
        checkpoint(before.checkpoint),
        checkpoint(state.row.checkpoint),
    );
    let is_settled = |record: &_| *record <= place(message.settled) && message.settled > 0;
    let is_unjustified =
        !is_take && rules::unsettled(places.iter(), &from, &to, is_settled).is_some();
    let children = SHARDS[1..].iter().map(|id| (*id).to_owned()).collect();
    let has_row = |id: &str| state.children[usize::from(id == "r")] != Child::Absent;
    let is_end = message.intent == Intent::End;
    let is_others = before.owner.is_some()
        && write
            .before
            .as_ref()
            .is_some_and(|row| row.owner != write.by);
    let is_live = !rules::may_expire(0, u64::from(quiet_then) * TICK, &limits());
    [
        (rules::counter(write).is_some(), Invariant::S1),
        (
            rules::fence(write, Some(before.epoch.into()), Some(sender.into())).is_some(),
            Invariant::S2,
        ),
        (
            rules::foreknown(&known, before.counter.into()).is_some(),
            Invariant::S2,
        ),
        (rules::shape(write).is_some(), Invariant::S2),
        (rules::monotone(write).is_some(), Invariant::S3),
        (
            is_unjustified,
            if is_end { Invariant::S5 } else { Invariant::S4 },
        ),
        (
            is_end && (!rules::without_row(&children, has_row).is_empty() || !message.said_end),
            Invariant::S5,
        ),
        (is_take && is_others && is_live, Invariant::S10),
    ]
    .into_iter()
    .find_map(|(is_broken, invariant)| is_broken.then_some(invariant))
}
