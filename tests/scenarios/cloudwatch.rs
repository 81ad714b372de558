//! The KCL's metrics for CloudWatch: what a host writes of real work, and what becomes of it when
//! nobody takes it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::Path;

use flate2::read::GzDecoder;
use harness::flights::{self, Output};
use harness::guests::guest;
use harness::process::eventually;
use harness::setting::{STREAM, Setting};
use serde_json::Value;
use shardmill_aws::StreamAdmin;
use shardmill_core::kcl_metrics::EMITTED;
use shardmill_core::stream::StreamName;

const READS: &str =
    "[reads]\ncalls-per-second = 50.0\nbytes-per-second = \"1GiB\"\nidle-every = \"50ms\"";

/// A value of a metric, with its dimensions.
struct Found {
    namespace: String,
    dimensions: BTreeMap<String, String>,
    name: String,
    unit: String,
    values: Vec<f64>,
}

impl Found {
    fn operation(&self) -> &str {
        &self.dimensions["Operation"]
    }
}

/// All that lines of the embedded metric format say.
fn found_in<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<Found> {
    let mut found = Vec::new();
    for line in lines {
        let document: Value = serde_json::from_str(line).expect("a line is a whole document");
        let directives = document["_aws"]["CloudWatchMetrics"].as_array().unwrap();
        for directive in directives {
            let names = directive["Dimensions"][0].as_array().unwrap().iter();
            let names = names.map(|name| name.as_str().unwrap());
            let text = |name: &str| document[name].as_str().unwrap().to_owned();
            let dimensions: BTreeMap<_, _> =
                names.map(|name| (name.to_owned(), text(name))).collect();
            for metric in directive["Metrics"].as_array().unwrap() {
                let name = metric["Name"].as_str().unwrap();
                let values = match &document[name] {
                    Value::Array(values) => values.iter().filter_map(Value::as_f64).collect(),
                    value => value.as_f64().into_iter().collect(),
                };
                found.push(Found {
                    namespace: directive["Namespace"].as_str().unwrap().to_owned(),
                    dimensions: dimensions.clone(),
                    name: name.to_owned(),
                    unit: metric["Unit"].as_str().unwrap().to_owned(),
                    values,
                });
            }
        }
    }
    found
}

fn found_in_file(path: &Path) -> Vec<Found> {
    found_in(std::fs::read_to_string(path).unwrap().lines())
}

/// The sum over all shards.
fn sum(found: &[Found], name: &str) -> f64 {
    let of_name = found.iter().filter(|one| one.name == name);
    of_name.flat_map(|one| &one.values).sum()
}

