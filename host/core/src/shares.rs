//! Divides a host's limited resources (bytes, memory, threads) among plugins that do not trust each
//! other.
//!
//! ```text
//!   |<------------------------------ total ------------------------------>|
//!   | guarantee of A | guarantee of B | guarantee of C |      common      |
//! ```
//!
//! Each member may always have its guarantee: no unit of it is ever lent to another. What is beyond
//! all guarantees is common, and is lent to the first that asks. So a member that gives nothing
//! back takes the common part from the others, and no more.

pub mod pool;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::seeded_bug::SeededBug;

/// Identifies a member, which takes units; counted from 0, never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct MemberId(u64);

/// A place in the queue; counted from 0, never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Ticket(u64);

/// Whether a member has a guarantee.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Membership {
    /// It may always have its part, and borrow.
    Guaranteed,
    /// It only borrows: it can do without the units.
    BorrowsOnly,
}

/// Which member has how many units, and which ones wait. Only decides; it does not wait itself.
#[derive(Debug)]
pub(crate) struct Shares {
    total: usize,
    floor: usize,
    /// What each guaranteed member may always have, given how many there are.
    guarantee: usize,
    held: usize,
    members: BTreeMap<MemberId, Account>,
    /// In order of asking.
    waiting: VecDeque<Waiting>,
    members_made: u64,
    tickets_made: u64,
}

#[derive(Debug)]
struct Account {
    membership: Membership,
    held: usize,
    /// It asks for nothing any more: it is kept until it has given back what it holds.
    has_left: bool,
}

#[derive(Debug, Clone, Copy)]
struct Waiting {
    ticket: Ticket,
    member: MemberId,
    units: usize,
}

/// Why units cannot be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Obstacle {
    /// Its guarantee is still lent, from before it joined, and will come back to it first.
    Lent,
    /// The common part is taken.
    NothingCommon,
}

impl Shares {
    /// Divides `total` units: half are guaranteed in equal parts, and half are common. But each
    /// guarantee is at least `floor` units, while there are enough for all members; the common part
    /// shrinks to nothing if need be.
    pub(crate) fn new(total: usize, floor: usize) -> Self {
        Self {
            total,
            floor,
            guarantee: 0,
            held: 0,
            members: BTreeMap::new(),
            waiting: VecDeque::new(),
            members_made: 0,
            tickets_made: 0,
        }
    }

    /// Adds a member. The guarantees of the others shrink, and what they hold beyond them counts as
    /// borrowed from now on.
    pub(crate) fn join(&mut self, membership: Membership) -> MemberId {
        let id = MemberId(self.members_made);
        self.members_made += 1;
        self.members.insert(
            id,
            Account {
                membership,
                held: 0,
                has_left: false,
            },
        );
        self.guarantee = self.guarantee_among(self.guaranteed_members());
        id
    }

    /// The member asks for nothing any more. What it holds, it may give back later.
    pub(crate) fn leave(&mut self, id: MemberId) {
        if let Some(account) = self.members.get_mut(&id) {
            account.has_left = true;
        }
        self.guarantee = self.guarantee_among(self.guaranteed_members());
        self.forget_gone(id);
    }

    /// What each guaranteed member may always have, in units, with the present number of members.
    pub(crate) fn guarantee(&self) -> usize {
        self.guarantee
    }

    /// The same with so many more members.
    pub(crate) fn guarantee_with_more(&self, members: usize) -> usize {
        self.guarantee_among(self.guaranteed_members() + members)
    }

    fn guarantee_among(&self, members: usize) -> usize {
        let members = members.max(1);
        (self.total / members / 2).max(self.floor.min(self.total / members))
    }

    fn guaranteed_members(&self) -> usize {
        self.members
            .values()
            .filter(|account| account.is_guaranteed())
            .count()
    }

    /// The most that a member could hold if the others held nothing.
    pub(crate) fn most(&self, id: MemberId) -> usize {
        let is_guaranteed = self.members.get(&id).is_some_and(Account::is_guaranteed);
        let others = self.guaranteed_members() - usize::from(is_guaranteed);
        self.total.saturating_sub(others * self.guarantee)
    }

    /// The units that a member holds.
    pub(crate) fn held(&self, id: MemberId) -> usize {
        self.members.get(&id).map_or(0, |account| account.held)
    }

    /// The units that all members hold together.
    pub(crate) fn held_by_all(&self) -> usize {
        self.held
    }

    /// Whether the member holds more than its guarantee.
    pub(crate) fn borrows(&self, id: MemberId) -> bool {
        self.members
            .get(&id)
            .is_some_and(|account| account.held > self.guarantee_of(account))
    }

