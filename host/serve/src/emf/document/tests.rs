use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::Value;
use shardmill_core::kcl_metrics::{EMITTED, Kind, Level};
use shardmill_core::stream::ShardId;

use super::*;

const WALL_MS: u64 = 1_795_000_000_000;

fn style() -> Style {
    Style {
        namespace: APPLICATION.to_owned(),
        log_group: None,
        line_bytes_max: LINE_BYTES_MAX,
    }
}

fn subject(application: &str, stream_id: Option<&str>, shard: Option<u64>) -> Subject {
    Subject {
        application: application.to_owned(),
        worker: "host-1".to_owned(),
        stream_id: stream_id.map(str::to_owned),
        shard: shard.and_then(|number| ShardId::new(format!("shardId-{number:012}")).ok()),
    }
}

fn metric(name: &str) -> KclMetric {
    let mut all = EMITTED.into_iter();
    all.find(|metric| metric.name == name).expect("known")
}

fn documents_of(gathered: &[(Subject, Values)], style: &Style) -> Vec<Value> {
    let lines = lines(gathered, style, WALL_MS);
    lines.iter().map(|line| checked(line)).collect()
}

/// The values of a metric, in a document that has it.
fn values_in(document: &Value, name: &str) -> Vec<f64> {
    match &document[name] {
        Value::Array(values) => values.iter().filter_map(Value::as_f64).collect(),
        value => value.as_f64().into_iter().collect(),
    }
}

/// The line, if it is what the JSON schema of the specification allows, and what its text demands
/// beyond that.
fn checked(line: &str) -> Value {
    assert!(!line.contains('\n'), "one line: {line}");
    let document: Value = serde_json::from_str(line).expect("JSON");
    let about = &document["_aws"];
    assert!(about["Timestamp"].is_u64(), "{line}");
    let directives = about["CloudWatchMetrics"].as_array().expect("an array");
    for directive in directives {
        check_directive(directive, &document);
    }
    document
}

fn check_directive(directive: &Value, document: &Value) {
    let text_of = |value: &Value| value.as_str().expect("a string").to_owned();
    let is_name = |text: &str| (1..=255).contains(&text.len());
    assert!(is_name(&text_of(&directive["Namespace"])));
    let sets = directive["Dimensions"].as_array().expect("an array");
    assert!(!sets.is_empty());
    for set in sets {
        let names = set.as_array().expect("an array");
        // 30 by now, but it was 9 in the first years.
        assert!(names.len() <= 9);
        for name in names {
            let value = document[text_of(name)].as_str().expect("a string");
            assert!(is_name(&text_of(name)) && !value.trim().is_empty() && value.len() <= 1024);
        }
    }
    let metrics = directive["Metrics"].as_array().expect("an array");
    assert!((1..=100).contains(&metrics.len()), "{}", metrics.len());
    let mut names = BTreeSet::new();
    for metric in metrics {
        let name = text_of(&metric["Name"]);
        let unit = text_of(&metric["Unit"]);
        assert!(["Count", "Bytes", "Milliseconds"].contains(&unit.as_str()));
        match &document[&name] {
            Value::Number(_) => {}
            Value::Array(values) => {
                assert!((1..=100).contains(&values.len()), "{}", values.len());
                assert!(values.iter().all(Value::is_number));
            }
            other => panic!("{name} is {other}"),
        }
        assert!(is_name(&name) && names.insert(name), "once");
    }
}

#[test]
fn a_line_has_the_kcls_names_dimensions_and_units() {
    let values = Values::from([
        (metric("RecordsProcessed"), vec![50.0, 25.0]),
        (metric("RecordProcessor.processRecords.Time"), vec![1.5]),
    ]);
    let lines = lines(
        &[(subject("flights", None, Some(3)), values)],
        &style(),
        WALL_MS,
    );
    let expected = concat!(
        r#"{"RecordProcessor.processRecords.Time":1.5,"RecordsProcessed":[50,25],"#,
        r#""ShardId":"shardId-000000000003","Operation":"ProcessTask","#,
        r#""_aws":{"Timestamp":1795000000000,"CloudWatchMetrics":[{"Namespace":"flights","#,
        r#""Dimensions":[["Operation","ShardId"]],"Metrics":["#,
        r#"{"Name":"RecordProcessor.processRecords.Time","Unit":"Milliseconds"},"#,
        r#"{"Name":"RecordsProcessed","Unit":"Count"}]}]}}"#,
    );
    let [line] = lines.as_slice() else {
        panic!("{lines:?}");
    };
    assert_eq!(
        checked(line),
        serde_json::from_str::<Value>(expected).unwrap()
    );
}

