mod retries;

use std::collections::VecDeque;

use super::*;
use crate::folder::scan::Stamp;
use crate::{BytesKind, IntegrityError, LoadError};

const SETTLE: Duration = Duration::from_millis(40);
const GRACE: Duration = Duration::from_secs(1);

struct Clock(Instant);

impl Clock {
    fn after(&mut self, time: Duration) -> Instant {
        self.0 += time;
        self.0
    }
}

fn fixture() -> (Tracker, Clock) {
    let tracker = Tracker::new(SETTLE, GRACE, 2, BTreeSet::new());
    (tracker, Clock(Instant::now()))
}

fn name() -> PluginName {
    PluginName::new("orders").unwrap()
}

fn stamp(size: u64) -> Stamp {
    Stamp {
        inode: 1,
        size,
        modified: (0, size),
        changed: (0, size),
    }
}

fn stamps(size: u64) -> Stamps {
    Stamps {
        component: stamp(size),
        signature: None,
    }
}

fn listing(seen: Seen) -> BTreeMap<String, Seen> {
    BTreeMap::from([("orders.wasm".to_owned(), seen)])
}

fn file(size: u64) -> BTreeMap<String, Seen> {
    listing(Seen::File(name(), stamps(size)))
}

fn digest(digit: char) -> PluginDigest {
    PluginDigest::from_hex(&digit.to_string().repeat(64)).unwrap()
}

fn load(size: u64) -> Vec<Action> {
    vec![Action::Load {
        file: "orders.wasm".to_owned(),
        name: name(),
        stamps: stamps(size),
    }]
}

fn broken(digit: char) -> Refusal {
    Refusal::Bytes {
        digest: digest(digit),
        error: LoadError::NotAComponent {
            kind: BytesKind::CoreModule,
        },
    }
}

fn cut_off(digit: char) -> Refusal {
    Refusal::Bytes {
        digest: digest(digit),
        error: LoadError::Truncated { size: 5 },
    }
}

/// Lets a file of this size settle, and its load end.
fn settle_and_end(tracker: &mut Tracker, clock: &mut Clock, size: u64, ended: Ended) -> News {
    tracker.observe(clock.0, &file(size));
    assert_eq!(
        tracker.observe(clock.after(SETTLE), &file(size)),
        load(size)
    );
    tracker.ended(clock.0, "orders.wasm", &name(), stamps(size), ended)
}

#[test]
fn a_file_that_keeps_changing_is_loaded_once_when_it_stops() {
    let (mut tracker, mut clock) = fixture();
    for size in 1..=1_000 {
        assert_eq!(tracker.observe(clock.after(SETTLE / 2), &file(size)), []);
    }
    assert_eq!(tracker.next_look(), Some(clock.0 + SETTLE));
    assert_eq!(
        tracker.observe(clock.after(SETTLE), &file(1_000)),
        load(1_000)
    );
    assert_eq!(
        tracker.observe(clock.after(SETTLE), &file(1_000)),
        [],
        "it is being loaded"
    );
    let news = tracker.ended(
        clock.0,
        "orders.wasm",
        &name(),
        stamps(1_000),
        Ended::Loaded(digest('a')),
    );
    assert_eq!(news, News::First);
    assert_eq!(tracker.observe(clock.after(SETTLE), &file(1_000)), []);
    assert!(tracker.is_settled(clock.0) && tracker.next_look().is_none());
}

#[test]
fn a_failing_version_keeps_the_last_good_one_and_is_reported_once() {
    let (mut tracker, mut clock) = fixture();
    settle_and_end(&mut tracker, &mut clock, 1, Ended::Loaded(digest('a')));
    let news = settle_and_end(&mut tracker, &mut clock, 2, Ended::Failed(broken('b')));
    assert_eq!(
        news,
        News::Refused {
            reason: broken('b'),
            keeps: Some(digest('a'))
        }
    );
    // Touched: read again, and known by its digest.
    assert!(tracker.known_digests("orders.wasm").contains(&digest('b')));
    assert_eq!(
        settle_and_end(&mut tracker, &mut clock, 3, Ended::Known),
        News::Nothing
    );
    let news = settle_and_end(&mut tracker, &mut clock, 4, Ended::Loaded(digest('c')));
    assert_eq!(
        news,
        News::Changed {
            previous: digest('a')
        }
    );
}

