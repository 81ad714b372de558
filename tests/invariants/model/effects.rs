//! What happens when something does.

use shardmill_invariants::Invariant;
use shardmill_invariants::history::{CallResult, HostChange, WriteKind};

use super::judge::{judge, record};
use super::protocol::{Action, Mutation, Protocol, is_timely};
use super::recorder::Recorder;
use super::state::{
    Child, Doubt, END, Fate, HOLD_TICKS, Host, Intent, LEASE_TICKS, Life, Message, ModelRow, State,
    Tenure,
};

impl Protocol {
    pub(crate) fn step(&self, last: &State, action: Action, log: &mut Recorder) -> State {
        let mut state = last.clone();
        self.act(&mut state, action, log);
        // Counters only rise: a write that is too late for its condition will never be applied.
        if !self.is_careless() {
            let counter = state.row.counter;
            for host in &mut state.hosts {
                host.ghost = host
                    .ghost
                    .take()
                    .filter(|ghost| ghost.expected.1 >= counter);
            }
        }
        state
    }

    fn is_careless(&self) -> bool {
        matches!(
            self.mutation,
            Some(Mutation::NoCondition | Mutation::OwnerOnlyCondition)
        )
    }

    fn act(&self, state: &mut State, action: Action, log: &mut Recorder) {
        match action {
            Action::Tick => self.tick(state, log),
            Action::Scan(id) => scan(state, id),
            Action::Send(id, intent) => Self::send(state, id, intent, 0, log),
            Action::Arrive(id) => {
                if let Some(call) = state.hosts[id].call.take() {
                    let fate = self.arrive(state, id, &call, log.call_sent_at[id], log);
                    state.hosts[id].call = Some(Message { fate, ..call });
                }
            }
            Action::Answer(id) => self.answer(state, id, log),
            Action::GiveUp(id) => Self::give_up(state, id, log),
            Action::GhostArrives(id) => {
                if let Some(ghost) = state.hosts[id].ghost.take() {
                    self.arrive(state, id, &ghost, log.ghost_sent_at[id], log);
                }
            }
            Action::Read(id) => {
                log.called(id, None, CallResult::Ok, log.now);
                let (owner, counter) = (state.row.owner, state.row.counter);
                self.settle_doubt(state, id, owner, counter);
            }
            Action::SendAgain(id) => {
                let doubt = state.hosts[id]
                    .tenure
                    .as_ref()
                    .and_then(|tenure| tenure.doubt);
                if let Some(Doubt { intent, age }) = doubt {
                    Self::send(state, id, intent, age, log);
                }
            }
            Action::Deliver(id) => deliver(state, id, false, log),
            Action::SaidEnd(id) => {
                state.hosts[id]
                    .tenure
                    .iter_mut()
                    .for_each(|tenure| tenure.said_end = true);
                log.said_end(id);
            }
            Action::CreateChild(id, child) => {
                state.children[child] = Child::Free;
                log.created(id, child + 1);
            }
            Action::Serve(id, child) => {
                state.children[child] = Child::Served;
                if state.row.checkpoint != END {
                    state.broken = Some(Invariant::S6);
                }
                log.child_served(id, child + 1);
            }
            Action::Claim(id) => {
                state.budget.claims -= 1;
                let before = state.row.clone();
                state.row.claimant = Some(id as u8);
                record(&before, &state.row, id, WriteKind::Claim, log.now, log);
            }
            Action::Crash(_) | Action::Restart(_) | Action::Pause(_) | Action::Resume(_) => {
                self.life(state, action, log);
            }
        }
    }

    fn tick(&self, state: &mut State, log: &mut Recorder) {
        log.tick();
        state.budget.delays -= u8::from(!is_timely(state));
        state.row.quiet = (state.row.quiet + 1).min(LEASE_TICKS);
        for host in &mut state.hosts {
            if let Some((_, unmoved)) = &mut host.seen {
                *unmoved = (*unmoved + 1).min(LEASE_TICKS);
            }
            if let Some(call) = &mut host.call {
                call.age = (call.age + 1).min(HOLD_TICKS);
            }
            let Some(tenure) = &mut host.tenure else {
                continue;
            };
            tenure.left = tenure.left.saturating_sub(1);
            if let Some(doubt) = &mut tenure.doubt {
                doubt.age = (doubt.age + 1).min(HOLD_TICKS);
            }
        }
        for id in 0..state.hosts.len() {
            let host = &state.hosts[id];
            let is_over = host.tenure.as_ref().is_some_and(|tenure| tenure.left == 0);
            if is_over && host.life == Life::Up && !self.outlives(host) {
                lose(state, id, log);
            }
        }
    }

    /// What a host that is wrong about its deadline clings to.
    fn outlives(&self, host: &Host) -> bool {
        self.is(Mutation::DeliverPastDeadline)
            || (self.is(Mutation::DeadlineFromReply) && host.call.is_some())
    }