    /// What a member could take now, without overtaking one that waits.
    pub(crate) fn free(&self, id: MemberId) -> usize {
        let Some(account) = self.members.get(&id) else {
            return 0;
        };
        if self.waiting.iter().any(|waiting| waiting.member == id) {
            return 0;
        }
        let unheld = self.total.saturating_sub(self.held);
        let own = self.guarantee_of(account).saturating_sub(account.held);
        let common = if self.waiting.is_empty() {
            self.common()
        } else {
            0
        };
        unheld.min(own + common)
    }

    /// Takes units now or not at all, without overtaking a member that waits.
    pub(crate) fn take(&mut self, id: MemberId, units: usize) -> bool {
        let is_free = units <= self.free(id);
        if is_free {
            self.give_out(id, units);
        }
        is_free
    }

    /// Queues for units, behind everything that the member already waits for; see
    /// [`Shares::admit`].
    pub(crate) fn ask(&mut self, id: MemberId, units: usize) -> Ticket {
        let ticket = Ticket(self.tickets_made);
        self.tickets_made += 1;
        self.waiting.push_back(Waiting {
            ticket,
            member: id,
            units,
        });
        ticket
    }

    /// Stops waiting; `false` if the units were given out in the meantime.
    pub(crate) fn cancel(&mut self, ticket: Ticket) -> bool {
        let at = self
            .waiting
            .iter()
            .position(|waiting| waiting.ticket == ticket);
        at.is_some_and(|at| self.waiting.remove(at).is_some())
    }

    /// Gives units back.
    pub(crate) fn give_back(&mut self, id: MemberId, units: usize) {
        if let Some(account) = self.members.get_mut(&id) {
            let units = units.min(account.held);
            account.held -= units;
            self.held -= units;
        }
        self.forget_gone(id);
    }

    /// Gives units to members that wait, as far as possible. Requests of one member are met in the
    /// order of asking, and so are loans: small requests do not overtake a large one, except for
    /// what other members are guaranteed.
    pub(crate) fn admit(&mut self) -> Vec<Ticket> {
        let mut admitted = Vec::new();
        let mut passed_over = BTreeSet::new();
        let mut may_borrow = true;
        for waiting in std::mem::take(&mut self.waiting) {
            let is_in_turn = !passed_over.contains(&waiting.member);
            let obstacle = if is_in_turn {
                self.obstacle(waiting, may_borrow)
            } else {
                None
            };
            if is_in_turn && obstacle.is_none() {
                self.give_out(waiting.member, waiting.units);
                admitted.push(waiting.ticket);
                continue;
            }
            passed_over.insert(waiting.member);
            may_borrow &= obstacle != Some(Obstacle::NothingCommon);
            self.waiting.push_back(waiting);
        }
        admitted
    }

    /// Whether a member waits that `id` would help by giving back: itself, or any member if it
    /// borrows.
    pub(crate) fn is_asked_for(&self, id: MemberId) -> bool {
        let borrows = self.borrows(id);
        self.waiting
            .iter()
            .any(|waiting| borrows || waiting.member == id)
    }

    fn give_out(&mut self, id: MemberId, units: usize) {
        if let Some(account) = self.members.get_mut(&id) {
            account.held += units;
            self.held += units;
        }
    }

    fn obstacle(
        &self,
        Waiting { member, units, .. }: Waiting,
        may_borrow: bool,
    ) -> Option<Obstacle> {
        let account = self.members.get(&member)?;
        let own = self.guarantee_of(account).saturating_sub(account.held);
        let borrowed = units.saturating_sub(own);
        if borrowed > 0 && !(may_borrow && borrowed <= self.common()) {
            return Some(Obstacle::NothingCommon);
        }
        (self.held + units > self.total).then_some(Obstacle::Lent)
    }

    /// What may be lent: beyond all guarantees, and not lent already.
    fn common(&self) -> usize {
        let reserved: usize = self
            .members
            .values()
            .map(|account| {
                if SeededBug::LendsGuarantees.is_on() {
                    return account.held;
                }
                account.held.max(self.guarantee_of(account))
            })
            .sum();
        self.total.saturating_sub(reserved)
    }

    fn guarantee_of(&self, account: &Account) -> usize {
        if account.is_guaranteed() {
            self.guarantee
        } else {
            0
        }
    }

    fn forget_gone(&mut self, id: MemberId) {
        if self
            .members
            .get(&id)
            .is_some_and(|account| account.has_left && account.held == 0)
        {
            self.members.remove(&id);
        }
    }
}

impl Account {
    fn is_guaranteed(&self) -> bool {
        self.membership == Membership::Guaranteed && !self.has_left
    }
}

#[cfg(test)]
mod tests;
