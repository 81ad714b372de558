//! From what was gathered to lines of CloudWatch's embedded metric format. Pure.
//!
//! The limits are those of the specification ("Specification: Embedded metric format" in the
//! CloudWatch user guide): at most 100 metrics in a directive, at most 100 values in an array, and
//! every metric's value a number or an array of numbers. A document was limited to 256 KB when this
//! was written, like an event of CloudWatch Logs; it is 1 MB by now, and agents and collectors on
//! the way may still know the smaller one.

use std::collections::BTreeMap;

use serde_json::{Map, Number, Value, json};
use shardmill_core::kcl_metrics::{KclMetric, Scope, Subject, Unit, Values};
use shardmill_core::plugin::lease_table;

/// Metrics of one directive.
const METRICS_MAX: usize = 100;
/// Values of one metric in a document.
const VALUES_MAX: usize = 100;
/// Bytes of a line, with room for what a log driver puts around it: 26 bytes for CloudWatch Logs.
pub(super) const LINE_BYTES_MAX: usize = 255 << 10;
/// Stands for the application's name.
const APPLICATION: &str = "{application}";

/// What is the same in all lines.
#[derive(Debug, Clone)]
pub(super) struct Style {
    /// `{application}` in it is replaced.
    pub(super) namespace: String,
    pub(super) log_group: Option<String>,
    /// Bytes of one line, without its end.
    pub(super) line_bytes_max: usize,
}

/// The metrics of one namespace with the same dimensions.
type Group = BTreeMap<&'static str, Series>;

/// What tells groups apart.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Head {
    namespace: String,
    dimensions: Vec<(&'static str, String)>,
}

/// The values of one metric.
#[derive(Debug, Clone)]
struct Series {
    unit: Unit,
    values: Vec<f64>,
}

/// Lines with all that was gathered until `wall_ms`, in milliseconds since the Unix epoch.
pub(super) fn lines(gathered: &[(Subject, Values)], style: &Style, wall_ms: u64) -> Vec<String> {
    let mut lines = Vec::new();
    for (head, group) in groups(gathered, style) {
        for document in documents(group) {
            fit(&head, document, style, wall_ms, &mut lines);
        }
    }
    lines
}

/// The same metric of several shards, such as how far behind an application is, is one metric.
fn groups(gathered: &[(Subject, Values)], style: &Style) -> BTreeMap<Head, Group> {
    let mut groups: BTreeMap<Head, Group> = BTreeMap::new();
    for (subject, values) in gathered {
        for (metric, values) in values {
            let group = groups.entry(head_of(*metric, subject, style)).or_default();
            let series = group.entry(metric.name).or_insert_with(|| Series {
                unit: metric.unit,
                values: Vec::new(),
            });
            series.values.extend(values);
        }
    }
    groups
}

/// The dimensions as the KCL has them.
fn head_of(metric: KclMetric, subject: &Subject, style: &Style) -> Head {
    let mut dimensions = vec![("Operation", metric.operation.to_owned())];
    let stream = subject.stream_id.as_ref();
    let stream = stream.map(|stream| ("StreamId", stream.clone()));
    match metric.scope {
        Scope::Application => {}
        Scope::Stream => dimensions.extend(stream),
        Scope::Shard => {
            dimensions.extend(stream);
            let shard = subject.shard.as_ref();
            dimensions.extend(shard.map(|shard| ("ShardId", shard.to_string())));
        }
        Scope::Worker => dimensions.push(("WorkerIdentifier", subject.worker.clone())),
    }
    let application = lease_table(&subject.application);
    Head {
        namespace: style.namespace.replace(APPLICATION, application),
        dimensions,
    }
}

/// The group in as few documents as the limits allow: the first values of all metrics, then the
/// next ones of those that have more.
fn documents(group: Group) -> Vec<Vec<(&'static str, Series)>> {
    let mut documents = Vec::new();
    let mut left = group;
    while !left.is_empty() {
        let mut rest = Group::new();
        let mut now = Vec::new();
        for (name, mut series) in left {
            if series.values.len() > VALUES_MAX {
                let values = series.values.split_off(VALUES_MAX);
                let unit = series.unit;
                rest.insert(name, Series { unit, values });
            }
            now.push((name, series));
        }
        documents.extend(now.chunks(METRICS_MAX).map(<[_]>::to_vec));
        left = rest;
    }
    documents
}

/// Adds the document as a line, or as two if one would be too long. What does not fit though it has
/// a single value is left as it is: names and dimensions have their own limits.
fn fit(
    head: &Head,
    mut document: Vec<(&'static str, Series)>,
    style: &Style,
    wall_ms: u64,
    lines: &mut Vec<String>,
) {
    let line = line(head, &document, style, wall_ms);
    if line.len() <= style.line_bytes_max {
        return lines.push(line);
    }
    let second = if document.len() > 1 {
        document.split_off(document.len() / 2)
    } else {
        match document.first_mut() {
            Some((name, series)) if series.values.len() > 1 => {
                let values = series.values.split_off(series.values.len() / 2);
                let unit = series.unit;
                vec![(*name, Series { unit, values })]
            }
            _ => return lines.push(line),
        }
    };
    fit(head, document, style, wall_ms, lines);
    fit(head, second, style, wall_ms, lines);
}

fn line(head: &Head, document: &[(&'static str, Series)], style: &Style, wall_ms: u64) -> String {
    let mut root = Map::new();
    let about = about(head, document, style, wall_ms);
    root.insert("_aws".to_owned(), Value::Object(about));
    for (name, value) in &head.dimensions {
        root.insert((*name).to_owned(), value.as_str().into());
    }
    for (name, series) in document {
        root.insert((*name).to_owned(), target(&series.values));
    }
    Value::Object(root).to_string()
}

/// What CloudWatch needs to read the line.
fn about(
    head: &Head,
    document: &[(&'static str, Series)],
    style: &Style,
    wall_ms: u64,
) -> Map<String, Value> {
    let mut about = Map::new();
    about.insert("Timestamp".to_owned(), wall_ms.into());
    if let Some(log_group) = &style.log_group {
        about.insert("LogGroupName".to_owned(), log_group.as_str().into());
    }
    let directive = directive(head, document);
    about.insert("CloudWatchMetrics".to_owned(), json!([directive]));
    about
}

/// Which keys of the document are dimensions, and which are metrics.
fn directive(head: &Head, document: &[(&'static str, Series)]) -> Value {
    let names: Vec<_> = head.dimensions.iter().map(|(name, _)| *name).collect();
    let definitions = document.iter();
    let definitions: Vec<_> = definitions
        .map(|(name, series)| json!({"Name": name, "Unit": series.unit.as_str()}))
        .collect();
    json!({
        "Namespace": head.namespace,
        "Dimensions": [names],
        "Metrics": definitions,
    })
}

/// A number, or an array of several.
fn target(values: &[f64]) -> Value {
    match values {
        [value] => number(*value),
        values => values.iter().map(|value| number(*value)).collect(),
    }
}

/// Whole numbers without a fraction: they are most of a line.
fn number(value: f64) -> Value {
    /// All whole numbers up to here are exact.
    const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;
    if value.fract() == 0.0 && value.abs() <= WHOLE_MAX {
        #[expect(clippy::cast_possible_truncation, reason = "a whole number below 2^53")]
        return Value::from(value as i64);
    }
    // What is not finite does not come from durations and counts.
    Number::from_f64(value).map_or(Value::from(0), Value::Number)
}

#[cfg(test)]
mod tests;
