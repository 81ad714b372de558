//! The table of a KCL in multi-stream mode, taken over in place and given back: rows as its own
//! code writes them.

use std::collections::HashMap;
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use aws_sdk_kinesis::types::ShardIteratorType;
use harness::contract::stream::StreamControl;
use harness::embedded::EmbeddedStream;
use harness::flights::{self, Output};
use harness::guests::guest;
use harness::kcl_peer::{Item, item, number, text};
use harness::process::{Host, eventually, shardmill};
use harness::setting::{STREAM, Setting};
use shardmill_aws::{LeaseTable, StreamAdmin};
use shardmill_core::lease::Checkpoint;
use shardmill_core::ports::LeaseStore;
use shardmill_core::stream::{ShardId, StreamName};

/// The first has its setting's name.
const STREAMS: [&str; 3] = [STREAM, "returns", "refunds"];
const LEASES: &str = "duration = \"2s\"\nscan-every = \"100ms\"\nshard-sync-every = \"1s\"";
const APPLICATION: &str = "kcl-app";

/// A plugin that reads the three streams, with its leases in the KCL's table.
fn plugin() -> String {
    format!(
        "[reads]\ncalls-per-second = 50.0\nbytes-per-second = \"1GiB\"\nidle-every = \"50ms\"\n\
         [plugin.flights]\napplication = \"{APPLICATION}\"\nstreams = [{}]\n\
         multi-stream-table = true\n",
        STREAMS.map(|stream| format!("{stream:?}")).join(", ")
    )
}

async fn scene() -> Setting {
    let setting = Setting::new(2).await;
    for stream in &STREAMS[1..] {
        let stream = StreamName::new(stream).unwrap();
        let admin = StreamAdmin::new(setting.clients.kinesis.clone());
        admin.ensure_stream(&stream, 2).await.unwrap();
    }
    setting.drop_plugin("flights", &guest("flights"));
    let table = LeaseTable::new(setting.clients.dynamodb.clone(), APPLICATION);
    table.ensure_table().await.unwrap();
    setting
}

/// `ACCOUNT:STREAM:CREATED`, from what Kinesis says of the stream.
async fn prefix_of(setting: &Setting, stream: &str) -> String {
    let name = StreamName::new(stream).unwrap();
    let admin = StreamAdmin::new(setting.clients.kinesis.clone());
    let found = admin.describe(&name).await.unwrap().unwrap();
    format!("000000000000:{stream}:{}", found.created_at)
}

async fn prefix_now(setting: &Setting, stream: &str) -> Option<String> {
    let name = StreamName::new(stream).unwrap();
    let admin = StreamAdmin::new(setting.clients.kinesis.clone());
    let found = admin.describe(&name).await.unwrap()?;
    let is_there = found.status == "ACTIVE";
    is_there.then(|| format!("000000000000:{stream}:{}", found.created_at))
}

/// `createLeaseIfNotExists` in multi-stream mode (KCL, `DynamoDBMultiStreamLeaseSerializer.java`).
async fn put_row(setting: &Setting, stream: &str, shard: usize, checkpoint: &str) {
    let prefix = prefix_of(setting, stream).await;
    let shard = format!("shardId-{shard:012}");
    let row = item([
        ("leaseKey", text(&format!("{prefix}:{shard}"))),
        ("streamName", text(&prefix)),
        ("shardId", text(&shard)),
        ("leaseCounter", number(7)),
        ("ownerSwitchesSinceCheckpoint", number(0)),
        ("checkpoint", text(checkpoint)),
        ("checkpointSubSequenceNumber", number(0)),
        ("ofTheKcl", text("stays")),
    ]);
    let put = setting.clients.dynamodb.put_item();
    put.table_name(APPLICATION)
        .set_item(Some(row))
        .send()
        .await
        .unwrap();
}

async fn rows(setting: &Setting) -> HashMap<String, Item> {
    let scan = setting.clients.dynamodb.scan().table_name(APPLICATION);
    let items = scan.send().await.unwrap().items.unwrap_or_default();
    let keyed = items.into_iter().map(|row| (string(&row, "leaseKey"), row));
    keyed.collect()
}

