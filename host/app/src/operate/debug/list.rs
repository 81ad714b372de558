//! The recordings of an application, for people and programs.

use serde::Serialize;
use shardmill_core::recording::RecordName;
use shardmill_core::stream::Utc;
use shardmill_serve::recordings::Found;
use shardmill_sinks::recordings::Summary;

use crate::output::{print, print_json, short_digest, short_reason, table};

/// Characters of a reason in the table.
const REASON_CHARS_MAX: usize = 80;

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Row {
    file: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    records: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

pub(super) fn show(found: &[Found], is_json: bool) -> anyhow::Result<()> {
    if is_json {
        let rows: Vec<Row> = found.iter().map(Row::of).collect();
        return print_json(&rows);
    }
    if found.is_empty() {
        print("no batch that failed is recorded");
        return Ok(());
    }
    let mut table = table([
        "first record",
        "records",
        "delivery",
        "at",
        "version",
        "why",
    ]);
    for one in found {
        match &one.summary {
            Ok(summary) => table.add_row(cells(summary)),
            Err(problem) => {
                let file = one.path.display();
                table.add_row([format!("{file}: {problem}")])
            }
        };
    }
    print(&table.to_string());
    Ok(())
}

fn cells(summary: &Summary) -> [String; 6] {
    [
        RecordName::of(&summary.shard, &summary.first).to_string(),
        summary.records.to_string(),
        summary.attempt.to_string(),
        Utc(summary.at_ms).to_string(),
        short_digest(summary.digest.as_str()).to_owned(),
        short_reason(&summary.message, REASON_CHARS_MAX),
    ]
}

impl Row {
    fn of(found: &Found) -> Self {
        let summary = found.summary.as_ref().ok();
        Self {
            file: found.path.display().to_string(),
            record: summary.map(|of| RecordName::of(&of.shard, &of.first).to_string()),
            at_ms: summary.map(|of| of.at_ms),
            records: summary.map(|of| of.records),
            attempt: summary.map(|of| of.attempt),
            digest: summary.map(|of| of.digest.as_str().to_owned()),
            message: summary.map(|of| of.message.clone()),
            problem: found.summary.as_ref().err().cloned(),
        }
    }
}
