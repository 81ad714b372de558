//! What this model's world is made of. Counters and beats are kept by their order alone, so that
//! there is an end of states.

use std::collections::{BTreeMap, BTreeSet};

/// Ticks without a move after which the lease counts as expired, and after which its holder stops.
pub(crate) const LEASE_TICKS: u8 = 4;
pub(crate) const HOLD_TICKS: u8 = 3;
/// Ticks of silence after which the leader removes a worker's row. The product waits six lease
/// durations: what matters is that the leases have expired, if nothing else holds them.
pub(crate) const REAP_TICKS: u8 = LEASE_TICKS + 1;
/// The row's counter and the worker's beat in every state; others are distinguished by how far they
/// are below.
const NEWEST: u8 = 8;
/// Whatever is so far below is as old as can be: no condition on it is ever met again.
const OLDEST_BY: u8 = 3;

/// One point of a run.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) row: Row,
    /// The beat of the holder's row in the coordinator table.
    pub(crate) worker: Option<u8>,
    pub(crate) holder: Holder,
    pub(crate) watcher: Watcher,
    /// Whether the holder cannot reach the coordinator table, or the lease table.
    pub(crate) is_coordinator_cut: bool,
    pub(crate) is_table_cut: bool,
    /// Whether the holder's row was removed by hand, or by a restored table, or while it held
    /// nothing: then it is no wonder if others do not know it.
    pub(crate) was_removed: bool,
    pub(crate) budget: Budget,
    /// The first promise that was broken; nothing happens after.
    pub(crate) broken: Option<Broken>,
}

/// What must never be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Broken {
    /// The holder may deliver while the lease is another's.
    TwoOwners,
    /// A registered host is taken for a KCL's worker, for which the whole fleet would renew its
    /// rows.
    TakenForKcl,
    /// The row is renewed although the heart beats and holds what was written after it began to.
    NeedlessRenewal,
}

/// Faults that may still happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Budget {
    pub(crate) lost_answers: u8,
    pub(crate) coordinator_cuts: u8,
    pub(crate) lease_cuts: u8,
    /// Times that somebody removes the holder's row.
    pub(crate) removals: u8,
    /// Ticks that may pass although a heartbeat is due or under way, or a write to the lease, or a
    /// look at both tables.
    pub(crate) slow_beats: u8,
    pub(crate) slow_writes: u8,
    pub(crate) slow_looks: u8,
    /// Writes to the lease that nothing but records asks for.
    pub(crate) checkpoints: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Name {
    Holder,
    Watcher,
}

/// The lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Row {
    pub(crate) owner: Option<Name>,
    pub(crate) counter: u8,
}

/// The host that holds the lease first.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Holder {
    pub(crate) heart: Heart,
    pub(crate) tenure: Option<Tenure>,
    /// The write to the lease's row that it waits for, and one that it gave up and that may still
    /// arrive.
    pub(crate) call: Option<RowCall>,
    pub(crate) ghost: Option<RowCall>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Heart {
    /// Ticks until its deadline, and until that of the generation before.
    pub(crate) left: u8,
    pub(crate) left_before: u8,
    /// Its row was found gone, and no heartbeat or registration was answered since.
    pub(crate) is_row_gone: bool,
    /// The beat that it sent last.
    pub(crate) beat: u8,
    pub(crate) call: Option<BeatCall>,
    /// A beat that it gave up and that may still arrive.
    pub(crate) ghost: Option<u8>,
}

/// A heartbeat or a registration on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct BeatCall {
    pub(crate) beat: u8,
    pub(crate) is_registration: bool,
    pub(crate) age: u8,
    pub(crate) fate: Fate,
}

/// A conditional write to the lease's row on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct RowCall {
    pub(crate) is_take: bool,
    /// The counter that it asks for.
    pub(crate) expected: u8,
    /// Since it was sent first, also if an earlier try had no answer.
    pub(crate) since: Since,
    pub(crate) fate: Fate,
}