fn string(row: &Item, name: &str) -> String {
    row.get(name)
        .and_then(|value| value.as_s().ok())
        .cloned()
        .unwrap_or_default()
}

/// The sequence numbers of a shard's records, in order.
async fn sequences(setting: &Setting, stream: &str, shard: usize) -> Vec<String> {
    let kinesis = &setting.clients.kinesis;
    let first = kinesis.get_shard_iterator().stream_name(stream);
    let first = first.shard_id(format!("shardId-{shard:012}"));
    let first = first.shard_iterator_type(ShardIteratorType::TrimHorizon);
    let mut next = first.send().await.unwrap().shard_iterator;
    let mut sequences = Vec::new();
    while let Some(iterator) = next {
        let reply = kinesis.get_records().shard_iterator(iterator).send();
        let reply = reply.await.unwrap();
        if reply.records.is_empty() {
            break;
        }
        let found = reply.records.into_iter();
        sequences.extend(found.map(|record| record.sequence_number));
        next = reply.next_shard_iterator;
    }
    sequences
}

fn output(setting: &Setting) -> Output {
    Output::read(&[&setting.output_of("a")])
}

fn start(setting: &Setting) -> Host {
    setting.host_sharing("a", LEASES, &plugin())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_multi_stream_table_is_taken_over_in_place_to_the_record_and_given_back_as_the_kcl_has_it()
 {
    let setting = scene().await;
    let all: u64 = flights::expected().values().sum();
    let mut last = HashMap::new();
    for stream in STREAMS {
        last.insert(stream, setting.put_into(stream, &flights::input()).await);
    }
    // The KCL did the first third of the first stream's first shard, and nothing of its second. It
    // knows the second stream since it began, and the third is new.
    let done = sequences(&setting, STREAMS[0], 0).await;
    let third = done.len() / 3;
    put_row(&setting, STREAMS[0], 0, &done[third - 1]).await;
    put_row(&setting, STREAMS[0], 1, "TRIM_HORIZON").await;
    for shard in 0..2 {
        put_row(&setting, STREAMS[1], shard, "TRIM_HORIZON").await;
    }
    let host = start(&setting);
    for stream in STREAMS {
        let own = format!("{APPLICATION}:{stream}");
        setting.until_checkpointed(&own, &last[stream]).await;
    }
    assert!(host.terminate().await.success());
    let output = output(&setting);
    assert_eq!(output.lines, 3 * all - u64::try_from(third).unwrap());
    let rows = rows(&setting).await;
    assert_eq!(rows.len(), 6);
    for stream in STREAMS {
        let prefix = prefix_of(&setting, stream).await;
        for (shard, sequence) in &last[stream] {
            let row = &rows[&format!("{prefix}:{shard}")];
            assert_eq!(string(row, "streamName"), prefix);
            assert_eq!(string(row, "shardId"), *shard);
            assert_eq!(string(row, "checkpoint"), *sequence, "{stream} {shard}");
            assert!(!row.contains_key("leaseOwner"), "it is free for the KCL");
            let is_of_kcl = stream != STREAMS[2];
            assert_eq!(
                row.contains_key("ofTheKcl"),
                is_of_kcl,
                "what it kept stays"
            );
        }
    }
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_that_splits_has_rows_under_the_keys_of_its_stream() {
    let setting = scene().await;
    let host = start(&setting);
    let last = setting.put_into(STREAMS[1], &flights::input()).await;
    let own = format!("{APPLICATION}:{}", STREAMS[1]);
    setting.until_checkpointed(&own, &last).await;
    let name = StreamName::new(STREAMS[1]).unwrap();
    let stream = EmbeddedStream::new(setting.clients.kinesis.clone(), name);
    let parent = ShardId::new("shardId-000000000000").unwrap();
    stream.split(&parent, u128::MAX / 4).await;
    let last = setting.put_into(STREAMS[1], &flights::input()).await;
    setting.until_checkpointed(&own, &last).await;
    let prefix = prefix_of(&setting, STREAMS[1]).await;
    let rows = rows(&setting).await;
    for shard in 2..4 {
        let row = &rows[&format!("{prefix}:shardId-{shard:012}")];
        let parents = row
            .get("parentShardId")
            .and_then(|value| value.as_ss().ok());
        assert_eq!(parents.unwrap(), &["shardId-000000000000".to_owned()]);
        assert!(matches!(
            row.get("leaseCounter"),
            Some(AttributeValue::N(_))
        ));
    }
    let all: u64 = flights::expected().values().sum();
    assert_eq!(output(&setting).lines, 2 * all);
    let leases = setting.leases(&own).await;
    let parent = leases.iter().find(|lease| lease.key.shard_id() == parent);
    assert!(parent.is_none_or(|lease| lease.checkpoint == Checkpoint::ShardEnd));
    assert!(host.terminate().await.success());
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_name_one_stream_of_the_table_and_the_application_alone_says_so() {
    let setting = scene().await;
    let host = start(&setting);
    let last = setting.put_into(STREAMS[2], &flights::input()).await;
    let own = format!("{APPLICATION}:{}", STREAMS[2]);
    setting.until_checkpointed(&own, &last).await;
    let run = async |args: &[&str]| {
        let ended = shardmill(args, setting.path()).await;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (
            ended.status.success(),
            text(&ended.stdout) + &text(&ended.stderr),
        )
    };
    let (is_shown, text) = run(&["plugins", "--local"]).await;
    for stream in STREAMS {
        assert!(
            is_shown && text.contains(&format!("{APPLICATION}:{stream}")),
            "{text}"
        );
    }
    for command in ["leases", "doctor"] {
        let (is_shown, text) = run(&[command, &own, "--local", "--watch-for", "0s"]).await;
        assert!(
            is_shown && text.contains("shardId-000000000001"),
            "{command}: {text}"
        );
        assert!(
            !text.contains("000000000000:"),
            "under the shards' ids: {text}"
        );
    }
    for command in [&["leases", APPLICATION][..], &["explain", APPLICATION, "0"]] {
        let more = ["--local", "--watch-for", "0s"];
        let (is_shown, text) = run(&[command, &more].concat()).await;
        assert!(
            !is_shown && text.contains("name one, such as kcl-app:"),
            "{command:?}: {text}"
        );
    }
    let (is_usable, text) = run(&["doctor", APPLICATION, "--local", "--watch-for", "0s"]).await;
    assert!(
        is_usable && text.contains("use it in parts, such as kcl-app:"),
        "{text}"
    );
    let why = ["--local", "--why", "a test", "--apply"];
    let (is_done, text) = run(&[&["pause", APPLICATION][..], &why].concat()).await;
    assert!(
        !is_done && text.contains("name one, such as kcl-app:"),
        "{text}"
    );
    let (is_done, text) = run(&[&["pause", own.as_str()][..], &why].concat()).await;
    assert!(is_done, "{text}");
    let before = output(&setting).lines;
    setting.put_into(STREAMS[2], &flights::input()).await;
    setting.put_into(STREAMS[1], &flights::input()).await;
    let all: u64 = flights::expected().values().sum();
    eventually("the other stream goes on", || {
        output(&setting).lines == before + all
    })
    .await;
    assert!(host.terminate().await.success());
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_created_again_begins_anew_beside_the_others() {
    let setting = scene().await;
    let host = start(&setting);
    let last = setting.put_into(STREAMS[1], &flights::input()).await;
    let own = format!("{APPLICATION}:{}", STREAMS[1]);
    setting.until_checkpointed(&own, &last).await;
    assert!(host.terminate().await.success());
    let old = prefix_of(&setting, STREAMS[1]).await;
    let kinesis = &setting.clients.kinesis;
    let deleted = kinesis.delete_stream().stream_name(STREAMS[1]).send().await;
    deleted.unwrap();
    // Streams are told apart by the second of their creation.
    while prefix_now(&setting, STREAMS[1])
        .await
        .is_none_or(|now| now == old)
    {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let create = kinesis.create_stream().stream_name(STREAMS[1]);
        let _ = create.shard_count(2).send().await;
        let now = prefix_now(&setting, STREAMS[1]).await;
        if now.is_some_and(|now| now == old) {
            let deleted = kinesis.delete_stream().stream_name(STREAMS[1]).send().await;
            deleted.unwrap();
        }
    }
    let last = setting.put_into(STREAMS[1], &flights::input()).await;
    let host = start(&setting);
    setting.until_checkpointed(&own, &last).await;
    let all: u64 = flights::expected().values().sum();
    assert_eq!(output(&setting).lines, 2 * all);
    assert!(host.terminate().await.success());
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_without_the_setting_does_not_start_on_such_a_table_and_names_it() {
    let setting = scene().await;
    put_row(&setting, STREAMS[0], 0, "TRIM_HORIZON").await;
    let settings = format!("[plugin.flights]\napplication = \"{APPLICATION}\"\n");
    let host = setting.host_sharing("a", LEASES, &settings);
    let is_told = || host.log().contains("multi-stream-table = true");
    eventually("the host says what to set", is_told).await;
    assert_eq!(output(&setting).lines, 0);
    host.kill();
    setting.stop().await;
}

/// The manifest of a plugin that reads these streams.
fn reading(streams: &[&str]) -> String {
    format!("application = \"{APPLICATION}\"\nstreams = {streams:?}\nmulti-stream-table = true\n")
}

/// What commands call one stream of the table.
fn part(stream: &str) -> String {
    format!("{APPLICATION}:{stream}")
}

/// Waits until no lease has an owner.
async fn until_left(setting: &Setting, application: &str) {
    let deadline = tokio::time::Instant::now() + Duration::from_mins(1);
    loop {
        let leases = setting.leases(application).await;
        if leases.iter().all(|lease| lease.owner.is_none()) {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "{leases:#?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_joins_the_table_leaves_it_and_comes_back_while_the_host_runs() {
    let setting = scene().await;
    let ceilings = format!(
        "[reads]\ncalls-per-second = 50.0\nbytes-per-second = \"1GiB\"\nidle-every = \"50ms\"\n\
         [ceilings]\napplications = [{APPLICATION:?}]\nstreams = {:?}\n",
        &STREAMS[1..]
    );
    let all: u64 = flights::expected().values().sum();
    setting.drop_manifest("flights", &reading(&STREAMS[..1]));
    let host = setting.host_sharing("a", LEASES, &ceilings);
    let last = setting.put(&flights::input()).await;
    setting.until_checkpointed(&part(STREAMS[0]), &last).await;

    let joining = setting.put_into(STREAMS[1], &flights::input()).await;
    assert_eq!(output(&setting).lines, all, "nobody reads it yet");
    setting.drop_manifest("flights", &reading(&STREAMS[..2]));
    setting
        .until_checkpointed(&part(STREAMS[1]), &joining)
        .await;
    assert_eq!(output(&setting).lines, 2 * all);

    setting.drop_manifest("flights", &reading(&STREAMS[1..2]));
    until_left(&setting, &part(STREAMS[0])).await;
    let missed = setting.put(&flights::input()).await;
    let read = setting.put_into(STREAMS[1], &flights::input()).await;
    setting.until_checkpointed(&part(STREAMS[1]), &read).await;
    assert_eq!(output(&setting).lines, 3 * all, "of the stream that stays");

    setting.drop_manifest("flights", &reading(&STREAMS[..2]));
    setting.until_checkpointed(&part(STREAMS[0]), &missed).await;
    assert!(host.terminate().await.success());
    assert_eq!(output(&setting).lines, 4 * all, "it goes on where it was");
    let rows = rows(&setting).await;
    assert_eq!(rows.len(), 4, "two shards of each: {:?}", rows.keys());
    setting.stop().await;
}
