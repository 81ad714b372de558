//! Shares that tasks wait for: the accounts under a lock that is never held across an await, and
//! who is to be woken.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use super::{MemberId, Membership, Shares, Ticket};

/// So many units, shared by its members. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Pool {
    shared: Arc<Shared>,
}

/// One member. Cheap to clone; it has left once the last clone and all that it took are dropped.
#[derive(Debug, Clone)]
pub struct Member {
    joined: Arc<Joined>,
}

/// Units of a member; given back when dropped.
#[derive(Debug)]
pub struct Taken {
    member: Member,
    units: usize,
}

#[derive(Debug)]
struct Joined {
    id: MemberId,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    shares: Shares,
    /// Of those who wait, and of those who were given what they waited for and do not know it yet.
    waiting: HashMap<Ticket, Wait>,
}

#[derive(Debug)]
enum Wait {
    /// Not polled yet, or to be woken.
    For(Option<Waker>),
    Over,
}

/// Somebody waits. Dropped before the end, it waits no more.
struct Asked<'a> {
    member: &'a Member,
    ticket: Ticket,
    units: usize,
}

impl Pool {
    /// `total` units. Half of them are guaranteed in equal parts, and half are common; but a
    /// guarantee is `floor` units, as long as there are enough for all members, and beyond that
    /// nothing is common.
    pub fn new(total: usize, floor: usize) -> Self {
        let state = State {
            shares: Shares::new(total, floor),
            waiting: HashMap::new(),
        };
        Self {
            shared: Arc::new(Shared {
                state: Mutex::new(state),
            }),
        }
    }

    /// Adds a member, which leaves when it is dropped.
    pub fn join(&self, membership: Membership) -> Member {
        let id = self.shared.lock().shares.join(membership);
        Member {
            joined: Arc::new(Joined {
                id,
                shared: Arc::clone(&self.shared),
            }),
        }
    }

    /// Adds a member, if its guarantee is then at least so many units, and would still be if so
    /// many others joined; the error is what the guarantee would be.
    pub fn join_leaving(&self, units: usize, others: usize) -> Result<Member, usize> {
        let mut state = self.shared.lock();
        let guarantee = state.shares.guarantee_with_more(1 + others);
        if guarantee < units {
            return Err(guarantee);
        }
        let id = state.shares.join(Membership::Guaranteed);
        drop(state);
        Ok(Member {
            joined: Arc::new(Joined {
                id,
                shared: Arc::clone(&self.shared),
            }),
        })
    }

    /// What all members hold.
    pub fn held(&self) -> usize {
        self.shared.lock().shares.held_by_all()
    }
}

impl Member {
    /// Waits for units, in order of asking. Cancel-safe. More than [`Member::most`] are waited for
    /// in vain.
    pub async fn take(&self, units: usize) -> Taken {
        if let Some(taken) = self.try_take(units) {
            return taken;
        }
        let mut asked = self.ask(units);
        poll_fn(|context| asked.poll(context)).await
    }

    /// Takes units now or not at all; passes nobody who waits.
    pub fn try_take(&self, units: usize) -> Option<Taken> {
        let is_taken = self.lock().shares.take(self.joined.id, units);
        is_taken.then(|| self.taken(units))
    }

    /// What could be taken now.
    pub fn free(&self) -> usize {
        self.lock().shares.free(self.joined.id)
    }

    /// The most that it could hold if all others held nothing.
    pub fn most(&self) -> usize {
        self.lock().shares.most(self.joined.id)
    }

    /// What it may always have, with as many members as there are.
    pub fn guarantee(&self) -> usize {
        self.lock().shares.guarantee()
    }

    /// The units that it holds at this moment.
    pub fn held(&self) -> usize {
        self.lock().shares.held(self.joined.id)
    }

    /// Whether another member waits whom this one would help by giving back: one of its own, or
    /// anybody if this one borrows.
    pub fn is_asked_for(&self) -> bool {
        self.lock().shares.is_asked_for(self.joined.id)
    }

