//! Conformance with the KCL's rows, one table line for each kind of row.

#[path = "../../../../tests/fuzz/checks/lease_row.rs"]
mod fuzz_check;

use super::*;
use crate::dynamodb::checkpoint_item::{CHECKPOINT, SOUGHT};
use shardmill_core::control::{Asked, Pause};
use shardmill_core::lease::{Checkpoint, Sought};
use shardmill_core::plugin::StateFill;
use shardmill_core::stream::{Position, SequenceNumber};

fn strings(names: &[&str]) -> AttributeValue {
    AttributeValue::Ss(names.iter().map(|name| (*name).to_owned()).collect())
}

fn fresh() -> Item {
    Item::from([
        ("leaseKey".to_owned(), text("shardId-000000000003")),
        ("leaseCounter".to_owned(), number(7)),
        ("checkpoint".to_owned(), text("TRIM_HORIZON")),
        ("checkpointSubSequenceNumber".to_owned(), number(0)),
        ("ownerSwitchesSinceCheckpoint".to_owned(), number(2)),
    ])
}

fn with(name: &str, value: AttributeValue) -> Item {
    let mut item = fresh();
    item.insert(name.to_owned(), value);
    item
}

fn shard(id: &str) -> ShardId {
    ShardId::new(id).unwrap()
}

#[test]
fn a_kcl_row_without_an_owner_is_read_whole() {
    let lease = decode(&fresh()).unwrap();
    assert_eq!(lease.key.as_str(), "shardId-000000000003");
    assert_eq!(
        (lease.owner, lease.counter, lease.owner_switches),
        (None, LeaseCounter(7), 2)
    );
    assert_eq!(lease.checkpoint, Checkpoint::TrimHorizon);
    assert!(lease.parents.is_empty() && lease.children.is_empty() && lease.hash_range.is_none());
}

#[test]
fn every_checkpoint_the_kcl_writes_is_understood() {
    for (text_value, expected) in [
        ("TRIM_HORIZON", Checkpoint::TrimHorizon),
        ("LATEST", Checkpoint::Latest),
        ("AT_TIMESTAMP", Checkpoint::AtTimestamp),
        ("SHARD_END", Checkpoint::ShardEnd),
        (
            "49640871423056104321897561048329857382957382957382",
            Checkpoint::At(Position::plain(
                SequenceNumber::parse("49640871423056104321897561048329857382957382957382")
                    .unwrap(),
            )),
        ),
    ] {
        assert_eq!(
            decode(&with("checkpoint", text(text_value)))
                .unwrap()
                .checkpoint,
            expected
        );
    }
}

#[test]
fn the_parents_of_a_merge_come_from_a_set_in_any_order() {
    let item = with(
        "parentShardId",
        strings(&["shardId-000000000002", "shardId-000000000001"]),
    );
    let parents = decode(&item).unwrap().parents;
    assert_eq!(
        parents,
        [shard("shardId-000000000001"), shard("shardId-000000000002")]
    );
}

#[test]
fn attributes_that_are_not_ours_never_stop_a_row_from_being_read() {
    for (name, value) in [
        ("pendingCheckpointState", number(0)),
        ("pendingCheckpoint", text("123")),
        ("throughputKBps", AttributeValue::N("12.5".to_owned())),
        ("entityType", text("LEASE")),
        ("streamName", text("123456789012:orders:1700000000")),
        ("someone", AttributeValue::Bool(true)),
        ("pluginDigest", text("not a digest")),
    ] {
        assert!(
            matches!(classify(&with(name, value)), Row::Lease(_)),
            "{name}"
        );
    }
}

#[test]
fn rows_of_another_entity_type_are_foreign_not_bad() {
    for kind in [
        "STREAM",
        "LEADER",
        "CLIENT_VERSION_MIGRATION",
        "TABLE_MIGRATION",
        "WORKER_METRIC_STATS",
    ] {
        let item = Item::from([
            ("leaseKey".to_owned(), text("x")),
            ("entityType".to_owned(), text(kind)),
        ]);
        assert_eq!(classify(&item), Row::Foreign, "{kind}");
    }
}

#[test]
fn a_multi_stream_key_is_read_and_names_its_shard() {
    let lease = decode(&with(
        "leaseKey",
        text("123456789012:orders:1700000000:shardId-000000000003"),
    ))
    .unwrap();
    assert_eq!(lease.key.shard_id(), shard("shardId-000000000003"));
}

#[test]
fn a_hand_off_under_way_is_seen() {
    let lease = decode(&with("checkpointOwner", text("worker-a"))).unwrap();
    assert_eq!(lease.checkpoint_owner, WorkerId::new("worker-a"));
}

#[test]
fn a_counter_beyond_2_to_the_53_stays_exact() {
    let counter = (1 << 53) + 1;
    assert_eq!(
        decode(&with("leaseCounter", number(counter)))
            .unwrap()
            .counter,
        LeaseCounter(counter)
    );
}

