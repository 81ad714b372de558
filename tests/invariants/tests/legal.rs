//! What a correct fleet may do, however odd it looks: no false alarms.

use super::story::{LEASE, MS, Story, at};
use crate::history::{CallResult, HostChange, Outcome, Place, Sequence, What, WriteKind};

#[test]
fn a_failed_batch_is_tried_again() {
    let story = Story::with_records(4)
        .take("a", "p")
        .start("a", "p", &[1, 2, 3], 1, "v1")
        .ended(Outcome::Error, &[]);
    let story = story
        .start("a", "p", &[1, 2, 3], 2, "v1")
        .ended(Outcome::Trap, &[]);
    let story = story
        .start("a", "p", &[1, 2, 3], 3, "v1")
        .ended(Outcome::Ok, &[2, 3])
        .checkpoint("a", "p", 1);
    let story = story
        .start("a", "p", &[2, 3], 4, "v1")
        .ended(Outcome::Ok, &[2]);
    let story = story
        .start("a", "p", &[2], 5, "v1")
        .ended(Outcome::Ok, &[])
        .checkpoint("a", "p", 3);
    story
        .deliver("a", "p", &[4])
        .checkpoint("a", "p", 4)
        .passes();
}

#[test]
fn a_dead_instance_that_held_back_gets_its_records_again() {
    let held = || {
        let story = Story::with_records(4)
            .take("a", "p")
            .deliver("a", "p", &[1])
            .checkpoint("a", "p", 1);
        story
            .start("a", "p", &[2], 1, "v1")
            .held_back(None)
            .ended(Outcome::Ok, &[])
    };
    let died = held()
        .start("a", "p", &[3], 1, "v1")
        .ended(Outcome::Trap, &[]);
    died.start("a", "p", &[2, 3], 2, "v1")
        .ended(Outcome::Ok, &[])
        .checkpoint("a", "p", 3)
        .passes();
    // The version changed, or it died in `close`, which no event shows.
    held()
        .offered("a", "v2", true)
        .start("a", "p", &[2, 3], 1, "v2")
        .ended(Outcome::Ok, &[])
        .passes();
    let closed = held()
        .reborn()
        .start("a", "p", &[2, 3], 1, "v1")
        .ended(Outcome::Ok, &[]);
    closed.checkpoint("a", "p", 3).passes();
}

#[test]
fn what_was_held_back_is_settled_by_a_later_outcome() {
    let story = Story::with_records(3)
        .take("a", "p")
        .start("a", "p", &[1, 2], 1, "v1")
        .held_back(Some(1));
    let story = story
        .ended(Outcome::Ok, &[])
        .checkpoint("a", "p", 1)
        .deliver("a", "p", &[3]);
    story.checkpoint("a", "p", 3).passes();
}

#[test]
fn held_back_records_repeat_after_a_release() {
    let story = Story::with_records(2)
        .take("a", "p")
        .start("a", "p", &[1, 2], 1, "v1")
        .held_back(Some(1));
    let story = story
        .ended(Outcome::Ok, &[])
        .checkpoint("a", "p", 1)
        .release("a", "p")
        .take("b", "p");
    story
        .deliver("b", "p", &[2])
        .checkpoint("b", "p", 2)
        .passes();
}

#[test]
fn settled_records_behind_a_failing_one_repeat_after_a_release() {
    let story = Story::with_records(3)
        .take("a", "p")
        .start("a", "p", &[1, 2, 3], 1, "v1")
        .ended(Outcome::Ok, &[2]);
    let story = story
        .checkpoint("a", "p", 1)
        .release("a", "p")
        .take("b", "p");
    story.deliver("b", "p", &[2, 3]).passes();
}

#[test]
fn a_crash_in_the_middle_repeats_what_was_not_written_down() {
    let story = Story::with_records(3)
        .take("a", "p")
        .deliver("a", "p", &[1, 2])
        .start("a", "p", &[3], 1, "v1");
    let story = story
        .host("a", HostChange::Crashed)
        .wait(2 * LEASE)
        .take("b", "p");
    story
        .deliver("b", "p", &[1, 2, 3])
        .checkpoint("b", "p", 3)
        .passes();
}

#[test]
fn a_restarted_host_takes_its_own_lease_at_once() {
    let story = Story::with_records(2)
        .take("a", "p")
        .deliver("a", "p", &[1])
        .host("a", HostChange::Crashed);
    let story = story
        .host("a", HostChange::Started)
        .take("a", "p")
        .deliver("a", "p", &[1, 2]);
    story.checkpoint("a", "p", 2).passes();
}

