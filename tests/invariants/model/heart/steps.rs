//! What happens when something does.

use shardmill_core::lease::ConflictVerdict;
use shardmill_invariants::history::{CallResult, WriteKind};

use super::super::recorder::Recorder;
use super::decided;
use super::protocol::{Action, Heartbeats, Mutation};
use super::state::{
    BeatCall, Broken, Fate, HOLD_TICKS, LEASE_TICKS, Name, REAP_TICKS, Row, RowCall, SeenWorker,
    Since, State, Tenure,
};

/// The hosts by their numbers in a history.
const HOLDER: usize = 0;
const WATCHER: usize = 1;
/// More generations ago than that, nothing of a heart matters.
const GENERATIONS_MAX: u8 = 2;

impl Heartbeats {
    pub(super) fn step(&self, last: &State, action: Action, log: &mut Recorder) -> State {
        let mut state = last.clone();
        self.act(&mut state, action, log);
        if state.may_deliver() && state.row.owner != Some(Name::Holder) {
            log.next_delivered(HOLDER);
            state.break_promise(Broken::TwoOwners);
        }
        state.normalized()
    }

    fn act(&self, state: &mut State, action: Action, log: &mut Recorder) {
        match action {
            Action::Tick => self.tick(state, log),
            Action::SendBeat
            | Action::BeatArrives
            | Action::BeatAnswered
            | Action::BeatGivenUp
            | Action::GhostBeatArrives => self.beat(state, action, log),
            Action::SendTake | Action::SendAgain => send(state, action, log),
            Action::SendCheckpoint => {
                state.budget.checkpoints -= 1;
                send(state, action, log);
            }
            Action::SendRenewal => {
                let is_held_by_heart = state.holder.heart.left >= HOLD_TICKS.div_ceil(2)
                    && state.holder.tenure.is_some_and(|g| g.written == 0);
                if is_held_by_heart {
                    state.break_promise(Broken::NeedlessRenewal);
                }
                send(state, action, log);
            }
            Action::WriteArrives => {
                if let Some(call) = state.holder.call {
                    let fate = arrive(state, call, log.call_sent_at[HOLDER], log);
                    state.holder.call = Some(RowCall { fate, ..call });
                }
            }
            Action::WriteAnswered => self.answered(state, log),
            Action::WriteGivenUp => given_up(state, log),
            Action::GhostWriteArrives => {
                if let Some(ghost) = state.holder.ghost.take() {
                    arrive(state, ghost, log.ghost_sent_at[HOLDER], log);
                }
            }
            Action::ReadRow => {
                log.called(HOLDER, None, CallResult::Ok, log.now);
                let doubt = state
                    .holder
                    .tenure
                    .and_then(|tenure| Some((tenure.counter, tenure.doubt?)));
                if let Some((counter, since)) = doubt {
                    self.judge(state, counter, since, state.row);
                }
            }
            Action::Deliver => log.next_delivered(HOLDER),
            Action::LookAtFleet => state
                .watcher
                .look_at_fleet(state.worker, self.is(Mutation::VanishedIsDead)),
            Action::LookAtLeases => {
                state.watcher.look_at_leases(state.row);
                if state.watcher.sees_kcl() && !state.was_removed {
                    state.break_promise(Broken::TakenForKcl);
                }
            }
            Action::Take | Action::TakeArrives => self.take_over(state, action, log),
            Action::Reap => {
                state.was_removed |= state.holder.tenure.is_none();
                // On the row as it was seen: one that has moved stays.
                let is_as_seen = |seen: SeenWorker, beat: u8| matches!(seen, SeenWorker::There { beat: seen, .. } if seen == beat);
                state.worker = state
                    .worker
                    .filter(|beat| !is_as_seen(state.watcher.worker, *beat));
            }
            Action::CutCoordinator
            | Action::CutTable
            | Action::HealCoordinator
            | Action::HealTable
            | Action::RemoveWorkerRow => fault(state, action),
        }
    }

