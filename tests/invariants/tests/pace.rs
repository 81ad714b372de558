//! S15 and L6: pace beside others, and what makes no progress is shown.

use super::story::{LEASE, SECOND, Story, place};
use crate::Invariant::{L6, L8, S15};
use crate::check_plugins;
use crate::history::{CallResult, Checkpoint, HostChange, Outcome, PluginEvent, What};

const BOUND: u64 = 2 * SECOND;

fn paced(mut story: Story) -> Story {
    story.limits.bounds.paced_within = Some(BOUND);
    story
}

fn shown(mut story: Story) -> Story {
    story.limits.bounds.shown_within = Some(BOUND);
    story
}

impl Story {
    fn calm(self, is_calm: bool) -> Self {
        self.push(What::Calm(is_calm))
    }

    fn of_key(self, shard: &str, number: u64, key: &str) -> Self {
        let (arrived_at, shard) = (self.now, shard.to_owned());
        self.push(What::Produced {
            shard,
            at: place(number),
            key: key.to_owned(),
            arrived_at,
        })
    }

    fn shows(self, why: Option<&str>) -> Self {
        let (host, shard) = ("a".to_owned(), "p".to_owned());
        self.push(What::Shown {
            host,
            shard,
            why: why.map(str::to_owned),
        })
    }
}

#[test]
fn s15_in_calm_a_record_is_settled_soon() {
    let read = |wait| {
        Story::with_records(1)
            .take("a", "p")
            .calm(true)
            .wait(wait)
            .deliver("a", "p", &[1])
    };
    paced(read(SECOND)).calm(false).passes();
    paced(read(3 * SECOND)).calm(false).breaks(&[S15]);
    paced(read(3 * SECOND)).breaks(&[S15]);
    paced(
        Story::with_records(1)
            .take("a", "p")
            .calm(true)
            .wait(3 * SECOND),
    )
    .breaks(&[S15]);
}

#[test]
fn s15_what_came_in_a_storm_or_right_before_one_has_its_time() {
    let stormy = || Story::with_records(1).take("a", "p").wait(3 * SECOND);
    paced(stormy()).passes();
    paced(stormy().calm(true).wait(SECOND).deliver("a", "p", &[1]))
        .calm(false)
        .passes();
    let late = Story::with_records(0)
        .take("a", "p")
        .calm(true)
        .wait(3 * SECOND)
        .produced("p", [1])
        .wait(SECOND);
    paced(late.calm(false).wait(3 * SECOND)).passes();
}

#[test]
fn l6_what_gets_on_need_not_be_shown() {
    let one_by_one = |pause| {
        let read = |story: Story, record| {
            story
                .wait(pause)
                .deliver("a", "p", &[record])
                .wait(pause / 2)
                .checkpoint("a", "p", record)
        };
        shown(read(read(read(Story::with_records(3).take("a", "p"), 1), 2), 3).wait(3 * SECOND))
    };
    one_by_one(SECOND).passes();
    // After the checkpoint was set back by hand, old records come again.
    let again = |story: Story, record| {
        let read = story.wait(SECOND).deliver("b", "p", &[record]);
        read.checkpoint("b", "p", record)
    };
    let set_back = Story::with_records(3)
        .take("a", "p")
        .deliver("a", "p", &[1, 2])
        .checkpoint("a", "p", 2)
        .release("a", "p")
        .admin("p", |row| row.checkpoint = Checkpoint::Initial)
        .take("b", "p");
    shown(again(again(again(set_back, 1), 2), 3)).passes();
    // With nothing to read there is nothing to show.
    shown(Story::with_records(0).take("a", "p").wait(5 * SECOND)).passes();
}

#[test]
fn l6_what_is_held_and_does_not_get_on_is_shown() {
    let fails = || {
        Story::with_records(3)
            .take("a", "p")
            .start("a", "p", &[1], 1, "v1")
            .ended(Outcome::Error, &[])
    };
    shown(fails().wait(3 * SECOND)).breaks(&[L6]);
    shown(fails().shows(Some("record 1 fails")).wait(3 * SECOND)).passes();
    shown(fails().wait(3 * SECOND).shows(Some("too late"))).breaks(&[L6]);
    shown(
        fails()
            .shows(Some("record 1 fails"))
            .wait(SECOND)
            .shows(None)
            .wait(3 * SECOND),
    )
    .breaks(&[L6]);
    // Nobody reads at all.
    shown(Story::with_records(3).take("a", "p").wait(3 * SECOND)).breaks(&[L6]);
}