    fn ask(&self, units: usize) -> Asked<'_> {
        let mut state = self.lock();
        let ticket = state.shares.ask(self.joined.id, units);
        state.waiting.insert(ticket, Wait::For(None));
        let woken = state.admit();
        drop(state);
        woken.into_iter().for_each(Waker::wake);
        Asked {
            member: self,
            ticket,
            units,
        }
    }

    fn taken(&self, units: usize) -> Taken {
        Taken {
            member: self.clone(),
            units,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.joined.shared.lock()
    }
}

impl Taken {
    /// How many they are.
    pub fn units(&self) -> usize {
        self.units
    }

    /// Gives some of them back.
    pub fn give_back(&mut self, units: usize) {
        let units = units.min(self.units);
        self.units -= units;
        self.member.joined.give_back(units);
    }

    /// Takes more, as far as they are free, up to `units`. Never waits: of those who hold some and
    /// wait for more, none might ever get it.
    pub fn grow_up_to(&mut self, units: usize) {
        let mut state = self.member.lock();
        let more = units.min(state.shares.free(self.member.joined.id));
        if state.shares.take(self.member.joined.id, more) {
            self.units += more;
        }
    }

    /// Takes `units` more, or none.
    pub fn grow(&mut self, units: usize) -> bool {
        let is_taken = self.member.lock().shares.take(self.member.joined.id, units);
        self.units += if is_taken { units } else { 0 };
        is_taken
    }

    /// Parts with some of them, as far as they are there.
    #[must_use]
    pub fn split(&mut self, units: usize) -> Self {
        let units = units.min(self.units);
        self.units -= units;
        self.member.taken(units)
    }

    /// Takes over what `other` holds, which is the same member's; another's is given back.
    pub fn merge(&mut self, mut other: Self) {
        if other.member.joined.id == self.member.joined.id {
            self.units += std::mem::take(&mut other.units);
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.member.joined.give_back(self.units);
    }
}

impl Asked<'_> {
    fn poll(&mut self, context: &Context<'_>) -> Poll<Taken> {
        let mut state = self.member.lock();
        match state.waiting.get_mut(&self.ticket) {
            Some(Wait::For(waker)) => {
                *waker = Some(context.waker().clone());
                Poll::Pending
            }
            // Taken out, so that dropping this gives nothing back.
            Some(Wait::Over) | None => {
                state.waiting.remove(&self.ticket);
                Poll::Ready(self.member.taken(self.units))
            }
        }
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let mut state = self.member.lock();
        let Some(wait) = state.waiting.remove(&self.ticket) else {
            return;
        };
        let woken = match wait {
            Wait::Over => state.give_back(self.member.joined.id, self.units),
            Wait::For(_) => {
                state.shares.cancel(self.ticket);
                state.admit()
            }
        };
        drop(state);
        woken.into_iter().for_each(Waker::wake);
    }
}

impl Joined {
    fn give_back(&self, units: usize) {
        if units == 0 {
            return;
        }
        let woken = self.shared.lock().give_back(self.id, units);
        woken.into_iter().for_each(Waker::wake);
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        let woken = {
            let mut state = self.shared.lock();
            state.shares.leave(self.id);
            state.admit()
        };
        woken.into_iter().for_each(Waker::wake);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn give_back(&mut self, id: MemberId, units: usize) -> Vec<Waker> {
        self.shares.give_back(id, units);
        self.admit()
    }

    /// Whom to wake, once the lock is free.
    #[must_use]
    fn admit(&mut self) -> Vec<Waker> {
        if self.waiting.is_empty() {
            return Vec::new();
        }
        let mut woken = Vec::new();
        for ticket in self.shares.admit() {
            if let Some(Wait::For(Some(waker))) = self.waiting.insert(ticket, Wait::Over) {
                woken.push(waker);
            }
        }
        woken
    }
}
