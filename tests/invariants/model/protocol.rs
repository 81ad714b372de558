//! The lease protocol as the hosts follow it, and the ways to get it wrong: what may happen in
//! which state.

use stateright::{Model, Property};

use super::recorder::Recorder;
use super::state::{
    Budget, Child, END, Fate, HOLD_TICKS, HOSTS, Host, Intent, LEASE_TICKS, Life, ModelRow, State,
    Tenure,
};

/// The model: its size, and what is wrong with it.
#[derive(Debug, Clone)]
pub(crate) struct Protocol {
    pub(crate) records: u8,
    pub(crate) counter_max: u8,
    pub(crate) budget: Budget,
    pub(crate) mutation: Option<Mutation>,
}

/// A mistake in the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutation {
    NoCondition,
    OwnerOnlyCondition,
    CounterNotRaisedOnTake,
    DeadlineFromReply,
    ContinueAfterUnknown,
    EndWithoutChildren,
    EndWithoutWord,
    ChildBeforeParentEnd,
    TakeOfLiveLease,
    CheckpointBeforeSettling,
    HandOverWithoutCheckpoint,
    DeliverPastDeadline,
    CheckpointGoesBack,
}

/// What may happen next. The number is a host's, in `Serve` and `CreateChild` the second one a
/// child's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    Tick,
    Scan(usize),
    Send(usize, Intent),
    Arrive(usize),
    Answer(usize),
    GiveUp(usize),
    GhostArrives(usize),
    Read(usize),
    SendAgain(usize),
    Deliver(usize),
    SaidEnd(usize),
    CreateChild(usize, usize),
    Serve(usize, usize),
    Claim(usize),
    Crash(usize),
    Restart(usize),
    Pause(usize),
    Resume(usize),
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.start()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let is_over = state.row.checkpoint == END && state.children == [Child::Served; 2];
        if state.broken.is_some() || is_over {
            return;
        }
        if state.budget.delays > 0 || is_timely(state) {
            actions.push(Action::Tick);
        }
        for host in 0..HOSTS.len() {
            Self::faults(state, host, actions);
            if state.hosts[host].life == Life::Up {
                self.moves(state, host, actions);
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let next = self.step(last, action, &mut Recorder::off());
        // A step that changes nothing leads nowhere.
        (next != *last).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no invariant is broken", |_, state: &State| {
                state.broken.is_none()
            }),
            Property::sometimes(
                "the shard ends and both children are served",
                |_, state: &State| {
                    state.row.checkpoint == END && state.children == [Child::Served; 2]
                },
            ),
        ]
    }

    fn within_boundary(&self, state: &State) -> bool {
        state.row.counter <= self.counter_max
    }
}

// === What may happen ===

impl Protocol {
    pub(crate) fn start(&self) -> State {
        let row = ModelRow {
            owner: None,
            counter: 0,
            checkpoint: 0,
            claimant: None,
            epoch: 0,
            quiet: 0,
            given_back: 0,
        };
        let host = Host {
            life: Life::Up,
            seen: None,
            is_starting: true,
            tenure: None,
            call: None,
            ghost: None,
        };
        State {
            row,
            children: [Child::Absent; 2],
            hosts: [host.clone(), host],
            budget: self.budget,
            broken: None,
        }
    }

