//! S9: leases that are given up, and rows that are given back.

use super::policy::{by_key, under};
use super::story::{LEASE, Story};
use crate::Invariant::{S8, S9};
use crate::history::{CallResult, HostChange, Outcome, WriteKind};
use crate::policy::Policy;

#[test]
fn s9_of_a_lease_that_is_given_up_what_was_settled_may_repeat_and_nothing_is_lost() {
    let given_up = || {
        let story = Story::with_records(3)
            .take("a", "p")
            .deliver("a", "p", &[1, 2]);
        story.wait(LEASE / 2).give_up("a", "p").take("b", "p")
    };
    given_up()
        .deliver("b", "p", &[1, 2, 3])
        .checkpoint("b", "p", 3)
        .healed()
        .passes();
    given_up().deliver("b", "p", &[3]).breaks(&[S8]);
    // So it is where a run gives back what an earlier one took.
    let by_name = Story::with_records(2)
        .take("a", "p")
        .deliver("a", "p", &[1])
        .host("a", HostChange::Crashed);
    let by_name = by_name
        .host("a", HostChange::Started)
        .release("a", "p")
        .take("b", "p");
    by_name
        .deliver("b", "p", &[1, 2])
        .checkpoint("b", "p", 2)
        .healed()
        .passes();
    // The promise of an earlier hand-over outlives it.
    let before = Story::with_records(3)
        .take("a", "p")
        .deliver("a", "p", &[1])
        .release("a", "p")
        .take("b", "p");
    before
        .give_up("b", "p")
        .take("a", "p")
        .deliver("a", "p", &[1, 2])
        .breaks(&[S9]);
}

#[test]
fn s9_who_may_have_lost_a_lease_owes_nothing_for_the_row_that_it_gives_back() {
    let given_back = |story: Story| {
        let story = story.release("a", "p").take("b", "p");
        story
            .deliver("b", "p", &[1, 2])
            .checkpoint("b", "p", 2)
            .healed()
    };
    let held = || {
        Story::with_records(2)
            .take("a", "p")
            .deliver("a", "p", &[1, 2])
    };
    // Clocks are off by half of the margin at most: before that, the host knows that it holds the
    // lease.
    given_back(held().wait(LEASE * 8 / 10)).breaks(&[S9]);
    given_back(held().wait(LEASE * 87 / 100)).passes();
    let renewed = |result| {
        let story = held().wait(LEASE / 2);
        let sent_at = story.now;
        let mut row = story.row("p");
        row.counter += 1;
        let story = story.applied(Some("a"), "p", WriteKind::Renew, Some(row));
        story
            .called("a", "p", Some(WriteKind::Renew), result, sent_at)
            .wait(LEASE / 2)
    };
    given_back(renewed(CallResult::Ok)).breaks(&[S9]);
    given_back(renewed(CallResult::Unknown)).passes();
    let beaten = || {
        held()
            .wait(LEASE / 2)
            .heartbeat("a", CallResult::Ok)
            .wait(LEASE / 2)
    };
    given_back(beaten()).breaks(&[S9]);
    // A heart that missed its deadline holds nothing that was taken before.
    let revived = held()
        .wait(LEASE / 10)
        .heartbeat("a", CallResult::Ok)
        .wait(LEASE)
        .take("a", "p");
    let revived = revived
        .deliver("a", "p", &[1, 2])
        .heartbeat("a", CallResult::Ok);
    given_back(
        revived
            .wait(LEASE / 2)
            .heartbeat("a", CallResult::Ok)
            .wait(LEASE / 2),
    )
    .passes();
    // Nor does one whose registration was removed.
    let registered_anew = held()
        .wait(LEASE / 10)
        .heartbeat("a", CallResult::Conflict)
        .heartbeat("a", CallResult::Ok);
    given_back(
        registered_anew
            .wait(LEASE / 2)
            .heartbeat("a", CallResult::Ok)
            .wait(LEASE / 2),
    )
    .passes();
    let mut beside_kcl = beaten();
    beside_kcl.limits.heartbeats_hold = false;
    given_back(beside_kcl).passes();
}

