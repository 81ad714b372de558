//! The adapters over the embedded stack: what survives a restart, and what concurrency must not lose.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test binary")]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
};
use shardmill_aws::{
    AwsClients, AwsOptions, KinesisReader, LeaseTable, PutEntry, PutReport, StaticCredentials, StreamAdmin,
    StreamWriter, connect,
};
use shardmill_core::lease::{Checkpoint, Lease, LeaseCounter, WorkerId};
use shardmill_core::ports::{CheckpointWrite, LeaseStore, Progress, StoreError, StreamReader, Written};
use shardmill_core::stream::{LeaseKey, Position, ReadFrom, Record, SequenceNumber, ShardId, StreamName};
use shardmill_local::{LOCAL_REGION, LocalOptions, LocalStack, StartError};

const CHILD_DATA_DIR: &str = "SHARDMILL_TEST_CHILD_DATA_DIR";

/// What another process would do to find the stack.
async fn wait_for_endpoints(data_dir: &Path) -> BTreeMap<String, String> {
    loop {
        if let Ok(text) = std::fs::read_to_string(data_dir.join("endpoints.json")) {
            let quoted: Vec<&str> = text.split('"').collect();
            let value = |name: &str| {
                let at = quoted.iter().position(|word| *word == name).unwrap();
                (name.to_owned(), quoted[at + 2].to_owned())
            };
            return ["kinesis", "dynamodb"].map(value).into();
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

async fn take_fresh(table: &LeaseTable, lease: &Lease) -> Written {
    table.create(lease).await.unwrap();
    table.take(lease, &WorkerId::new("a").unwrap()).await.unwrap()
}

async fn start(data_dir: &Path) -> (LocalStack, AwsClients) {
    let stack = LocalStack::start(LocalOptions::kept_in(data_dir)).await.unwrap();
    let clients = clients(&stack).await;
    (stack, clients)
}

async fn in_memory() -> (LocalStack, AwsClients) {
    let stack = LocalStack::start(LocalOptions::in_memory()).await.unwrap();
    let clients = clients(&stack).await;
    (stack, clients)
}

async fn clients(stack: &LocalStack) -> AwsClients {
    clients_at(stack.kinesis_endpoint(), stack.dynamodb_endpoint()).await
}

async fn clients_at(kinesis: &str, dynamodb: &str) -> AwsClients {
    let options = AwsOptions {
        region: Some(LOCAL_REGION.to_owned()),
        kinesis_endpoint: Some(kinesis.to_owned()),
        dynamodb_endpoint: Some(dynamodb.to_owned()),
        credentials: Some(StaticCredentials::dummy()),
    };
    connect(&options).await.unwrap()
}

fn orders() -> StreamName {
    StreamName::new("orders").unwrap()
}

fn entries(range: std::ops::Range<usize>) -> impl Iterator<Item = PutEntry> {
    range.map(|index| PutEntry {
        partition_key: format!("key-{}", index % 97),
        explicit_hash_key: None,
        data: format!("record {index}").into(),
    })
}

async fn put(clients: &AwsClients, range: std::ops::Range<usize>) -> PutReport {
    let writer = StreamWriter::new(clients.kinesis.clone(), orders());
    writer.put_all(entries(range), |_, _| {}).await.unwrap()
}

/// Everything in a shard, from the start to the tip or the end.
async fn read_shard(reader: &KinesisReader, shard: &ShardId) -> Vec<Record> {
    let mut next = Some(reader.iterator(shard, &ReadFrom::TrimHorizon).await.unwrap());
    let mut records = Vec::new();
    while let Some(iterator) = next {
        let mut fetched = reader.fetch(&iterator, 10_000).await.unwrap();
        let is_at_tip = fetched.records.is_empty() && fetched.millis_behind_latest == Some(0);
        records.append(&mut fetched.records);
        next = fetched.next.filter(|_| !is_at_tip);
    }
    records
}

async fn read_all(clients: &AwsClients) -> BTreeMap<ShardId, Vec<Record>> {
    let reader = KinesisReader::new(clients.kinesis.clone(), orders());
    let mut all = BTreeMap::new();
    for shard in reader.list_shards().await.unwrap() {
        let records = read_shard(&reader, &shard.id).await;
        assert!(records.is_sorted_by(|a, b| a.position < b.position), "{} is out of order", shard.id);
        all.insert(shard.id, records);
    }
    all
}

async fn split(clients: &AwsClients, shard: &str) {
    let request = clients.kinesis.split_shard().stream_name("orders").shard_to_split(shard);
    request.new_starting_hash_key("1000").send().await.unwrap();
}

#[tokio::test]
async fn records_shards_and_sequence_numbers_survive_a_killed_process() {
    let dir = tempfile::tempdir().unwrap();
    let (stack, clients) = start(dir.path()).await;
    StreamAdmin::new(clients.kinesis.clone()).ensure_stream(&orders(), 2).await.unwrap();
    put(&clients, 0..700).await;
    split(&clients, "shardId-000000000000").await;
    let first = put(&clients, 700..1_400).await;
    let before = read_all(&clients).await;
    // No stop: nothing gets the chance to write anything more.
    drop(stack);

    let (stack, clients) = start(dir.path()).await;
    assert_eq!(read_all(&clients).await, before);
    let second = put(&clients, 1_400..1_500).await;
    for (shard, last) in &second.last_sequence {
        assert!(first.last_sequence.get(shard).is_none_or(|earlier| earlier < last), "{shard}");
    }
    assert_eq!(read_all(&clients).await.values().map(Vec::len).sum::<usize>(), 1_500);
    stack.stop().await;

    let (stack, clients) = start(dir.path()).await;
    assert_eq!(read_all(&clients).await.values().map(Vec::len).sum::<usize>(), 1_500);
    stack.stop().await;
}

/// Not a test of its own but the process that the next one kills.
#[tokio::test]
#[ignore = "started by a_process_killed_by_sigkill_loses_nothing_it_answered"]
async fn child_process() {
    let Ok(dir) = std::env::var(CHILD_DATA_DIR) else { return };
    let (_stack, _) = start(Path::new(&dir)).await;
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn a_process_killed_by_sigkill_loses_nothing_it_answered() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_process", "--ignored"])
        .env(CHILD_DATA_DIR, dir.path())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let endpoints = wait_for_endpoints(dir.path()).await;
    let clients = clients_at(&endpoints["kinesis"], &endpoints["dynamodb"]).await;
    StreamAdmin::new(clients.kinesis.clone()).ensure_stream(&orders(), 2).await.unwrap();
    put(&clients, 0..900).await;
    let table = LeaseTable::new(clients.dynamodb.clone(), "app");
    table.ensure_table().await.unwrap();
    let lease = lease("shardId-000000000000");
    let Written::Applied(token) = take_fresh(&table, &lease).await else { panic!("a conflict") };
    let before = read_all(&clients).await;
    child.kill().unwrap();
    child.wait().unwrap();

    let (_stack, clients) = start(dir.path()).await;
    assert_eq!(before.values().map(Vec::len).sum::<usize>(), 900);
    assert_eq!(read_all(&clients).await, before);
    let table = LeaseTable::new(clients.dynamodb.clone(), "app");
    assert_eq!(table.get(&lease.key).await.unwrap().map(|row| row.token(token.owner.clone())), Some(token));
}

#[tokio::test]
async fn a_journal_that_is_mostly_dead_shrinks_at_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let (stack, clients) = start(dir.path()).await;
    let admin = StreamAdmin::new(clients.kinesis.clone());
    let large = |_| PutEntry { partition_key: "k".to_owned(), explicit_hash_key: None, data: vec![0; 300_000].into() };
    let old = StreamName::new("old").unwrap();
    admin.ensure_stream(&old, 1).await.unwrap();
    StreamWriter::new(clients.kinesis.clone(), old).put_all((0..20).map(large), |_, _| {}).await.unwrap();
    clients.kinesis.delete_stream().stream_name("old").send().await.unwrap();
    admin.ensure_stream(&orders(), 2).await.unwrap();
    put(&clients, 0..100).await;
    let before = read_all(&clients).await;
    drop(stack);
    let journal = dir.path().join("kinesis.journal");
    assert!(std::fs::metadata(&journal).unwrap().len() > 6_000_000);
    for _ in 0..2 {
        let (stack, clients) = start(dir.path()).await;
        assert!(std::fs::metadata(&journal).unwrap().len() < 100_000);
        assert_eq!(read_all(&clients).await, before);
        drop(stack);
    }
}

#[tokio::test]
async fn a_closed_shard_has_ended_for_its_readers_after_a_restart_too() {
    let dir = tempfile::tempdir().unwrap();
    let (stack, clients) = start(dir.path()).await;
    StreamAdmin::new(clients.kinesis.clone()).ensure_stream(&orders(), 1).await.unwrap();
    put(&clients, 0..10).await;
    split(&clients, "shardId-000000000000").await;
    drop(stack);
    let (_stack, clients) = start(dir.path()).await;
    let reader = KinesisReader::new(clients.kinesis.clone(), orders());
    let shard = ShardId::new("shardId-000000000000").unwrap();
    let tip = reader.iterator(&shard, &ReadFrom::Latest).await.unwrap();
    let fetched = reader.fetch(&tip, 100).await.unwrap();
    assert_eq!((fetched.records.len(), fetched.next, fetched.children.len()), (0, None, 2));
    assert_eq!(read_shard(&reader, &shard).await.len(), 10);
}

#[tokio::test]
async fn a_deleted_stream_stays_deleted_and_its_name_starts_empty() {
    let dir = tempfile::tempdir().unwrap();
    let (stack, clients) = start(dir.path()).await;
    let admin = StreamAdmin::new(clients.kinesis.clone());
    admin.ensure_stream(&orders(), 1).await.unwrap();
    put(&clients, 0..10).await;
    clients.kinesis.delete_stream().stream_name("orders").send().await.unwrap();
    drop(stack);
    let (_stack, clients) = start(dir.path()).await;
    let admin = StreamAdmin::new(clients.kinesis.clone());
    assert_eq!(admin.describe(&orders()).await.unwrap(), None);
    let made = admin.ensure_stream(&orders(), 3).await.unwrap();
    assert_eq!((made.status.as_str(), made.open_shards), ("ACTIVE", 3));
    assert!(read_all(&clients).await.values().all(Vec::is_empty));
}

#[tokio::test]
async fn leases_survive_a_killed_process() {
    let dir = tempfile::tempdir().unwrap();
    let (stack, clients) = start(dir.path()).await;
    let table = LeaseTable::new(clients.dynamodb.clone(), "app");
    table.ensure_table().await.unwrap();
    let lease = lease("shardId-000000000000");
    let Written::Applied(token) = take_fresh(&table, &lease).await else { panic!("a conflict") };
    drop(stack);
    let (_stack, clients) = start(dir.path()).await;
    let table = LeaseTable::new(clients.dynamodb.clone(), "app");
    table.ensure_table().await.unwrap();
    let row = table.get(&lease.key).await.unwrap().unwrap();
    assert_eq!(row.token(token.owner.clone()), token);
}

#[tokio::test]
async fn a_second_start_on_the_same_directory_is_refused_and_names_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let (stack, _) = start(dir.path()).await;
    let error = LocalStack::start(LocalOptions::kept_in(dir.path())).await.unwrap_err();
    let pid = std::process::id();
    assert!(matches!(error, StartError::InUse { holder: Some(holder), .. } if holder == pid), "{error}");
    let endpoints = std::fs::read_to_string(dir.path().join("endpoints.json")).unwrap();
    assert!(endpoints.contains(stack.kinesis_endpoint()) && endpoints.contains(stack.dynamodb_endpoint()));
    stack.stop().await;
    assert!(!dir.path().join("endpoints.json").exists());
    start(dir.path()).await;
}

#[tokio::test]
async fn a_taken_port_is_named() {
    let (stack, _) = in_memory().await;
    let port = stack.kinesis_endpoint().rsplit(':').next().unwrap().parse().unwrap();
    let error = LocalStack::start(LocalOptions { kinesis_port: port, ..LocalOptions::in_memory() }).await.unwrap_err();
    assert!(matches!(error, StartError::PortTaken { service: "kinesis", port: taken } if taken == port), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_reader_beside_many_writers_misses_nothing() {
    const WRITERS: usize = 6;
    const EACH: usize = 400;
    let (_stack, clients) = in_memory().await;
    StreamAdmin::new(clients.kinesis.clone()).ensure_stream(&orders(), 1).await.unwrap();
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..WRITERS {
        let kinesis = clients.kinesis.clone();
        writers.spawn(async move {
            let entries: Vec<_> = entries(writer * EACH..(writer + 1) * EACH).collect();
            for some in entries.chunks(20) {
                let writer = StreamWriter::new(kinesis.clone(), orders());
                writer.put_all(some.to_vec(), |_, _| {}).await.unwrap();
            }
        });
    }
    let reader = KinesisReader::new(clients.kinesis.clone(), orders());
    let shard = ShardId::new("shardId-000000000000").unwrap();
    let mut next = reader.iterator(&shard, &ReadFrom::TrimHorizon).await.unwrap();
    let mut found = Vec::new();
    while found.len() < WRITERS * EACH {
        let fetched = reader.fetch(&next, 37).await.unwrap();
        found.extend(fetched.records);
        next = fetched.next.unwrap();
        if fetched.millis_behind_latest == Some(0) && writers.is_empty() {
            break;
        }
        while writers.try_join_next().is_some() {}
    }
    assert_eq!(found.len(), WRITERS * EACH);
    assert!(found.is_sorted_by(|a, b| a.position < b.position));
}

#[tokio::test]
async fn a_table_with_another_key_is_refused_with_what_was_found() {
    let (_stack, clients) = in_memory().await;
    let key = KeySchemaElement::builder().attribute_name("id").key_type(KeyType::Hash).build().unwrap();
    let attribute =
        AttributeDefinition::builder().attribute_name("id").attribute_type(ScalarAttributeType::N).build().unwrap();
    let request = clients.dynamodb.create_table().table_name("app").key_schema(key).attribute_definitions(attribute);
    request.billing_mode(BillingMode::PayPerRequest).send().await.unwrap();
    let error = LeaseTable::new(clients.dynamodb.clone(), "app").ensure_table().await.unwrap_err();
    assert!(matches!(error, StoreError::WrongTable { .. }), "{error}");
    assert!(error.to_string().contains("HASH id N"), "{error}");
}

#[tokio::test]
async fn a_missing_table_is_refused_by_name() {
    let (_stack, clients) = in_memory().await;
    let error = LeaseTable::new(clients.dynamodb.clone(), "nowhere").list().await.unwrap_err();
    assert!(matches!(&error, StoreError::Refused { message } if message.contains("nowhere")), "{error}");
}

#[tokio::test]
async fn two_hosts_may_make_the_table_at_once() {
    let (_stack, clients) = in_memory().await;
    let table = LeaseTable::new(clients.dynamodb.clone(), "app");
    let (a, b, c) = tokio::join!(table.ensure_table(), table.ensure_table(), table.ensure_table());
    assert_eq!((a, b, c), (Ok(()), Ok(()), Ok(())));
}

#[tokio::test]
async fn attributes_of_other_programs_survive_every_write_and_other_rows_are_counted() {
    let (_stack, clients) = in_memory().await;
    let table = LeaseTable::new(clients.dynamodb.clone(), "app");
    table.ensure_table().await.unwrap();
    let lease = lease("shardId-000000000000");
    let (text, number) = (|v: &str| AttributeValue::S(v.to_owned()), |v: &str| AttributeValue::N(v.to_owned()));
    let put = |pairs: Vec<(&str, AttributeValue)>| {
        let item = pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        clients.dynamodb.put_item().table_name("app").set_item(Some(item)).send()
    };
    put(vec![
        ("leaseKey", text(lease.key.as_str())),
        ("leaseCounter", number("0")),
        ("checkpoint", text("LATEST")),
        ("checkpointOwner", text("old")),
        ("pendingCheckpoint", text("5")),
        ("throughputKBps", number("12.5")),
    ])
    .await
    .unwrap();
    put(vec![("leaseKey", text("Leader")), ("entityType", text("LEADER"))]).await.unwrap();
    put(vec![("leaseKey", text("shardId-000000000001")), ("leaseCounter", text("many"))]).await.unwrap();

    let listing = table.list().await.unwrap();
    assert_eq!((listing.leases.len(), listing.bad_rows.len(), listing.foreign_rows), (1, 1, 1));
    let worker = WorkerId::new("a").unwrap();
    let Written::Applied(token) = table.take(&listing.leases[0], &worker).await.unwrap() else { panic!("a conflict") };
    let position = Position::plain(SequenceNumber::parse("7").unwrap());
    let write = CheckpointWrite { position, progress: Progress::default() };
    let Written::Applied(token) = table.checkpoint(&token, &write).await.unwrap() else { panic!("a conflict") };
    table.release(&token).await.unwrap();
    let get = clients.dynamodb.get_item().table_name("app").key("leaseKey", text(lease.key.as_str()));
    let item = get.send().await.unwrap().item.unwrap();
    assert_eq!(item["throughputKBps"], number("12.5"));
    for gone in ["leaseOwner", "checkpointOwner", "pendingCheckpoint"] {
        assert!(!item.contains_key(gone), "{gone}");
    }
}

/// Not a promise but a measurement: `cargo test -p shardmill-aws --test embedded -- --ignored --nocapture`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes some seconds"]
async fn how_fast_the_stack_is() {
    let dir = tempfile::tempdir().unwrap();
    let (stack, clients) = start(dir.path()).await;
    StreamAdmin::new(clients.kinesis.clone()).ensure_stream(&orders(), 4).await.unwrap();
    let records = 336_776;
    let entries = (0..records).map(|index| PutEntry {
        partition_key: format!("key-{}", index % 4_000),
        explicit_hash_key: None,
        data: vec![b'a' + u8::try_from(index % 26).unwrap(); 310].into(),
    });
    let began = Instant::now();
    let writer = StreamWriter::new(clients.kinesis.clone(), orders());
    let report = writer.put_all(entries, |_, _| {}).await.unwrap();
    let put = began.elapsed();
    println!("put {} records in {put:?}: {:.0}/s", report.records, f64::from(records) / put.as_secs_f64());
    let began = Instant::now();
    let read: usize = read_all(&clients).await.values().map(Vec::len).sum();
    let took = began.elapsed();
    println!("read {read} records in {took:?}: {:.0}/s", f64::from(records) / took.as_secs_f64());
    drop(stack);
    let began = Instant::now();
    let (_stack, _) = start(dir.path()).await;
    println!("restart in {:?}", began.elapsed());
}

fn lease(key: &str) -> Lease {
    Lease {
        key: LeaseKey::new(key).unwrap(),
        owner: None,
        counter: LeaseCounter(0),
        owner_switches: 0,
        checkpoint: Checkpoint::TrimHorizon,
        parents: Vec::new(),
        children: Vec::new(),
        hash_range: None,
        plugin_digest: None,
        millis_behind_latest: None,
        checkpoint_owner: None,
    }
}
