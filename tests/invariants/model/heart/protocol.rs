//! What may happen in which state, and the ways to get the heartbeat wrong.

use stateright::{Model, Property};

use super::super::recorder::Recorder;
use super::decided;
use super::state::{
    BeatCall, Broken, Budget, Fate, HOLD_TICKS, Heart, Holder, Name, REAP_TICKS, Row, RowCall,
    SeenWorker, State, Tenure, Watcher,
};

pub(super) const RULE: &str = "no promise of the heartbeat is broken";

/// The model: its faults, and what is wrong with it.
#[derive(Debug, Clone)]
pub(super) struct Heartbeats {
    pub(super) budget: Budget,
    pub(super) mutation: Option<Mutation>,
}

/// A mistake in the heartbeat's rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mutation {
    /// A lease stays with the generation that it was taken in, whatever is written to its row
    /// later.
    NeverHeldAgain,
    /// A host whose row is gone is judged by its leases' rows alone.
    VanishedIsDead,
    /// The leader removes the row of any worker whose heart stands still for long.
    ReapsOwnersOfMovingRows,
    /// A take belongs to the generation in which its answer comes.
    TakeCountsFromItsAnswer,
    /// A heartbeat after a missed deadline holds what was held before.
    LateHeartbeatRevives,
    /// A heartbeat holds from its answer on, not from its sending.
    HeartbeatCountsFromItsAnswer,
    /// An expired lease is taken without another look at its owner's row.
    NoSecondLook,
}

/// What may happen next. All calls are the holder's, all looks the watcher's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Action {
    Tick,
    SendBeat,
    BeatArrives,
    BeatAnswered,
    BeatGivenUp,
    GhostBeatArrives,
    SendTake,
    /// A write for whatever reason: a checkpoint.
    SendCheckpoint,
    /// A write because nothing else holds the lease for long.
    SendRenewal,
    WriteArrives,
    WriteAnswered,
    WriteGivenUp,
    GhostWriteArrives,
    ReadRow,
    SendAgain,
    /// Not a step of its own: at any point, where the holder may.
    Deliver,
    LookAtFleet,
    LookAtLeases,
    /// The second look, and the take if it shows nothing.
    Take,
    TakeArrives,
    Reap,
    CutCoordinator,
    CutTable,
    HealCoordinator,
    HealTable,
    RemoveWorkerRow,
}

/// Who has something to do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lateness {
    pub(super) of_beat: bool,
    pub(super) of_write: bool,
    pub(super) of_look: bool,
}

impl Model for Heartbeats {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.start()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let is_over = state.row.owner == Some(Name::Watcher)
            && state.holder.tenure.is_none()
            && state
                .holder
                .call
                .is_none_or(|call| call.fate != Fate::Applied);
        if state.broken.is_some() || is_over {
            return;
        }
        if self.may_tick(state) {
            actions.push(Action::Tick);
        }
        Self::beats(state, actions);
        self.writes(state, actions);
        self.looks(state, actions);
        Self::faults(state, actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let next = self.step(last, action, &mut Recorder::off());
        // A step that changes nothing leads nowhere.
        (next != *last).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(RULE, |_, state: &State| state.broken.is_none()),
            Property::sometimes("a dead host's lease is taken", |_, state: &State| {
                state.row.owner == Some(Name::Watcher)
            }),
            Property::sometimes(
                "a lease outlives its row's deadline by the heart",
                |_, state: &State| {
                    state.may_deliver()
                        && state.holder.tenure.is_some_and(|tenure| tenure.left == 0)
                },
            ),
            Property::sometimes(
                "a lease outlives the heart's deadline by its row",
                |_, state: &State| state.may_deliver() && state.holder.heart.left == 0,
            ),
            Property::sometimes(
                "a lease is held by a heart that was out of reach",
                |_, state: &State| {
                    let was_cut = state.budget.coordinator_cuts == 0 && !state.is_coordinator_cut;
                    was_cut
                        && state.may_deliver()
                        && state.holder.tenure.is_some_and(|tenure| tenure.left == 0)
                },
            ),
            Property::sometimes(
                "a lease is held by the generation before",
                |_, state: &State| {
                    let is_behind = |tenure: Tenure| tenure.generations == 1 && tenure.left == 0;
                    state.may_deliver() && state.holder.tenure.is_some_and(is_behind)
                },
            ),
            Property::sometimes("a silent host's row is removed", |_, state: &State| {
                !state.was_removed && state.worker.is_none()
            }),
            Property::sometimes("a host registers again", |_, state: &State| {
                state.was_removed && state.worker.is_some()
            }),
        ]
    }
}

// === What may happen ===

impl Heartbeats {
    /// The holder has registered, and nobody has the lease.
    pub(super) fn start(&self) -> State {
        let heart = Heart {
            left: HOLD_TICKS,
            left_before: 0,
            is_row_gone: false,
            beat: 1,
            call: None,
            ghost: None,
        };
        State {
            row: Row {
                owner: None,
                counter: 1,
            },
            worker: Some(1),
            holder: Holder {
                heart,
                tenure: None,
                call: None,
                ghost: None,
            },
            watcher: Watcher {
                lease: None,
                worker: SeenWorker::Unknown,
                has_seen_fleet: false,
                take: None,
            },
            is_coordinator_cut: false,
            is_table_cut: false,
            was_removed: false,
            budget: self.budget,
            broken: None,
        }
        .normalized()
    }