#[test]
fn a_file_that_looks_cut_off_gets_time_before_it_is_refused() {
    let (mut tracker, mut clock) = fixture();
    assert_eq!(
        settle_and_end(&mut tracker, &mut clock, 1, Ended::Failed(cut_off('a'))),
        News::Nothing
    );
    assert!(!tracker.is_settled(clock.0));
    assert_eq!(tracker.observe(clock.after(SETTLE), &file(1)), []);
    assert_eq!(tracker.observe(clock.after(GRACE), &file(1)), load(1));
    let news = tracker.ended(
        clock.0,
        "orders.wasm",
        &name(),
        stamps(1),
        Ended::Failed(cut_off('a')),
    );
    assert_eq!(
        news,
        News::Refused {
            reason: cut_off('a'),
            keeps: None
        }
    );
    assert_eq!(tracker.observe(clock.after(GRACE), &file(1)), []);
    assert!(tracker.is_settled(clock.0));
}

#[test]
fn a_file_that_moved_while_it_was_read_is_read_again() {
    let (mut tracker, mut clock) = fixture();
    assert_eq!(
        settle_and_end(&mut tracker, &mut clock, 1, Ended::Moved),
        News::Nothing
    );
    assert_eq!(tracker.observe(clock.after(SETTLE), &file(1)), load(1));
}

#[test]
fn a_change_during_a_load_is_loaded_after_it() {
    let (mut tracker, mut clock) = fixture();
    tracker.observe(clock.0, &file(1));
    assert_eq!(tracker.observe(clock.after(SETTLE), &file(1)), load(1));
    assert_eq!(tracker.observe(clock.after(SETTLE), &file(2)), []);
    tracker.ended(
        clock.0,
        "orders.wasm",
        &name(),
        stamps(1),
        Ended::Loaded(digest('a')),
    );
    assert_eq!(tracker.observe(clock.after(SETTLE), &file(2)), load(2));
}

#[test]
fn a_file_that_changes_all_the_time_stands_in_line_once_and_lets_others_go_first() {
    let (mut tracker, mut clock) = fixture();
    let other = PluginName::new("zebra").unwrap();
    // The one has changed whenever somebody looks, the other in every fifth round.
    let folder = |round: u64| {
        BTreeMap::from([
            ("orders.wasm".to_owned(), Seen::File(name(), stamps(round))),
            (
                "zebra.wasm".to_owned(),
                Seen::File(other.clone(), stamps(round / 5)),
            ),
        ])
    };
    let (mut line, mut rounds_of_other) = (VecDeque::new(), Vec::new());
    for round in 1..=20 {
        tracker.observe(clock.0, &folder(round));
        line.extend(tracker.observe(clock.after(SETTLE), &folder(round)));
        assert!(line.len() <= 2, "each stands there once: {line:?}");
        // The compiler takes who came first, for a whole round.
        let Some(Action::Load { file, name, stamps }) = line.pop_front() else {
            panic!("nobody waits in round {round}")
        };
        if name == other {
            rounds_of_other.push(round);
        }
        let ended = Ended::Loaded(digest('a'));
        tracker.ended(clock.0, &file, &name, stamps, ended);
    }
    assert_eq!(
        rounds_of_other,
        [2, 6, 11, 16],
        "one round after each change"
    );
}

#[test]
fn a_removed_file_is_reported_once_and_a_short_gap_is_not_a_removal() {
    let (mut tracker, mut clock) = fixture();
    settle_and_end(&mut tracker, &mut clock, 1, Ended::Loaded(digest('a')));
    let nothing = BTreeMap::new();
    assert_eq!(tracker.observe(clock.after(SETTLE), &nothing), []);
    assert_eq!(
        tracker.observe(clock.after(SETTLE / 2), &file(1)),
        [],
        "it came back"
    );
    assert_eq!(tracker.observe(clock.after(SETTLE), &file(1)), []);
    tracker.observe(clock.after(SETTLE), &nothing);
    assert_eq!(
        tracker.observe(clock.after(SETTLE), &nothing),
        [Action::Remove { name: name() }]
    );
    assert_eq!(tracker.observe(clock.after(SETTLE), &nothing), []);
    // Restored: a plugin like any new one.
    assert_eq!(
        settle_and_end(&mut tracker, &mut clock, 1, Ended::Loaded(digest('a'))),
        News::First
    );
}

