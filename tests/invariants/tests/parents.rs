//! S6: a child is read once its parents have ended, and what an operator or a pause changes in that.

use super::story::{SECOND, Story};
use crate::Invariant::S6;
use crate::history::{Checkpoint, HostChange};

#[test]
fn s6_parents_come_first() {
    let story = Story::with_records(2)
        .read_to_end()
        .produced("l", [10])
        .create("l")
        .create("r");
    story
        .clone()
        .end("a", "p")
        .take("b", "l")
        .deliver("b", "l", &[10])
        .passes();
    story.take("b", "l").deliver("b", "l", &[10]).breaks(&[S6]);
}

#[test]
fn s6_a_take_may_cross_with_the_row_of_a_parent_that_is_to_be_read_again() {
    let removed = Story::with_records(2)
        .read_to_end()
        .produced("l", [10])
        .produced("r", [11])
        .create("l")
        .create("r")
        .end("a", "p")
        .take("b", "l")
        .deliver("b", "l", &[10])
        .checkpoint("b", "l", 10)
        .take("b", "r")
        .deliver("b", "r", &[11])
        .checkpoint("b", "r", 11)
        .delete("a", "p");
    let made_again = removed
        .admin("l", |row| {
            row.checkpoint = Checkpoint::Initial;
            row.owner = None;
        })
        .create("p");
    let read = |story: Story| story.take("b", "l").deliver("b", "l", &[10]);
    read(made_again.clone()).passes();
    read(made_again.wait(20 * SECOND)).breaks(&[S6]);
}

#[test]
fn s6_a_child_that_is_held_is_read_on_when_its_parents_row_is_made_again() {
    let sent_back = Story::with_records(2)
        .read_to_end()
        .produced("l", [10, 11])
        .produced("r", [20])
        .create("l")
        .create("r")
        .end("a", "p")
        .take("b", "l")
        .deliver("b", "l", &[10, 11])
        .checkpoint("b", "l", 11)
        .take("b", "r")
        .deliver("b", "r", &[20])
        .checkpoint("b", "r", 20)
        .delete("a", "p")
        .admin("l", |row| {
            row.checkpoint = Checkpoint::Initial;
            row.owner = None;
        });
    let held = sent_back
        .clone()
        .take("b", "l")
        .deliver("b", "l", &[10])
        .checkpoint("b", "l", 10)
        .wait(20 * SECOND)
        .create("p")
        .take("a", "p");
    let reads =
        |story: Story, host: &str, record| story.take(host, "l").deliver(host, "l", &[record]);
    reads(held.clone(), "b", 11).passes();
    // Another host, or another run of the same one, sees the parent's row first.
    reads(held.clone().release("b", "l"), "a", 11).breaks(&[S6]);
    let restarted = held
        .clone()
        .host("b", HostChange::Crashed)
        .host("b", HostChange::Started);
    reads(restarted, "b", 11).breaks(&[S6]);
    // An operator wrote to the row meanwhile.
    reads(held.admin("l", |row| row.counter += 1), "b", 11).breaks(&[S6]);
    // What was not held before is no more so for being taken twice.
    let made_first = sent_back.create("p").take("a", "p").wait(20 * SECOND);
    reads(made_first.take("b", "l"), "b", 10).breaks(&[S6]);
}