    pub(super) fn is(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    /// What is due or under way. Slowness is a fault, and has a budget like others.
    pub(super) fn lateness(&self, state: &State) -> Lateness {
        let State {
            holder, watcher, ..
        } = state;
        let has_beaten = holder.heart.left == HOLD_TICKS || state.is_coordinator_cut;
        let is_in_doubt = holder.tenure.is_some_and(|tenure| tenure.doubt.is_some());
        let has_written = state.is_table_cut || !is_in_doubt && !self.must_renew(state);
        let mut looked = watcher.clone();
        looked.look_at_fleet(state.worker, self.is(Mutation::VanishedIsDead));
        looked.look_at_leases(state.row);
        Lateness {
            of_beat: holder.heart.call.is_some() || !has_beaten,
            of_write: holder.call.is_some() || !has_written,
            of_look: watcher.take.is_some()
                || looked
                    != Watcher {
                        has_seen_fleet: false,
                        ..watcher.clone()
                    },
        }
    }

    fn may_tick(&self, state: &State) -> bool {
        let (late, budget) = (self.lateness(state), &state.budget);
        let has = |is_late: bool, ticks: u8| !is_late || ticks > 0;
        has(late.of_beat, budget.slow_beats)
            && has(late.of_write, budget.slow_writes)
            && has(late.of_look, budget.slow_looks)
    }

    fn must_renew(&self, state: &State) -> bool {
        let Some(tenure) = state.holder.tenure else {
            return false;
        };
        let is_late = decided::deadline(&state.holder.heart, tenure) < HOLD_TICKS.div_ceil(2);
        let is_behind = tenure.generations > 0 && !self.is(Mutation::NeverHeldAgain);
        is_late || is_behind
    }

    fn beats(state: &State, actions: &mut Vec<Action>) {
        let heart = &state.holder.heart;
        match &heart.call {
            None if state.is_coordinator_cut => {}
            // One that may be late is sent early.
            None if heart.left < HOLD_TICKS || state.budget.slow_beats > 0 => {
                actions.push(Action::SendBeat);
            }
            None => {}
            Some(_) if state.is_coordinator_cut => actions.push(Action::BeatGivenUp),
            Some(BeatCall { fate, .. }) => {
                actions.push(if *fate == Fate::Travelling {
                    Action::BeatArrives
                } else {
                    Action::BeatAnswered
                });
                if state.budget.lost_answers > 0 {
                    actions.push(Action::BeatGivenUp);
                }
            }
        }
        if heart.ghost.is_some() {
            actions.push(Action::GhostBeatArrives);
        }
    }

    fn writes(&self, state: &State, actions: &mut Vec<Action>) {
        let holder = &state.holder;
        if holder.ghost.is_some() {
            actions.push(Action::GhostWriteArrives);
        }
        match (&holder.call, &holder.tenure) {
            (Some(_), _) if state.is_table_cut => actions.push(Action::WriteGivenUp),
            (Some(RowCall { fate, .. }), _) => {
                let is_travelling = *fate == Fate::Travelling;
                actions.push(if is_travelling {
                    Action::WriteArrives
                } else {
                    Action::WriteAnswered
                });
                if state.budget.lost_answers > 0 {
                    actions.push(Action::WriteGivenUp);
                }
            }
            (None, _) if state.is_table_cut => {}
            // What is its own by name it takes again: an answer was lost, or the lease had to be
            // let go. Whoever cannot read the fleet takes nothing.
            (None, None) if state.row.owner != Some(Name::Watcher) && !state.is_coordinator_cut => {
                actions.push(Action::SendTake);
            }
            (None, Some(tenure)) if tenure.doubt.is_some() => {
                actions.extend([Action::ReadRow, Action::SendAgain]);
            }
            (None, Some(tenure)) => {
                if self.must_renew(state) {
                    actions.push(Action::SendRenewal);
                } else if tenure.left < HOLD_TICKS && state.budget.checkpoints > 0 {
                    actions.push(Action::SendCheckpoint);
                }
            }
            (None, None) => {}
        }
    }

    fn looks(&self, state: &State, actions: &mut Vec<Action>) {
        let watcher = &state.watcher;
        actions.push(if watcher.has_seen_fleet {
            Action::LookAtLeases
        } else {
            Action::LookAtFleet
        });
        let is_others = watcher
            .lease
            .is_some_and(|seen| seen.row.owner == Some(Name::Holder));
        if watcher.take.is_some() {
            actions.push(Action::TakeArrives);
        } else if is_others && watcher.is_expired() {
            actions.push(Action::Take);
        }
        if let SeenWorker::There {
            silent: REAP_TICKS, ..
        } = watcher.worker
        {
            // An owner of a lease that is held, by whatever, lives.
            let owns_held = is_others && !watcher.is_expired();
            if !owns_held || self.is(Mutation::ReapsOwnersOfMovingRows) {
                actions.push(Action::Reap);
            }
        }
    }

    fn faults(state: &State, actions: &mut Vec<Action>) {
        let budget = &state.budget;
        if state.is_coordinator_cut {
            actions.push(Action::HealCoordinator);
        } else if budget.coordinator_cuts > 0 {
            actions.push(Action::CutCoordinator);
        }
        if state.is_table_cut {
            actions.push(Action::HealTable);
        } else if budget.lease_cuts > 0 {
            actions.push(Action::CutTable);
        }
        if budget.removals > 0 && state.worker.is_some() {
            actions.push(Action::RemoveWorkerRow);
        }
    }
}

impl State {
    /// Whether the holder's gate is open.
    pub(super) fn may_deliver(&self) -> bool {
        let Holder { heart, tenure, .. } = &self.holder;
        tenure.is_some_and(|tenure| tenure.doubt.is_none() && decided::deadline(heart, tenure) > 0)
    }

    pub(super) fn break_promise(&mut self, broken: Broken) {
        self.broken.get_or_insert(broken);
    }
}
