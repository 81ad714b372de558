//! One case for each library, with the attributes and types that its code writes.

use super::*;

/// Shard, checkpoint, owner.
type Seen = (&'static str, Option<Checkpoint>, Option<&'static str>);

fn check(library: Library, tables: &Tables, expected: &[Seen]) {
    let places = read(library, tables);
    let seen: Vec<_> = places
        .iter()
        .flat_map(|place| &place.shards)
        .map(|found| {
            (
                found.shard.as_str(),
                found.checkpoint.clone(),
                found.owner.as_deref(),
            )
        })
        .collect();
    assert_eq!(seen, expected, "{library}");
    assert!(
        places.iter().all(|place| place.bad_rows.is_empty()),
        "{library}"
    );
}

#[test]
fn vmware_go_kcl_is_read_as_its_checkpointer_writes_it() {
    let rows = vec![
        vmware(P, Some("SHARD_END"), None, "2026-01-01T00:00:00.5Z"),
        vmware(Q, None, Some("w"), "2026-01-01T00:00:10Z"),
        vmware(CHILD, Some("495"), Some("w"), "2026-01-01T00:00:10Z"),
    ];
    let expected = [
        (P, Some(Checkpoint::ShardEnd), None),
        (Q, None, Some("w")),
        (CHILD, Some(at("495")), Some("w")),
    ];
    check(Library::VmwareGoKcl, &checkpoints(rows), &expected);
}

#[test]
fn kinsumer_is_read_with_the_nulls_and_empty_texts_that_it_writes() {
    let shard = |name, sequence, owner, finished| {
        row([
            ("Shard", text(name)),
            ("SequenceNumber", sequence),
            ("LastUpdate", Value::number(1_700_000_000_000_000_000_u64)),
            ("LastUpdateRFC", text("Tue, 14 Nov 2023 22:13:20 +0000")),
            ("OwnerName", Value::Null),
            ("OwnerID", owner),
            ("Finished", finished),
            ("FinishedRFC", Value::Null),
        ])
    };
    let tables = Tables {
        checkpoints: vec![
            shard(P, text("7"), Value::Null, Value::number(1)),
            // Written by `release` for a shard that was never read.
            shard(Q, text(""), Value::Null, Value::Null),
            shard(CHILD, text("LATEST"), text("c1"), Value::Null),
        ],
        workers: vec![row([("ID", text("c1")), ("LastUpdate", Value::number(5))])],
    };
    let expected = [
        (P, Some(Checkpoint::ShardEnd), None),
        (Q, Some(Checkpoint::TrimHorizon), None),
        (CHILD, Some(Checkpoint::Latest), Some("c1")),
    ];
    check(Library::Kinsumer, &tables, &expected);
    assert_eq!(
        read(Library::Kinsumer, &tables)[0]
            .workers()
            .collect::<Vec<_>>(),
        ["c1"]
    );
}

fn lifion_item(shards: Row, consumers: Row) -> Row {
    row([
        ("consumerGroup", text("billing")),
        ("streamName", text("orders")),
        ("streamCreatedOn", text("2026-01-02T03:04:05.000Z")),
        ("version", text("v")),
        ("consumers", Value::Map(consumers)),
        ("enhancedConsumers", Value::Map(Row::new())),
        ("shards", Value::Map(shards)),
    ])
}

fn lifion_shard(checkpoint: Value, depleted: bool, owner: Value) -> Value {
    Value::Map(row([
        ("checkpoint", checkpoint),
        ("depleted", Value::Flag(depleted)),
        ("leaseExpiration", Value::Null),
        ("leaseOwner", owner),
        ("parent", Value::Null),
        ("version", text("abc")),
    ]))
}

#[test]
fn lifion_is_read_out_of_one_item() {
    let shards = row([
        (P, lifion_shard(text("5"), true, Value::Null)),
        (Q, lifion_shard(Value::Null, false, text("c"))),
        (CHILD, lifion_shard(text("495"), false, Value::Null)),
    ]);
    let consumer = row([("heartbeat", text("2026-01-02T03:04:05.000Z"))]);
    let consumers = row([("c", Value::Map(consumer))]);
    let tables = checkpoints(vec![lifion_item(shards, consumers)]);
    let expected = [
        (P, Some(Checkpoint::ShardEnd), None),
        (Q, None, Some("c")),
        (CHILD, Some(at("495")), None),
    ];
    check(Library::Lifion, &tables, &expected);
    let place = &read(Library::Lifion, &tables)[0];
    assert_eq!(
        (place.group.as_deref(), place.stream.as_deref()),
        (Some("billing"), Some("orders"))
    );
}

#[test]
fn a_checkpoint_at_the_beginning_of_a_shard_names_no_record() {
    let shards = row([
        (P, lifion_shard(text("495"), false, Value::Null)),
        (Q, lifion_shard(text("500"), false, Value::Null)),
    ]);
    let item = lifion_item(shards, Row::new());
    let mut place = read(Library::Lifion, &checkpoints(vec![item])).remove(0);
    let first = |shard: &str, sequence: &str| {
        let sequence = SequenceNumber::parse(sequence).unwrap();
        (ShardId::new(shard).unwrap(), sequence)
    };
    place.forget_beginnings(&[first(P, "495"), first(Q, "495")].into());
    let checkpoints: Vec<_> = place
        .shards
        .iter()
        .map(|one| one.checkpoint.clone())
        .collect();
    assert_eq!(
        checkpoints,
        [Some(Checkpoint::TrimHorizon), Some(at("500"))]
    );
}

