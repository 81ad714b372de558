//! Coming from another library, and going back: rows made as its own code writes them, the real
//! commands, and a host that continues to the record.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType,
    ScalarAttributeType,
};
use aws_sdk_kinesis::primitives::Blob;
use harness::flights::Output;
use harness::guests::conduct;
use harness::kcl_peer::{Item, item, number, text};
use harness::process::shardmill;
use harness::setting::{STREAM, Setting};
use serde_json::Value;
use shardmill_aws::KinesisReader;
use shardmill_core::lease::Checkpoint;
use shardmill_core::ports::StreamReader;
use shardmill_core::stream::{StreamName, Utc};
use tokio::task::JoinSet;

const SHARDS: u32 = 2;
/// Records in each shard, and how many of them the library had done.
const RECORDS: usize = 6;
const DONE: usize = 4;

/// A stream with records in it, of which a library did some.
struct Scene {
    setting: Setting,
    /// The records of each shard, in order.
    records: BTreeMap<String, Vec<String>>,
}

/// A row's shard, and the sequence number that it stopped at.
type Stop<'a> = (&'a str, &'a str);

impl Scene {
    async fn new() -> Self {
        let setting = Setting::new(SHARDS).await;
        let mut scene = Self {
            setting,
            records: BTreeMap::new(),
        };
        for _ in 0..RECORDS {
            scene.put().await;
        }
        scene
    }

    /// One more record into each shard.
    async fn put(&mut self) {
        let width = u128::MAX / u128::from(SHARDS);
        for shard in 0..SHARDS {
            let hash_key = u128::from(shard) * width + width / 2;
            let request = self
                .setting
                .clients
                .kinesis
                .put_record()
                .stream_name(STREAM);
            let request = request.partition_key("key").data(Blob::new("x"));
            let put = request
                .explicit_hash_key(hash_key.to_string())
                .send()
                .await
                .unwrap();
            self.records
                .entry(put.shard_id)
                .or_default()
                .push(put.sequence_number);
        }
    }

    /// Where the library stopped in each shard.
    fn stops(&self) -> Vec<Stop<'_>> {
        self.records
            .iter()
            .map(|(shard, records)| (shard.as_str(), records[DONE - 1].as_str()))
            .collect()
    }

    /// Shard and sequence number of what the library has left.
    fn left(&self) -> BTreeSet<(String, String)> {
        let of_shard = |(shard, records): (&String, &Vec<String>)| {
            let shard = shard.clone();
            let left = records[DONE..].iter().cloned();
            left.map(move |record| (shard.clone(), record))
                .collect::<Vec<_>>()
        };
        self.records.iter().flat_map(of_shard).collect()
    }

    async fn table(&self, name: &str, keys: &[(&str, KeyType)]) {
        let mut request = self
            .setting
            .clients
            .dynamodb
            .create_table()
            .table_name(name)
            .billing_mode(BillingMode::PayPerRequest);
        for (key, kind) in keys {
            let schema = KeySchemaElement::builder()
                .attribute_name(*key)
                .key_type(kind.clone());
            let attribute = AttributeDefinition::builder()
                .attribute_name(*key)
                .attribute_type(ScalarAttributeType::S);
            request = request
                .key_schema(schema.build().unwrap())
                .attribute_definitions(attribute.build().unwrap());
        }
        request.send().await.expect("the table is made");
    }

    async fn row(&self, table: &str, row: Item) {
        let request = self.setting.clients.dynamodb.put_item().table_name(table);
        request
            .set_item(Some(row))
            .send()
            .await
            .expect("the row is written");
    }

    async fn rows(&self, table: &str) -> Vec<Item> {
        let request = self.setting.clients.dynamodb.scan().table_name(table);
        let mut rows = request
            .send()
            .await
            .expect("the rows")
            .items
            .unwrap_or_default();
        rows.sort_by_key(|row| format!("{:?}", row.iter().collect::<BTreeMap<_, _>>()));
        rows
    }

    /// Runs a command with `--json`; its exit code, and what it says.
    async fn run(&self, args: &[&str]) -> (Option<i32>, Value, String) {
        let args = [args, &["--local", "--json"]].concat();
        let ended = shardmill(&args, self.setting.path()).await;
        let told = String::from_utf8_lossy(&ended.stderr).into_owned();
        let report = serde_json::from_slice(&ended.stdout).unwrap_or(Value::Null);
        (ended.status.code(), report, told)
    }

    async fn checkpoints(&self, application: &str) -> BTreeMap<String, Checkpoint> {
        let leases = self.setting.leases(application).await;
        let one =
            |lease: shardmill_core::lease::Lease| (lease.key.as_str().to_owned(), lease.checkpoint);
        leases.into_iter().map(one).collect()
    }

    /// What a host does of the application `conduct`, until it has done all.
    async fn host_does(&self) -> BTreeSet<(String, String)> {
        self.setting
            .drop_manifest("conduct", "[config]\ndestination = \"out\"\n");
        self.setting.drop_plugin("conduct", &conduct(1, "good"));
        let host = self.setting.host("a");
        let last = |(shard, records): (&String, &Vec<String>)| {
            (shard.clone(), records.last().unwrap().clone())
        };
        let last: Vec<_> = self.records.iter().map(last).collect();
        self.setting.until_checkpointed("conduct", &last).await;
        assert!(host.terminate().await.success());
        let output = Output::read(&[&self.setting.output_of("a")]);
        assert_eq!(output.repeats, 0);
        output
            .seen
            .into_keys()
            .map(|(shard, sequence, _)| (shard, sequence))
            .collect()
    }
}

