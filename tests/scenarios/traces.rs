//! Traces of batches, from what a producer put to the checkpoint: the real binary, an HTTP sink,
//! and a collector that reads OTLP by its official definitions.

use std::collections::BTreeSet;
use std::path::Path;

use bytes::Bytes;
use harness::endpoint::Endpoint;
use harness::flights;
use harness::guests::guest;
use harness::otlp::{Conventions, OtlpCollector, OtlpSpan};
use harness::process::eventually;
use harness::setting::{STREAM, Setting};
use serde_json::Value;
use shardmill_aws::{PutEntry, StreamWriter};
use shardmill_core::stream::StreamName;

const READS: &str = "[reads]\ncalls-per-second = 50.0\nbytes-per-second = \"1GiB\"\n\
     idle-every = \"50ms\"\n[host]\nadmin = \"127.0.0.1:0\"\n";
/// The span of a producer, as it writes it into records.
const PRODUCER_TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PRODUCER_SPAN: &str = "00f067aa0ba902b7";

fn traceparent() -> String {
    format!("00-{PRODUCER_TRACE}-{PRODUCER_SPAN}-01")
}

fn traces(collector: &OtlpCollector, more: &str) -> String {
    format!(
        "[traces]\nenabled = true\nendpoint = \"{}\"\n{more}\n",
        collector.url
    )
}

async fn put(setting: &Setting, records: &[String]) -> Vec<(String, String)> {
    let writer = StreamWriter::new(
        setting.clients.kinesis.clone(),
        StreamName::new(STREAM).unwrap(),
    );
    let entry = |data: &String| PutEntry {
        partition_key: "key".to_owned(),
        explicit_hash_key: None,
        data: Bytes::from(data.clone()),
    };
    let report = writer
        .put_all(records.iter().map(entry), |_, _| {})
        .await
        .unwrap();
    let last = report.last_sequence.iter();
    last.map(|(shard, last)| (shard.to_string(), last.to_string()))
        .collect()
}

/// The only span of this type of operation.
fn only(collector: &OtlpCollector, operation: &str) -> OtlpSpan {
    let spans = collector.of_type(operation);
    assert_eq!(spans.len(), 1, "{operation}: {spans:#?}");
    spans.into_iter().next().unwrap()
}