#[test]
fn a_link_in_place_of_a_plugin_is_refused_once_and_the_plugin_stays() {
    let (mut tracker, mut clock) = fixture();
    settle_and_end(&mut tracker, &mut clock, 1, Ended::Loaded(digest('a')));
    let reason = Refusal::NotAFile {
        what: "a symbolic link",
    };
    let link = listing(Seen::Refused(reason.clone()));
    tracker.observe(clock.0, &link);
    let refused = Action::Refuse {
        file: "orders.wasm".to_owned(),
        reason,
        keeps: Some(digest('a')),
    };
    assert_eq!(tracker.observe(clock.after(SETTLE), &link), [refused]);
    assert_eq!(tracker.observe(clock.after(SETTLE), &link), []);
}

fn plugin(letter: char) -> PluginName {
    PluginName::new(&format!("plugin-{letter}")).unwrap()
}

fn folder(letters: &str, size: u64) -> BTreeMap<String, Seen> {
    let entry = |letter| {
        (
            format!("plugin-{letter}.wasm"),
            Seen::File(plugin(letter), stamps(size)),
        )
    };
    letters.chars().map(entry).collect()
}

fn acts(actions: &[Action]) -> Vec<String> {
    let told = |action: &Action| match action {
        Action::Load { file, .. } => format!("load {file}"),
        Action::Refuse { file, reason, .. } => format!("refuse {file}: {reason}"),
        Action::Remove { name } => format!("remove {name}"),
        Action::Forget { file } => format!("forget {file}"),
    };
    actions.iter().map(told).collect()
}

#[test]
fn a_plugin_of_the_operators_has_its_place_however_many_files_come_before_it() {
    let first = BTreeSet::from([plugin('x'), plugin('y'), plugin('z')]);
    let (mut tracker, mut clock) = (Tracker::new(SETTLE, GRACE, 3, first), Clock(Instant::now()));
    tracker.observe(clock.0, &folder("abcx", 1));
    let told = acts(&tracker.observe(clock.after(SETTLE), &folder("abcxy", 1)));
    assert_eq!(
        told[..2],
        ["load plugin-x.wasm", "load plugin-a.wasm"],
        "{told:?}"
    );
    assert!(
        told[2].starts_with("refuse plugin-b.wasm") && told[3].starts_with("refuse plugin-c.wasm"),
        "the place of one that has not settled is kept: {told:?}"
    );
    let late = acts(&tracker.observe(clock.after(SETTLE), &folder("abcxy", 1)));
    assert_eq!(
        late,
        ["load plugin-y.wasm"],
        "none is kept for z, which is not here"
    );
    let more = acts(&{
        tracker.observe(clock.0, &folder("abcxyz", 1));
        tracker.observe(clock.after(SETTLE), &folder("abcxyz", 1))
    });
    assert!(
        more[0].starts_with("refuse plugin-z.wasm"),
        "all are taken: {more:?}"
    );
}

#[test]
fn no_more_plugins_are_loaded_than_there_may_be_and_a_loaded_one_is_still_replaced() {
    let (mut tracker, mut clock) = fixture();
    tracker.observe(clock.0, &folder("abc", 1));
    let first = acts(&tracker.observe(clock.after(SETTLE), &folder("abc", 1)));
    assert_eq!(first[..2], ["load plugin-a.wasm", "load plugin-b.wasm"]);
    assert!(
        first[2].starts_with("refuse plugin-c.wasm: 2 plugins are loaded"),
        "{first:?}"
    );
    for (letter, digit) in [('a', '1'), ('b', '2')] {
        let ended = Ended::Loaded(digest(digit));
        tracker.ended(
            clock.0,
            &format!("plugin-{letter}.wasm"),
            &plugin(letter),
            stamps(1),
            ended,
        );
    }
    assert!(
        tracker.is_settled(clock.0),
        "the refused one was told of, once"
    );
    tracker.observe(clock.0, &folder("abc", 2));
    let replaced = acts(&tracker.observe(clock.after(SETTLE), &folder("ab", 2)));
    assert_eq!(replaced, ["load plugin-a.wasm", "load plugin-b.wasm"]);
}

#[test]
fn no_version_in_the_shadow_takes_the_place_of_a_plugin() {
    let (mut tracker, mut clock) = fixture();
    let seen: BTreeMap<String, Seen> = ["aaa", "bbb", "ccc"]
        .into_iter()
        .map(|name| PluginName::new(name).unwrap())
        .flat_map(|name| [name.shadow(), name])
        .map(|name| (format!("{name}.wasm"), Seen::File(name, stamps(1))))
        .collect();
    tracker.observe(clock.0, &seen);
    let told = acts(&tracker.observe(clock.after(SETTLE), &seen));
    assert_eq!(told[..2], ["load aaa.wasm", "load bbb.wasm"]);
    assert!(told[2].starts_with("refuse ccc.wasm"), "{told:?}");
    assert_eq!(told[3..5], ["load aaa.shadow.wasm", "load bbb.shadow.wasm"]);
    assert!(told[5].starts_with("refuse ccc.shadow.wasm"), "as many");
}

