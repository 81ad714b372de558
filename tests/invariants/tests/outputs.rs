//! S20 and S21: outputs are stored before they are covered, and gaps are told.

use super::story::{SECOND, Story, at, place};
use crate::Invariant::{S9, S20, S21};
use crate::history::{Outcome, Output, What};

impl Story {
    /// The last delivery emits these: id of the output, and the record that it came of.
    fn emits(self, outputs: &[(u64, u64)]) -> Self {
        let outputs = outputs
            .iter()
            .map(|(id, of)| Output {
                id: *id,
                of: place(*of),
            })
            .collect();
        let (host, shard) = ("a".to_owned(), "p".to_owned());
        self.push(What::Emitted {
            host,
            shard,
            epoch: 1,
            outputs,
        })
        .ended(Outcome::Ok, &[])
    }

    fn stored(self, output: u64) -> Self {
        self.push(What::Stored { output })
    }

    fn gap_reported(self, after: u64) -> Self {
        self.push(What::GapTold {
            host: "a".to_owned(),
            shard: "p".to_owned(),
            after: place(after),
        })
    }
}

fn begun() -> Story {
    Story::with_records(4)
        .take("a", "p")
        .start("a", "p", &[1, 2], 1, "v1")
}

#[test]
fn s20_outputs_are_stored_before_a_checkpoint_covers_them() {
    let emitted = || begun().emits(&[(10, 1), (20, 2), (21, 2)]);
    emitted()
        .stored(10)
        .stored(20)
        .stored(21)
        .checkpoint("a", "p", 2)
        .passes();
    emitted()
        .stored(10)
        .checkpoint("a", "p", 1)
        .stored(20)
        .stored(21)
        .checkpoint("a", "p", 2)
        .passes();
    emitted()
        .stored(10)
        .stored(20)
        .checkpoint("a", "p", 2)
        .breaks(&[S20]);
    emitted()
        .checkpoint("a", "p", 2)
        .stored(10)
        .stored(20)
        .stored(21)
        .breaks(&[S20]);
    let ended = emitted()
        .stored(10)
        .stored(20)
        .stored(21)
        .deliver("a", "p", &[3])
        .start("a", "p", &[4], 1, "v1");
    let ended = ended
        .emits(&[(40, 4)])
        .split()
        .said_end("a", "p")
        .create("l")
        .create("r");
    ended.clone().stored(40).end("a", "p").passes();
    ended.end("a", "p").breaks(&[S20]);
}

#[test]
fn s9_what_came_of_a_batch_and_was_not_stored_before_the_hand_over_comes_again() {
    let handed_over = |story: Story| {
        let story = story.release("a", "p").take("a", "p").reborn();
        story
            .start("a", "p", &[1, 2], 1, "v1")
            .ended(Outcome::Ok, &[])
    };
    // Nor is what came before it in the batch settled without it.
    handed_over(begun().emits(&[(20, 2)])).passes();
    handed_over(begun().emits(&[(20, 2)]).stored(20)).breaks(&[S9]);
}

#[test]
fn s20_an_output_that_was_stored_while_the_checkpoint_was_under_way_came_too_late() {
    let mut story = begun()
        .emits(&[(20, 2)])
        .wait(SECOND)
        .stored(20)
        .checkpoint("a", "p", 2);
    let write = story
        .events
        .iter_mut()
        .find_map(|event| match &mut event.what {
            What::Written(write)
                if write
                    .after
                    .as_ref()
                    .is_some_and(|row| row.checkpoint == at(2)) =>
            {
                Some(write)
            }
            _ => None,
        });
    write.unwrap().sent_at -= SECOND / 2;
    story.breaks(&[S20]);
}

#[test]
fn s20_what_is_delivered_again_emits_again() {
    let trapped = || {
        let story = begun().held_back(None).emits(&[(10, 1), (20, 2)]);
        let story = story
            .start("a", "p", &[3], 1, "v1")
            .ended(Outcome::Trap, &[]);
        story
            .start("a", "p", &[1, 2, 3], 2, "v1")
            .emits(&[(11, 1), (22, 2)])
    };
    trapped()
        .stored(11)
        .stored(22)
        .checkpoint("a", "p", 3)
        .passes();
    trapped()
        .stored(10)
        .stored(20)
        .checkpoint("a", "p", 3)
        .breaks(&[S20]);
}

#[test]
fn s21_what_left_the_stream_unread_is_reported() {
    let trimmed = || {
        Story::with_records(4)
            .take("a", "p")
            .deliver("a", "p", &[1])
            .checkpoint("a", "p", 1)
            .trimmed("p", Some(3))
    };
    let goes_on = |story: Story| {
        story
            .deliver("a", "p", &[4])
            .checkpoint("a", "p", 4)
            .healed()
    };
    goes_on(trimmed().gap_reported(1)).passes();
    goes_on(trimmed()).breaks(&[S21]);
    // Nobody has come to the gap yet.
    let unread = trimmed().healed();
    unread.breaks(&[crate::Invariant::NoLoss]);
    // It was in memory.
    goes_on(trimmed().deliver("a", "p", &[2, 3])).passes();
    // An operator begins the shard anew: nothing was read that a gap could follow.
    let anew = trimmed().admin("p", |row| {
        (row.checkpoint, row.owner) = (crate::history::Checkpoint::Initial, None);
    });
    goes_on(anew.take("a", "p")).passes();
    // What leaves while it is in memory says nothing of the gap before it.
    let failed = trimmed()
        .gap_reported(1)
        .start("a", "p", &[4], 1, "v1")
        .ended(Outcome::Error, &[])
        .trimmed("p", Some(4));
    let handled = failed
        .start("a", "p", &[4], 2, "v1")
        .ended(Outcome::Ok, &[])
        .produced("p", [5]);
    handled
        .deliver("a", "p", &[5])
        .checkpoint("a", "p", 5)
        .healed()
        .passes();
}

#[test]
fn s21_what_was_trimmed_before_the_first_read_follows_nothing() {
    let story = Story::with_records(4)
        .trimmed("p", Some(2))
        .take("a", "p")
        .deliver("a", "p", &[3, 4]);
    story.checkpoint("a", "p", 4).healed().passes();
}

#[test]
fn s21_a_gap_that_is_reported_is_one() {
    let story = || {
        Story::with_records(4)
            .take("a", "p")
            .deliver("a", "p", &[1, 2])
            .checkpoint("a", "p", 2)
    };
    story().gap_reported(2).breaks(&[S21]);
    story().trimmed("p", Some(1)).gap_reported(2).breaks(&[S21]);
    // Nothing is missing, but nobody can know that.
    story().trimmed("p", Some(2)).gap_reported(2).passes();
}