    fn tick(&self, state: &mut State, log: &mut Recorder) {
        let late = self.lateness(state);
        log.tick();
        state.budget.slow_beats -= u8::from(late.of_beat);
        state.budget.slow_writes -= u8::from(late.of_write);
        state.budget.slow_looks -= u8::from(late.of_look);
        let holder = &mut state.holder;
        holder.heart.left = holder.heart.left.saturating_sub(1);
        holder.heart.left_before = holder.heart.left_before.saturating_sub(1);
        if let Some(call) = &mut holder.heart.call {
            call.age = (call.age + 1).min(HOLD_TICKS);
        }
        if let Some(call) = &mut holder.call {
            call.since.tick();
        }
        if let Some(tenure) = &mut holder.tenure {
            tenure.left = tenure.left.saturating_sub(1);
            if let Some(since) = &mut tenure.doubt {
                since.tick();
            }
        }
        if let Some(seen) = &mut state.watcher.lease {
            seen.idle = (seen.idle + 1).min(LEASE_TICKS);
        }
        match &mut state.watcher.worker {
            SeenWorker::There { silent, .. } | SeenWorker::Vanished { silent, .. } => {
                *silent = (*silent + 1).min(REAP_TICKS);
            }
            SeenWorker::Left { ticks: 0 } => state.watcher.worker = SeenWorker::Unknown,
            SeenWorker::Left { ticks } => *ticks -= 1,
            SeenWorker::Unknown => {}
        }
        let is_over = |tenure: Tenure| decided::deadline(&state.holder.heart, tenure) == 0;
        if state.holder.tenure.is_some_and(is_over) {
            lose(state, log);
        }
    }

    // === The heart ===

    fn beat(&self, state: &mut State, action: Action, log: &mut Recorder) {
        let heart = &mut state.holder.heart;
        match action {
            Action::SendBeat => {
                heart.beat += 1;
                let (beat, fate) = (heart.beat, Fate::Travelling);
                heart.call = Some(BeatCall {
                    beat,
                    is_registration: false,
                    age: 0,
                    fate,
                });
                log.beat_sent_at = log.now;
            }
            Action::BeatArrives => {
                let Some(call) = &mut heart.call else { return };
                let is_met = match state.worker {
                    None => call.is_registration,
                    Some(beat) => !call.is_registration && beat < call.beat,
                };
                if is_met {
                    state.worker = Some(call.beat);
                }
                call.fate = if is_met {
                    Fate::Applied
                } else {
                    Fate::Refused(None)
                };
            }
            Action::BeatAnswered => self.beat_answered(state, log),
            Action::BeatGivenUp => {
                let Some(call) = heart.call.take() else {
                    return;
                };
                if !state.is_coordinator_cut {
                    state.budget.lost_answers -= 1;
                }
                if call.fate == Fate::Travelling && !call.is_registration {
                    heart.ghost = Some(call.beat);
                }
                log.heartbeat(HOLDER, call.is_registration, CallResult::Unknown);
            }
            Action::GhostBeatArrives => {
                let ghost = heart.ghost.take();
                state.worker = state
                    .worker
                    .map(|beat| ghost.filter(|ghost| *ghost > beat).unwrap_or(beat));
            }
            _ => {}
        }
    }