#[test]
fn a_signature_that_arrives_after_the_component_is_looked_at_with_it() {
    let (mut tracker, mut clock) = fixture();
    let pair = |signature: Option<u64>| {
        listing(Seen::File(
            name(),
            Stamps {
                component: stamp(1),
                signature: signature.map(stamp),
            },
        ))
    };
    let unsigned = || {
        let error = IntegrityError::Unsigned {
            file: "orders.wasm".into(),
        };
        Ended::Failed(Refusal::Untrusted {
            digest: digest('a'),
            error,
        })
    };
    tracker.observe(clock.0, &pair(None));
    assert_eq!(tracker.observe(clock.after(SETTLE), &pair(None)).len(), 1);
    let news = tracker.ended(clock.0, "orders.wasm", &name(), stamps(1), unsigned());
    assert_eq!(news, News::Nothing, "it may be on its way");
    assert!(
        tracker.observe(clock.0, &pair(Some(64))).is_empty(),
        "it is being written"
    );
    let signed = Stamps {
        component: stamp(1),
        signature: Some(stamp(64)),
    };
    assert_eq!(
        tracker.observe(clock.after(SETTLE), &pair(Some(64))),
        [Action::Load {
            file: "orders.wasm".to_owned(),
            name: name(),
            stamps: signed
        }]
    );
    let news = tracker.ended(
        clock.0,
        "orders.wasm",
        &name(),
        signed,
        Ended::Loaded(digest('a')),
    );
    assert_eq!(news, News::First);
    assert!(
        tracker
            .observe(clock.after(SETTLE), &pair(Some(64)))
            .is_empty()
    );
}

#[test]
fn a_component_that_stays_unsigned_is_refused_after_the_grace_and_taken_once_it_is_signed() {
    let (mut tracker, mut clock) = fixture();
    let unsigned = || {
        let error = IntegrityError::Unsigned {
            file: "orders.wasm".into(),
        };
        Ended::Failed(Refusal::Untrusted {
            digest: digest('b'),
            error,
        })
    };
    tracker.observe(clock.0, &file(1));
    tracker.observe(clock.after(SETTLE), &file(1));
    tracker.ended(clock.0, "orders.wasm", &name(), stamps(1), unsigned());
    assert_eq!(tracker.observe(clock.after(GRACE), &file(1)), load(1));
    let news = tracker.ended(clock.0, "orders.wasm", &name(), stamps(1), unsigned());
    assert!(matches!(news, News::Refused { .. }));
    let signed = Stamps {
        component: stamp(1),
        signature: Some(stamp(64)),
    };
    tracker.observe(clock.0, &listing(Seen::File(name(), signed)));
    let actions = tracker.observe(clock.after(SETTLE), &listing(Seen::File(name(), signed)));
    assert!(
        matches!(&actions[..], [Action::Load { stamps, .. }] if *stamps == signed),
        "{actions:?}"
    );
}

#[test]
fn a_refused_file_that_goes_is_reported_once_and_forgotten() {
    let (mut tracker, mut clock) = fixture();
    settle_and_end(&mut tracker, &mut clock, 5, Ended::Failed(broken('1')));
    let gone = BTreeMap::new();
    assert_eq!(tracker.observe(clock.after(SETTLE), &gone), []);
    let forget = Action::Forget {
        file: "orders.wasm".to_owned(),
    };
    assert_eq!(tracker.observe(clock.after(SETTLE), &gone), [forget]);
    assert_eq!(tracker.observe(clock.after(SETTLE), &gone), []);
    assert!(tracker.files.is_empty() && tracker.is_settled(clock.0));
}

fn loaded(tracker: &mut Tracker, clock: &Clock, version: u64, with: char) -> News {
    let ended = Ended::Loaded(digest(with));
    tracker.ended(clock.0, "orders.wasm", &name(), stamps(version), ended)
}

fn closed() -> BTreeSet<String> {
    BTreeSet::from(["orders.wasm".to_owned(), "unknown.wasm".to_owned()])
}

