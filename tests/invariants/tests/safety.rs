//! S1 to S16 and loss: one history that breaks each. The good ones are those of `legal`.

use super::story::{LEASE, MS, SECOND, Story, at};
use crate::Invariant::{NoLoss, S1, S2, S3, S4, S5, S7, S8, S9, S10, S11, S12, S13, S14, S16};
use crate::history::{CallResult, Checkpoint, HostChange, Outcome, Row, WriteKind};

#[test]
fn s1_the_counter_rises_by_one() {
    let story = || Story::with_records(1).take("a", "p");
    story().renew("a", "p").passes();
    story()
        .write("a", "p", WriteKind::Renew, |row| row.counter -= 1)
        .breaks(&[S1]);
    story()
        .write("a", "p", WriteKind::Renew, |row| row.counter += 1)
        .breaks(&[S1]);
    let mut hidden = story();
    hidden.rows.get_mut("p").unwrap().counter += 1;
    hidden.renew("a", "p").breaks(&[S1]);
}

#[test]
fn s2_only_the_holder_writes() {
    let story = || Story::with_records(1).take("a", "p");
    story().renew("b", "p").breaks(&[S2]);
    story().checkpoint("b", "p", 1).breaks(&[S2]);
    story()
        .wait(2 * LEASE)
        .take("b", "p")
        .renew("a", "p")
        .breaks(&[S2]);
    story().release("a", "p").release("a", "p").breaks(&[S2]);
}

#[test]
fn s2_a_taker_knows_the_counter() {
    let story = Story::with_records(1).take("a", "p").wait(2 * LEASE);
    let owner = Some("b".to_owned());
    story
        .write("b", "p", WriteKind::Take { seen: 0 }, |row| {
            row.owner = owner;
        })
        .breaks(&[S2]);
}

#[test]
fn s2_a_write_of_an_earlier_life_is_fenced() {
    let story = Story::with_records(1).take("a", "p");
    let sent_at = story.now;
    let story = story
        .host("a", HostChange::Crashed)
        .host("a", HostChange::Started)
        .take("a", "p");
    let mut late = story.renew("a", "p");
    let count = late.events.len();
    let crate::history::What::Written(write) = &mut late.events[count - 2].what else {
        unreachable!()
    };
    write.sent_at = sent_at;
    late.breaks(&[S2]);
}

#[test]
fn s2_a_write_changes_only_what_it_may() {
    let story = || Story::with_records(1).take("a", "p");
    story()
        .write("a", "p", WriteKind::Renew, |row| {
            row.owner = Some("b".to_owned());
        })
        .breaks(&[S2]);
    story().claim("b", "p").release("a", "p").passes();
    let unclaims = |row: &mut crate::history::Row| (row.owner, row.claimant) = (None, None);
    story()
        .claim("b", "p")
        .write("a", "p", WriteKind::Release, unclaims)
        .breaks(&[S2]);
    let owner = Some("b".to_owned());
    let keeps_claimant = story().claim("b", "p").release("a", "p");
    keeps_claimant
        .write("b", "p", WriteKind::Take { seen: 2 }, |row| {
            row.owner = owner;
        })
        .breaks(&[S2]);
}

