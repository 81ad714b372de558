//! Sharing a lease table with the KCL: rows as the KCL writes them, what we read of them, and what
//! our writes leave behind, attribute for attribute. One named entry for each line of the
//! conformance list.

mod case;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use harness::embedded::Embedded;
use harness::kcl_peer::{Item, KclPeer, fresh_row, item, number, set, text};
use shardmill_aws::LeaseTable;
use shardmill_core::fleet::ApplicationStart;
use shardmill_core::lease::{Checkpoint, ConflictVerdict, Lease, LossReason, WorkerId, kcl_leader};
use shardmill_core::ports::{Created, LeaseStore, StoreError, Took};
use shardmill_core::stream::{HashKeyRange, InitialPosition, LeaseKey, ReadFrom, Shard, ShardId};
use shardmill_local::LocalOptions;

use self::case::Step::{
    AnswerLost, KclDeletes, KclRenews, KclStartsHandOff, KclTakes, KclTakesTooLate, Ours, Refused,
};
use self::case::Write::{End, Release, Renew, Save, Take};
use self::case::{Case, Change, KCL, ME, WALL_MS, case, check_all, lost_to_kcl};

const KEY: &str = "shardId-000000000003";
const MULTI_KEY: &str = "123456789012:orders.eu-west:1700000000:shardId-000000000003";
const STREAM_ID: &str = "123456789012:orders.eu-west:1700000000";

/// A KCL row at counter 7, with these attributes besides or instead.
fn row<const N: usize>(attributes: [(&str, AttributeValue); N]) -> Item {
    let mut row = fresh_row(KEY);
    row.extend(item([("leaseCounter", number(7))]));
    row.extend(item(attributes));
    row
}

fn owned_by(worker: &str) -> Item {
    row([("leaseOwner", text(worker))])
}

fn without(mut row: Item, name: &str) -> Item {
    row.remove(name);
    row
}

fn owner(worker: &str) -> Change {
    ("leaseOwner", Some(text(worker)))
}

fn switches(count: u32) -> Change {
    ("ownerSwitchesSinceCheckpoint", Some(number(count)))
}

fn checkpoint(value: &str) -> Change {
    ("checkpoint", Some(text(value)))
}

fn sub_sequence(value: u32) -> Change {
    ("checkpointSubSequenceNumber", Some(number(value)))
}

fn children() -> Change {
    ("childShardIds", Some(set(&["c1", "c2"])))
}

/// In an application that began with `position`, and of which somebody had leases before its first
/// host looked at 7 ms.
fn starts_at(lease: &Lease, position: InitialPosition, expected: &ReadFrom) -> bool {
    let start = ApplicationStart {
        position,
        looked_at_ms: 7,
        found_leases: true,
    };
    lease.checkpoint.read_from(&start).as_ref() == Some(expected)
}

