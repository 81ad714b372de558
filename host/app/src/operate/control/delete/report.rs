//! What `delete` shows: what would be lost, and why the tables are kept, if they are.

use std::fmt::Write;

use serde::Serialize;
use shardmill_core::doctor::DeletionRefusal;
use shardmill_core::lease::Lease;
use shardmill_core::plugin::{Part, coordinator_table, split_part, state_table};

use super::found::Found;
use crate::cli::OutputArgs;
use crate::output::{print, print_json, table};

/// Shards shown; `--json` has all.
const SHARDS_SHOWN: usize = 20;

/// What is shown.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Report {
    application: String,
    stream: Option<String>,
    #[serde(rename = "applied")]
    pub(super) is_applied: bool,
    tables: Vec<TableRow>,
    shards: Vec<ShardRow>,
    /// Why the tables are kept.
    refused: Vec<String>,
    notes: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct TableRow {
    table: String,
    holds: String,
}

/// What is known of a shard only here.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct ShardRow {
    shard: String,
    checkpoint: String,
}

impl Report {
    pub(super) fn of(application: &str, found: &Found, refusals: &[DeletionRefusal]) -> Self {
        let leases = &found.last.listing.leases;
        let stream = found.last.fleet.stream.as_ref();
        let mut shards: Vec<ShardRow> = leases.iter().map(ShardRow::of).collect();
        shards.sort_by(|a, b| a.shard.cmp(&b.shard));
        let tables = found.tables.iter();
        Self {
            application: application.to_owned(),
            stream: stream.map(|row| row.name.to_string()),
            is_applied: false,
            tables: tables
                .map(|name| TableRow {
                    holds: holds(application, name, leases),
                    table: name.clone(),
                })
                .collect(),
            shards,
            refused: refusals.iter().map(ToString::to_string).collect(),
            notes: notes(&found.further_streams),
        }
    }

    pub(super) fn show(&self, output: OutputArgs) -> anyhow::Result<()> {
        if output.json {
            return print_json(self);
        }
        print(self.as_text().trim_end());
        Ok(())
    }

    fn as_text(&self) -> String {
        let of = self.stream.as_deref();
        let of = of.map_or(String::new(), |stream| format!(" on stream {stream}"));
        let mut tables = table(["table", "holds"]);
        for row in &self.tables {
            tables.add_row([&row.table, &row.holds]);
        }
        let mut text = format!("{}{of}\n\n{tables}\n", self.application);
        text += &self.shards_as_text();
        for line in self.refused.iter().chain(&self.notes) {
            let _ = writeln!(text, "\n{line}");
        }
        text + "\n" + &self.outcome() + "\n"
    }

    fn shards_as_text(&self) -> String {
        let mut text = String::new();
        if !self.shards.is_empty() {
            let mut shards = table(["shard", "checkpoint"]);
            for row in self.shards.iter().take(SHARDS_SHOWN) {
                shards.add_row([&row.shard, &row.checkpoint]);
            }
            let _ = write!(text, "\n{shards}\n");
        }
        let more = self.shards.len().saturating_sub(SHARDS_SHOWN);
        if more > 0 {
            let _ = writeln!(text, "and {more} more; --json has all");
        }
        text
    }

    /// What was done, or what would do it.
    fn outcome(&self) -> String {
        let name = &self.application;
        let is_whole = split_part(name).1 == Part::Whole;
        match (self.is_applied, self.refused.is_empty()) {
            (true, _) if is_whole => "these tables are deleted".to_owned(),
            (true, _) => "the rows of this host are deleted; the tables are kept".to_owned(),
            (false, true) if is_whole => {
                format!("nothing was changed: --confirm {name} --apply deletes them")
            }
            (false, true) => format!(
                "nothing was changed: --confirm {name} --apply deletes the rows of this host, and \
                    keeps the tables"
            ),
            (false, false) => "nothing was changed".to_owned(),
        }
    }
}

fn notes(further_streams: &[String]) -> Vec<String> {
    let mut notes = vec![
        "not touched: the stream, sinks, dead letters, and fan-out consumers (`shardmill consumers` \
            shows and removes those)"
            .to_owned(),
    ];
    if !further_streams.is_empty() {
        notes.push(format!(
            "not touched: the tables of further streams: {}",
            further_streams.join(", ")
        ));
    }
    notes
}

fn holds(application: &str, name: &str, leases: &[Lease]) -> String {
    if name == coordinator_table(application) {
        return "where the application began, its history, quarantined versions".to_owned();
    }
    if name == state_table(application) {
        return "what the plugin saved for its shards".to_owned();
    }
    let finished = leases.iter().filter(|lease| lease.is_finished()).count();
    format!(
        "leases and checkpoints of {} shard(s), {finished} of them finished",
        leases.len()
    )
}

impl ShardRow {
    fn of(lease: &Lease) -> Self {
        Self {
            shard: lease.key.to_string(),
            checkpoint: lease.checkpoint.to_string(),
        }
    }
}
