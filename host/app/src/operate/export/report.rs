//! What `export` shows.

use comfy_table::Table;
use serde::Serialize;
use shardmill_core::migration::ShardExport;

use super::outcome::Export;
use crate::cli::{ExportArgs, OutputArgs};
use crate::output::{Page, print, print_json, table};

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

impl<'a> ShardReport<'a> {
    fn of(shard: &'a ShardExport) -> Self {
        Self {
            shard: shard.shard.as_str(),
            checkpoint: shard.checkpoint.to_string(),
            held: shard.held.is_ok(),
            why_not: shard.held.err().map(|why| why.to_string()),
        }
    }
}

impl<'a> Report<'a> {
    pub(super) fn of(args: &'a ExportArgs, export: &'a Export) -> Self {
        Self {
            application: &args.application,
            library: args.library.code(),
            table: &export.table,
            may_be_alive: &export.alive,
            shards: export.shards.iter().map(ShardReport::of).collect(),
            applied: args.apply && export.may_be_written(),
            written: export.written,
        }
    }

    /// Prints the report, as JSON if `--json` asks for it.
    pub(super) fn show(&self, output: OutputArgs) -> anyhow::Result<()> {
        if output.json {
            return print_json(self);
        }
        print(self.as_text().trim_end());
        Ok(())
    }

    fn as_text(&self) -> String {
        let mut page = Page::new(9);
        page.line("from", self.application);
        page.line("to", format_args!("{}, table {}", self.library, self.table));
        for who in self.may_be_alive {
            page.line("alive?", who);
        }
        page.plain(format_args!("\n{}\n", self.rows()));
        if self.applied {
            page.plain(format_args!("{} rows written", self.written));
        } else {
            page.plain("nothing was written; --apply writes");
        }
        page.into_text()
    }

    fn rows(&self) -> Table {
        let mut table = table(["SHARD", "CHECKPOINT", "HELD", "WHY NOT"]);
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