fn maybe(value: Option<AttributeValue>, name: &str, row: &mut Item) {
    if let Some(value) = value {
        row.insert(name.to_owned(), value);
    }
}

/// `CheckpointSequence`, then `RemoveLeaseOwner` unless there is an owner (vmware-go-kcl-v2,
/// `clientlibrary/checkpoint/dynamodb-checkpointer.go`).
fn vmware((shard, sequence): Stop<'_>, owner: Option<&str>, timeout: &str) -> Item {
    let mut row = item([
        ("ShardID", text(shard)),
        ("Checkpoint", text(sequence)),
        ("LeaseTimeout", text(timeout)),
    ]);
    maybe(owner.map(text), "AssignedTo", &mut row);
    row
}

/// `release` (kinsumer, `checkpoints.go`): the columns that it does not name keep their NULLs.
fn kinsumer((shard, sequence): Stop<'_>) -> Item {
    item([
        ("Shard", text(shard)),
        ("SequenceNumber", text(sequence)),
        ("LastUpdate", number(1_700_000_000_000_000_000_u64)),
        ("LastUpdateRFC", text("Tue, 14 Nov 2023 22:13:20 +0000")),
        ("Finished", AttributeValue::Null(true)),
        ("FinishedRFC", AttributeValue::Null(true)),
    ])
}

/// `ensureShardStateExists`, `storeShardCheckpoint` and `releaseShardLease` (lifion-kinesis,
/// `lib/state-store.js`).
fn lifion(stops: &[Stop<'_>], created: &str) -> Item {
    let shard = |(shard, sequence): &Stop<'_>| {
        let entry = item([
            ("checkpoint", text(sequence)),
            ("depleted", AttributeValue::Bool(false)),
            ("leaseExpiration", AttributeValue::Null(true)),
            ("leaseOwner", AttributeValue::Null(true)),
            ("parent", AttributeValue::Null(true)),
            ("version", text("vXQ1")),
        ]);
        ((*shard).to_owned(), AttributeValue::M(entry))
    };
    item([
        ("consumerGroup", text("billing")),
        ("streamName", text(STREAM)),
        ("streamCreatedOn", text(created)),
        ("version", text("aB3")),
        ("consumers", AttributeValue::M(Item::new())),
        ("enhancedConsumers", AttributeValue::M(Item::new())),
        (
            "shards",
            AttributeValue::M(stops.iter().map(shard).collect()),
        ),
    ])
}

/// `update_checkpoint`, then `remove_lease_owner` (kcl-rb, `lib/kcl/checkpointer.rb`).
fn kcl_rb((shard, sequence): Stop<'_>) -> Item {
    item([
        ("shard_id", text(shard)),
        ("checkpoint", text(sequence)),
        ("lease_timeout", text("2026-01-01 00:00:10 UTC")),
    ])
}

/// `checkpoint`, then `release` (ruststream-kinesis, `crates/ruststream-kinesis/src/dynamo.rs`).
fn ruststream((shard, sequence): Stop<'_>) -> Item {
    item([
        ("lease_key", text(shard)),
        ("checkpoint", text(sequence)),
        ("lease_counter", number(17)),
    ])
}

/// `Checkpoint` with `final` (Redpanda Connect, `internal/impl/aws/kinesis/input_checkpointer.go`).
fn redpanda((shard, sequence): Stop<'_>) -> Item {
    item([
        ("StreamID", text(STREAM)),
        ("ShardID", text(shard)),
        ("SequenceNumber", text(sequence)),
    ])
}

