//! The departures come in KPL aggregates, made by AWS' own library for Python; the answer is the
//! same.

use bytes::Bytes;
use harness::flights::{self, Output};
use harness::guests::guest;
use harness::process::eventually;
use harness::setting::{STREAM, Setting};
use shardmill_aws::{PutEntry, StreamWriter};
use shardmill_core::stream::StreamName;

/// The aggregates were made for this many shards.
const SHARDS: u32 = 4;

#[tokio::test(flavor = "multi_thread")]
async fn every_flight_comes_out_of_its_aggregate_exactly_once_and_in_order_also_from_host_to_host()
{
    let setting = Setting::new(SHARDS).await;
    setting.drop_plugin("flights", &guest("flights"));
    let writer = StreamWriter::new(
        setting.clients.kinesis.clone(),
        StreamName::new(STREAM).unwrap(),
    );
    let aggregates = flights::aggregates();
    let count = aggregates.len() as u64;
    let entry = |(partition_key, data)| PutEntry {
        partition_key,
        explicit_hash_key: None,
        data: Bytes::from(data),
    };
    let report = writer
        .put_all(aggregates.into_iter().map(entry), |_, _| {})
        .await
        .unwrap();
    assert_eq!(
        (report.records, report.last_sequence.len()),
        (count, SHARDS as usize),
        "all shards got aggregates"
    );

    let total: u64 = flights::expected().values().sum();
    assert!(total > 50 * count, "many departures in an aggregate");
    let (first, second) = (setting.output_of("a"), setting.output_of("b"));
    let lines = |path| std::fs::read_to_string(path).map_or(0, |text| text.lines().count() as u64);
    // An aggregate at a time and batches that end inside them, so that a host can be stopped in the
    // middle.
    let slowly = "[reads]\ncalls-per-second = 5.0\nrecords-per-call = 1\nidle-every = \
        \"50ms\"\n[batch]\nrecords = 30";
    let host = setting.host_with("a", slowly);
    eventually("a quarter has come out", || lines(&first) > total / 4).await;
    assert!(host.terminate().await.success());
    let leases = setting.leases("flights").await;
    assert!(
        leases
            .iter()
            .any(|lease| lease.checkpoint.sub_sequence() > 0),
        "{leases:#?}"
    );

    let host = setting.host("b");
    eventually("all has come out", || {
        lines(&first) + lines(&second) >= total
    })
    .await;
    assert!(host.terminate().await.success());
    let output = Output::read(&[&first, &second]);
    assert_eq!(output.carriers, flights::expected());
    assert_eq!(
        (output.lines, output.repeats, output.disorder),
        (total, 0, 0)
    );
    setting.stop().await;
}
