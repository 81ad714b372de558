//! What `export` says.

use std::fmt::Write;

use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Table};
use serde::Serialize;
use shardmill_core::migration::ShardExport;

use super::outcome::Export;
use crate::cli::ExportArgs;

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Report<'a> {
    application: &'a str,
    library: &'static str,
    table: &'a str,
    may_be_alive: &'a [String],
    shards: Vec<ShardReport<'a>>,
    applied: bool,
    written: usize,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct ShardReport<'a> {
    shard: &'a str,
    checkpoint: String,
    held: bool,
    why_not: Option<String>,
}

impl<'a> Report<'a> {
    pub(super) fn of(args: &'a ExportArgs, export: &'a Export) -> Self {
        let shard = |shard: &'a ShardExport| ShardReport {
            shard: shard.shard.as_str(),
            checkpoint: shard.checkpoint.to_string(),
            held: shard.held.is_ok(),
            why_not: shard.held.err().map(|why| why.to_string()),
        };
        let shards: Vec<ShardReport<'a>> = export.shards.iter().map(shard).collect();
        Self {
            application: &args.application,
            library: args.library.code(),
            table: &export.table,
            may_be_alive: &export.alive,
            applied: args.apply && export.alive.is_empty() && shards.iter().all(|shard| shard.held),
            shards,
            written: export.written,
        }
    }

    pub(super) fn as_text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "from      {}", self.application);
        let _ = writeln!(text, "to        {}, table {}", self.library, self.table);
        for who in self.may_be_alive {
            let _ = writeln!(text, "alive?    {who}");
        }
        let _ = writeln!(text, "\n{}\n", self.rows());
        let done = if self.applied {
            format!("{} rows written", self.written)
        } else {
            "nothing was written; --apply writes".to_owned()
        };
        text.push_str(&done);
        text
    }

    fn rows(&self) -> Table {
        let mut table = Table::new();
        table
            .load_preset(NOTHING)
            .set_content_arrangement(ContentArrangement::Disabled)
            .set_header(["SHARD", "CHECKPOINT", "HELD", "WHY NOT"]);
        for shard in &self.shards {
            let held = if shard.held { "yes" } else { "no" };
            table.add_row([
                shard.shard,
                &shard.checkpoint,
                held,
                shard.why_not.as_deref().unwrap_or("-"),
            ]);
        }
        table
    }
}