/// `createLeaseIfNotExists` and `updateLease` in multi-stream mode (KCL,
/// `DynamoDBMultiStreamLeaseSerializer.java`).
fn multi_stream((shard, sequence): Stop<'_>, created_s: u64) -> Item {
    let stream = format!("000000000000:{STREAM}:{created_s}");
    item([
        ("leaseKey", text(&format!("{stream}:{shard}"))),
        ("streamName", text(&stream)),
        ("shardId", text(shard)),
        ("leaseCounter", number(7)),
        ("ownerSwitchesSinceCheckpoint", number(0)),
        ("checkpoint", text(sequence)),
        ("checkpointSubSequenceNumber", number(0)),
    ])
}

/// The table of checkpoints that a library keeps under the name `old`, filled.
async fn fill(scene: &Scene, library: &str) -> String {
    let hash = |name| (name, KeyType::Hash);
    let created_ms = created_ms(scene).await;
    let (table, keys, rows): (&str, Vec<(&str, KeyType)>, Vec<Item>) = match library {
        "vmware-go-kcl" => {
            let row = |stop| vmware(stop, None, "2026-01-01T00:00:00.5Z");
            (
                "old",
                vec![hash("ShardID")],
                scene.stops().into_iter().map(row).collect(),
            )
        }
        "kinsumer" => {
            let rows = scene.stops().into_iter().map(kinsumer).collect();
            ("old_checkpoints", vec![hash("Shard")], rows)
        }
        "lifion-kinesis" => {
            let keys = vec![hash("consumerGroup"), ("streamName", KeyType::Range)];
            let created = Utc(created_ms / 1_000 * 1_000)
                .to_string()
                .replace('Z', ".000Z");
            ("old", keys, vec![lifion(&scene.stops(), &created)])
        }
        "kcl-rb" => (
            "old",
            vec![hash("shard_id")],
            scene.stops().into_iter().map(kcl_rb).collect(),
        ),
        "ruststream-kinesis" => {
            let rows = scene.stops().into_iter().map(ruststream).collect();
            ("old", vec![hash("lease_key")], rows)
        }
        "redpanda-connect" => {
            let keys = vec![hash("StreamID"), ("ShardID", KeyType::Range)];
            (
                "old",
                keys,
                scene.stops().into_iter().map(redpanda).collect(),
            )
        }
        _ => {
            let row = |stop| multi_stream(stop, created_ms / 1_000);
            (
                "old",
                vec![hash("leaseKey")],
                scene.stops().into_iter().map(row).collect(),
            )
        }
    };
    scene.table(table, &keys).await;
    for row in rows {
        scene.row(table, row).await;
    }
    table.to_owned()
}

async fn created_ms(scene: &Scene) -> u64 {
    let stream = StreamName::new(STREAM).unwrap();
    let reader = KinesisReader::new(scene.setting.clients.kinesis.clone(), &stream);
    reader.identity().await.unwrap().unwrap().created_at_ms
}

const LIBRARIES: [&str; 7] = [
    "vmware-go-kcl",
    "kinsumer",
    "lifion-kinesis",
    "kcl-rb",
    "ruststream-kinesis",
    "redpanda-connect",
    "kcl-multi-stream",
];

