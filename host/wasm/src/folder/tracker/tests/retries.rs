//! Which files are tried again though they have not changed.

use super::super::retries::TURN_RETRY;
use super::*;

#[test]
fn what_the_host_could_not_load_is_tried_again_later_and_later_until_it_can() {
    let (mut tracker, mut clock) = fixture();
    let full_disk = || Refusal::Bytes {
        digest: digest('a'),
        error: LoadError::Host {
            message: "no room".to_owned(),
        },
    };
    let refused = News::Refused {
        reason: full_disk(),
        keeps: None,
    };
    assert_eq!(
        settle_and_end(&mut tracker, &mut clock, 1, Ended::Failed(full_disk())),
        refused
    );
    assert!(tracker.is_settled(clock.0), "nobody waits for it");
    let mut waits = Vec::new();
    for _ in 0..8 {
        let next = tracker.next_look().unwrap();
        let wait = next - clock.0;
        waits.push(wait.as_secs());
        assert_eq!(tracker.observe(clock.after(wait / 2), &file(1)), []);
        assert_eq!(tracker.observe(clock.after(wait / 2), &file(1)), load(1));
        let ended = Ended::Failed(full_disk());
        assert_eq!(
            tracker.ended(clock.0, "orders.wasm", &name(), stamps(1), ended),
            refused
        );
    }
    assert_eq!(waits, [10, 20, 40, 80, 160, 300, 300, 300]);
    // Another file is not held up, and a version that loads ends it.
    let news = settle_and_end(&mut tracker, &mut clock, 2, Ended::Loaded(digest('b')));
    assert_eq!(news, News::First);
    assert!(tracker.next_look().is_none());
}

#[test]
fn a_component_that_cannot_be_read_is_tried_again_until_it_can_be_and_reported_once() {
    let (mut tracker, mut clock) = fixture();
    settle_and_end(&mut tracker, &mut clock, 1, Ended::Loaded(digest('a')));
    let unreadable = || Refusal::Unreadable {
        message: "stale file handle".to_owned(),
    };
    assert_eq!(
        settle_and_end(&mut tracker, &mut clock, 2, Ended::Failed(unreadable())),
        News::Refused {
            reason: unreadable(),
            keeps: Some(digest('a'))
        }
    );
    assert!(tracker.is_settled(clock.0), "nobody waits for it");
    for wait in [10, 20] {
        let wait = Duration::from_secs(wait);
        assert_eq!(tracker.next_look(), Some(clock.0 + wait));
        assert_eq!(tracker.observe(clock.after(wait / 2), &file(2)), []);
        assert_eq!(tracker.observe(clock.after(wait / 2), &file(2)), load(2));
        let ended = Ended::Failed(unreadable());
        assert_eq!(
            tracker.ended(clock.0, "orders.wasm", &name(), stamps(2), ended),
            News::Nothing
        );
    }
    assert_eq!(
        tracker.observe(clock.after(Duration::from_secs(40)), &file(2)),
        load(2)
    );
    let news = loaded(&mut tracker, &clock, 2, 'b');
    assert_eq!(
        news,
        News::Changed {
            previous: digest('a')
        }
    );
    assert!(tracker.next_look().is_none());
}

#[test]
fn only_too_little_time_by_the_clock_is_the_hosts_fault_among_the_limits_on_compiling() {
    let beyond = |key| LoadError::CompileLimit {
        what: "time",
        limit: "5m".to_owned(),
        key,
    };
    assert!(beyond(LoadError::WALL_KEY).is_hosts());
    assert!(!beyond("compile.cpu").is_hosts() && !beyond("compile.memory").is_hosts());
}

#[test]
fn a_version_that_the_host_died_of_is_looked_at_every_few_seconds_and_told_of_once() {
    let (mut tracker, mut clock) = fixture();
    let deadly = |why: &str| {
        let (plugin, digest, why) = (name(), digest('a'), why.to_owned());
        Refusal::Bytes {
            digest: digest.clone(),
            error: LoadError::Deadly {
                plugin,
                digest,
                why,
            },
        }
    };
    let refused = News::Refused {
        reason: deadly("twice"),
        keeps: None,
    };
    assert_eq!(
        settle_and_end(&mut tracker, &mut clock, 1, Ended::Failed(deadly("twice"))),
        refused
    );
    assert!(tracker.is_settled(clock.0), "nobody waits for it");
    for _ in 0..3 {
        assert_eq!(tracker.next_look().unwrap() - clock.0, TURN_RETRY);
        assert_eq!(tracker.observe(clock.after(TURN_RETRY), &file(1)), load(1));
        let ended = Ended::Failed(deadly("twice"));
        assert_eq!(
            tracker.ended(clock.0, "orders.wasm", &name(), stamps(1), ended),
            News::Nothing
        );
    }
    tracker.observe(clock.after(TURN_RETRY), &file(1));
    let news = tracker.ended(
        clock.0,
        "orders.wasm",
        &name(),
        stamps(1),
        Ended::Failed(deadly("thrice")),
    );
    assert_eq!(
        news,
        News::Refused {
            reason: deadly("thrice"),
            keeps: None
        },
        "there is more to tell"
    );
    // Released.
    tracker.observe(clock.after(TURN_RETRY), &file(1));
    let news = tracker.ended(
        clock.0,
        "orders.wasm",
        &name(),
        stamps(1),
        Ended::Loaded(digest('a')),
    );
    assert_eq!(news, News::First);
    assert!(tracker.next_look().is_none());
}