/// A moment on the holder's clock: how many ticks ago, and in the how-many-th generation of its
/// heart before this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Since {
    pub(crate) age: u8,
    pub(crate) generations: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Fate {
    Travelling,
    Applied,
    /// With the row that it met; a heartbeat is told nothing.
    Refused(Option<Row>),
}

/// What the holder believes of its lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Tenure {
    /// The counter that it wrote last.
    pub(crate) counter: u8,
    /// Ticks for which that write holds it.
    pub(crate) left: u8,
    /// Generations since the one that it belongs to.
    pub(crate) generations: u8,
    /// Generations since the one in which its last applied write was sent: what a right rule makes
    /// of it.
    pub(crate) written: u8,
    /// An unanswered write, to be settled before anything else.
    pub(crate) doubt: Option<Since>,
}

/// The host that takes over.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Watcher {
    pub(crate) lease: Option<SeenLease>,
    pub(crate) worker: SeenWorker,
    /// It looks at the fleet first, and then, if there is reason to, at the leases.
    pub(crate) has_seen_fleet: bool,
    /// A take on its way: the counter that it asks for.
    pub(crate) take: Option<u8>,
}

/// The lease as it was seen last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct SeenLease {
    pub(crate) row: Row,
    /// Ticks since it was seen to move.
    pub(crate) idle: u8,
    /// Whether it moved under the same owner.
    pub(crate) has_moved: bool,
}

/// The holder's row in the coordinator table as it was seen last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum SeenWorker {
    /// Never, or so long ago that it is forgotten.
    Unknown,
    There {
        beat: u8,
        silent: u8,
    },
    /// Gone, and remembered as one that stands still.
    Vanished {
        beat: u8,
        silent: u8,
    },
    /// Gone, and known to have been registered for so many ticks more.
    Left {
        ticks: u8,
    },
}

impl State {
    /// Writes counters and beats anew, by their order alone, and forgets what can have no effect.
    pub(crate) fn normalized(mut self) -> Self {
        let row_ghost = self
            .holder
            .ghost
            .filter(|ghost| ghost.expected >= self.row.counter);
        self.holder.ghost = row_ghost;
        let counter = self.row.counter;
        for other in self.counters() {
            *other = NEWEST - counter.saturating_sub(*other).min(OLDEST_BY);
        }
        let newest_beat = self.worker;
        let heart = &mut self.holder.heart;
        heart.ghost = heart
            .ghost
            .filter(|ghost| newest_beat.is_none_or(|beat| *ghost > beat));
        let ranks: BTreeSet<u8> = self.beats().into_iter().map(|beat| *beat).collect();
        let ranks: BTreeMap<u8, u8> = ranks.into_iter().zip(1..).collect();
        for beat in self.beats() {
            *beat = ranks[beat];
        }
        self
    }

    fn counters(&mut self) -> Vec<&mut u8> {
        let Self {
            row,
            holder,
            watcher,
            ..
        } = self;
        let mut counters = vec![&mut row.counter];
        counters.extend(holder.tenure.as_mut().map(|tenure| &mut tenure.counter));
        for call in [&mut holder.call, &mut holder.ghost].into_iter().flatten() {
            counters.push(&mut call.expected);
            if let Fate::Refused(Some(met)) = &mut call.fate {
                counters.push(&mut met.counter);
            }
        }
        counters.extend(watcher.lease.as_mut().map(|seen| &mut seen.row.counter));
        counters.extend(watcher.take.as_mut());
        counters
    }

    fn beats(&mut self) -> Vec<&mut u8> {
        let Self {
            worker,
            holder,
            watcher,
            ..
        } = self;
        let heart = &mut holder.heart;
        let mut beats = vec![&mut heart.beat];
        beats.extend(worker.as_mut());
        beats.extend(heart.call.as_mut().map(|call| &mut call.beat));
        beats.extend(heart.ghost.as_mut());
        match &mut watcher.worker {
            SeenWorker::There { beat, .. } | SeenWorker::Vanished { beat, .. } => beats.push(beat),
            SeenWorker::Unknown | SeenWorker::Left { .. } => {}
        }
        beats
    }
}