    fn beat_answered(&self, state: &mut State, log: &mut Recorder) {
        let heart = &mut state.holder.heart;
        let Some(call) = heart.call.take() else {
            return;
        };
        let left = if self.is(Mutation::HeartbeatCountsFromItsAnswer) {
            HOLD_TICKS
        } else {
            HOLD_TICKS - call.age
        };
        if call.fate == Fate::Applied {
            let has_begun = decided::beaten(heart, left);
            log.heartbeat(HOLDER, call.is_registration, CallResult::Ok);
            if has_begun && !self.is(Mutation::LateHeartbeatRevives) {
                begin_generation(state);
            }
            return;
        }
        log.heartbeat(HOLDER, call.is_registration, CallResult::Conflict);
        // It reads its row: an earlier beat came late, or the row is gone.
        if let Some(beat) = state.worker {
            heart.beat = heart.beat.max(beat);
        } else {
            let (beat, fate) = (heart.beat, Fate::Travelling);
            heart.call = Some(BeatCall {
                beat,
                is_registration: true,
                age: 0,
                fate,
            });
            log.beat_sent_at = log.now;
            if decided::row_gone(heart) {
                begin_generation(state);
            }
        }
    }

    // === The row ===

    fn answered(&self, state: &mut State, log: &mut Recorder) {
        let Some(call) = state.holder.call.take() else {
            return;
        };
        let result = if call.fate == Fate::Applied {
            CallResult::Ok
        } else {
            CallResult::Conflict
        };
        log.called(
            HOLDER,
            Some(call.kind(log.take_seen)),
            result,
            log.call_sent_at[HOLDER],
        );
        match call.fate {
            Fate::Applied if call.is_take => self.granted(state, call),
            Fate::Applied => self.written(state, call.since),
            Fate::Refused(Some(met)) if !call.is_take => {
                self.judge(state, call.expected, call.since, met);
            }
            Fate::Refused(_) | Fate::Travelling => {}
        }
    }

    fn granted(&self, state: &mut State, call: RowCall) {
        let left = HOLD_TICKS - call.since.age;
        let sent_in = call.since.generations;
        let generations = if self.is(Mutation::TakeCountsFromItsAnswer) {
            0
        } else {
            sent_in
        };
        let tenure = Tenure {
            counter: call.expected + 1,
            left,
            generations,
            written: sent_in,
            doubt: None,
        };
        let is_held = decided::deadline(&state.holder.heart, tenure) > 0;
        state.holder.tenure = is_held.then_some(tenure);
    }

    /// A write of the holder is known to be applied; it was first sent at `since`.
    fn written(&self, state: &mut State, since: Since) {
        let Some(tenure) = &mut state.holder.tenure else {
            return;
        };
        tenure.counter += 1;
        tenure.left = HOLD_TICKS - since.age;
        tenure.doubt = None;
        tenure.written = since.generations;
        if !self.is(Mutation::NeverHeldAgain) {
            tenure.generations = since.generations;
        }
    }

    /// What the row says of a write that asked for `expected`.
    fn judge(&self, state: &mut State, expected: u8, since: Since, met: Row) {
        match decided::verdict(expected, met) {
            ConflictVerdict::AppliedEarlier => self.written(state, since),
            // It is sent again, unchanged.
            ConflictVerdict::NotApplied => {
                if let Some(tenure) = &mut state.holder.tenure {
                    tenure.doubt = Some(since);
                }
            }
            ConflictVerdict::Lost(_) => state.holder.tenure = None,
        }
    }

    // === The watcher ===

    fn take_over(&self, state: &mut State, action: Action, log: &mut Recorder) {
        if action == Action::Take {
            let may_take =
                self.is(Mutation::NoSecondLook) || !state.watcher.has_revived(state.worker);
            state.watcher.take = state
                .watcher
                .lease
                .filter(|_| may_take)
                .map(|seen| seen.row.counter);
            log.call_sent_at[WATCHER] = log.now;
            return;
        }
        let Some(expected) = state.watcher.take.take() else {
            return;
        };
        if (state.row.owner, state.row.counter) == (Some(Name::Holder), expected) {
            let sent_at = log.call_sent_at[WATCHER];
            state.row = Row {
                owner: Some(Name::Watcher),
                counter: expected + 1,
            };
            log.row_written(
                WATCHER,
                WriteKind::Take {
                    seen: log.row_counter,
                },
                sent_at,
            );
        }
    }
}

