use std::time::Duration;

use shardmill_core::control::{Asked, Control, Pause};
use shardmill_core::fleet::{FleetRows, Incarnation, WorkerRow};
use shardmill_core::lease::{Checkpoint, Lease, LeaseObserver, WorkerId};
use shardmill_core::plugin::{PluginDigest, StateFill};
use shardmill_core::ports::{LeaseListing, StoreError};
use shardmill_core::stream::{HashKeyRange, Shard, ShardId};
use shardmill_core::time::Moment;

use super::summary::{Counts, Look, Summary};
use super::text;
use crate::operate::view::FleetUnread;

const NOW_MS: u64 = 1_767_225_600_000;

fn lease(number: u32, owner: Option<&str>, lag_ms: u64) -> Lease {
    let shard = Shard {
        id: ShardId::new(format!("shardId-{number:012}")).unwrap(),
        parents: Vec::new(),
        hash_range: HashKeyRange::FULL,
        ending_sequence: None,
    };
    let mut lease = Lease::fresh(&shard, Checkpoint::TrimHorizon);
    lease.owner = owner.map(|owner| WorkerId::new(owner).unwrap());
    lease.millis_behind_latest = Some(lag_ms);
    lease
}

fn pause(until_ms: Option<u64>) -> Pause {
    let asked = Asked {
        by: "ops".to_owned(),
        why: "a test".to_owned(),
        at_ms: NOW_MS,
    };
    Pause { asked, until_ms }
}

fn worker(id: &str) -> WorkerRow {
    WorkerRow {
        worker: WorkerId::new(id).unwrap(),
        incarnation: Incarnation::from_random(1),
        beat: 1,
        lease_duration: Duration::from_secs(10),
        is_draining: false,
        max_leases: 100,
        versions: Vec::new(),
        cannot_write: None,
        cannot_look: None,
        artifact: None,
        load: None,
    }
}

fn summary(leases: Vec<Lease>, fleet_pause: Option<Pause>) -> Summary {
    let fleet = FleetRows {
        control: Control {
            pause: fleet_pause,
            ..Control::default()
        },
        workers: vec![worker("a")],
        ..FleetRows::default()
    };
    summary_of(leases, &fleet)
}

fn summary_of(leases: Vec<Lease>, fleet: &FleetRows) -> Summary {
    summary_with(leases, Ok(Some(fleet)))
}

fn summary_with(leases: Vec<Lease>, fleet: Result<Option<&FleetRows>, &FleetUnread>) -> Summary {
    let listing = LeaseListing {
        leases,
        ..LeaseListing::default()
    };
    Summary::of(&Look {
        application: "orders",
        listing: &listing,
        fleet,
        observer: &LeaseObserver::default(),
        now: Moment::default() + Duration::from_secs(1),
        wall_ms: NOW_MS,
    })
}

#[test]
fn what_is_stuck_comes_first_then_what_nobody_holds_then_what_is_behind() {
    let mut stuck = lease(3, Some("a"), 1);
    stuck.stuck = Some("halted at a record".to_owned());
    let mut done = lease(9, None, 0);
    done.checkpoint = Checkpoint::ShardEnd;
    let rows = vec![
        lease(1, Some("a"), 50),
        lease(2, Some("a"), 700),
        lease(4, None, 9_000),
        stuck,
        done,
    ];
    let summary = summary(rows, None);
    let order: Vec<&str> = summary.shards.iter().map(|s| &s.shard[18..]).collect();
    assert_eq!(order, ["03", "04", "02", "01"]);
    let counts = Counts {
        open: 4,
        finished: 1,
        held: 3,
        paused: 0,
        stuck: 1,
    };
    assert_eq!(summary.counts, counts);
    assert!(summary.needs_attention());
    let told = text::overview(&summary);
    assert!(told.contains("farthest behind: 700ms (shard 2)"), "{told}");
    assert!(
        told.contains("halted at a record") && told.contains("not held"),
        "{told}"
    );
}