#[test]
fn a_shard_of_several_streams_names_its_stream_and_a_host_names_itself() {
    let stream = Some("000000000000:orders:1795000000");
    let gathered = [
        (
            subject("all:orders", stream, Some(0)),
            Values::from([
                (metric("RecordsProcessed"), vec![1.0]),
                (metric("ExpiredIterator"), vec![1.0]),
            ]),
        ),
        (
            subject("all:orders", None, None),
            Values::from([(metric("CurrentLeases"), vec![4.0])]),
        ),
        (
            subject("views@host-1", None, Some(0)),
            Values::from([(metric("RecordsProcessed"), vec![1.0])]),
        ),
    ];
    let found: Vec<_> = documents_of(&gathered, &style())
        .iter()
        .map(|document| {
            let directive = &document["_aws"]["CloudWatchMetrics"][0];
            (
                directive["Namespace"].as_str().unwrap().to_owned(),
                directive["Dimensions"][0].to_string(),
            )
        })
        .collect();
    let expected = [
        ("all", r#"["Operation","StreamId"]"#),
        ("all", r#"["Operation","StreamId","ShardId"]"#),
        ("all", r#"["Operation","WorkerIdentifier"]"#),
        ("views", r#"["Operation","ShardId"]"#),
    ];
    let expected = expected.map(|(namespace, names)| (namespace.to_owned(), names.to_owned()));
    assert_eq!(found, expected);
}

#[test]
fn how_far_an_application_is_behind_is_one_metric_over_its_shards() {
    let behind = |shard, millis| {
        let of_all = EMITTED
            .into_iter()
            .find(|metric| metric.operation == "ApplicationTracker");
        let values = Values::from([(of_all.unwrap(), vec![millis])]);
        (subject("flights", None, Some(shard)), values)
    };
    let documents = documents_of(&[behind(0, 100.0), behind(1, 7_000.0)], &style());
    let [document] = documents.as_slice() else {
        panic!("{documents:?}");
    };
    assert_eq!(values_in(document, "MillisBehindLatest"), [100.0, 7_000.0]);
    assert!(document.get("ShardId").is_none());
}

#[test]
fn the_operators_namespace_and_log_group_are_in_every_line() {
    let own = Style {
        namespace: "prod/{application}".to_owned(),
        log_group: Some("/orders".to_owned()),
        ..style()
    };
    let values = Values::from([(metric("Success"), vec![1.0, 0.0])]);
    let documents = documents_of(&[(subject("flights", None, Some(0)), values)], &own);
    let about = &documents[0]["_aws"];
    assert_eq!(about["LogGroupName"], "/orders");
    assert_eq!(about["CloudWatchMetrics"][0]["Namespace"], "prod/flights");
}

/// Metrics of one shard, more than any line may have. Their values are the same after they were
/// written and read: eighths have few digits.
fn many() -> impl Strategy<Value = Values> {
    let value = (-8_000_000..8_000_000_i32).prop_map(|eighths| f64::from(eighths) / 8.0);
    let values = proptest::collection::vec(value, 1..250);
    proptest::collection::vec(values, 1..130).prop_map(|all| {
        let all = all.into_iter().enumerate();
        all.map(|(number, values)| {
            let metric = KclMetric {
                operation: "ProcessTask",
                scope: Scope::Shard,
                name: format!("Metric.{number}").leak(),
                unit: Unit::Milliseconds,
                level: Level::Summary,
                kind: Kind::Sample,
            };
            (metric, values)
        })
        .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn no_line_is_beyond_the_limits_and_no_value_is_lost_or_told_twice(
        values in many(),
        line_bytes_max in prop_oneof![Just(LINE_BYTES_MAX), 600..9_000_usize],
    ) {
        let style = Style { line_bytes_max, ..style() };
        let gathered = [(subject("flights", None, Some(0)), values.clone())];
        let mut found: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for line in lines(&gathered, &style, WALL_MS) {
            prop_assert!(line.len() <= line_bytes_max, "{} bytes", line.len());
            let document = checked(&line);
            let metrics = document["_aws"]["CloudWatchMetrics"][0]["Metrics"].as_array();
            for metric in metrics.expect("an array") {
                let name = metric["Name"].as_str().expect("a name");
                found.entry(name.to_owned()).or_default().extend(values_in(&document, name));
            }
        }
        let expected: BTreeMap<_, _> = values
            .into_iter()
            .map(|(metric, values)| (metric.name.to_owned(), values))
            .collect();
        prop_assert_eq!(found, expected);
    }
}