    fn send(state: &mut State, id: usize, intent: Intent, age: u8, log: &mut Recorder) {
        let host = &mut state.hosts[id];
        let (expected, epoch, settled, said_end) = match (&host.tenure, &host.seen) {
            (Some(tenure), _) => (
                (Some(id as u8), tenure.counter),
                tenure.epoch,
                tenure.settled,
                tenure.said_end,
            ),
            (None, Some((seen, _))) => ((seen.owner, seen.counter), 0, 0, false),
            (None, None) => return,
        };
        // What does not matter for this write would only tell equal states apart.
        let at_sending = (
            state.row.counter,
            if intent == Intent::Take {
                state.row.quiet
            } else {
                0
            },
        );
        let settled = if intent == Intent::Renew { 0 } else { settled };
        let said_end = said_end && intent == Intent::End;
        let fate = Fate::Travelling;
        host.call = Some(Message {
            intent,
            expected,
            epoch,
            settled,
            said_end,
            at_sending,
            age,
            fate,
        });
        host.is_starting = false;
        log.call_sent_at[id] = log.now;
    }

    /// The store gets a write: applies it, or refuses it.
    fn arrive(
        &self,
        state: &mut State,
        id: usize,
        message: &Message,
        sent_at: u64,
        log: &mut Recorder,
    ) -> Fate {
        let (owner, counter) = message.expected;
        let row = &state.row;
        let is_met = match self.mutation {
            Some(Mutation::NoCondition) => true,
            Some(Mutation::OwnerOnlyCondition) => row.owner == owner,
            _ => (row.owner, row.counter) == (owner, counter),
        };
        if !is_met {
            return Fate::Refused(row.owner, row.counter);
        }
        let before = row.clone();
        let after = &mut state.row;
        let is_raised =
            message.intent != Intent::Take || !self.is(Mutation::CounterNotRaisedOnTake);
        after.counter = before.counter + u8::from(is_raised);
        after.quiet = 0;
        match message.intent {
            Intent::Take => {
                (after.owner, after.claimant, after.epoch) = (Some(id as u8), None, after.counter);
            }
            Intent::Renew => {}
            Intent::Checkpoint(to) => after.checkpoint = to,
            Intent::End => after.checkpoint = END,
            Intent::Release => {
                after.owner = None;
                after.given_back = message.settled;
            }
        }
        let kind = message.intent.kind(counter);
        let write = record(&before, &state.row, id, kind, sent_at, log);
        state.broken = judge(state, &before, &write, message, self.records);
        Fate::Applied
    }

    fn answer(&self, state: &mut State, id: usize, log: &mut Recorder) {
        let Some(call) = state.hosts[id].call.take() else {
            return;
        };
        let kind = Some(call.intent.kind(call.expected.1));
        let result = if call.fate == Fate::Applied {
            CallResult::Ok
        } else {
            CallResult::Conflict
        };
        log.called(id, kind, result, log.call_sent_at[id]);
        match (call.fate, call.intent) {
            (Fate::Applied, Intent::Take) => self.granted(state, id, call.expected, call.age),
            (Fate::Applied, intent) => self.held(state, id, intent, call.age),
            (Fate::Travelling, _) | (Fate::Refused(..), Intent::Take) => {}
            (Fate::Refused(owner, counter), intent) => {
                let tenure = state.hosts[id].tenure.as_mut();
                // The same verdict as on a read: the write may have arrived earlier.
                if let Some(tenure) = tenure {
                    tenure.doubt.get_or_insert(Doubt {
                        intent,
                        age: call.age,
                    });
                }
                self.settle_doubt(state, id, owner, counter);
            }
        }
    }

    fn granted(&self, state: &mut State, id: usize, expected: (Option<u8>, u8), age: u8) {
        let host = &mut state.hosts[id];
        let Some((seen, _)) = host.seen.take() else {
            return;
        };
        let counter = expected.1 + u8::from(!self.is(Mutation::CounterNotRaisedOnTake));
        let left = self.left(age);
        let start = seen.checkpoint;
        let (epoch, doubt, said_end, is_draining) = (counter, None, false, false);
        let tenure = Tenure {
            counter,
            epoch,
            settled: start,
            written: start,
            left,
            doubt,
            said_end,
            is_draining,
        };
        host.tenure = (left > 0).then_some(tenure);
    }

    /// A write of the holder is known to be applied; it was first sent `age` ticks ago.
    fn held(&self, state: &mut State, id: usize, intent: Intent, age: u8) {
        let left = self.left(age);
        let host = &mut state.hosts[id];
        let Some(tenure) = &mut host.tenure else {
            return;
        };
        // The first of several equal ones is the one that counts.
        let left = tenure
            .doubt
            .take()
            .map_or(left, |doubt| self.left(doubt.age.max(age)));
        tenure.counter += 1;
        tenure.left = left.max(tenure.left);
        match intent {
            Intent::Checkpoint(to) => tenure.written = to,
            Intent::End | Intent::Release => host.tenure = None,
            Intent::Renew | Intent::Take => {}
        }
    }

