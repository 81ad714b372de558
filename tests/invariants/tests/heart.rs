//! S10: what a heartbeat holds.

use super::story::{LEASE, MS, SECOND, Story};
use crate::Invariant::S10;
use crate::history::{CallResult, WriteKind};

/// `a` sends a take, which is applied; it gets the answer `later`, and meanwhile `b` may take the
/// lease.
fn late_answer(beats: &[u64], answered_after: u64) -> Story {
    let mut story = Story::with_records(2);
    let sent_at = story.now;
    let mut row = story.row("p");
    (row.owner, row.counter) = (Some("a".to_owned()), row.counter + 1);
    let kind = WriteKind::Take {
        seen: row.counter - 1,
    };
    story = story.applied(Some("a"), "p", kind, Some(row));
    for beat in beats {
        story.now = story.now.max(sent_at + beat * SECOND);
        story = story.heartbeat("a", CallResult::Ok).wait(MS);
    }
    story.now = story.now.max(sent_at + answered_after * SECOND);
    story.called("a", "p", Some(kind), CallResult::Ok, sent_at)
}

#[test]
fn a_heartbeat_holds_what_was_taken_before_it_while_that_still_held() {
    late_answer(&[3, 6], 1)
        .wait(8 * SECOND)
        .deliver("a", "p", &[1])
        .passes();
    late_answer(&[3, 6, 9 - 1], 12)
        .deliver("a", "p", &[1])
        .passes();
    late_answer(&[3], 11).deliver("a", "p", &[1]).passes();
    late_answer(&[3], 13).deliver("a", "p", &[1]).breaks(&[S10]);
}

#[test]
fn a_heartbeat_after_a_missed_deadline_holds_nothing_that_was_taken_before() {
    const { assert!(LEASE == 10 * SECOND) };
    late_answer(&[12], 13)
        .deliver("a", "p", &[1])
        .breaks(&[S10]);
    late_answer(&[12], 13)
        .renew("a", "p")
        .deliver("a", "p", &[1])
        .passes();
}

/// `a` holds a lease, and finds its row gone.
fn gone() -> Story {
    let story = Story::with_records(2)
        .heartbeat("a", CallResult::Ok)
        .take("a", "p")
        .wait(3 * SECOND)
        .heartbeat("a", CallResult::Ok)
        .wait(3 * SECOND)
        .heartbeat("a", CallResult::Conflict);
    story.wait(MS)
}

fn registered() -> Story {
    gone().register("a", CallResult::Ok)
}

/// `a` beats once more, then stands still.
fn paused(story: Story) -> Story {
    story.heartbeat("a", CallResult::Ok).wait(8 * SECOND)
}

#[test]
fn a_heartbeat_after_the_hosts_row_was_gone_holds_only_what_was_written_since() {
    paused(registered()).take("b", "p").passes();
    paused(registered().wait(MS).renew("a", "p"))
        .take("b", "p")
        .breaks(&[S10]);
    paused(registered()).deliver("a", "p", &[1]).breaks(&[S10]);
    paused(registered().wait(MS).renew("a", "p"))
        .deliver("a", "p", &[1])
        .passes();
    // It may have been applied.
    paused(gone().register("a", CallResult::Unknown))
        .take("b", "p")
        .passes();
    // It was gone since the first registration.
    let second = gone()
        .register("a", CallResult::Unknown)
        .wait(MS)
        .renew("a", "p")
        .register("a", CallResult::Ok);
    paused(second).deliver("a", "p", &[1]).passes();
    // The row was there: another try of a heartbeat was late.
    paused(gone()).take("b", "p").breaks(&[S10]);
    paused(gone()).deliver("a", "p", &[1]).passes();
}