#[test]
fn s3_a_checkpoint_never_goes_back() {
    let story =
        Story::with_records(10)
            .take("a", "p")
            .deliver("a", "p", &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    story
        .clone()
        .checkpoint("a", "p", 9)
        .checkpoint("a", "p", 10)
        .passes();
    story
        .checkpoint("a", "p", 10)
        .checkpoint("a", "p", 9)
        .breaks(&[S3]);
}

#[test]
fn s4_a_checkpoint_covers_only_what_is_settled() {
    let story = || Story::with_records(3).take("a", "p");
    story()
        .deliver("a", "p", &[1, 2])
        .checkpoint("a", "p", 2)
        .passes();
    story()
        .deliver("a", "p", &[1, 2])
        .checkpoint("a", "p", 3)
        .breaks(&[S4]);
    story().checkpoint("a", "p", 1).breaks(&[S4]);
    story()
        .start("a", "p", &[1, 2, 3], 1, "v1")
        .ended(Outcome::Ok, &[2])
        .checkpoint("a", "p", 3)
        .breaks(&[S4]);
    story()
        .start("a", "p", &[1], 1, "v1")
        .ended(Outcome::Error, &[])
        .checkpoint("a", "p", 1)
        .breaks(&[S4]);
    let held = story()
        .start("a", "p", &[1, 2], 1, "v1")
        .held_back(Some(1))
        .ended(Outcome::Ok, &[]);
    held.clone().checkpoint("a", "p", 1).passes();
    held.checkpoint("a", "p", 2).breaks(&[S4]);
}

#[test]
fn s4_another_grants_work_justifies_nothing() {
    let story = Story::with_records(3)
        .take("a", "p")
        .deliver("a", "p", &[1, 2])
        .host("a", HostChange::Crashed);
    let story = story.wait(2 * LEASE).take("b", "p");
    story
        .deliver("b", "p", &[1])
        .checkpoint("b", "p", 2)
        .breaks(&[S4]);
}

#[test]
fn s4_settling_comes_before_sending() {
    let mut story = Story::with_records(1)
        .take("a", "p")
        .deliver("a", "p", &[1])
        .checkpoint("a", "p", 1);
    let count = story.events.len();
    let crate::history::What::Written(write) = &mut story.events[count - 2].what else {
        unreachable!()
    };
    write.sent_at -= MS;
    story.breaks(&[S4]);
}

#[test]
fn s5_an_end_needs_all_records_the_word_and_the_children() {
    let story = || Story::with_records(2);
    story()
        .read_to_end()
        .create("l")
        .create("r")
        .end("a", "p")
        .passes();
    story().read_to_end().end("a", "p").breaks(&[S5]);
    story()
        .read_to_end()
        .create("l")
        .end("a", "p")
        .breaks(&[S5]);
    let unread = story()
        .take("a", "p")
        .split()
        .said_end("a", "p")
        .create("l")
        .create("r");
    unread.deliver("a", "p", &[1]).end("a", "p").breaks(&[S5]);
    let unsaid = story()
        .take("a", "p")
        .split()
        .create("l")
        .create("r")
        .deliver("a", "p", &[1, 2]);
    unsaid.clone().end("a", "p").breaks(&[S5]);
    unsaid.said_end("b", "p").end("a", "p").breaks(&[S5]);
}

#[test]
fn s7_order_is_by_shard() {
    let story = || Story::with_records(4).take("a", "p");
    story().deliver("a", "p", &[2, 1]).breaks(&[S7]);
    let failed = || {
        story()
            .start("a", "p", &[1, 2], 1, "v1")
            .ended(Outcome::Ok, &[1])
    };
    failed()
        .start("a", "p", &[1], 2, "v1")
        .ended(Outcome::Ok, &[])
        .deliver("a", "p", &[3])
        .passes();
    failed().deliver("a", "p", &[3]).breaks(&[S7]);
    failed().start("a", "p", &[1, 3], 2, "v1").breaks(&[S7]);
    story()
        .start("a", "p", &[1], 1, "v1")
        .start("a", "p", &[2], 1, "v1")
        .breaks(&[S7]);
}

#[test]
fn s8_nothing_is_left_out() {
    let story = || Story::with_records(4).take("a", "p");
    story().deliver("a", "p", &[2]).breaks(&[S8]);
    story().deliver("a", "p", &[1, 3]).breaks(&[S8]);
    story()
        .deliver("a", "p", &[1])
        .deliver("a", "p", &[3])
        .breaks(&[S8]);
    let later = story()
        .deliver("a", "p", &[1, 2])
        .checkpoint("a", "p", 2)
        .release("a", "p")
        .take("b", "p");
    later.clone().deliver("b", "p", &[3]).passes();
    later.clone().deliver("b", "p", &[4]).breaks(&[S8]);
    later.deliver("b", "p", &[2]).breaks(&[S8]);
}

#[test]
fn s8_sequence_numbers_are_numbers() {
    let story = Story::new()
        .produced("p", [9, 10, 100])
        .create("p")
        .take("a", "p");
    story
        .deliver("a", "p", &[9, 10])
        .deliver("a", "p", &[100])
        .passes();
}

#[test]
fn s9_a_grant_repeats_only_what_failed() {
    let story = || Story::with_records(2).take("a", "p");
    story()
        .deliver("a", "p", &[1])
        .deliver("a", "p", &[1])
        .breaks(&[S9]);
    let failed = story()
        .start("a", "p", &[1], 1, "v1")
        .ended(Outcome::Error, &[]);
    failed.deliver("a", "p", &[1]).breaks(&[S9]);
}

#[test]
fn s9_repeats_are_bounded_and_none_after_a_hand_over() {
    let crashed = || {
        let story = Story::with_records(3)
            .take("a", "p")
            .deliver("a", "p", &[1, 2, 3]);
        story
            .host("a", HostChange::Crashed)
            .wait(2 * LEASE)
            .take("b", "p")
    };
    crashed().deliver("b", "p", &[1, 2, 3]).passes();
    let mut bounded = crashed().deliver("b", "p", &[1, 2, 3]);
    bounded.limits.repeats_max = 2;
    bounded.breaks(&[S9]);
    // What was held back comes again, however much it is.
    let held_back = Story::with_records(3)
        .take("a", "p")
        .start("a", "p", &[1, 2, 3], 1, "v1");
    let held_back = held_back
        .held_back(Some(1))
        .ended(Outcome::Ok, &[])
        .host("a", HostChange::Crashed);
    let mut again = held_back
        .wait(2 * LEASE)
        .take("b", "p")
        .deliver("b", "p", &[1, 2, 3]);
    again.limits.repeats_max = 1;
    again.clone().passes();
    again.limits.repeats_max = 0;
    again.breaks(&[S9]);
    // By key, what failed waits while others go on, also if nobody need deliver it: an operator
    // went back to it.
    let skipped = |row: &mut Row| (row.checkpoint, row.owner) = (at(1), None);
    let back = |row: &mut Row| (row.checkpoint, row.owner) = (Checkpoint::Initial, None);
    let mut gone_back = Story::with_records(2)
        .take("a", "p")
        .admin("p", skipped)
        .admin("p", back);
    gone_back.limits.policy.by_key = true;
    let gone_back = gone_back
        .take("a", "p")
        .start("a", "p", &[1, 2], 1, "v1")
        .ended(Outcome::Ok, &[1]);
    gone_back
        .release("a", "p")
        .take("b", "p")
        .deliver("b", "p", &[1, 2])
        .passes();
    let lazy = Story::with_records(2)
        .take("a", "p")
        .deliver("a", "p", &[1, 2])
        .claim("b", "p");
    lazy.checkpoint("a", "p", 1)
        .release("a", "p")
        .take("b", "p")
        .deliver("b", "p", &[2])
        .breaks(&[S9]);
}

#[test]
fn s10_no_delivery_after_the_deadline() {
    let story = || Story::with_records(2).take("a", "p");
    story()
        .wait(LEASE * 8 / 10)
        .deliver("a", "p", &[1])
        .passes();
    story()
        .wait(LEASE * 9 / 10)
        .deliver("a", "p", &[1])
        .breaks(&[S10]);
    story()
        .wait(LEASE / 2)
        .renew("a", "p")
        .wait(LEASE * 8 / 10)
        .deliver("a", "p", &[1])
        .passes();
    // The answer came, but the deadline counts from sending.
    let slow = |result| {
        let story = story();
        let sent_at = story.now;
        let mut row = story.row("p");
        row.counter += 1;
        let story = story
            .applied(Some("a"), "p", WriteKind::Renew, Some(row))
            .wait(LEASE / 2);
        story
            .called("a", "p", Some(WriteKind::Renew), result, sent_at)
            .wait(LEASE / 2)
            .deliver("a", "p", &[1])
    };
    slow(CallResult::Ok).breaks(&[S10]);
}

#[test]
fn s10_no_delivery_without_a_grant() {
    Story::with_records(1)
        .deliver("a", "p", &[1])
        .breaks(&[S10]);
    Story::with_records(1)
        .take("a", "p")
        .release("a", "p")
        .deliver("a", "p", &[1])
        .breaks(&[S10]);
    let restarted = Story::with_records(1)
        .take("a", "p")
        .host("a", HostChange::Crashed);
    restarted
        .host("a", HostChange::Started)
        .deliver("a", "p", &[1])
        .breaks(&[S10]);
}

#[test]
fn s10_a_live_lease_is_not_taken() {
    let story = || Story::with_records(1).take("a", "p");
    story().wait(LEASE).take("b", "p").passes();
    story().wait(LEASE / 2).take("b", "p").breaks(&[S10]);
    story()
        .claim("b", "p")
        .wait(LEASE / 2)
        .take("b", "p")
        .breaks(&[S10]);
    story()
        .wait(LEASE / 2)
        .heartbeat("a", CallResult::Ok)
        .wait(LEASE * 3 / 4)
        .take("b", "p")
        .breaks(&[S10]);
    story()
        .wait(LEASE / 2)
        .heartbeat("a", CallResult::Unknown)
        .wait(LEASE * 3 / 4)
        .take("b", "p")
        .passes();
    // A heartbeat after a missed deadline holds nothing that was taken before it.
    let revived = || {
        story()
            .wait(2 * LEASE)
            .heartbeat("a", CallResult::Ok)
            .wait(LEASE / 4)
    };
    revived().take("b", "p").passes();
    revived()
        .take("a", "p")
        .heartbeat("a", CallResult::Ok)
        .wait(LEASE / 4)
        .take("b", "p")
        .breaks(&[S10]);
}

#[test]
fn s10_who_signs_off_holds_nothing() {
    let beating = || {
        Story::with_records(2)
            .take("a", "p")
            .wait(LEASE / 2)
            .heartbeat("a", CallResult::Ok)
    };
    let gone = || beating().host("a", HostChange::SignedOff);
    gone().wait(LEASE / 2).take("b", "p").passes();
    beating().wait(LEASE / 2).take("b", "p").breaks(&[S10]);
    // What it could not give back harms nobody; until it starts again under its name.
    gone().take("b", "p").passes();
    gone()
        .host("a", HostChange::Started)
        .take("a", "p")
        .take("b", "p")
        .breaks(&[S10]);
    gone().deliver("a", "p", &[1]).breaks(&[S10]);
    beating()
        .start("a", "p", &[1], 1, "v1")
        .host("a", HostChange::SignedOff)
        .breaks(&[S10]);
}

#[test]
fn s10_a_late_answer_revives_nothing() {
    let story = || Story::with_records(1).take("a", "p");
    story()
        .wait(LEASE / 2)
        .heartbeat("a", CallResult::Ok)
        .wait(LEASE * 3 / 4)
        .deliver("a", "p", &[1])
        .passes();
    let mut late = story().wait(LEASE / 2).heartbeat("a", CallResult::Ok);
    let crate::history::What::Heartbeat(beat) = &mut late.events.last_mut().unwrap().what else {
        unreachable!()
    };
    beat.local_at += LEASE;
    late.wait(LEASE * 3 / 4)
        .deliver("a", "p", &[1])
        .breaks(&[S10]);
    // But one to a write of the row does: it was not taken before, and will not be for a while.
    let mut late = story().wait(LEASE * 3 / 4).renew("a", "p");
    let crate::history::What::Called(call) = &mut late.events.last_mut().unwrap().what else {
        unreachable!()
    };
    call.local_at += LEASE / 2;
    late.wait(LEASE * 3 / 4).deliver("a", "p", &[1]).passes();
}

#[test]
fn s10_an_owner_that_a_person_made_up_does_not_live() {
    let given_away = |to: &str| {
        Story::with_records(1)
            .take("a", "p")
            .admin("p", |row| row.owner = Some(to.to_owned()))
    };
    given_away("nobody").take("b", "p").passes();
    given_away("b").take("a", "p").breaks(&[S10]);
}

#[test]
fn s10_a_pause_excuses_one_batch() {
    let paused = || {
        let story = Story::with_records(2)
            .take("a", "p")
            .host("a", HostChange::Paused)
            .wait(2 * LEASE);
        story
            .take("b", "p")
            .host("a", HostChange::Resumed)
            .start("a", "p", &[1], 1, "v1")
            .ended(Outcome::Ok, &[])
    };
    paused().passes();
    paused().deliver("a", "p", &[2]).breaks(&[S10]);
}

#[test]
fn s11_no_delivery_in_doubt() {
    let doubt = || {
        let story = Story::with_records(2).take("a", "p");
        let sent_at = story.now;
        story.wait(MS).called(
            "a",
            "p",
            Some(WriteKind::Renew),
            CallResult::Unknown,
            sent_at,
        )
    };
    doubt().deliver("a", "p", &[1]).breaks(&[S11]);
    let now = doubt().now;
    doubt()
        .called("a", "p", None, CallResult::Ok, now)
        .deliver("a", "p", &[1])
        .passes();
    doubt()
        .called("a", "p", None, CallResult::Ok, SECOND)
        .deliver("a", "p", &[1])
        .breaks(&[S11]);
    doubt()
        .called("a", "p", None, CallResult::Unknown, now)
        .deliver("a", "p", &[1])
        .breaks(&[S11]);
    let throttled = doubt().called(
        "a",
        "p",
        Some(WriteKind::Renew),
        CallResult::NotApplied,
        now,
    );
    throttled.deliver("a", "p", &[1]).breaks(&[S11]);
    doubt().renew("a", "p").deliver("a", "p", &[1]).passes();
}

#[test]
fn s12_rows_stay_while_they_are_needed() {
    let ended = || {
        Story::with_records(2)
            .read_to_end()
            .create("l")
            .create("r")
            .produced("l", [10])
            .end("a", "p")
    };
    ended().delete("a", "p").breaks(&[S12]);
    let begun = |story: Story, id| {
        story
            .take("b", id)
            .deliver("b", id, &[10])
            .checkpoint("b", id, 10)
    };
    begun(ended(), "l").delete("a", "p").breaks(&[S12]);
    begun(begun(ended().produced("r", [10]), "l"), "r")
        .delete("a", "p")
        .passes();
    begun(begun(ended().produced("r", [10]), "l"), "r")
        .delete("a", "p")
        .create("p")
        .breaks(&[S12]);
    let finished = || begun(begun(ended().produced("r", [10]), "l"), "r").delete("a", "p");
    let rewound = |row: &mut Row| row.checkpoint = Checkpoint::Initial;
    finished().admin("l", rewound).create("p").passes();
    finished()
        .admin("l", |row| row.owner = None)
        .create("p")
        .breaks(&[S12]);
    let grown = begun(begun(ended().produced("r", [10]), "l"), "r")
        .said_end("b", "l")
        .end("b", "l");
    grown.clone().delete("a", "l").breaks(&[S12]);
    grown.delete("a", "p").delete("a", "l").passes();
    Story::with_records(1).delete("a", "p").breaks(&[S12]);
    Story::with_records(1)
        .trimmed("p", None)
        .delete("a", "p")
        .passes();
}

#[test]
fn s13_leases_cover_all_keys() {
    let ended = Story::with_records(2)
        .read_to_end()
        .create("l")
        .create("r")
        .end("a", "p")
        .release("a", "p");
    ended.clone().healed().passes();
    ended.clone().trimmed("p", None).healed().passes();
    ended
        .admin("r", |row| row.checkpoint = Checkpoint::End)
        .healed()
        .breaks(&[S13]);
    Story::new().healed().breaks(&[S13]);
    let story = Story::new().split().create("l");
    let mut row = story.row("l");
    row.range = Some((0, 7));
    let sent = story.now;
    let mut story = story.applied(Some("a"), "r", WriteKind::Create, Some(row));
    story.now = story.now.max(sent);
    story.breaks(&[S13]);
}

#[test]
fn s14_one_version_after_another() {
    let on = |story: Story, number, digest| {
        story
            .start("a", "p", &[number], 1, digest)
            .ended(Outcome::Ok, &[])
    };
    let story = || on(Story::with_records(3).take("a", "p"), 1, "v1").offered("a", "v2", true);
    on(on(story(), 2, "v2"), 3, "v2").passes();
    on(on(story(), 2, "v1"), 3, "v2").passes();
    on(on(story(), 2, "v2"), 3, "v1").breaks(&[S14]);
    on(on(story(), 2, "v2").offered("a", "v1", true), 3, "v1").passes();
    on(story().offered("a", "bad", false), 2, "bad").breaks(&[S14]);
    on(story(), 2, "unheard").breaks(&[S14]);
}

#[test]
fn s16_a_namesake_starts_over() {
    let old = || {
        Story::with_records(2)
            .take("a", "p")
            .deliver("a", "p", &[1, 2])
            .checkpoint("a", "p", 2)
    };
    let recreated = || old().release("a", "p").recreated(2).produced("p", [3]);
    recreated()
        .take("b", "p")
        .deliver("b", "p", &[3])
        .breaks(&[S16]);
    recreated()
        .delete("b", "p")
        .create("p")
        .take("b", "p")
        .deliver("b", "p", &[3])
        .passes();
    old()
        .recreated(2)
        .produced("p", [3])
        .deliver("a", "p", &[3])
        .breaks(&[S16]);
    assert_ne!(at(2), at(3));
}

#[test]
fn no_record_is_lost() {
    let story = || {
        Story::with_records(3)
            .take("a", "p")
            .deliver("a", "p", &[1, 2])
    };
    story().healed().breaks(&[NoLoss]);
    story().trimmed("p", Some(3)).healed().passes();
    story().deliver("a", "p", &[3]).healed().passes();
    let mut young = story().healed();
    young.limits.bounds.settled_within = LEASE;
    young.passes();
}