/// All libraries at the same time: the commands watch each table for some seconds.
async fn for_each_library<F>(one: impl Fn(&'static str) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut libraries: JoinSet<()> = LIBRARIES.into_iter().map(one).collect();
    while let Some(ended) = libraries.join_next().await {
        ended.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_names_each_library_and_the_command_that_comes_next_and_never_advises_to_delete() {
    for library in LIBRARIES {
        let scene = Scene::new().await;
        fill(&scene, library).await;
        let args = ["doctor", "old", "--stream", STREAM, "--watch-for", "0s"];
        let (_, report, _) = scene.run(&args).await;
        let whole = report.to_string();
        let next = report["next"].as_str().unwrap();
        // Its table can be used in place.
        let expected = match library {
            "kcl-multi-stream" => "shardmill run --config shardmill.toml, once the KCL has stopped",
            _ => "shardmill import old",
        };
        assert!(next.starts_with(expected), "{library}: {next}");
        assert!(!whole.contains("delete "), "{library}: {whole}");
        if library == "kcl-multi-stream" {
            assert!(
                report["writer"].as_str().unwrap().contains("multi-stream"),
                "{whole}"
            );
            assert_eq!(report["shards"].as_array().unwrap().len(), 2, "{whole}");
        } else {
            let found = &report["predecessor"];
            assert_eq!(found["library"], library, "{whole}");
            let shards = found["places"][0]["shards"].as_array().unwrap();
            let (shard, sequence) = scene.stops()[0];
            assert!(
                shards
                    .iter()
                    .any(|found| found["shard"] == shard && found["checkpoint"] == sequence),
                "{library}: {whole}"
            );
        }
        scene.setting.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_takes_the_default_name_of_lifions_table_though_it_ends_like_a_table_of_ours() {
    let scene = Scene::new().await;
    let table = "lifion-kinesis-state";
    let keys = [
        ("consumerGroup", KeyType::Hash),
        ("streamName", KeyType::Range),
    ];
    scene.table(table, &keys).await;
    scene
        .row(table, lifion(&scene.stops(), "2026-01-01T00:00:00.000Z"))
        .await;
    let (_, report, told) = scene.run(&["doctor", table, "--watch-for", "0s"]).await;
    assert_eq!(report["predecessor"]["library"], "lifion-kinesis", "{told}");
    let (code, _, told) = scene.run(&["doctor", "totals-state"]).await;
    assert_eq!(code, Some(1));
    assert!(
        told.contains("a table of the application \"totals\""),
        "{told}"
    );
    scene.setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_librarys_place_is_imported_to_the_record_and_its_table_is_left_as_it_was() {
    for_each_library(is_imported_to_the_record).await;
}

async fn is_imported_to_the_record(library: &'static str) {
    let scene = Scene::new().await;
    let table = fill(&scene, library).await;
    let before = scene.rows(&table).await;
    // kinsumer's tables leave its application's own name free.
    let to = if library == "kinsumer" {
        "old"
    } else {
        "conduct"
    };
    let import = ["import", "old", "--stream", STREAM, "--to", to];

    let (code, report, told) = scene.run(&import).await;
    assert_eq!(code, Some(0), "{library}: {told}");
    assert_eq!(
        (&report["library"], &report["applied"]),
        (&library.into(), &false.into())
    );
    assert!(
        scene.setting.leases(to).await.is_empty(),
        "a dry run writes nothing"
    );

    let apply = [&import[..], &["--apply"]].concat();
    let (code, report, told) = scene.run(&apply).await;
    assert_eq!(
        (code, &report["written"]),
        (Some(0), &2.into()),
        "{library}: {told}"
    );
    let expected: BTreeMap<String, Checkpoint> = scene
        .stops()
        .into_iter()
        .map(|(shard, sequence)| (shard.to_owned(), Checkpoint::parse(sequence, 0).unwrap()))
        .collect();
    assert_eq!(scene.checkpoints(to).await, expected, "{library}");

    let (code, report, told) = scene.run(&apply).await;
    assert_eq!(
        (code, &report["written"]),
        (Some(0), &0.into()),
        "{library}: {told}"
    );
    assert_eq!(scene.rows(&table).await, before, "{library}");
    scene.setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_continues_with_the_record_after_the_imported_checkpoint_and_none_before() {
    let scene = Scene::new().await;
    fill(&scene, "vmware-go-kcl").await;
    let import = [
        "import", "old", "--stream", STREAM, "--to", "conduct", "--apply",
    ];
    assert_eq!(scene.run(&import).await.0, Some(0));
    assert_eq!(scene.host_does().await, scene.left());
    // A host held the rows: the library's place is history.
    let (code, report, _) = scene.run(&import).await;
    assert_eq!((code, &report["written"]), (Some(0), &0.into()));
    assert_eq!(report["shards"][0]["step"], "served");
    scene.setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_that_kinesis_does_not_know_is_refused_though_every_stream_has_such_a_shard() {
    let scene = Scene::new().await;
    let (shard, _) = scene.stops()[0];
    scene.table("old", &[("ShardID", KeyType::Hash)]).await;
    scene
        .row(
            "old",
            vmware((shard, "12345"), None, "2026-01-01T00:00:00Z"),
        )
        .await;
    let import = [
        "import", "old", "--stream", STREAM, "--to", "conduct", "--apply",
    ];
    let (code, _, told) = scene.run(&import).await;
    assert_eq!(code, Some(1));
    assert!(told.contains("may be another stream's"), "{told}");
    assert!(scene.setting.leases("conduct").await.is_empty());
    scene.setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_refuses_while_the_old_fleet_writes_and_watches_until_it_stops() {
    let scene = Scene::new().await;
    fill(&scene, "vmware-go-kcl").await;
    let (shard, sequence) = scene.stops()[0];
    let (shard, sequence) = (shard.to_owned(), sequence.to_owned());
    let worker = async {
        for beat in 0..8 {
            let timeout = format!("2026-01-01T00:00:{beat:02}Z");
            let row = vmware((&shard, &sequence), Some("w-1"), &timeout);
            scene.row("old", row).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    let import = [
        "import",
        "old",
        "--stream",
        STREAM,
        "--to",
        "conduct",
        "--failover-time",
        "5s",
    ];
    let apply = [&import[..], &["--apply"]].concat();
    let refused = async {
        // The worker's first row is there.
        tokio::time::sleep(Duration::from_millis(500)).await;
        scene.run(&apply).await
    };
    let ((), (code, report, told)) = tokio::join!(worker, refused);
    assert_eq!(code, Some(1), "{report}");
    assert!(told.contains("of the old fleet may be alive"), "{told}");
    assert_eq!(
        (
            &report["workers"][0]["worker"],
            &report["workers"][0]["life"]
        ),
        (&"w-1".into(), &"live".into())
    );
    assert!(scene.setting.leases("conduct").await.is_empty());

    // It stops properly while it is waited for: it removes its name.
    let watch = [&import[..], &["--watch"]].concat();
    let stops = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        let row = vmware((&shard, &sequence), None, "2026-01-01T00:00:20Z");
        scene.row("old", row).await;
    };
    let ((code, report, told), ()) = tokio::join!(scene.run(&watch), stops);
    assert_eq!((code, &report["written"]), (Some(0), &2.into()), "{told}");
    scene.setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_exported_is_imported_again_as_it_was() {
    for_each_library(is_exported_and_imported_again).await;
}

async fn is_exported_and_imported_again(library: &'static str) {
    let scene = Scene::new().await;
    fill(&scene, "vmware-go-kcl").await;
    let import = [
        "import", "old", "--stream", STREAM, "--to", "conduct", "--apply",
    ];
    assert_eq!(scene.run(&import).await.0, Some(0));
    let before = scene.checkpoints("conduct").await;

    let export = [
        "export", "conduct", "--as", library, "--to", "back", "--stream", STREAM, "--group",
        "billing",
    ];
    let (code, report, told) = scene.run(&export).await;
    assert_eq!(
        (code, &report["applied"]),
        (Some(0), &false.into()),
        "{library}: {told}"
    );
    let apply = [&export[..], &["--apply"]].concat();
    let (code, report, told) = scene.run(&apply).await;
    assert_eq!(code, Some(0), "{library}: {told}");
    assert!(report["written"].as_u64() > Some(0), "{library}: {report}");

    let again = [
        "import", "back", "--stream", STREAM, "--to", "again", "--apply",
    ];
    let (code, _, told) = scene.run(&again).await;
    assert_eq!(code, Some(0), "{library}: {told}");
    assert_eq!(scene.checkpoints("again").await, before, "{library}");
    scene.setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_exported_while_a_host_lives_or_into_a_row_that_a_worker_owns() {
    let scene = Scene::new().await;
    fill(&scene, "vmware-go-kcl").await;
    let import = [
        "import", "old", "--stream", STREAM, "--to", "conduct", "--apply",
    ];
    assert_eq!(scene.run(&import).await.0, Some(0));
    scene
        .setting
        .drop_manifest("conduct", "[config]\ndestination = \"out\"\n");
    scene.setting.drop_plugin("conduct", &conduct(1, "good"));
    let host = scene.setting.host("a");
    let last = |(shard, records): (&String, &Vec<String>)| {
        (shard.clone(), records.last().unwrap().clone())
    };
    let last: Vec<_> = scene.records.iter().map(last).collect();
    scene.setting.until_checkpointed("conduct", &last).await;
    let export = [
        "export",
        "conduct",
        "--as",
        "vmware-go-kcl",
        "--to",
        "old",
        "--stream",
        STREAM,
        "--apply",
        "--watch-for",
        "4s",
    ];
    let (code, report, told) = scene.run(&export).await;
    assert_eq!(code, Some(1), "{report}");
    assert!(told.contains("host a may be alive"), "{told}");
    assert!(host.terminate().await.success());

    // The way back into the table that the place came from: rows are overwritten, if unowned.
    let (code, report, told) = scene.run(&export).await;
    assert_eq!((code, &report["written"]), (Some(0), &2.into()), "{told}");
    let rows = scene.rows("old").await;
    let checkpoint = |row: &Item| row["Checkpoint"].as_s().unwrap().clone();
    let checkpoints: BTreeSet<String> = rows.iter().map(checkpoint).collect();
    let expected: BTreeSet<String> = last.into_iter().map(|(_, sequence)| sequence).collect();
    assert_eq!(checkpoints, expected);
    scene.setting.stop().await;
}