/// What an attribute means to us, and that a take leaves it alone.
#[expect(clippy::too_many_lines, reason = "a list of rows")]
fn rows_to_take() -> Vec<Case> {
    let taken = |name, row| case(name, row).writes([Take]).leaves([owner(ME)]);
    vec![
        taken(
            "TRIM_HORIZON starts at the oldest record, whatever is configured",
            row([]),
        )
        .reads(|lease| starts_at(lease, InitialPosition::Latest, &ReadFrom::TrimHorizon)),
        taken(
            "LATEST starts at the first look, whatever is configured",
            row([("checkpoint", text("LATEST"))]),
        )
        .reads(|lease| {
            starts_at(
                lease,
                InitialPosition::TrimHorizon,
                &ReadFrom::AtTimestamp(7),
            )
        }),
        taken(
            "AT_TIMESTAMP starts at the configured time",
            row([("checkpoint", text("AT_TIMESTAMP"))]),
        )
        .reads(|lease| {
            starts_at(
                lease,
                InitialPosition::AtTimestamp(5),
                &ReadFrom::AtTimestamp(5),
            )
        }),
        taken(
            "a number and a sub-sequence resume at that user record",
            row([
                (
                    "checkpoint",
                    text("49640871423056104321897561048329857382957382957382"),
                ),
                ("checkpointSubSequenceNumber", number(3)),
            ]),
        )
        .reads(|lease| lease.checkpoint.text().len() == 50 && lease.checkpoint.sub_sequence() == 3),
        taken(
            "SHARD_END is finished",
            row([
                ("checkpoint", text("SHARD_END")),
                ("childShardIds", set(&["c1"])),
            ]),
        )
        .reads(|lease| lease.is_finished() && lease.children.len() == 1),
        taken(
            "one parent is a set of one",
            row([("parentShardId", set(&["p"]))]),
        )
        .reads(|lease| lease.parents.iter().map(ShardId::as_str).eq(["p"])),
        taken(
            "the parents of a merge are a set",
            row([("parentShardId", set(&["q", "p"]))]),
        )
        .reads(|lease| lease.parents.iter().map(ShardId::as_str).eq(["p", "q"])),
        taken(
            "hash keys come in pairs",
            row([
                ("startingHashKey", text("5")),
                ("endingHashKey", text("99")),
            ]),
        )
        .reads(|lease| lease.hash_range == HashKeyRange::new(5, 99)),
        taken(
            "without leaseOwner it has no owner, and an owner is no switch",
            row([]),
        )
        .reads(|lease| lease.owner.is_none()),
        taken(
            "a leaseOwner of type NULL is no owner",
            row([("leaseOwner", AttributeValue::Null(true))]),
        )
        .reads(|lease| lease.owner.is_none()),
        taken("a take from an owner is a switch", owned_by("other"))
            .reads(|lease| lease.owner == WorkerId::new("other"))
            .leaves([owner(ME), switches(1)]),
        taken(
            "switches count from none where the row has no count",
            without(owned_by("other"), "ownerSwitchesSinceCheckpoint"),
        )
        .leaves([owner(ME), switches(1)]),
        taken("a retake under our own name is no switch", owned_by(ME)).leaves([]),
        taken(
            "a take clears a stuck hand-off",
            row([("leaseOwner", text("b")), ("checkpointOwner", text("a"))]),
        )
        .reads(|lease| lease.checkpoint_owner == WorkerId::new("a"))
        .leaves([owner(ME), switches(1), ("checkpointOwner", None)]),
        taken(
            "a counter above 2^53 stays exact",
            row([("leaseCounter", number((1_u64 << 53) + 1))]),
        )
        .reads(|lease| lease.counter.0 == 9_007_199_254_740_993),
        taken(
            "the largest counter that can still be raised",
            row([("leaseCounter", number(i64::MAX - 1))]),
        )
        .reads(|lease| lease.counter.0 == 9_223_372_036_854_775_806),
        taken(
            "a pendingCheckpointState of type N, as the KCL's create writes it",
            row([
                ("pendingCheckpoint", text("9")),
                ("pendingCheckpointState", number(0)),
            ]),
        ),
        taken(
            "a multi-stream key names its shard",
            row([("leaseKey", text(MULTI_KEY))]),
        )
        .reads(|lease| lease.key.shard_id().as_str() == KEY),
    ]
}