/// Every name is one of the conventions, or ours.
fn check_names(spans: &[OtlpSpan]) {
    let conventions = Conventions::read();
    for span in spans {
        let names = span.attributes.keys().chain(span.resource.keys());
        for name in names.filter(|name| !name.starts_with("shardmill.")) {
            let is_known = conventions.attributes.contains(name);
            assert!(is_known || name == "deployment", "{name}: {span:#?}");
        }
        for name in &conventions.required {
            assert!(!span.attribute(name).is_empty(), "{name}: {span:#?}");
        }
        let operation = span.attribute("messaging.operation.type").to_owned();
        let kind = span.text("kind").to_owned();
        assert!(
            conventions.operations.contains(&(operation, kind)),
            "{span:#?}"
        );
        let name = span.attribute("messaging.operation.name");
        let destination = span.attribute("messaging.destination.name");
        assert_eq!(span.text("name"), format!("{name} {destination}"));
        let has_failed = span.message["status"]["code"] == "STATUS_CODE_ERROR";
        assert_eq!(has_failed, span.attributes.contains_key("error.type"));
        let at = |field: &str| span.message[field].as_u64().unwrap();
        assert!(at("start_time_unix_nano") <= at("end_time_unix_nano"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_trace_leads_from_a_producers_record_through_plugin_and_sink_to_the_checkpoint() {
    let setting = Setting::new(1).await;
    let (endpoint, collector) = (Endpoint::refusing(0).await, OtlpCollector::start().await);
    setting.drop_plugin("echo", &guest("echo"));
    std::fs::write(setting.path().join("token"), "Bearer hush\n").unwrap();
    let more = "sample = 1.0\nheaders = { authorization = \"file:token\" }\n\
        attributes = { deployment = \"blue\" }";
    let config = format!(
        "{READS}{}[sinks.hook]\ntype = \"http\"\nurl = \"{}\"\n\
         [plugin.echo.config]\ndestination = \"hook\"\n",
        traces(&collector, more),
        endpoint.url
    );
    let host = setting.host_with("a", &config);
    let record = format!(
        "{{\"order\": 7, \"traceparent\": \"{}\", \"tracestate\": \"shop=1\"}}",
        traceparent()
    );
    let last = put(&setting, std::slice::from_ref(&record)).await;
    setting.until_checkpointed("echo", &last).await;
    eventually("the end of the trace", || {
        !collector.of_type("settle").is_empty()
    })
    .await;
    assert!(host.terminate().await.success());

    let [receive, process, send, settle] =
        ["receive", "process", "send", "settle"].map(|operation| only(&collector, operation));
    let trace = process.text("trace_id").to_owned();
    let chain = [&receive, &process, &send, &settle];
    assert!(chain.iter().all(|span| span.text("trace_id") == trace));
    assert_eq!(receive.text("parent_span_id"), "", "the root");
    assert_eq!(process.text("parent_span_id"), receive.text("span_id"));
    assert_eq!(send.text("parent_span_id"), process.text("span_id"));
    assert_eq!(settle.text("parent_span_id"), process.text("span_id"));
    let start = |span: &OtlpSpan| span.message["start_time_unix_nano"].as_u64().unwrap();
    assert!(chain.is_sorted_by_key(|span| start(span)), "{chain:#?}");

    // To the producer it is linked, and does not belong: a batch has many of them.
    assert_eq!(
        process.links(),
        [format!("{PRODUCER_TRACE}-{PRODUCER_SPAN}")]
    );
    assert_eq!(process.message["links"][0]["trace_state"], "shop=1");
    // The endpoint goes on in the trace, below the write.
    let named = format!("00-{trace}-{}-01", send.text("span_id"));
    assert_eq!(endpoint.traceparents(), [named]);
    assert_eq!(endpoint.lines(), [record], "not a byte is changed");

    check_names(&collector.spans());
    assert_eq!(process.attribute("messaging.system"), "aws_kinesis");
    assert_eq!(process.attribute("messaging.destination.name"), STREAM);
    assert_eq!(process.attribute("aws.kinesis.stream_name"), STREAM);
    assert_eq!(process.attribute("messaging.consumer.group.name"), "echo");
    let (shard, sequence) = &last[0];
    assert_eq!(
        process.attribute("messaging.destination.partition.id"),
        shard
    );
    assert_eq!(process.attributes["messaging.batch.message_count"], 1);
    assert_eq!(process.attribute("shardmill.batch.first"), sequence);
    assert_eq!(process.attributes["shardmill.batch.attempt"], 1);
    assert_eq!(settle.attribute("messaging.operation.name"), "checkpoint");
    assert_eq!(send.attribute("messaging.destination.name"), "hook");
    assert_eq!(process.resource["service.name"], "shardmill");
    assert_eq!(process.resource["service.instance.id"], "a");
    assert_eq!(process.resource["deployment"], "blue");
    let tokens = collector.header("authorization");
    assert!(!tokens.is_empty() && tokens.iter().all(|token| token == "Bearer hush"));
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_attempt_is_in_the_trace_with_its_error_and_the_plugins_lines_and_requests_are_too() {
    let setting = Setting::new(1).await;
    let (endpoint, collector) = (Endpoint::refusing(0).await, OtlpCollector::start().await);
    setting.drop_plugin("asking", &guest("asking"));
    let granted = endpoint.url.trim_end_matches("/in");
    let config = format!(
        "{READS}{}[batch]\nrecords = 1\n[retry]\ncap = \"200ms\"\n[http]\nallow-private = \
         [\"127.0.0.1\"]\n[plugin.asking.grants]\nhttp = [\"{granted}\"]\n[sinks.dead]\ntype = \
         \"file\"\npath = \"dead.ndjson\"\n[plugin.asking.failure]\nattempts = 3\non-exhausted = \
         \"dead-letter\"\ndead-letter = \"dead\"\n",
        traces(&collector, "sample = 1.0"),
    );
    let file = setting.configure("a", "duration = \"3s\"\nscan-every = \"200ms\"", &config);
    let args = ["--log-format", "json", "run", "--config", &file, "--local"];
    let host = harness::process::Host::start("a", &args, setting.path());
    let questions = [
        "error secret.api".to_owned(),
        "log secret.api".to_owned(),
        format!("http POST {}", endpoint.url),
    ];
    let last = put(&setting, &questions).await;
    setting.until_checkpointed("asking", &last).await;
    eventually("the ends of the traces", || {
        collector.of_type("settle").len() == 3
    })
    .await;
    let log = host.log();
    assert!(host.terminate().await.success());
    check_names(&collector.spans());

    let process = collector.of_type("process");
    let failed: Vec<&OtlpSpan> = process
        .iter()
        .filter(|span| span.attributes.contains_key("error.type"))
        .collect();
    let attempts: Vec<u64> = failed
        .iter()
        .map(|span| span.attributes["shardmill.batch.attempt"].as_u64().unwrap())
        .collect();
    assert_eq!(attempts, [1, 2, 3]);
    let of = |span: &&OtlpSpan| span.text("trace_id").to_owned();
    assert_eq!(failed.iter().map(of).collect::<BTreeSet<_>>().len(), 1);
    let first = failed[0];
    assert_eq!(first.attribute("error.type"), "reported");
    let message = first.message["status"]["message"].as_str().unwrap();
    assert!(message.contains("could not log in"), "{message}");

    let line = log.lines().find(|line| line.contains("logged in with"));
    let line: Value = serde_json::from_str(line.unwrap()).unwrap();
    let is_named = |span: &&OtlpSpan| {
        line["trace_id"] == span.text("trace_id") && line["span_id"] == span.text("span_id")
    };
    assert_eq!(process.iter().filter(is_named).count(), 1, "{line}");
    let parents = endpoint.traceparents();
    let [parent] = &parents[..] else {
        panic!("{parents:?}");
    };
    let is_parent = |span: &&OtlpSpan| {
        *parent == format!("00-{}-{}-01", span.text("trace_id"), span.text("span_id"))
    };
    assert_eq!(process.iter().filter(is_parent).count(), 1, "{parent}");
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_refuses_or_never_answers_costs_spans_and_nothing_else() {
    let setting = Setting::new(2).await;
    let collector = OtlpCollector::start().await;
    setting.drop_plugin("flights", &guest("flights"));
    let mut folders = Vec::new();
    // Refuses for good, refuses for now, and never answers.
    for (id, status, why) in [("a", 400, "refused"), ("b", 503, ""), ("c", 1, "")] {
        collector.answer(status);
        let more = "sample = 1.0\ntimeout = \"200ms\"";
        let config = format!(
            "{READS}{}[batch]\nrecords = 100\n",
            traces(&collector, more)
        );
        let host = setting.host_with(id, &config);
        let before = collector.requests();
        let last = setting.put(&flights::input()).await;
        setting.until_checkpointed("flights", &last).await;
        let warning = "the collector takes no spans";
        eventually("a request", || collector.requests() > before).await;
        eventually("the warning", || host.log().contains(warning)).await;
        if !why.is_empty() {
            let dropped = host.metric("shardmill_spans_dropped_total", why).await;
            assert!(dropped > 0.0, "{status}");
        }
        let log = setting.path().join(format!("{id}.log"));
        assert!(host.terminate().await.success());
        let log = std::fs::read_to_string(log).unwrap();
        assert_eq!(log.matches(warning).count(), 1, "{log}");
        assert!(log.contains("host stopped"), "{log}");
        folders.push(id);
    }
    assert!(collector.spans().is_empty());
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_sent_unless_the_configuration_says_so_and_then_the_environment_may_say_where() {
    let setting = Setting::new(1).await;
    let collector = OtlpCollector::start().await;
    setting.drop_plugin("echo", &guest("echo"));
    let url = Path::new(&collector.url);
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", url),
        ("OTEL_SERVICE_NAME", Path::new("mill")),
        ("OTEL_TRACES_SAMPLER_ARG", Path::new("1")),
    ];
    let host = setting.host_knowing("a", READS, &variables);
    let last = put(&setting, &["one".to_owned()]).await;
    setting.until_checkpointed("echo", &last).await;
    assert!(host.terminate().await.success());
    assert_eq!(collector.requests(), 0);

    let config = format!("{READS}[traces]\nenabled = true\n");
    let host = setting.host_knowing("b", &config, &variables);
    let last = put(&setting, &["two".to_owned()]).await;
    setting.until_checkpointed("echo", &last).await;
    // The host sends what it has when it ends.
    assert!(host.terminate().await.success());
    assert_eq!(only(&collector, "process").resource["service.name"], "mill");
    assert_eq!(collector.of_type("settle").len(), 1);
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_that_are_emitted_carry_the_trace_only_if_that_is_wanted_and_nothing_else_changes()
{
    let setting = Setting::new(1).await;
    let (endpoint, collector) = (Endpoint::refusing(0).await, OtlpCollector::start().await);
    setting.drop_plugin("echo", &guest("echo"));
    let config = format!(
        "{READS}{}[sinks.hook]\ntype = \"http\"\nurl = \"{}\"\n\
         [plugin.echo.config]\ndestination = \"hook\"\n",
        traces(&collector, "sample = 0.0\nfollow = true\ninject = true"),
        endpoint.url
    );
    let host = setting.host_with("a", &config);
    // Not sampled, and not of a span that is recorded.
    let unsampled = traceparent().replace("-01", "-00");
    let quiet = [format!("{{\"id\":0,\"traceparent\":\"{unsampled}\"}}")];
    let last = put(&setting, &quiet).await;
    setting.until_checkpointed("echo", &last).await;
    let loud = [
        format!(
            "{{\"id\":1,\"_datadog\":{{\"traceparent\":\"{}\"}}}}",
            traceparent()
        ),
        "[1,2]".to_owned(),
        "{ }".to_owned(),
    ];
    let last = put(&setting, &loud).await;
    setting.until_checkpointed("echo", &last).await;
    assert!(host.terminate().await.success());

    let lines = endpoint.lines();
    let process = collector.of_type("process");
    let contexts: Vec<String> = process
        .iter()
        .map(|span| format!("00-{}-{}-01", span.text("trace_id"), span.text("span_id")))
        .collect();
    let links: Vec<String> = process.iter().flat_map(OtlpSpan::links).collect();
    assert_eq!(links, [format!("{PRODUCER_TRACE}-{PRODUCER_SPAN}")]);
    assert_eq!(lines[0], quiet[0]);
    let first = &contexts[0];
    let carrying = loud[0].replacen('{', &format!("{{\"traceparent\":\"{first}\","), 1);
    assert_eq!(lines[1], carrying);
    assert_eq!(lines[2], "[1,2]");
    // It may have come in a batch of its own.
    let carrying = format!("{{\"traceparent\":\"{first}\" }}");
    assert!(lines[3] == carrying || lines[3] == "{ }", "{lines:?}");
    setting.stop().await;
}
