use std::collections::BTreeMap;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use proptest::prelude::*;

use super::pool::Pool;
use super::*;

fn joined<const N: usize>(shares: &mut Shares) -> [MemberId; N] {
    std::array::from_fn(|_| shares.join(Membership::Guaranteed))
}

#[test]
fn half_is_guaranteed_in_equal_parts_but_never_less_than_the_floor_while_there_is_enough_for_all() {
    let guarantee = |members| {
        let mut shares = Shares::new(256, 20);
        for _ in 0..members {
            shares.join(Membership::Guaranteed);
        }
        assert_eq!(
            shares.guarantee_with_more(1),
            shares.guarantee_among(members + 1)
        );
        shares.guarantee()
    };
    assert_eq!([1, 2, 4, 6].map(guarantee), [128, 64, 32, 21]);
    assert_eq!([7, 12].map(guarantee), [20, 20]);
    assert_eq!([13, 25, 26, 300].map(guarantee), [19, 10, 9, 0]);
}

#[test]
fn who_gives_nothing_back_takes_what_is_common_and_no_unit_of_what_another_is_guaranteed() {
    let mut shares = Shares::new(100, 10);
    let [a, b] = joined(&mut shares);
    assert_eq!((shares.guarantee(), shares.most(a)), (25, 75));
    assert!(!shares.take(a, 76));
    assert!(shares.take(a, 75) && !shares.take(a, 1));
    assert!(shares.borrows(a));
    let ticket = shares.ask(a, 1);
    assert!(shares.admit().is_empty());
    assert!(shares.take(b, 25), "at once, whoever waits");
    assert!(!shares.take(b, 1) && !shares.borrows(b));
    shares.give_back(a, 1);
    assert_eq!(shares.admit(), [ticket]);
}

#[test]
fn a_member_alone_has_everything_and_one_that_has_left_is_guaranteed_nothing() {
    let mut shares = Shares::new(100, 10);
    let [a, b] = joined(&mut shares);
    shares.leave(b);
    assert_eq!(shares.most(a), 100);
    assert!(shares.take(a, 100));
}

#[test]
fn one_that_joins_late_gets_its_guarantee_before_anybody_borrows_again() {
    let mut shares = Shares::new(100, 10);
    let [a] = joined(&mut shares);
    assert!(shares.take(a, 100));
    let [b] = joined(&mut shares);
    let borrows = shares.ask(a, 5);
    let first = shares.ask(b, 20);
    assert!(shares.admit().is_empty() && shares.is_asked_for(a) && shares.is_asked_for(b));
    shares.give_back(a, 20);
    assert_eq!(shares.admit(), [first]);
    shares.give_back(a, 10);
    assert_eq!(shares.admit(), [borrows]);
}

#[test]
fn a_large_wish_is_not_passed_by_smaller_ones_that_want_the_same() {
    let mut shares = Shares::new(100, 10);
    let [a, b, c] = joined(&mut shares);
    let only_borrows = shares.join(Membership::BorrowsOnly);
    assert!(shares.take(a, 60));
    assert!(shares.take(c, 16));
    let large = shares.ask(b, 40);
    let behind = shares.ask(b, 1);
    let borrows = shares.ask(c, 20);
    assert!(shares.admit().is_empty());
    assert!(
        !shares.take(b, 1) && !shares.take(only_borrows, 1),
        "others wait"
    );
    shares.give_back(a, 20);
    assert_eq!(shares.admit(), [large, behind], "in order of asking");
    assert!(!shares.cancel(large) && shares.cancel(borrows) && !shares.cancel(borrows));
    assert!(shares.take(only_borrows, 1));
}

#[test]
fn of_those_who_wait_only_the_own_ones_and_borrowers_are_asked_to_make_room_for() {
    let mut shares = Shares::new(100, 10);
    let [a, b] = joined(&mut shares);
    assert!(shares.take(a, 75) && shares.take(b, 20));
    assert!(!shares.is_asked_for(a));
    shares.ask(a, 10);
    shares.admit();
    assert!(
        shares.is_asked_for(a) && !shares.is_asked_for(b),
        "it has no more than its own"
    );
    shares.ask(b, 10);
    shares.admit();
    assert!(shares.is_asked_for(b));
}

fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn a_wait_that_is_given_up_keeps_nothing_even_if_it_was_just_granted() {
    let pool = Pool::new(10, 1);
    let member = pool.join(Membership::Guaranteed);
    let all = member.try_take(10).unwrap();
    {
        let mut waits = pin!(member.take(4));
        let mut next = pin!(member.take(10));
        assert!(poll(waits.as_mut()).is_pending() && poll(next.as_mut()).is_pending());
        drop(all);
        assert_eq!(pool.held(), 4, "granted, and not seen yet");
    }
    assert_eq!(pool.held(), 0);
    let mut waits = pin!(member.take(10));
    assert!(matches!(poll(waits.as_mut()), Poll::Ready(taken) if taken.units() == 10));
    assert_eq!(pool.held(), 0);
}

