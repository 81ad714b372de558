//! Composes the next command to run.

use std::collections::BTreeSet;

use super::{Facts, Finding, PredecessorFacts, Severity, TableFacts, Topic};
use crate::lease::Lease;
use crate::migration::of_multi_stream;
use crate::stream::StreamRef;

/// The whole command line, with words in capitals in place of unknown values.
pub(super) fn command(facts: &Facts, findings: &[Finding]) -> String {
    let application = &facts.application;
    if let Some(predecessor) = &facts.predecessor {
        return import(facts, predecessor);
    }
    if let Some(command) = of_several_streams(facts) {
        return command;
    }
    let has = |topic| findings.iter().any(|finding| finding.topic == topic);
    if findings
        .iter()
        .any(|finding| finding.severity == Severity::FixFirst)
    {
        return format!(
            "shardmill doctor {application}{}, once that is fixed",
            stream_flag(facts)
        );
    }
    if has(Topic::NotWatched) {
        return format!(
            "shardmill doctor {application}{} --failover-time 10s, with the KCL's \
                failoverTimeMillis",
            stream_flag(facts)
        );
    }
    "shardmill run --config shardmill.toml".to_owned()
}

/// For a table of the KCL's multi-stream mode that no host has used yet.
fn of_several_streams(facts: &Facts) -> Option<String> {
    let TableFacts::Leases(table) = &facts.table else {
        return None;
    };
    if !table.fleet.streams.is_empty() {
        return None;
    }
    let leases = table.leases.iter().map(|facts| facts.lease.clone());
    let leases: Vec<Lease> = leases.collect();
    let places = of_multi_stream(&leases);
    if places.is_empty() {
        return None;
    }
    let streams = places.iter().filter_map(|place| place.stream.as_deref());
    let streams: BTreeSet<String> = streams
        .map(|stream| match StreamRef::parse(stream) {
            Ok(stream) => format!("\"{}\"", stream.name()),
            Err(_) => "\"STREAM\"".to_owned(),
        })
        .collect();
    let streams: Vec<String> = streams.into_iter().collect();
    let application = &facts.application;
    Some(format!(
        "shardmill run --config shardmill.toml, once the KCL has stopped, with application = \
            \"{application}\", streams = [{}] and multi-stream-table = true for the plugin",
        streams.join(", ")
    ))
}

fn import(facts: &Facts, predecessor: &PredecessorFacts) -> String {
    let application = &facts.application;
    let place = predecessor.places.first();
    let stream = named_stream(facts).or_else(|| place.and_then(|place| place.stream.clone()));
    let stream = stream.filter(|stream| StreamRef::parse(stream).is_ok());
    let stream = stream.unwrap_or_else(|| "STREAM".to_owned());
    let group = place.and_then(|place| place.group.as_deref());
    let group = group.map_or_else(String::new, |group| format!(" --group {}", one_word(group)));
    format!("shardmill import {application}{group} --stream {stream} --to PLUGIN")
}

/// The name if a shell takes it for one plain word, otherwise a placeholder: a person may paste the
/// command, and any writer to the table may have chosen the name.
fn one_word(name: &str) -> &str {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    if !name.is_empty() && name.chars().all(is_plain) {
        name
    } else {
        "GROUP"
    }
}

fn named_stream(facts: &Facts) -> Option<String> {
    facts.stream.as_ref().map(|stream| stream.name.to_string())
}

fn stream_flag(facts: &Facts) -> String {
    named_stream(facts).map_or_else(String::new, |stream| format!(" --stream {stream}"))
}