#[test]
fn s9_a_lease_is_given_up_only_if_its_shard_does_not_get_on() {
    let held = |bound| {
        let mut story = Story::with_records(3)
            .take("a", "p")
            .deliver("a", "p", &[1, 2]);
        story.limits.given_up_after = Some(bound);
        story
    };
    held(LEASE / 2).wait(LEASE / 2).give_up("a", "p").passes();
    held(LEASE).wait(LEASE / 2).give_up("a", "p").breaks(&[S9]);
    // A write that comes through while the host gives up is too late, and one before that is not.
    let came_through = || {
        let story = held(LEASE / 2).wait(LEASE / 2).deliver("a", "p", &[3]);
        story.renew("a", "p")
    };
    came_through().wait(LEASE / 20).give_up("a", "p").passes();
    let and_another = came_through().wait(LEASE / 40).renew("a", "p");
    and_another.wait(LEASE / 40).give_up("a", "p").passes();
    came_through()
        .wait(LEASE / 4)
        .give_up("a", "p")
        .breaks(&[S9]);
    // Nothing comes again of what never went out.
    let mut idle = Story::with_records(3).take("a", "p");
    idle.limits.given_up_after = Some(LEASE);
    idle.give_up("a", "p").passes();
    // What an earlier run took is its own by name only.
    let restarted = held(LEASE)
        .host("a", HostChange::Crashed)
        .host("a", HostChange::Started);
    restarted.give_up("a", "p").passes();
    // Its row can be written, but nothing is settled; or the other way round.
    held(LEASE)
        .wait(LEASE * 2 / 3)
        .renew("a", "p")
        .wait(LEASE * 2 / 3)
        .give_up("a", "p")
        .passes();
    held(LEASE)
        .wait(LEASE * 2 / 3)
        .deliver("a", "p", &[3])
        .wait(LEASE * 2 / 3)
        .give_up("a", "p")
        .passes();
}

#[test]
fn with_parallel_keys_a_call_that_does_not_return_is_no_progress_whatever_the_others_do() {
    let begun = || {
        let parallelism = 2;
        let mut story = under(Policy {
            parallelism,
            ..by_key()
        });
        story.limits.given_up_after = Some(LEASE / 2);
        story.deliver("a", "p", &[4]).wait(LEASE / 3)
    };
    let settles_2 = |story: Story| story.deliver("a", "p", &[2]).renew("a", "p");
    let stuck = || {
        let story = begun().renew("a", "p").start("a", "p", &[1], 1, "v1");
        story.wait(LEASE / 3)
    };
    settles_2(stuck().wait(LEASE / 3))
        .give_up("a", "p")
        .passes();
    settles_2(stuck()).give_up("a", "p").breaks(&[S9]);
    // Nor is it once it was cut off, before its record was tried again.
    let cut_off = || {
        let story = stuck().ended(Outcome::Cancelled, &[]);
        story.renew("a", "p").wait(LEASE / 3)
    };
    settles_2(cut_off()).give_up("a", "p").passes();
    let again = cut_off().start("a", "p", &[1], 2, "v1");
    settles_2(again.ended(Outcome::Ok, &[]))
        .give_up("a", "p")
        .breaks(&[S9]);
    settles_2(begun()).give_up("a", "p").breaks(&[S9]);
}

#[test]
fn a_host_that_cannot_write_one_row_for_long_may_leave_with_all_its_leases() {
    let checkpoint = Some(WriteKind::Checkpoint);
    let leaves_after = |fails_for: u64| {
        let mut story = Story::with_records(3)
            .take("a", "p")
            .deliver("a", "p", &[1, 2]);
        story.limits.given_up_after = Some(LEASE / 2);
        let sent_at = story.now;
        let story = story.called("a", "q", checkpoint, CallResult::NotApplied, sent_at);
        let story = story.wait(fails_for).renew("a", "p").wait(LEASE / 10);
        story.deliver("a", "p", &[3])
    };
    leaves_after(LEASE / 2).give_up("a", "p").passes();
    leaves_after(LEASE / 4).give_up("a", "p").breaks(&[S9]);
    // The row could be written again.
    let sent_at = 0;
    leaves_after(LEASE / 2)
        .called("a", "q", checkpoint, CallResult::Ok, sent_at)
        .give_up("a", "p")
        .breaks(&[S9]);
}

#[test]
fn a_host_that_is_not_drained_in_time_may_give_up_what_it_cuts_off() {
    let stops = |host: &str, before: u64, stops_for: u64| {
        let mut story = Story::with_records(3)
            .take("a", "p")
            .deliver("a", "p", &[1, 2]);
        story.limits.given_up_after = Some(LEASE);
        story.limits.drained_within = Some(LEASE / 2);
        let story = story.start("a", "p", &[3], 1, "v1").wait(before);
        let story = story.host(host, HostChange::Stopping).wait(stops_for);
        story.ended(Outcome::Cancelled, &[]).give_up("a", "p")
    };
    stops("a", 0, LEASE / 2).passes();
    stops("a", LEASE / 2, LEASE / 4).breaks(&[S9]);
    stops("b", 0, LEASE / 2).breaks(&[S9]);
}
