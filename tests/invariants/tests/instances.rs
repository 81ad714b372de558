//! S7 to S9: what an instance held back goes to the one that replaces it, and to no other.

use super::policy::{by_key, skip, under};
use super::story::Story;
use crate::Invariant::{S8, S9};
use crate::history::{Outcome, What};

/// An instance of `a` has handled 2 and 3 and holds them back; 1 failed.
fn holds_back(story: Story) -> Story {
    story
        .start("a", "p", &[1, 2, 3], 1, "v1")
        .held_back(None)
        .ended(Outcome::Ok, &[1])
}

fn handles(story: Story, numbers: &[u64], attempt: u32) -> Story {
    story
        .start("a", "p", numbers, attempt, "v1")
        .ended(Outcome::Ok, &[])
}

/// The instance that got the last delivery, or the one after it, saves its state.
fn saved(story: Story) -> Story {
    let instance = story.instance_number();
    story.push(What::StateSaved {
        host: "a".to_owned(),
        shard: "p".to_owned(),
        epoch: 1,
        instance,
    })
}

fn in_order() -> Story {
    Story::with_records(4).take("a", "p")
}

#[test]
fn the_next_instance_may_take_two_deliveries_to_get_what_was_held_back() {
    for story in [in_order(), under(by_key())] {
        let one_by_one = handles(holds_back(story).reborn(), &[1], 2);
        handles(one_by_one, &[2, 3, 4], 1)
            .checkpoint("a", "p", 4)
            .passes();
    }
}

#[test]
fn the_same_instance_does_not_get_again_what_it_holds_back() {
    for story in [in_order(), under(by_key())] {
        let one_by_one = handles(holds_back(story), &[1], 2);
        handles(one_by_one, &[2, 3], 1).breaks(&[S9]);
    }
    let held = in_order()
        .start("a", "p", &[1, 2], 1, "v1")
        .held_back(None)
        .ended(Outcome::Ok, &[]);
    handles(held, &[1, 2], 1).breaks(&[S9]);
}

#[test]
fn what_comes_again_is_settled_once_it_was_handled_again() {
    let failed = under(by_key())
        .start("a", "p", &[1, 2, 3], 1, "v1")
        .ended(Outcome::Ok, &[1]);
    let held = failed
        .start("a", "p", &[1], 2, "v1")
        .held_back(None)
        .ended(Outcome::Ok, &[]);
    // 2 and 3 come again with 1: until they have, nothing says that they are settled.
    let again = handles(held.reborn(), &[1], 1)
        .start("a", "p", &[2], 1, "v1")
        .ended(Outcome::Error, &[]);
    let held_again = handles(again, &[3], 1)
        .start("a", "p", &[4], 1, "v1")
        .held_back(None)
        .ended(Outcome::Ok, &[]);
    handles(handles(held_again.reborn(), &[2], 2), &[3, 4], 1)
        .checkpoint("a", "p", 4)
        .passes();
}

#[test]
fn the_next_instance_does_get_what_was_held_back() {
    for story in [in_order(), under(by_key())] {
        let one_by_one = handles(holds_back(story).reborn(), &[1], 2);
        handles(one_by_one, &[4], 1).breaks(&[S8]);
    }
}

#[test]
fn the_next_instance_gets_nothing_again_of_one_that_held_nothing_back() {
    let died = || {
        in_order()
            .deliver("a", "p", &[1])
            .start("a", "p", &[2], 1, "v1")
            .ended(Outcome::Trap, &[])
    };
    handles(died(), &[2], 2).checkpoint("a", "p", 2).passes();
    handles(died(), &[1, 2], 2).breaks(&[S9]);
}

#[test]
fn what_was_given_up_before_a_rewind_is_known_once_it_is_come_to_again() {
    let given_up = || {
        let story = under(skip(1))
            .start("a", "p", &[1], 1, "v1")
            .held_back(None)
            .ended(Outcome::Ok, &[]);
        handles(story.fails(&[2], 1).skipped(2).reborn(), &[1], 1).checkpoint("a", "p", 1)
    };
    // Reading had not come to 2 again: the host could not know that nothing lies between.
    given_up()
        .release("a", "p")
        .take("b", "p")
        .start("b", "p", &[2], 1, "v1")
        .ended(Outcome::Ok, &[])
        .passes();
    let passed = handles(given_up(), &[3], 1)
        .release("a", "p")
        .take("b", "p");
    passed
        .start("b", "p", &[2], 1, "v1")
        .ended(Outcome::Ok, &[])
        .breaks(&[S9]);
}

#[test]
fn a_state_holds_what_its_own_instance_handled() {
    let (host, shard) = ("a".to_owned(), "p".to_owned());
    let loaded = What::StateLoaded {
        host: host.clone(),
        shard: shard.clone(),
        epoch: 1,
        counted: Vec::new(),
    };
    let saved = |story: Story| saved(story).checkpoint("a", "p", 1);
    let holds_back = |story: Story, numbers: &[u64]| {
        story
            .start("a", "p", numbers, 1, "v1")
            .held_back(None)
            .ended(Outcome::Ok, &[])
    };
    // The one before let 1 and 2 be committed, and was replaced without a save.
    let before = || {
        in_order()
            .push(loaded.clone())
            .start("a", "p", &[1, 2], 1, "v1")
            .ended(Outcome::Ok, &[])
            .reborn()
    };
    let handed_over =
        |story: Story| handles(story.release("a", "p").take("a", "p").reborn(), &[2], 1);
    handed_over(saved(holds_back(before(), &[1]))).passes();
    handed_over(saved(holds_back(before(), &[1, 2]))).breaks(&[S9]);
}

#[test]
fn what_an_instance_held_back_is_not_in_the_state_that_the_next_one_saves() {
    let held_back = || {
        in_order()
            .push(What::StateLoaded {
                host: "a".to_owned(),
                shard: "p".to_owned(),
                epoch: 1,
                counted: Vec::new(),
            })
            .start("a", "p", &[1, 2], 1, "v1")
            .held_back(None)
            .ended(Outcome::Ok, &[])
    };
    let handed_over = |story: Story| {
        let next = saved(story).release("a", "p").take("a", "p").reborn();
        handles(next, &[1, 2], 1)
    };
    handed_over(held_back()).breaks(&[S9]);
    handed_over(held_back().reborn()).passes();
}

#[test]
fn what_was_not_come_to_again_before_a_state_was_saved_is_not_in_it() {
    let saved = |story: Story| saved(story).checkpoint("a", "p", 1);
    let given_up = || {
        let story = under(skip(1))
            .start("a", "p", &[1], 1, "v1")
            .held_back(None)
            .ended(Outcome::Ok, &[]);
        let story = story
            .fails(&[2], 1)
            .skipped(2)
            .reborn()
            .start("a", "p", &[1], 1, "v1");
        story.held_back(None).ended(Outcome::Ok, &[])
    };
    let passes_on = |story: Story| {
        story
            .start("a", "p", &[3], 1, "v1")
            .held_back(None)
            .ended(Outcome::Ok, &[])
    };
    let handed_over = |story: Story| {
        story
            .release("a", "p")
            .take("b", "p")
            .start("b", "p", &[2], 1, "v1")
    };
    handed_over(passes_on(saved(given_up()))).passes();
    // A state that was saved later covers it.
    handed_over(saved(passes_on(given_up()))).breaks(&[S9]);
}