#[test]
fn a_change_that_its_writer_closed_is_loaded_at_once() {
    let (mut tracker, mut clock) = fixture();
    settle_and_end(&mut tracker, &mut clock, 1, Ended::Loaded(digest('a')));
    tracker.note_whole(&closed());
    assert_eq!(tracker.observe(clock.after(SETTLE / 2), &file(2)), load(2));
    assert!(matches!(
        loaded(&mut tracker, &clock, 2, 'b'),
        News::Changed { .. }
    ));
    // What was closed says nothing about what is written later.
    clock.after(HURRIED_EVERY);
    assert_eq!(tracker.observe(clock.0, &file(3)), []);
    assert_eq!(tracker.next_look(), Some(clock.0 + SETTLE));
    // Closed, and opened again before it was read: it settles.
    tracker.note_whole(&closed());
    assert_eq!(tracker.observe(clock.0, &file(3)), load(3));
    let news = tracker.ended(clock.0, "orders.wasm", &name(), stamps(3), Ended::Moved);
    assert_eq!(news, News::Nothing);
    assert_eq!(tracker.observe(clock.after(SETTLE / 2), &file(3)), []);
    assert_eq!(tracker.observe(clock.after(SETTLE / 2), &file(3)), load(3));
}

/// What it starts with is written down for good, and its manifest may come a moment later.
#[test]
fn the_first_version_of_a_plugin_settles_although_its_writer_closed_it() {
    let (mut tracker, mut clock) = fixture();
    tracker.note_whole(&closed());
    assert_eq!(tracker.observe(clock.0, &file(1)), []);
    assert_eq!(tracker.next_look(), Some(clock.0 + SETTLE));
    assert_eq!(tracker.observe(clock.after(SETTLE), &file(1)), load(1));
}

#[test]
fn a_file_that_is_closed_after_each_piece_is_loaded_at_once_only_now_and_then() {
    let (mut tracker, mut clock) = fixture();
    settle_and_end(&mut tracker, &mut clock, 1, Ended::Loaded(digest('a')));
    clock.after(HURRIED_EVERY);
    tracker.note_whole(&closed());
    assert_eq!(tracker.observe(clock.0, &file(2)), load(2));
    loaded(&mut tracker, &clock, 2, 'b');
    for version in 3..50 {
        tracker.note_whole(&closed());
        assert_eq!(tracker.observe(clock.after(SETTLE / 4), &file(version)), []);
    }
    assert_eq!(tracker.observe(clock.after(SETTLE), &file(49)), load(49));
    loaded(&mut tracker, &clock, 49, 'c');
    clock.after(HURRIED_EVERY);
    tracker.note_whole(&closed());
    assert_eq!(tracker.observe(clock.0, &file(50)), load(50));
}

#[test]
fn a_change_waits_for_the_manifest_that_it_came_with_and_not_for_ever() {
    let (mut tracker, mut clock) = fixture();
    settle_and_end(&mut tracker, &mut clock, 1, Ended::Loaded(digest('a')));
    let changing = BTreeSet::from([name()]);
    tracker.hold(changing.clone());
    tracker.note_whole(&closed());
    assert_eq!(tracker.observe(clock.after(SETTLE), &file(2)), []);
    assert_eq!(tracker.next_look(), Some(clock.0 + GRACE));
    // The manifest was reported.
    tracker.hold(BTreeSet::new());
    assert_eq!(tracker.observe(clock.after(SETTLE / 2), &file(2)), load(2));
    loaded(&mut tracker, &clock, 2, 'b');
    // One that is written all the time.
    tracker.hold(changing);
    assert_eq!(tracker.observe(clock.after(SETTLE), &file(3)), []);
    assert_eq!(tracker.observe(clock.after(GRACE), &file(3)), load(3));
}

#[test]
fn nobody_waits_for_a_new_file_that_changes_all_the_time() {
    let (mut tracker, mut clock) = fixture();
    let mut version = 0;
    let started_at = clock.0;
    while clock.0 < started_at + SETTLED_WITHIN {
        assert!(clock.0 == started_at || !tracker.is_settled(clock.0));
        version += 1;
        assert_eq!(tracker.observe(clock.after(SETTLE / 2), &file(version)), []);
    }
    version += 1;
    assert_eq!(tracker.observe(clock.after(SETTLE / 2), &file(version)), []);
    assert!(tracker.is_settled(clock.0));
    assert_eq!(
        tracker.observe(clock.after(SETTLE), &file(version)),
        load(version)
    );
}
