//! L1 to L5, L7: what is due, and what is late.

use super::story::{LEASE, MS, SECOND, Story};
use crate::Invariant::{L1, L2, L3, L4, L5, L7};
use crate::history::HostChange;
use crate::limits::{Bounds, Rate};

fn with(mut story: Story, bounds: Bounds) -> Story {
    story.limits.bounds = bounds;
    story
}

#[test]
fn l1_orphans_are_taken() {
    let orphan = |wait| {
        let story = Story::with_records(0)
            .take("a", "p")
            .healed()
            .host("a", HostChange::Crashed)
            .wait(wait);
        with(
            story,
            Bounds {
                retaken_within: Some(2 * LEASE),
                ..Bounds::default()
            },
        )
    };
    orphan(LEASE * 3 / 2).take("b", "p").passes();
    orphan(LEASE * 3).take("b", "p").breaks(&[L1]);
    orphan(LEASE * 3).breaks(&[L1]);
    orphan(LEASE * 3 / 2).breaks(&[]);
}

#[test]
fn l1_what_waits_for_a_shard_that_is_gone_is_due_once_its_row_is_removed() {
    let bounds = Bounds {
        retaken_within: Some(LEASE),
        balanced_within: Some(LEASE),
        ..Bounds::default()
    };
    let waiting = with(
        Story::with_records(1)
            .take("a", "p")
            .split()
            .create("l")
            .create("r"),
        bounds,
    );
    let removed = || {
        waiting
            .clone()
            .trimmed("p", None)
            .healed()
            .wait(3 * LEASE)
            .delete("a", "p")
    };
    removed()
        .take("a", "l")
        .take("b", "r")
        .wait(3 * LEASE)
        .passes();
    removed()
        .wait(2 * LEASE)
        .take("a", "l")
        .take("b", "r")
        .breaks(&[L2, L1, L1, L2]);
}

#[test]
fn l2_leases_are_spread_and_stay() {
    let bounds = || Bounds {
        balanced_within: Some(LEASE),
        ..Bounds::default()
    };
    let halves = || {
        Story::with_records(0)
            .take("a", "p")
            .split()
            .said_end("a", "p")
            .create("l")
            .create("r")
            .end("a", "p")
    };
    let spread = || with(halves().take("a", "l").take("b", "r").healed(), bounds()).wait(2 * LEASE);
    spread().passes();
    spread().release("b", "r").take("b", "r").breaks(&[L2]);
    with(halves().take("a", "l").take("a", "r").healed(), bounds())
        .wait(2 * LEASE)
        .breaks(&[L2]);
}

#[test]
fn l3_children_have_rows_soon() {
    let read = || Story::with_records(2).healed().read_to_end();
    let bounds = || Bounds {
        children_within: Some(SECOND),
        ..Bounds::default()
    };
    with(read(), bounds())
        .create("l")
        .create("r")
        .wait(2 * SECOND)
        .passes();
    with(read(), bounds()).wait(2 * SECOND).breaks(&[L3]);
    with(read(), bounds())
        .wait(2 * SECOND)
        .create("l")
        .create("r")
        .breaks(&[L3]);
    // Whoever takes over reads the end again.
    with(read(), bounds())
        .host("a", HostChange::Crashed)
        .wait(2 * SECOND)
        .passes();
}

#[test]
fn l4_what_waited_is_settled_soon() {
    let story = |wait| {
        let story = Story::with_records(1)
            .healed()
            .take("a", "p")
            .wait(wait)
            .deliver("a", "p", &[1]);
        with(
            story,
            Bounds {
                caught_up_within: Some(SECOND),
                ..Bounds::default()
            },
        )
    };
    story(MS).passes();
    story(2 * SECOND).breaks(&[L4]);
}

#[test]
fn l5_a_stopping_host_gives_its_leases_back() {
    let bounds = || Bounds {
        released_within: Some(SECOND),
        handed_on_within: Some(SECOND),
        ..Bounds::default()
    };
    let stopping = || {
        with(
            Story::with_records(0)
                .take("a", "p")
                .healed()
                .host("a", HostChange::Stopping),
            bounds(),
        )
    };
    stopping()
        .release("a", "p")
        .take("b", "p")
        .wait(LEASE)
        .passes();
    stopping()
        .wait(2 * SECOND)
        .release("a", "p")
        .take("b", "p")
        .breaks(&[L5]);
    stopping()
        .release("a", "p")
        .wait(2 * SECOND)
        .take("b", "p")
        .breaks(&[L5]);
    // One that faults kept from it is gone before the healing.
    let gone = Story::with_records(0)
        .take("a", "p")
        .host("a", HostChange::Stopping)
        .host("a", HostChange::Stopped);
    with(
        gone.wait(MS)
            .healed()
            .wait(2 * LEASE)
            .take("b", "p")
            .wait(LEASE),
        bounds(),
    )
    .passes();
}

#[test]
fn l7_calls_calm_down() {
    let story = || {
        let rate = Rate {
            max: 2,
            window: SECOND,
            after: SECOND,
        };
        with(
            Story::with_records(0).take("a", "p").healed(),
            Bounds {
                calls: Some(rate),
                ..Bounds::default()
            },
        )
    };
    let thrice = |story: Story, pause| {
        story
            .renew("a", "p")
            .wait(pause)
            .renew("a", "p")
            .wait(pause)
            .renew("a", "p")
    };
    thrice(story(), MS).wait(2 * SECOND).passes();
    thrice(story().wait(2 * SECOND), SECOND).passes();
    thrice(story().wait(2 * SECOND), MS).breaks(&[L7]);
}