#[test]
fn a_delivery_in_flight_when_the_lease_was_lost_ends_as_it_will() {
    let story = Story::with_records(2)
        .take("a", "p")
        .start("a", "p", &[1], 1, "v1")
        .host("a", HostChange::Paused);
    let story = story
        .wait(2 * LEASE)
        .take("b", "p")
        .host("a", HostChange::Resumed)
        .ended(Outcome::Ok, &[]);
    story
        .deliver("b", "p", &[1, 2])
        .checkpoint("b", "p", 2)
        .passes();
}

#[test]
fn a_hand_over_repeats_nothing() {
    let story = Story::with_records(3)
        .take("a", "p")
        .deliver("a", "p", &[1])
        .claim("b", "p")
        .renew("a", "p");
    let story = story
        .deliver("a", "p", &[2])
        .checkpoint("a", "p", 2)
        .release("a", "p")
        .take("b", "p");
    story.deliver("b", "p", &[3]).passes();
}

#[test]
fn aggregates_resume_in_the_middle() {
    let sub = |sub| Place {
        sequence: Sequence::new("1"),
        sub,
    };
    let mut story = Story::new();
    for number in 0..3 {
        let (shard, key) = ("p".to_owned(), "k".to_owned());
        story = story.push(What::Produced {
            shard,
            at: sub(number),
            key,
            arrived_at: 0,
        });
    }
    let deliver = |story: Story, host: &str, subs: &[u64]| {
        let mut story = story.start(host, "p", &[], 1, "v1");
        let What::DeliveryStarted(delivery) = &mut story.events.last_mut().unwrap().what else {
            unreachable!()
        };
        delivery.places = subs.iter().copied().map(sub).collect();
        story.ended(Outcome::Ok, &[])
    };
    let story = deliver(story.create("p").take("a", "p"), "a", &[0, 1]);
    let to = crate::history::Checkpoint::At(sub(1));
    let story = story
        .write("a", "p", WriteKind::Checkpoint, |row| row.checkpoint = to)
        .release("a", "p");
    deliver(story.take("b", "p"), "b", &[2]).passes();
}

#[test]
fn trimmed_records_are_skipped_or_delivered_from_memory() {
    let trimmed = || {
        Story::with_records(4)
            .take("a", "p")
            .deliver("a", "p", &[1])
            .trimmed("p", Some(3))
    };
    trimmed()
        .deliver("a", "p", &[4])
        .checkpoint("a", "p", 4)
        .passes();
    trimmed()
        .deliver("a", "p", &[3])
        .checkpoint("a", "p", 3)
        .deliver("a", "p", &[4])
        .passes();
}

#[test]
fn an_operator_may_do_anything() {
    let story = || {
        Story::with_records(4)
            .take("a", "p")
            .deliver("a", "p", &[1, 2, 3])
            .checkpoint("a", "p", 3)
    };
    let back = story().admin("p", |row| {
        (row.owner, row.checkpoint) = (None, at(1));
        row.counter += 1;
    });
    // The holder does not know before its next write.
    let back = back.deliver("a", "p", &[4]).take("b", "p");
    let mut back = back
        .deliver("b", "p", &[2, 3])
        .deliver("b", "p", &[4])
        .checkpoint("b", "p", 4);
    back.limits.repeats_max = 0;
    back.passes();
    let skip = |row: &mut crate::history::Row| (row.owner, row.checkpoint) = (None, at(3));
    let ahead = Story::with_records(4)
        .take("a", "p")
        .admin("p", skip)
        .take("b", "p")
        .deliver("b", "p", &[4]);
    ahead.checkpoint("b", "p", 4).healed().passes();
    let gone = story()
        .applied(None, "p", WriteKind::Admin, None)
        .create("p")
        .take("b", "p");
    gone.deliver("b", "p", &[1, 2, 3, 4]).passes();
}

#[test]
fn an_unanswered_write_that_was_applied_counts_from_its_sending() {
    let story = Story::with_records(2).take("a", "p").wait(LEASE / 2);
    let sent_at = story.now;
    let mut row = story.row("p");
    row.counter += 1;
    let story = story
        .applied(Some("a"), "p", WriteKind::Renew, Some(row))
        .wait(MS);
    let story = story.called(
        "a",
        "p",
        Some(WriteKind::Renew),
        CallResult::Unknown,
        sent_at,
    );
    let now = story.now;
    let story = story
        .called("a", "p", None, CallResult::Ok, now)
        .wait(LEASE * 3 / 4);
    story.deliver("a", "p", &[1]).renew("a", "p").passes();
}