/// What outlives a whole life of a lease in our hands.
fn rows_to_keep() -> Vec<Case> {
    let lived = |name, row| {
        let ended = [checkpoint("SHARD_END"), children()];
        case(name, row)
            .writes([Take, Renew, Save, Renew, End, Release])
            .leaves(ended)
    };
    let pending = || {
        row([
            ("pendingCheckpoint", text("9")),
            ("pendingCheckpointSubSequenceNumber", number(0)),
            (
                "pendingCheckpointState",
                AttributeValue::B(Blob::new("state")),
            ),
        ])
    };
    vec![
        lived("a plain row", row([])),
        lived(
            "attributes of other programs, of every type",
            row([
                ("someText", text("kept")),
                ("someNumber", number("-1.5")),
                ("someBytes", AttributeValue::B(Blob::new([0, 255]))),
                ("someFlag", AttributeValue::Bool(true)),
                ("someNull", AttributeValue::Null(true)),
                ("someSet", set(&["x", "y"])),
                ("someList", AttributeValue::L(vec![text("x"), number(1)])),
                ("someMap", AttributeValue::M(item([("k", text("v"))]))),
            ]),
        ),
        lived(
            "what KCL 3.x adds",
            row([
                ("throughputKBps", number("12.5")),
                ("entityType", text("LEASE")),
            ]),
        ),
        lived(
            "what a multi-stream KCL adds",
            row([
                ("leaseKey", text(MULTI_KEY)),
                ("streamName", text(STREAM_ID)),
                ("shardId", text(KEY)),
            ]),
        ),
        lived("parents and hash keys", {
            let range = [
                ("startingHashKey", text("0")),
                ("endingHashKey", text("99")),
            ];
            let [start, end] = range;
            row([("parentShardId", set(&["p", "q"])), start, end])
        }),
        case("a prepared checkpoint outlives renewals", pending()).writes([Take, Renew, Release]),
        case("a prepared checkpoint is void after a newer one", pending())
            .writes([Take, Save])
            .leaves([
                owner(ME),
                checkpoint("42"),
                sub_sequence(5),
                ("pendingCheckpoint", None),
                ("pendingCheckpointSubSequenceNumber", None),
                ("pendingCheckpointState", None),
            ]),
        case(
            "a checkpoint forgets the switches",
            row([("ownerSwitchesSinceCheckpoint", number(4))]),
        )
        .writes([Take, Save])
        .leaves([owner(ME), switches(0), checkpoint("42"), sub_sequence(5)]),
        case(
            "a release removes the owner rather than emptying it",
            owned_by("other"),
        )
        .writes([Take, Release])
        .leaves([("leaseOwner", None), switches(1)]),
    ]
}

/// Lost answers, and writes of a KCL between ours.
fn races() -> Vec<Case> {
    let raced = |name| case(name, row([]));
    let saved = || [owner(ME), checkpoint("42"), sub_sequence(5)];
    let earlier = ConflictVerdict::AppliedEarlier;
    let moved = ConflictVerdict::Lost(LossReason::CounterMoved);
    let stolen = || [owner(KCL), switches(1)];
    let handed_off = || [owner(KCL), ("checkpointOwner", Some(text(ME)))];
    vec![
        raced("the row settles a take whose answer got lost")
            .steps([
                AnswerLost(Take),
                Refused(Take, earlier.clone()),
                Ours(Renew),
            ])
            .leaves([owner(ME)]),
        raced("the row settles a renewal whose answer got lost")
            .steps([
                Ours(Take),
                AnswerLost(Renew),
                Refused(Renew, earlier.clone()),
                Ours(Renew),
            ])
            .leaves([owner(ME)]),
        raced("the row settles a checkpoint whose answer got lost")
            .steps([
                Ours(Take),
                AnswerLost(Save),
                Refused(Save, earlier),
                Ours(Renew),
            ])
            .leaves(saved()),
        raced("a KCL that steals first fences our renewal")
            .steps([Ours(Take), KclTakes, Refused(Renew, lost_to_kcl())])
            .leaves(stolen()),
        raced("a KCL that saw an older counter cannot steal")
            .steps([Ours(Take), Ours(Renew), KclTakesTooLate, Ours(Renew)])
            .leaves([owner(ME)]),
        case("a KCL that renews first keeps its lease", owned_by(KCL))
            .steps([KclRenews, Refused(Take, lost_to_kcl())]),
        raced("a KCL takes what nobody owns, on the counter alone")
            .steps([KclTakes, Refused(Take, lost_to_kcl())])
            .leaves([owner(KCL)]),
        raced("a KCL takes what we released")
            .steps([
                Ours(Take),
                Ours(Release),
                KclTakes,
                Refused(Renew, lost_to_kcl()),
            ])
            .leaves([owner(KCL)]),
        raced("a checkpoint at an old counter moves nothing")
            .steps([Ours(Take), KclRenews, KclRenews, Refused(Save, moved)])
            .leaves([owner(ME)]),
        raced("a checkpoint after a steal moves nothing")
            .steps([Ours(Take), KclTakes, Refused(Save, lost_to_kcl())])
            .leaves(stolen()),
        raced("an end after a steal finishes nothing")
            .steps([Ours(Take), KclTakes, Refused(End, lost_to_kcl())])
            .leaves(stolen()),
        raced("a release after a steal frees nothing")
            .steps([Ours(Take), KclTakes, Refused(Release, lost_to_kcl())])
            .leaves(stolen()),
        raced("a hand-off away from us ends our hold although the counter stands")
            .steps([
                Ours(Take),
                KclStartsHandOff,
                Refused(Renew, lost_to_kcl()),
                Refused(Save, lost_to_kcl()),
            ])
            .leaves(handed_off()),
        case(
            "a hand-off since we looked stops a take although the counter stands",
            owned_by(ME),
        )
        .steps([KclStartsHandOff, Refused(Take, lost_to_kcl())])
        .leaves(handed_off()),
    ]
}

