//! The metrics that hosts publish for CloudWatch are those of the KCL: held against what the real
//! KCL published, as `tests/predecessors/kcl/metrics` wrote it down, and against the page that says
//! which are missing, and why.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;
use shardmill_core::kcl_metrics::{EMITTED, KclMetric, Scope};

/// A metric as the real KCL published it.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Published {
    operation: String,
    name: String,
    unit: String,
    level: String,
    /// Sets of names, in order.
    dimensions: BTreeSet<Vec<String>>,
    dimensions_of_several_streams: BTreeSet<Vec<String>>,
}

fn published() -> BTreeMap<(String, String), Published> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("predecessors/kcl/metrics.json");
    let text = std::fs::read_to_string(path).unwrap();
    let all: Vec<Published> = serde_json::from_str(&text).unwrap();
    let by_name = all
        .into_iter()
        .map(|one| ((one.operation.clone(), one.name.clone()), one));
    by_name.collect()
}

fn key(metric: &KclMetric) -> (String, String) {
    (metric.operation.to_owned(), metric.name.to_owned())
}

/// The names of the dimensions that a metric has here.
fn dimensions(scope: Scope, are_streams_several: bool) -> Vec<String> {
    let mut names = vec!["Operation"];
    match scope {
        Scope::Application | Scope::Stream => {}
        Scope::Shard => names.push("ShardId"),
        Scope::Worker => names.push("WorkerIdentifier"),
    }
    if are_streams_several && matches!(scope, Scope::Shard | Scope::Stream) {
        names.push("StreamId");
    }
    names.into_iter().map(str::to_owned).collect()
}

#[test]
fn each_metric_for_cloudwatch_is_one_of_the_real_kcl_with_its_unit_level_and_dimensions() {
    let published = published();
    for metric in &EMITTED {
        let theirs = published.get(&key(metric));
        let theirs = theirs.unwrap_or_else(|| panic!("the KCL does not publish {metric:?}"));
        assert_eq!(metric.unit.as_str(), theirs.unit, "{metric:?}");
        assert_eq!(metric.level.as_str(), theirs.level, "{metric:?}");
        let ours = dimensions(metric.scope, false);
        assert!(theirs.dimensions.contains(&ours), "{metric:?}");
        let ours = dimensions(metric.scope, true);
        assert!(
            theirs.dimensions_of_several_streams.contains(&ours),
            "{metric:?}"
        );
    }
}

/// Operation and name of the rows of a table on the page, below a heading.
fn documented(heading: &str) -> BTreeSet<(String, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/how-to/cloudwatch.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (_, section) = text.split_once(heading).unwrap();
    let section = section.split("\n## ").next().unwrap_or_default();
    let mut rows = BTreeSet::new();
    for row in section.lines().filter(|line| line.starts_with("| `")) {
        let mut cells = row.split('|').skip(1);
        let words = |cell: Option<&str>| {
            let cell = cell.unwrap_or_default().to_owned();
            let quoted: Vec<_> = cell
                .split('`')
                .skip(1)
                .step_by(2)
                .map(str::to_owned)
                .collect();
            quoted
        };
        let operations = words(cells.next());
        let names = words(cells.next());
        for operation in &operations {
            let of_operation = names.iter();
            rows.extend(of_operation.map(|name| (operation.clone(), name.clone())));
        }
    }
    rows
}

#[test]
fn the_page_names_each_metric_that_is_published_and_each_that_is_not() {
    let ours: BTreeSet<_> = EMITTED.iter().map(key).collect();
    assert_eq!(documented("\n## What is published"), ours);
    let missing: BTreeSet<_> = published()
        .into_keys()
        .filter(|metric| !ours.contains(metric))
        .collect();
    assert_eq!(documented("\n## What is not published"), missing);
}