impl Since {
    const NOW: Self = Self {
        age: 0,
        generations: 0,
    };

    fn tick(&mut self) {
        self.age = (self.age + 1).min(HOLD_TICKS);
    }
}

impl RowCall {
    fn kind(self, take_seen: u64) -> WriteKind {
        if self.is_take {
            WriteKind::Take { seen: take_seen }
        } else {
            WriteKind::Renew
        }
    }
}

/// Everything belongs to a generation before from here on.
fn begin_generation(state: &mut State) {
    let age = |generations: &mut u8| *generations = (*generations + 1).min(GENERATIONS_MAX);
    if let Some(tenure) = &mut state.holder.tenure {
        age(&mut tenure.generations);
        age(&mut tenure.written);
        if let Some(since) = &mut tenure.doubt {
            age(&mut since.generations);
        }
    }
    if let Some(call) = &mut state.holder.call {
        age(&mut call.since.generations);
    }
}

fn send(state: &mut State, action: Action, log: &mut Recorder) {
    let holder = &mut state.holder;
    let is_take = action == Action::SendTake;
    let expected = holder
        .tenure
        .map_or(state.row.counter, |tenure| tenure.counter);
    let since = holder
        .tenure
        .and_then(|tenure| tenure.doubt)
        .unwrap_or(Since::NOW);
    holder.call = Some(RowCall {
        is_take,
        expected,
        since,
        fate: Fate::Travelling,
    });
    log.call_sent_at[HOLDER] = log.now;
    log.take_seen = if is_take {
        log.row_counter
    } else {
        log.take_seen
    };
}

/// The table gets a write: applies it, or refuses it.
fn arrive(state: &mut State, call: RowCall, sent_at: u64, log: &mut Recorder) -> Fate {
    let is_mine =
        state.row.owner == Some(Name::Holder) || call.is_take && state.row.owner.is_none();
    if !is_mine || state.row.counter != call.expected {
        return Fate::Refused(Some(state.row));
    }
    state.row = Row {
        owner: Some(Name::Holder),
        counter: call.expected + 1,
    };
    log.row_written(HOLDER, call.kind(log.row_counter), sent_at);
    Fate::Applied
}

fn given_up(state: &mut State, log: &mut Recorder) {
    let Some(call) = state.holder.call.take() else {
        return;
    };
    if !state.is_table_cut {
        state.budget.lost_answers -= 1;
    }
    log.called(
        HOLDER,
        Some(call.kind(log.take_seen)),
        CallResult::Unknown,
        log.call_sent_at[HOLDER],
    );
    haunt(state, call, log);
    if let Some(tenure) = state.holder.tenure.as_mut().filter(|_| !call.is_take) {
        tenure.doubt.get_or_insert(call.since);
    }
}

/// A request that nobody waits for any more may still arrive.
fn haunt(state: &mut State, call: RowCall, log: &mut Recorder) {
    if call.fate == Fate::Travelling {
        log.ghost_sent_at[HOLDER] = log.call_sent_at[HOLDER];
        state.holder.ghost = Some(RowCall {
            since: Since::NOW,
            ..call
        });
    }
}

fn lose(state: &mut State, log: &mut Recorder) {
    state.holder.tenure = None;
    if let Some(call) = state.holder.call.take() {
        haunt(state, call, log);
    }
}

fn fault(state: &mut State, action: Action) {
    let budget = &mut state.budget;
    match action {
        Action::CutCoordinator => {
            budget.coordinator_cuts -= 1;
            state.is_coordinator_cut = true;
        }
        Action::CutTable => {
            budget.lease_cuts -= 1;
            state.is_table_cut = true;
        }
        Action::HealCoordinator => state.is_coordinator_cut = false,
        Action::HealTable => state.is_table_cut = false,
        Action::RemoveWorkerRow => {
            budget.removals -= 1;
            (state.worker, state.was_removed) = (None, true);
        }
        _ => {}
    }
}