/// A row that is deleted under us is not made again by any write (KCL issue 461).
fn deletions() -> Vec<Case> {
    let deleted = ConflictVerdict::Lost(LossReason::RowDeleted);
    let under = |name, write| {
        case(name, row([])).steps([Ours(Take), KclDeletes, Refused(write, deleted.clone())])
    };
    vec![
        under("deleted under a renewal", Renew),
        under("deleted under a checkpoint", Save),
        under("deleted under an end", End),
        under("deleted under a release", Release),
        case("deleted under a take", row([])).steps([KclDeletes, Refused(Take, deleted.clone())]),
    ]
}

#[tokio::test]
async fn every_row_of_a_kcl_is_understood_and_a_take_changes_only_what_a_take_is() {
    check_all(rows_to_take()).await;
}

#[tokio::test]
async fn nothing_that_is_not_ours_is_lost_from_a_row() {
    check_all(rows_to_keep()).await;
}

#[tokio::test]
async fn of_two_writes_on_one_counter_the_later_changes_nothing() {
    check_all(races()).await;
}

#[tokio::test]
async fn a_deleted_row_stays_deleted() {
    check_all(deletions()).await;
}

/// A lease table of its own, a KCL worker on it, and our adapter.
async fn shared() -> (Embedded, KclPeer, LeaseTable) {
    let embedded = Embedded::start(LocalOptions::in_memory()).await;
    let kcl = KclPeer::new(embedded.clients.dynamodb.clone(), "app");
    kcl.create_table("leaseKey").await;
    let table = embedded.lease_table("app");
    (embedded, kcl, table)
}

#[tokio::test]
async fn an_empty_table_of_a_kcl_is_an_empty_listing() {
    let (_embedded, _kcl, table) = shared().await;
    table.ensure_table().await.unwrap();
    let listing = table.list().await.unwrap();
    assert!(listing.leases.is_empty() && listing.bad_rows.is_empty() && listing.foreign_rows == 0);
    assert_eq!(table.get(&LeaseKey::new(KEY).unwrap()).await, Ok(None));
}

#[tokio::test]
async fn a_row_that_we_create_is_the_row_that_a_kcl_creates() {
    let (_embedded, kcl, table) = shared().await;
    let parents = ["p", "q"].map(|id| ShardId::new(id).unwrap()).to_vec();
    let hash_range = HashKeyRange::new(5, 99).unwrap();
    let shard = Shard {
        id: ShardId::new(KEY).unwrap(),
        parents,
        hash_range,
        ending_sequence: None,
    };
    for (checkpoint, created) in [
        (Checkpoint::Latest, Created::New),
        (Checkpoint::TrimHorizon, Created::Existed),
    ] {
        assert_eq!(
            table.create(&Lease::fresh(&shard, checkpoint)).await,
            Ok(created)
        );
        let mut expected = fresh_row(KEY);
        expected.extend(item([
            ("checkpoint", text("LATEST")),
            ("parentShardId", set(&["p", "q"])),
            ("startingHashKey", text("5")),
            ("endingHashKey", text("99")),
        ]));
        assert_eq!(kcl.row(KEY).await, Some(expected));
    }
}