#[test]
fn what_was_taken_is_split_and_merged_and_nothing_of_it_is_lost() {
    let pool = Pool::new(20, 1);
    let member = pool.join(Membership::Guaranteed);
    let mut whole = member.try_take(10).unwrap();
    let part = whole.split(4);
    let rest = whole.split(100);
    assert_eq!((whole.units(), part.units(), rest.units()), (0, 4, 6));
    whole.merge(part);
    whole.grow_up_to(100);
    assert!(!whole.grow(1));
    assert_eq!((whole.units(), pool.held()), (14, 20));
    whole.give_back(3);
    assert_eq!((whole.units(), pool.held()), (11, 17));
    drop((whole, rest));
    assert_eq!(pool.held(), 0);
}

#[test]
fn a_member_that_would_leave_too_little_for_each_is_refused() {
    let pool = Pool::new(40, 20);
    let members: Vec<_> = (0..4).map(|_| pool.join_leaving(10, 0).unwrap()).collect();
    assert_eq!(pool.join_leaving(10, 0).err(), Some(8));
    let held = members[0].try_take(5);
    drop(members);
    assert_eq!(
        pool.join_leaving(30, 0).err(),
        Some(20),
        "one has something in hand still"
    );
    drop(held);
    assert_eq!(pool.join_leaving(30, 0).err(), Some(20));
    assert!(pool.join_leaving(20, 0).is_ok(), "they have left");
}

#[derive(Debug, Clone)]
enum Act {
    Join(bool),
    Leave(usize),
    Take(usize, usize),
    Ask(usize, usize),
    GiveBack(usize, usize),
    Cancel(usize),
}

fn act() -> impl Strategy<Value = Act> {
    let (who, units) = (0..6_usize, 0..40_usize);
    prop_oneof![
        1 => any::<bool>().prop_map(Act::Join),
        1 => who.clone().prop_map(Act::Leave),
        4 => (who.clone(), units.clone()).prop_map(|(who, units)| Act::Take(who, units)),
        4 => (who.clone(), units.clone()).prop_map(|(who, units)| Act::Ask(who, units)),
        6 => (who, units).prop_map(|(who, units)| Act::GiveBack(who, units)),
        1 => (0..20_usize).prop_map(Act::Cancel),
    ]
}

proptest! {
    #[test]
    fn no_more_is_given_out_than_there_is_and_nobody_who_waits_could_be_served(
        acts in prop::collection::vec(act(), 1..200),
    ) {
        let mut shares = Shares::new(100, 12);
        let mut members = vec![shares.join(Membership::Guaranteed), shares.join(Membership::Guaranteed)];
        let mut tickets: BTreeMap<Ticket, (MemberId, usize)> = BTreeMap::new();
        for act in acts {
            let member = |who: usize| members[who % members.len()];
            match act {
                Act::Join(is_guaranteed) if members.len() < 8 => {
                    let membership = if is_guaranteed { Membership::Guaranteed } else { Membership::BorrowsOnly };
                    members.push(shares.join(membership));
                }
                Act::Leave(who) if members.len() > 2 => {
                    let id = member(who);
                    if tickets.values().all(|(waiting, _)| *waiting != id) {
                        members.retain(|member| *member != id);
                        shares.give_back(id, usize::MAX);
                        shares.leave(id);
                    }
                }
                Act::Take(who, units) => {
                    let (id, held) = (member(who), shares.held(member(who)));
                    let is_taken = shares.take(id, units);
                    prop_assert_eq!(shares.held(id), held + if is_taken { units } else { 0 });
                }
                Act::Ask(who, units) => {
                    let id = member(who);
                    tickets.insert(shares.ask(id, units), (id, units));
                }
                Act::GiveBack(who, units) => shares.give_back(member(who), units),
                Act::Cancel(at) => {
                    if let Some(ticket) = tickets.keys().nth(at).copied() {
                        prop_assert!(shares.cancel(ticket));
                        tickets.remove(&ticket);
                    }
                }
                Act::Join(_) | Act::Leave(_) => {}
            }
            for ticket in shares.admit() {
                prop_assert!(tickets.remove(&ticket).is_some());
            }
            prop_assert!(shares.admit().is_empty(), "all that could be given was");
            prop_assert!(shares.held_by_all() <= 100);
            let by_member: usize = members.iter().map(|id| shares.held(*id)).sum();
            prop_assert_eq!(by_member, shares.held_by_all());
            // The first of a member's own gets what it is guaranteed, unless that is lent from
            // before a member joined.
            let is_lent = members.iter().map(|id| shares.held(*id).max(shares.guarantee())).sum::<usize>() > 100;
            let mut firsts = BTreeMap::new();
            for (id, units) in tickets.values() {
                firsts.entry(*id).or_insert(*units);
            }
            for (id, units) in firsts.into_iter().filter(|_| !is_lent) {
                let is_guaranteed = shares.members[&id].is_guaranteed();
                prop_assert!(!is_guaranteed || shares.held(id) + units > shares.guarantee());
            }
        }
    }
}