    fn left(&self, age: u8) -> u8 {
        if self.is(Mutation::DeadlineFromReply) {
            HOLD_TICKS
        } else {
            HOLD_TICKS.saturating_sub(age)
        }
    }

    fn give_up(state: &mut State, id: usize, log: &mut Recorder) {
        state.budget.lost_answers -= 1;
        let host = &mut state.hosts[id];
        let Some(call) = host.call.take() else { return };
        log.called(
            id,
            Some(call.intent.kind(call.expected.1)),
            CallResult::Unknown,
            log.call_sent_at[id],
        );
        let doubt = Doubt {
            intent: call.intent,
            age: call.age,
        };
        if let (Some(tenure), true) = (&mut host.tenure, call.intent != Intent::Take) {
            tenure.doubt.get_or_insert(doubt);
        }
        if call.fate == Fate::Travelling {
            log.ghost_sent_at[id] = log.call_sent_at[id];
            host.ghost = Some(Message { age: 0, ..call });
        }
    }

    /// What a row says of a write without an answer.
    fn settle_doubt(&self, state: &mut State, id: usize, owner: Option<u8>, counter: u8) {
        let Some(tenure) = &mut state.hosts[id].tenure else {
            return;
        };
        let Some(doubt) = tenure.doubt else { return };
        let is_mine = owner == Some(id as u8);
        if is_mine && counter == tenure.counter + 1 {
            self.held(state, id, doubt.intent, doubt.age);
        } else if !(is_mine && counter == tenure.counter) {
            state.hosts[id].tenure = None;
        }
        // Otherwise it was not applied, yet: it is sent again, unchanged.
    }

    fn life(&self, state: &mut State, action: Action, log: &mut Recorder) {
        match action {
            Action::Crash(id) => {
                state.budget.crashes -= 1;
                lose(state, id, log);
                let ghost = state.hosts[id].ghost.take();
                let (seen, tenure, call) = (None, None, None);
                state.hosts[id] = Host {
                    life: Life::Down,
                    seen,
                    is_starting: true,
                    tenure,
                    call,
                    ghost,
                };
                log.host(id, HostChange::Crashed);
            }
            Action::Restart(id) => {
                state.hosts[id].life = Life::Up;
                log.host(id, HostChange::Started);
            }
            Action::Pause(id) => {
                state.budget.pauses -= 1;
                let is_past_check = state.hosts[id]
                    .tenure
                    .as_ref()
                    .is_some_and(|tenure| self.may_deliver(tenure));
                state.hosts[id].life = Life::Paused { is_past_check };
                log.host(id, HostChange::Paused);
            }
            Action::Resume(id) => {
                let was = std::mem::replace(&mut state.hosts[id].life, Life::Up);
                log.host(id, HostChange::Resumed);
                if was
                    == (Life::Paused {
                        is_past_check: true,
                    })
                {
                    deliver(state, id, true, log);
                }
                let is_over = state.hosts[id]
                    .tenure
                    .as_ref()
                    .is_some_and(|tenure| tenure.left == 0);
                if is_over && !self.outlives(&state.hosts[id]) {
                    lose(state, id, log);
                }
            }
            _ => {}
        }
    }
}

fn scan(state: &mut State, id: usize) {
    let host = &mut state.hosts[id];
    if let Some(tenure) = &mut host.tenure {
        tenure.is_draining |= state.row.claimant.is_some();
        return;
    }
    let unmoved = match &host.seen {
        Some((seen, unmoved))
            if (seen.owner, seen.counter) == (state.row.owner, state.row.counter) =>
        {
            *unmoved
        }
        _ => 0,
    };
    // Only what a scan can show; the rest would only tell equal states apart.
    host.seen = Some((
        ModelRow {
            epoch: 0,
            quiet: 0,
            given_back: 0,
            ..state.row.clone()
        },
        unmoved,
    ));
}

/// The tenure is over; a write on its way may still arrive.
fn lose(state: &mut State, id: usize, log: &mut Recorder) {
    let host = &mut state.hosts[id];
    host.tenure = None;
    if let Some(call) = host.call.take()
        && call.fate == Fate::Travelling
    {
        log.ghost_sent_at[id] = log.call_sent_at[id];
        host.ghost = Some(Message { age: 0, ..call });
    }
}

fn deliver(state: &mut State, id: usize, is_excused: bool, log: &mut Recorder) {
    let Some(tenure) = &mut state.hosts[id].tenure else {
        return;
    };
    tenure.settled += 1;
    log.delivered(id, 0, tenure.epoch, tenure.settled);
    let is_held = (state.row.owner, state.row.epoch) == (Some(id as u8), tenure.epoch);
    if is_excused {
        return;
    }
    state.broken = if tenure.doubt.is_some() {
        Some(Invariant::S11)
    } else if !is_held {
        Some(Invariant::S10)
    } else {
        (tenure.settled <= state.row.given_back).then_some(Invariant::S9)
    };
}