#[test]
fn standalone_consumers_of_lifion_have_no_place_in_common() {
    let own = row([(P, lifion_shard(text("5"), false, text("c")))]);
    let consumer = row([("heartbeat", text("now")), ("shards", Value::Map(own))]);
    let item = lifion_item(Row::new(), row([("c", Value::Map(consumer))]));
    let place = read(Library::Lifion, &checkpoints(vec![item])).remove(0);
    assert!(place.obstacle.unwrap().contains("useAutoShardAssignment"));
}

#[test]
fn kcl_rb_is_read_as_its_checkpointer_writes_it() {
    let shard = |name, checkpoint| {
        row([
            ("shard_id", text(name)),
            ("assigned_to", text("w")),
            ("lease_timeout", text("2026-01-01 00:00:10 UTC")),
            ("checkpoint", checkpoint),
        ])
    };
    let rows = vec![
        shard(P, text("SHARD_END")),
        shard(Q, Value::Null),
        shard(CHILD, text("495")),
    ];
    let expected = [
        (P, Some(Checkpoint::ShardEnd), Some("w")),
        (Q, Some(Checkpoint::TrimHorizon), Some("w")),
        (CHILD, Some(at("495")), Some("w")),
    ];
    check(Library::KclRb, &checkpoints(rows), &expected);
}

#[test]
fn ruststream_is_read_as_its_lease_store_writes_it() {
    let shard = |name, checkpoint: Option<&str>| {
        let mut row = row([
            ("lease_key", text(name)),
            ("lease_counter", Value::number(7)),
            ("lease_owner", text("w")),
            ("lease_expiry", Value::number(1_700_000_000_000_u64)),
        ]);
        if let Some(checkpoint) = checkpoint {
            row.insert("checkpoint".to_owned(), text(checkpoint));
        }
        row
    };
    let rows = vec![
        shard(P, Some("SHARD_END")),
        shard(Q, None),
        shard(CHILD, Some("495")),
    ];
    let expected = [
        (P, Some(Checkpoint::ShardEnd), Some("w")),
        (Q, None, Some("w")),
        (CHILD, Some(at("495")), Some("w")),
    ];
    check(Library::Ruststream, &checkpoints(rows), &expected);
}

#[test]
fn redpanda_connect_has_a_place_for_each_stream_by_name_or_arn() {
    const ARN: &str = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders";
    let shard = |stream, name, sequence| {
        row([
            ("StreamID", text(stream)),
            ("ShardID", text(name)),
            ("ClientID", text("c")),
            ("LeaseTimeout", text("2026-01-01T00:00:10+01:00")),
            ("SequenceNumber", text(sequence)),
        ])
    };
    let tables = checkpoints(vec![shard(ARN, P, "7"), shard("returns", P, "9")]);
    check(
        Library::Redpanda,
        &tables,
        &[(P, Some(at("7")), Some("c")), (P, Some(at("9")), Some("c"))],
    );
    let places = read(Library::Redpanda, &tables);
    let orders = StreamName::new("orders").unwrap();
    assert_eq!(
        choose(&places, &orders, None).unwrap().stream.as_deref(),
        Some(ARN)
    );
    let other = StreamName::new("clicks").unwrap();
    assert!(
        choose(&places, &other, None)
            .unwrap_err()
            .contains("returns")
    );
}

#[test]
fn a_kcl_in_multi_stream_mode_has_a_place_for_each_stream_and_one_of_one_stream_none() {
    let lease = |key: &str| Lease {
        key: crate::stream::LeaseKey::new(key).unwrap(),
        owner: WorkerId::new("w"),
        ..Lease::fresh(&open(P, &[]), at("5"))
    };
    let multi = [
        lease(&format!("123456789012:orders:1700000000:{P}")),
        lease(&format!("123456789012:returns:1700000001:{P}")),
    ];
    let places = of_multi_stream(&multi);
    let streams: Vec<_> = places.iter().map(|place| place.stream.as_deref()).collect();
    assert_eq!(streams, [Some("orders"), Some("returns")]);
    assert_eq!(places[0].shards[0].checkpoint, Some(at("5")));
    assert!(of_multi_stream(&[lease(P)]).is_empty());
}

#[test]
fn a_row_that_makes_no_sense_is_named_and_never_taken_for_unread() {
    let found = of_vmware(vec![vmware(P, Some("nonsense"), None, "")]);
    assert!(found.shards.is_empty());
    assert_eq!(found.bad_rows[0].key, P);
    let identity = crate::fleet::StreamIdentity { created_at_ms: 1 };
    let blocked = blocks(&found, identity, &[open(P, &[])]);
    assert!(
        matches!(&blocked[..], [ImportBlock::BadRows(_)]),
        "{blocked:?}"
    );
}

#[test]
fn tables_are_recognised_by_their_keys_and_no_two_libraries_have_the_same() {
    for library in Library::ALL {
        let key: Vec<String> = library
            .key()
            .iter()
            .map(|part| (*part).to_owned())
            .collect();
        let expected = (library != Library::KclMultiStream).then_some(library);
        assert_eq!(Library::of_key(&key), expected);
        assert_eq!(Library::of_code(library.code()), Some(library));
    }
}