#[test]
fn l6_what_cannot_be_written_down_is_shown_too() {
    let stuck = || {
        Story::with_records(1)
            .take("a", "p")
            .deliver("a", "p", &[1])
    };
    shown(stuck().wait(3 * SECOND)).breaks(&[L6]);
    shown(stuck().shows(Some("no checkpoint")).wait(3 * SECOND)).passes();
    shown(
        stuck()
            .wait(SECOND)
            .checkpoint("a", "p", 1)
            .wait(3 * SECOND),
    )
    .passes();
    // What a plugin holds back is its own affair.
    let held = Story::with_records(1)
        .take("a", "p")
        .start("a", "p", &[1], 1, "v1")
        .held_back(None);
    shown(held.ended(Outcome::Ok, &[]).wait(3 * SECOND)).passes();
}

#[test]
fn l6_what_is_not_held_need_not_be_shown() {
    let mut story = shown(
        Story::with_records(3)
            .take("a", "p")
            .wait(SECOND)
            .host("a", HostChange::Crashed),
    );
    story = story.wait(3 * SECOND);
    story.passes();
    // Its deadline passed: the row does not know.
    let mut lost = shown(Story::with_records(3).take("a", "p"));
    lost.limits.bounds.shown_within = Some(LEASE);
    lost.clone().wait(3 * LEASE).passes();
    // The heart holds it.
    let beat = |story: Story| {
        story
            .wait(LEASE / 2)
            .heartbeat("a", crate::history::CallResult::Ok)
    };
    beat(beat(beat(lost.clone()))).breaks(&[L6]);
    // Beside a KCL it holds nothing.
    lost.limits.heartbeats_hold = false;
    beat(beat(beat(lost))).passes();
}

#[test]
fn plugins_of_one_fleet_are_judged_each_by_what_concerns_it() {
    let reads = |wait| {
        paced(
            Story::with_records(1)
                .take("a", "p")
                .calm(true)
                .wait(wait)
                .deliver("a", "p", &[1]),
        )
    };
    let told = |story: &Story, plugin: &str| {
        let of_all = |what: &What| matches!(what, What::Host { .. });
        let tell = |event: &crate::history::Event| PluginEvent {
            plugin: (!of_all(&event.what)).then(|| plugin.to_owned()),
            event: event.clone(),
        };
        story.events.iter().map(tell).collect::<Vec<_>>()
    };
    let verdicts = |waits: [u64; 2]| {
        let stories = waits.map(reads);
        let mut history = [told(&stories[0], "one"), told(&stories[1], "other")].concat();
        history.sort_by_key(|event| event.event.at);
        let limits = ["one", "other"].into_iter().zip(&stories);
        let limits = limits.map(|(plugin, story)| {
            (
                plugin.to_owned(),
                crate::Limits {
                    end: story.now,
                    ..story.limits.clone()
                },
            )
        });
        let found = check_plugins(&history, &limits.collect());
        found
            .into_iter()
            .map(|(plugin, violation)| (plugin, violation.invariant))
            .collect::<Vec<_>>()
    };
    assert_eq!(verdicts([SECOND, SECOND]), []);
    assert_eq!(verdicts([SECOND, 3 * SECOND]), [("other".to_owned(), S15)]);
}

#[test]
fn s15_by_key_what_fails_holds_up_nothing_but_its_key() {
    let by_key = |mut story: Story| {
        story.limits.policy.by_key = true;
        paced(story)
    };
    let failing = || {
        Story::with_records(1)
            .take("a", "p")
            .calm(true)
            .start("a", "p", &[1], 1, "v1")
    };
    let failed = || by_key(failing().ended(Outcome::Ok, &[1])).of_key("p", 2, "other");
    failed()
        .deliver("a", "p", &[2])
        .wait(3 * SECOND)
        .calm(false)
        .passes();
    failed()
        .wait(3 * SECOND)
        .deliver("a", "p", &[2])
        .calm(false)
        .breaks(&[S15]);
    // In order by shard all the shard waits.
    paced(failing().ended(Outcome::Ok, &[1]).wait(3 * SECOND))
        .calm(false)
        .breaks(&[S15]);
}

#[test]
fn l8_what_is_a_hosts_by_name_is_read_or_given_back() {
    let bounded = |mut story: Story| {
        story.limits.bounds.taken_up_within = Some(2 * LEASE);
        story
    };
    let seconds = |story: Story, count: u64| {
        (0..count).fold(story, |story, _| {
            story.wait(SECOND).heartbeat("a", CallResult::Ok)
        })
    };
    let restarted = || {
        let crashed = Story::with_records(0)
            .take("a", "p")
            .host("a", HostChange::Crashed);
        bounded(crashed.host("a", HostChange::Started).calm(true))
    };
    seconds(restarted(), 30).breaks(&[L8]);
    seconds(seconds(restarted(), 15).take("a", "p"), 30).passes();
    seconds(seconds(restarted(), 15).release("a", "p"), 30).passes();
    // What a host holds it need not take again, and nothing is due in a storm.
    seconds(
        bounded(Story::with_records(0).take("a", "p").calm(true)),
        30,
    )
    .passes();
    seconds(seconds(restarted().calm(false), 15).calm(true), 15).passes();
}