/// The data of all records: a line each.
fn bytes_of_input() -> usize {
    let file = std::fs::File::open(flights::input()).unwrap();
    let lines = BufReader::new(GzDecoder::new(file)).lines();
    lines.map(|line| line.unwrap().len()).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_flight_and_each_of_its_bytes_is_in_the_kcls_metrics_once() {
    let setting = Setting::new(4).await;
    setting.drop_plugin("flights", &guest("flights"));
    let emf = format!("{READS}\n[emf]\ntarget = \"file:emf.ndjson\"\nevery = \"1s\"");
    let host = setting.host_with("a", &emf);
    let last = setting.put(&flights::input()).await;
    setting.until_checkpointed("flights", &last).await;
    // The last lines are written on the way out.
    assert!(host.terminate().await.success());
    let output = Output::read(&[&setting.output_of("a")]);
    let flights: u64 = flights::expected().values().sum();
    let found = found_in_file(&setting.path().join("emf.ndjson"));
    assert!((sum(&found, "RecordsProcessed") - flights as f64).abs() < 0.5);
    assert_eq!(output.carriers, flights::expected());
    let bytes = bytes_of_input() as f64;
    assert!((sum(&found, "DataBytesProcessed") - bytes).abs() < 0.5);
    assert!(found.iter().all(|one| one.namespace == "flights"));
    let shards: BTreeSet<_> = found
        .iter()
        .filter(|one| one.name == "RecordsProcessed")
        .map(|one| &one.dimensions["ShardId"])
        .collect();
    assert_eq!(shards.len(), 4, "{shards:?}");
    let known: BTreeSet<_> = EMITTED
        .iter()
        .map(|metric| (metric.operation, metric.name, metric.unit.as_str()))
        .collect();
    let came: BTreeSet<_> = found
        .iter()
        .map(|one| (one.operation(), one.name.as_str(), one.unit.as_str()))
        .collect();
    let unknown: Vec<_> = came.difference(&known).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    // Two need what does not happen here: old iterators, and another host.
    let missing: Vec<_> = known.difference(&came).map(|(_, name, _)| *name).collect();
    let rare = [
        "ExpiredIterator",
        "RenewLease.Success",
        "RenewLease.Time",
        "UntakenLeases",
    ];
    assert!(
        missing.iter().all(|name| rare.contains(name)),
        "{missing:?}"
    );
    let workers = found
        .iter()
        .filter_map(|one| one.dimensions.get("WorkerIdentifier"));
    assert!(workers.into_iter().all(|worker| worker == "a"));
    let taken = sum(&found, "TakenLeases");
    assert!((taken - 4.0).abs() < 0.5, "{taken}");
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_summary_has_no_single_requests_and_the_operators_namespace() {
    let setting = Setting::new(1).await;
    setting.drop_plugin("flights", &guest("flights"));
    let emf = format!(
        "{READS}\n[emf]\ntarget = \"file:emf.ndjson\"\nevery = \"1s\"\nlevel = \"summary\"\n\
         namespace = \"test/{{application}}\""
    );
    let host = setting.host_with("a", &emf);
    let last = setting.put(&flights::input()).await;
    setting.until_checkpointed("flights", &last).await;
    assert!(host.terminate().await.success());
    let found = found_in_file(&setting.path().join("emf.ndjson"));
    assert!(found.iter().all(|one| one.namespace == "test/flights"));
    assert!(sum(&found, "RecordsProcessed") > 0.0);
    let details: Vec<_> = found
        .iter()
        .map(|one| one.name.as_str())
        .filter(|name| name.starts_with("KinesisDataFetcher.") || name.starts_with("UpdateLease."))
        .collect();
    assert!(details.is_empty(), "{details:?}");
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_not_there_costs_lines_that_are_counted_and_no_record() {
    let setting = Setting::new(2).await;
    setting.drop_plugin("flights", &guest("flights"));
    // Nobody listens there: the port was free a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let emf = format!(
        "{READS}\n[host]\nadmin = \"127.0.0.1:0\"\n[emf]\ntarget = \"tcp://{address}\"\nevery = \"1s\""
    );
    let host = setting.host_with("a", &emf);
    let last = setting.put(&flights::input()).await;
    setting.until_checkpointed("flights", &last).await;
    let log = || host.log().contains("the KCL's metrics cannot be written");
    eventually("the log says so", log).await;
    let dropped = host.metric("shardmill_emf_lines_total", "dropped").await;
    let written = host.metric("shardmill_emf_lines_total", "written").await;
    assert!(dropped > 0.0 && written < 0.5, "{dropped} {written}");
    assert!(host.terminate().await.success());
    let output = Output::read(&[&setting.output_of("a")]);
    assert_eq!(output.carriers, flights::expected());
    assert_eq!((output.repeats, output.disorder), (0, 0));
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_standard_error_each_line_is_one_of_the_log_or_a_whole_document() {
    let setting = Setting::new(2).await;
    setting.drop_plugin("flights", &guest("flights"));
    let emf = format!("{READS}\n[emf]\ntarget = \"stderr\"\nevery = \"1s\"");
    let host = setting.host_with("a", &emf);
    let last = setting.put(&flights::input()).await;
    setting.until_checkpointed("flights", &last).await;
    let log = host.log_path().to_owned();
    assert!(host.terminate().await.success());
    let text = std::fs::read_to_string(log).unwrap();
    let found = found_in(text.lines().filter(|line| line.starts_with('{')));
    let flights: u64 = flights::expected().values().sum();
    assert!((sum(&found, "RecordsProcessed") - flights as f64).abs() < 0.5);
    let mixed = text
        .lines()
        .find(|line| !line.starts_with('{') && line.contains("CloudWatchMetrics"));
    assert_eq!(mixed, None);
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_that_share_a_table_are_told_apart_by_the_kcls_stream_id() {
    let setting = Setting::new(1).await;
    let (admin, returns) = (
        StreamAdmin::new(setting.clients.kinesis.clone()),
        StreamName::new("returns").unwrap(),
    );
    admin.ensure_stream(&returns, 1).await.unwrap();
    setting.drop_plugin("flights", &guest("flights"));
    let emf = format!(
        "{READS}\n[emf]\ntarget = \"file:emf.ndjson\"\nevery = \"1s\"\n[plugin.flights]\n\
         application = \"kcl-app\"\nstreams = [{STREAM:?}, \"returns\"]\nmulti-stream-table = true"
    );
    let host = setting.host_with("a", &emf);
    setting.put(&flights::input()).await;
    setting.put_into("returns", &flights::input()).await;
    let flights: u64 = flights::expected().values().sum();
    // Lines: streams that are created in the same second have records of the same numbers, which
    // count as repeats elsewhere.
    let out = || Output::read(&[&setting.output_of("a")]).lines;
    eventually("all flights of both streams are out", || {
        out() >= 2 * flights
    })
    .await;
    let log = host.log();
    assert!(host.terminate().await.success());
    assert_eq!(out(), 2 * flights, "{log}");
    let found = found_in_file(&setting.path().join("emf.ndjson"));
    assert!(found.iter().all(|one| one.namespace == "kcl-app"));
    let mut by_stream: BTreeMap<&str, f64> = BTreeMap::new();
    for one in found.iter().filter(|one| one.name == "RecordsProcessed") {
        let stream = one.dimensions["StreamId"].as_str();
        *by_stream.entry(stream).or_default() += one.values.iter().sum::<f64>();
    }
    let counts: Vec<_> = by_stream.values().map(|records| records.round()).collect();
    assert_eq!(counts, [flights as f64, flights as f64], "{by_stream:?}");
    for (stream, name) in by_stream.keys().zip([STREAM, "returns"]) {
        let prefix = format!("000000000000:{name}:");
        assert!(stream.starts_with(&prefix), "{stream}");
    }
    setting.stop().await;
}