#[tokio::test]
async fn rows_of_other_kinds_are_skipped_and_left_alone() {
    let (_embedded, kcl, table) = shared().await;
    let kinds = [
        "STREAM",
        "LEADER",
        "CLIENT_VERSION_MIGRATION",
        "TABLE_MIGRATION",
        "WORKER_METRIC_STATS",
        "NEXT_YEARS",
    ];
    // Even one that looks like a lease in all else.
    let rows = kinds.map(|kind| row([("leaseKey", text(kind)), ("entityType", text(kind))]));
    for row in &rows {
        kcl.put(row).await;
    }
    let listing = table.list().await.unwrap();
    assert_eq!(
        (
            listing.leases.len(),
            listing.bad_rows.len(),
            listing.foreign_rows
        ),
        (0, 0, kinds.len())
    );
    for (kind, row) in kinds.iter().zip(rows) {
        assert_eq!(kcl.row(kind).await, Some(row));
    }
}

#[tokio::test]
async fn a_row_that_makes_no_sense_is_reported_and_never_touched() {
    let (_embedded, kcl, table) = shared().await;
    let counters = [
        number(-1),
        number("0.5"),
        // One more and the KCL's signed 64 bits overflow.
        number(i64::MAX),
        number(u64::MAX),
        number("99999999999999999999999999999999999999"),
        text("7"),
        AttributeValue::Null(true),
    ];
    for counter in counters {
        let bad = row([("leaseCounter", counter)]);
        kcl.put(&bad).await;
        let listing = table.list().await.unwrap();
        assert!(listing.leases.is_empty(), "{bad:?}");
        let [found] = &listing.bad_rows[..] else {
            panic!("{bad:?}")
        };
        assert!(
            found.key == KEY && found.problem.contains("leaseCounter"),
            "{found:?}"
        );
        let key = LeaseKey::new(KEY).unwrap();
        assert!(
            matches!(table.get(&key).await, Err(StoreError::Refused { message }) if message.contains(KEY))
        );
        let shard = Shard {
            id: key.shard_id(),
            parents: vec![],
            hash_range: HashKeyRange::FULL,
            ending_sequence: None,
        };
        assert_eq!(
            table
                .create(&Lease::fresh(&shard, Checkpoint::TrimHorizon))
                .await,
            Ok(Created::Existed)
        );
        assert_eq!(kcl.row(KEY).await, Some(bad));
    }
}

#[tokio::test]
async fn of_our_take_and_a_kcls_renewal_at_the_same_time_one_is_applied() {
    let (_embedded, kcl, table) = shared().await;
    kcl.put(&owned_by(KCL)).await;
    let (key, me) = (LeaseKey::new(KEY).unwrap(), WorkerId::new(ME).unwrap());
    for _ in 0..20 {
        let seen = table.get(&key).await.unwrap().unwrap();
        let (ours, theirs) = tokio::join!(
            table.take(&seen, &me, WALL_MS),
            kcl.renew(KEY, seen.counter.0)
        );
        let is_ours = matches!(ours.unwrap(), Took::Applied { .. });
        assert_ne!(is_ours, theirs);
        let now = table.get(&key).await.unwrap().unwrap();
        assert_eq!(
            (now.counter, now.owner == Some(me.clone())),
            (
                seen.counter.next(),
                is_ours || seen.owner == Some(me.clone())
            )
        );
    }
}

#[tokio::test]
async fn the_owners_in_a_table_elect_the_leader_that_java_elects() {
    let (_embedded, kcl, table) = shared().await;
    for index in 0..10 {
        let mut row = owned_by(&format!("w{index}"));
        row.extend(item([("leaseKey", text(&format!("shardId-{index:012}")))]));
        kcl.put(&row).await;
    }
    let leases = table.list().await.unwrap().leases;
    assert_eq!(
        kcl_leader(leases.iter().filter_map(|lease| lease.owner.as_ref())),
        WorkerId::new("w8").as_ref()
    );
}
