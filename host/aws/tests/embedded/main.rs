//! The adapters over the embedded stack: what survives a restart, and what concurrency must not
//! lose.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test binary")]

mod commands;
mod lease_rows;
mod restart;

use std::collections::BTreeMap;
use std::path::Path;

use shardmill_aws::{
    AwsClients, AwsOptions, KinesisReader, LeaseTable, PutEntry, PutReport, StaticCredentials,
    StreamAdmin, StreamWriter, connect,
};
use shardmill_core::control::Directives;
use shardmill_core::lease::{Checkpoint, Lease, LeaseCounter, WorkerId};
use shardmill_core::ports::{
    CheckpointWrite, LeaseStore, Progress, StoreError, StreamReader, Written,
};
use shardmill_core::stream::{
    LeaseKey, Position, ReadFrom, Record, SequenceNumber, ShardId, StreamName,
};
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
    table
        .take(lease, &WorkerId::new("a").unwrap(), 7)
        .await
        .unwrap()
        .written()
}

async fn start(data_dir: &Path) -> (LocalStack, AwsClients) {
    let stack = LocalStack::start(LocalOptions::kept_in(data_dir))
        .await
        .unwrap();
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
        ..AwsOptions::default()
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
    let mut next = Some(
        reader
            .iterator(shard, &ReadFrom::TrimHorizon)
            .await
            .unwrap(),
    );
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
        assert!(
            records.is_sorted_by(|a, b| a.position < b.position),
            "{} is out of order",
            shard.id
        );
        all.insert(shard.id, records);
    }
    all
}

async fn split(clients: &AwsClients, shard: &str) {
    let request = clients
        .kinesis
        .split_shard()
        .stream_name("orders")
        .shard_to_split(shard);
    request.new_starting_hash_key("1000").send().await.unwrap();
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
        settled_arrival_ms: None,
        given_up: None,
        state_fill: None,
        checkpoint_owner: None,
        claimant: None,
        held_since_ms: None,
        bytes_per_second: None,
        stuck: None,
        directives: Directives::default(),
    }
}