#[test]
fn a_pause_needs_no_attention_and_one_that_is_over_is_not_shown() {
    let mut alone = lease(1, Some("a"), 0);
    alone.directives.pause = Some(pause(None));
    alone.stuck = Some("paused by ops".to_owned());
    let one = summary(vec![alone.clone(), lease(2, Some("a"), 0)], None);
    assert_eq!((one.counts.paused, one.counts.stuck), (1, 0));
    assert!(!one.needs_attention());
    let fleet = FleetRows::default();
    let unserved = summary_of(vec![lease(2, Some("a"), 0)], &fleet);
    assert!(unserved.needs_attention(), "no host is registered");
    let all = summary(vec![lease(2, Some("a"), 0)], Some(pause(Some(NOW_MS + 1))));
    assert_eq!(all.counts.paused, 1);
    assert!(text::overview(&all).contains("all shards paused until"));
    alone.stuck = None;
    alone.directives.pause = Some(pause(Some(NOW_MS)));
    let over = summary(vec![alone], Some(pause(Some(NOW_MS))));
    assert_eq!((over.counts.paused, over.paused), (0, None));
    assert!(over.shards[0].wanted.is_empty());
}

#[test]
fn an_application_whose_hosts_cannot_be_read_needs_attention_and_is_not_said_to_have_none() {
    let refused = FleetUnread(StoreError::Refused {
        message: "dynamodb:Query is not allowed".to_owned(),
    });
    let unread = summary_with(vec![lease(1, Some("a"), 0)], Err(&refused));
    assert!(unread.needs_attention());
    let why = "the coordinator table cannot be read: refused: dynamodb:Query is not allowed";
    for text in [
        text::overview(&unread),
        text::page(&unread, None, usize::MAX),
    ] {
        assert!(text.contains(why), "{text}");
        assert!(!text.contains("no host is registered"), "{text}");
    }
    let json = serde_json::to_value(&unread).unwrap();
    assert_eq!(json["hosts-unknown"], why);
}

#[test]
fn a_kcls_application_has_no_coordinator_table_and_one_of_hosts_has_lost_it() {
    let mut held = lease(1, Some("a"), 0);
    let of_kcl = summary_with(vec![held.clone()], Ok(None));
    assert!(!of_kcl.needs_attention());
    assert_eq!(of_kcl.hosts_unknown, None);
    // No other library names the version of a plugin.
    held.plugin_digest = PluginDigest::from_hex(&"ab".repeat(32));
    let lost = summary_with(vec![held.clone()], Ok(None));
    assert!(lost.needs_attention());
    let told = text::overview(&lost);
    assert!(told.contains("there is no coordinator table"), "{told}");
    held.checkpoint = Checkpoint::ShardEnd;
    assert!(!summary_with(vec![held], Ok(None)).needs_attention());
}

#[test]
fn a_page_fits_the_screen_whatever_stands_in_the_rows() {
    let mut stuck = lease(0, Some("a-host-with-a-long-name"), 1);
    stuck.stuck = Some("x\u{1b}[2J ".repeat(400));
    let mut rows = vec![stuck];
    rows.extend((1..200).map(|number| lease(number, Some("a"), u64::from(number))));
    let summary = summary(rows, None);
    for height in [0, 1, 12, 24] {
        let page = text::page(&summary, Some(60), height);
        assert!(page.lines().count() <= height, "{height}: {page}");
        assert!(
            page.lines().all(|line| line.chars().count() <= 60),
            "{page}"
        );
    }
    assert!(text::page(&summary, None, usize::MAX).lines().count() > 200);
    assert!(text::overview(&summary).lines().count() < 20);
}

#[test]
fn a_state_is_shown_once_it_is_nearly_full() {
    for (percent, is_shown) in [(79, false), (80, true)] {
        let mut lease = lease(0, Some("a"), 0);
        lease.state_fill = Some(StateFill(percent));
        let summary = summary(vec![lease], None);
        let text = text::overview(&summary);
        let words = format!("state at {percent}% of its limit");
        assert_eq!(text.contains(&words), is_shown, "{text}");
        assert_eq!(summary.shards[0].state_percent, Some(percent));
    }
}