#[test]
fn a_row_that_cannot_be_read_is_reported_with_its_key_and_what_is_wrong() {
    for (name, value, problem) in [
        ("leaseCounter", text("7"), "leaseCounter is not a number"),
        (
            "leaseCounter",
            AttributeValue::N("-1".to_owned()),
            "leaseCounter -1",
        ),
        ("checkpoint", text("SOMEWHERE"), "SOMEWHERE"),
        (
            "parentShardId",
            text("shardId-000000000001"),
            "parentShardId is not a string set",
        ),
        ("startingHashKey", text("0"), "must come together"),
        ("leaseOwner", text(""), "leaseOwner is an empty string"),
    ] {
        let Row::Bad(row) = classify(&with(name, value)) else {
            panic!("{name} was accepted")
        };
        assert_eq!(row.key, "shardId-000000000003");
        assert!(row.problem.contains(problem), "{}", row.problem);
    }
    let mut without_counter = fresh();
    without_counter.remove("leaseCounter");
    assert!(
        matches!(classify(&without_counter), Row::Bad(row) if row.problem == "leaseCounter is missing")
    );
}

#[test]
fn what_is_encoded_is_decoded_unchanged() {
    let lease = Lease {
        key: LeaseKey::new("shardId-000000000003").unwrap(),
        owner: WorkerId::new("worker-a"),
        counter: LeaseCounter(9),
        owner_switches: 1,
        checkpoint: Checkpoint::parse("495", 3).unwrap(),
        parents: vec![shard("a"), shard("b")],
        children: vec![shard("c")],
        hash_range: HashKeyRange::new(5, u128::MAX),
        plugin_digest: PluginDigest::from_hex(&"ab".repeat(32)),
        millis_behind_latest: Some(1_200),
        settled_arrival_ms: Some(1_700_000_000_100),
        given_up: Some("skip of 7".to_owned()),
        state_fill: Some(StateFill(81)),
        checkpoint_owner: None,
        claimant: WorkerId::new("thief"),
        held_since_ms: Some(1_700_000_000_000),
        bytes_per_second: Some(12_345),
        stuck: Some("attempt 3 failed".to_owned()),
        directives: Directives::default().changed(|next| {
            next.pause = Some(Pause {
                asked: Asked {
                    by: "ops".to_owned(),
                    why: "incident 7".to_owned(),
                    at_ms: 5,
                },
                until_ms: None,
            });
        }),
    };
    assert_eq!(decode(&encode(&lease)), Ok(lease));
}

#[test]
fn a_place_that_was_sought_is_read_beside_its_sentinel_and_ignored_beside_anything_else() {
    for sought in [
        Sought::Time(7),
        Sought::Sequence(SequenceNumber::parse("495").unwrap()),
    ] {
        let mut lease = decode(&fresh()).unwrap();
        lease.checkpoint = Checkpoint::Sought(sought);
        let mut item = encode(&lease);
        assert_eq!(item[CHECKPOINT], text("AT_TIMESTAMP"));
        assert_eq!(decode(&item), Ok(lease));
        // Somebody set it back by hand.
        item.insert(CHECKPOINT.to_owned(), text("TRIM_HORIZON"));
        assert_eq!(decode(&item).unwrap().checkpoint, Checkpoint::TrimHorizon);
        // A KCL that took the lease wrote its own checkpoint.
        item.insert(CHECKPOINT.to_owned(), text("500"));
        let expected = Checkpoint::parse("500", 0).unwrap();
        assert_eq!(decode(&item).unwrap().checkpoint, expected);
    }
    let mut lease = decode(&fresh()).unwrap();
    lease.checkpoint = Checkpoint::Sought(Sought::Horizon);
    let item = encode(&lease);
    assert_eq!(item[CHECKPOINT], text("TRIM_HORIZON"));
    assert_eq!(decode(&item), Ok(lease));
    let mut item = fresh();
    item.insert(CHECKPOINT.to_owned(), text("AT_TIMESTAMP"));
    item.insert(SOUGHT.to_owned(), text("somewhere"));
    assert!(decode(&item).unwrap_err().contains("soughtPlace"));
}

#[test]
fn a_fresh_row_has_no_empty_attributes() {
    let mut lease = decode(&fresh()).unwrap();
    lease.hash_range = Some(HashKeyRange::FULL);
    let item = encode(&lease);
    for absent in [
        "leaseOwner",
        "parentShardId",
        "childShardIds",
        "pluginDigest",
        "checkpointOwner",
        "entityType",
    ] {
        assert!(!item.contains_key(absent), "{absent}");
    }
    assert_eq!(
        item["endingHashKey"],
        text("340282366920938463463374607431768211455")
    );
}

#[test]
fn no_row_that_fuzzing_found_is_another_one_once_written_and_read_back() {
    let corpus =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz/corpus/lease_row");
    let files: Vec<_> = std::fs::read_dir(corpus)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert!(files.len() > 10, "the corpus is gone");
    for file in files {
        fuzz_check::check(&std::fs::read(file).unwrap());
    }
}
