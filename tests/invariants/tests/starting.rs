//! S19, and what the start leaves to be delivered.

use super::story::{LEASE, SECOND, Story, at};
use crate::InitialPosition::{At, Latest, Oldest};
use crate::Invariant::{NoLoss, S6, S8, S19};
use crate::history::{HostChange, Start, What};
use crate::limits::InitialPosition;

/// `p` with records that arrived at seconds 2 to 5, and hosts that are configured to begin at
/// `positions`.
fn stream(positions: &[InitialPosition]) -> Story {
    let mut story = Story::new();
    story.limits.initial_positions = positions.to_vec();
    for second in 2..=5 {
        story = story.arrived("p", second, second * SECOND);
    }
    story.wait(6 * SECOND)
}

impl Story {
    fn chosen(self, moment: u64) -> Self {
        self.push(What::StartChosen(Start::At(moment)))
    }

    fn all_settled(self, numbers: &[u64]) -> Self {
        let last = numbers.last().copied().unwrap_or_default();
        self.deliver("a", "p", numbers)
            .checkpoint("a", "p", last)
            .healed()
    }
}

#[test]
fn what_arrived_at_the_start_or_later_is_delivered_and_nothing_before() {
    let begun = || {
        stream(&[At(4 * SECOND)])
            .chosen(4 * SECOND)
            .create("p")
            .take("a", "p")
    };
    begun().all_settled(&[4, 5]).passes();
    begun()
        .all_settled(&[5])
        .breaks(&[S8, crate::Invariant::S4, NoLoss]);
    begun().all_settled(&[3, 4, 5]).breaks(&[S19]);
    begun().deliver("a", "p", &[4]).healed().breaks(&[NoLoss]);
}

#[test]
fn a_start_outlives_every_owner_without_a_checkpoint() {
    let begun = || {
        stream(&[Latest])
            .chosen(7 * SECOND)
            .create("p")
            .take("a", "p")
            .arrived("p", 8, 8 * SECOND)
    };
    let crashed = || {
        begun()
            .host("a", HostChange::Crashed)
            .arrived("p", 9, 9 * SECOND)
            .wait(2 * LEASE)
            .take("b", "p")
    };
    crashed()
        .deliver("b", "p", &[8, 9])
        .checkpoint("b", "p", 9)
        .healed()
        .passes();
    crashed().deliver("b", "p", &[9]).breaks(&[S8]);
    // The same instance that died before it committed anything, and came back at the latest record.
    let died = begun()
        .start("a", "p", &[8], 1, "v1")
        .ended(crate::history::Outcome::Trap, &[]);
    died.arrived("p", 9, 9 * SECOND)
        .deliver("a", "p", &[9])
        .breaks(&[crate::Invariant::S7]);
}

#[test]
fn a_start_is_chosen_before_anything_is_delivered() {
    stream(&[Latest])
        .create("p")
        .take("a", "p")
        .deliver("a", "p", &[5])
        .breaks(&[S8, S19]);
    stream(&[Latest])
        .chosen(7 * SECOND)
        .create("p")
        .take("a", "p")
        .healed()
        .passes();
    // Of hosts that are configured differently, one chooses for all.
    let oldest = stream(&[Latest, Oldest])
        .push(What::StartChosen(Start::Oldest))
        .create("p")
        .take("a", "p");
    oldest.all_settled(&[2, 3, 4, 5]).passes();
}

#[test]
fn a_start_is_one_that_a_host_was_configured_with() {
    stream(&[Latest])
        .push(What::StartChosen(Start::Oldest))
        .breaks(&[S19]);
    stream(&[At(3 * SECOND)]).chosen(4 * SECOND).breaks(&[S19]);
    // What arrives after it was written down would be skipped; what arrived before any host ran was
    // not to be read.
    stream(&[Latest]).chosen(60 * SECOND).breaks(&[S19]);
    stream(&[Latest]).chosen(SECOND / 2).breaks(&[S19]);
    let mut unsure = stream(&[Latest]).chosen(SECOND / 2);
    unsure.limits.latest_error = SECOND;
    unsure.passes();
}

#[test]
fn a_start_once_chosen_is_kept() {
    let begun = || stream(&[Latest, Oldest]).chosen(7 * SECOND);
    begun().create("p").chosen(7 * SECOND).passes();
    begun().create("p").chosen(7 * SECOND + 1).breaks(&[S19]);
    begun()
        .create("p")
        .push(What::StartChosen(Start::Oldest))
        .breaks(&[S19]);
    // After all rows are removed the application begins again; so does another stream under the
    // same name.
    let emptied = begun()
        .create("p")
        .applied(None, "p", crate::history::WriteKind::Admin, None);
    emptied.push(What::StartChosen(Start::Oldest)).passes();
    begun()
        .create("p")
        .recreated(2)
        .push(What::StartChosen(Start::Oldest))
        .passes();
}

#[test]
fn what_was_closed_before_the_start_is_never_read() {
    let split = || stream(&[Latest]).split().produced("r", [100]).wait(SECOND);
    let begun = || {
        split()
            .push_now_chosen()
            .create("l")
            .create("r")
            .take("a", "l")
            .take("b", "r")
    };
    begun()
        .produced("l", [7])
        .deliver("a", "l", &[7])
        .checkpoint("a", "l", 7)
        .healed()
        .passes();
    // The leader forgot that, and has it read after its children.
    let resurrected = begun().create("p").take("a", "p").deliver("a", "p", &[2]);
    resurrected.breaks(&[S19]);
}

#[test]
fn what_was_closed_after_the_start_is_read_before_its_children() {
    let split = || {
        stream(&[At(4 * SECOND)])
            .chosen(4 * SECOND)
            .split()
            .create("l")
            .create("r")
            .produced("l", [7])
    };
    split().take("a", "l").deliver("a", "l", &[7]).breaks(&[S6]);
    let read = split()
        .create("p")
        .take("a", "p")
        .deliver("a", "p", &[4, 5])
        .said_end("a", "p")
        .end("a", "p");
    read.take("a", "l")
        .deliver("a", "l", &[7])
        .checkpoint("a", "l", 7)
        .healed()
        .passes();
}

#[test]
fn a_checkpoint_or_an_operator_goes_before_the_start() {
    let begun = || stream(&[Latest]).chosen(7 * SECOND).create("p");
    let set = begun().admin("p", |row| row.checkpoint = at(3));
    set.take("a", "p")
        .deliver("a", "p", &[4, 5])
        .checkpoint("a", "p", 5)
        .healed()
        .passes();
}

impl Story {
    fn push_now_chosen(self) -> Self {
        let moment = self.now;
        self.chosen(moment)
    }
}