    pub(crate) fn is(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    fn faults(state: &State, id: usize, actions: &mut Vec<Action>) {
        let host = &state.hosts[id];
        match host.life {
            Life::Up => {
                if state.budget.crashes > 0 && (host.tenure.is_some() || host.call.is_some()) {
                    actions.push(Action::Crash(id));
                }
                if state.budget.pauses > 0 && host.tenure.is_some() {
                    actions.push(Action::Pause(id));
                }
            }
            Life::Paused { .. } => actions.push(Action::Resume(id)),
            Life::Down => actions.push(Action::Restart(id)),
        }
        if host
            .call
            .as_ref()
            .is_some_and(|call| call.fate == Fate::Travelling)
        {
            actions.push(Action::Arrive(id));
        }
        if host.ghost.is_some() {
            actions.push(Action::GhostArrives(id));
        }
    }

    fn moves(&self, state: &State, id: usize, actions: &mut Vec<Action>) {
        let host = &state.hosts[id];
        if let Some(call) = &host.call {
            if call.fate != Fate::Travelling {
                actions.push(Action::Answer(id));
            }
            if state.budget.lost_answers > 0 {
                actions.push(Action::GiveUp(id));
            }
        }
        match &host.tenure {
            Some(tenure) => self.holders_moves(state, id, tenure, actions),
            None if host.call.is_none() => self.takers_moves(state, id, actions),
            None => {}
        }
        // The children are alike: the second one only follows the first.
        if let Some(child) = state
            .children
            .iter()
            .position(|child| *child != Child::Served)
        {
            let sees_end = host
                .seen
                .as_ref()
                .is_some_and(|(row, _)| row.checkpoint == END);
            if state.children[child] == Child::Free
                && (sees_end || self.is(Mutation::ChildBeforeParentEnd))
            {
                actions.push(Action::Serve(id, child));
            }
        }
    }

    fn takers_moves(&self, state: &State, id: usize, actions: &mut Vec<Action>) {
        let host = &state.hosts[id];
        let is_news = host
            .seen
            .as_ref()
            .is_none_or(|(seen, _)| !is_same(seen, &state.row));
        if is_news {
            actions.push(Action::Scan(id));
        }
        let Some((seen, unmoved)) = &host.seen else {
            return;
        };
        if seen.checkpoint == END {
            return;
        }
        let me = Some(id as u8);
        let may_take = match seen.owner {
            None => seen.claimant.is_none() || seen.claimant == me,
            owner => {
                (owner == me && host.is_starting)
                    || *unmoved >= LEASE_TICKS
                    || (self.is(Mutation::TakeOfLiveLease) && *unmoved > 0)
            }
        };
        if may_take {
            actions.push(Action::Send(id, Intent::Take));
        }
        let may_claim = seen.owner.is_some_and(|owner| Some(owner) != me) && *unmoved < LEASE_TICKS;
        if may_claim
            && state.budget.claims > 0
            && state.row.owner == seen.owner
            && state.row.claimant.is_none()
        {
            actions.push(Action::Claim(id));
        }
    }

    fn holders_moves(&self, state: &State, id: usize, tenure: &Tenure, actions: &mut Vec<Action>) {
        let is_idle = state.hosts[id].call.is_none();
        if self.may_deliver(tenure) {
            actions.push(Action::Deliver(id));
        }
        if is_idle && tenure.doubt.is_some() {
            actions.extend([Action::Read(id), Action::SendAgain(id)]);
            return;
        }
        if state.row.claimant.is_some() && !tenure.is_draining {
            actions.push(Action::Scan(id));
        }
        let is_done = tenure.settled == self.records && !tenure.is_draining;
        if is_done && !tenure.said_end {
            actions.push(Action::SaidEnd(id));
        }
        if is_done && tenure.said_end {
            let absent = state
                .children
                .iter()
                .position(|child| *child == Child::Absent);
            actions.extend(absent.map(|child| Action::CreateChild(id, child)));
        }
        if !is_idle {
            return;
        }
        let mut send = |intent| actions.push(Action::Send(id, intent));
        if tenure.left < HOLD_TICKS {
            send(Intent::Renew);
        }
        if tenure.settled > tenure.written {
            send(Intent::Checkpoint(tenure.settled));
        }
        if self.is(Mutation::CheckpointBeforeSettling) && tenure.settled < self.records {
            send(Intent::Checkpoint(tenure.settled + 1));
        }
        if self.is(Mutation::CheckpointGoesBack) && tenure.written > 1 {
            send(Intent::Checkpoint(tenure.written - 1));
        }
        let has_children =
            !state.children.contains(&Child::Absent) || self.is(Mutation::EndWithoutChildren);
        if is_done && (tenure.said_end || self.is(Mutation::EndWithoutWord)) && has_children {
            send(Intent::End);
        }
        let is_written =
            tenure.settled <= tenure.written || self.is(Mutation::HandOverWithoutCheckpoint);
        if tenure.is_draining && is_written {
            send(Intent::Release);
        }
    }

    pub(crate) fn may_deliver(&self, tenure: &Tenure) -> bool {
        (tenure.doubt.is_none() || self.is(Mutation::ContinueAfterUnknown))
            && !tenure.is_draining
            && tenure.settled < self.records
            && (tenure.left > 0 || self.is(Mutation::DeliverPastDeadline))
    }
}

/// Whether everybody who can act has taken in what there is. Slowness is a fault, and has a budget
/// like others.
pub(crate) fn is_timely(state: &State) -> bool {
    state
        .hosts
        .iter()
        .filter(|host| host.life == Life::Up)
        .all(|host| {
            let knows = host
                .seen
                .as_ref()
                .is_some_and(|(seen, _)| is_same(seen, &state.row));
            host.call.is_none() && (host.tenure.is_some() || knows)
        })
}

/// Whether a scan would show nothing new.
fn is_same(a: &ModelRow, b: &ModelRow) -> bool {
    (a.owner, a.counter, a.checkpoint, a.claimant) == (b.owner, b.counter, b.checkpoint, b.claimant)
}
