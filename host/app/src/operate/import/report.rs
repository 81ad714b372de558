//! What `import` shows.

use comfy_table::Table;
use serde::Serialize;
use shardmill_core::migration::{Library, ShardImport};

use super::super::worker_report::WorkerReport;
use super::outcome::Import;
use crate::cli::{ImportArgs, OutputArgs};
use crate::output::{Page, print, print_json, table};

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Report<'a> {
    library: &'static str,
    versions: &'static str,
    from: &'a str,
    to: &'a str,
    stream: &'a str,
    stopped: bool,
    workers: Vec<WorkerReport<'a>>,
    shards: Vec<ShardReport<'a>>,
    applied: bool,
    written: usize,
    next: String,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct ShardReport<'a> {
    shard: &'a str,
    found: Option<String>,
    step: &'static str,
    starts_at: Option<String>,
    kind: &'static str,
    why: String,
}

impl<'a> Report<'a> {
    pub(super) fn of(args: &'a ImportArgs, library: Library, import: &'a Import) -> Self {
        let applied = (args.apply || args.watch) && import.alive == 0;
        Self {
            library: library.code(),
            versions: library.versions(),
            from: &import.table,
            to: &args.to,
            stream: &args.stream,
            stopped: import.alive == 0,
            workers: import.workers.iter().map(WorkerReport::of).collect(),
            shards: import.shards.iter().map(ShardReport::of).collect(),
            applied,
            written: import.written.rows,
            next: next(args, import, applied),
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
        let (library, table, versions) = (self.library, self.from, self.versions);
        page.line(
            "from",
            format_args!("{library}, table {table} ({versions})"),
        );
        page.line("to", format_args!("{}, stream {}", self.to, self.stream));
        self.write_old_fleet(&mut page);
        page.plain(format_args!("\n{}\n", self.table()));
        if self.applied {
            page.plain(format_args!("{} rows written", self.written));
        } else {
            page.plain("nothing was written");
        }
        page.line("next", &self.next);
        page.into_text()
    }

    fn write_old_fleet(&self, page: &mut Page) {
        for WorkerReport {
            worker,
            shards,
            life,
        } in &self.workers
        {
            page.line("worker", format_args!("{worker}: {shards} shards, {life}"));
        }
        let fleet = if self.stopped {
            "stopped"
        } else {
            "may be alive"
        };
        page.line("old fleet", fleet);
    }

    fn table(&self) -> Table {
        let mut table = table(["SHARD", "THEIR CHECKPOINT", "STARTS AT", "STEP", "WHY"]);
        for shard in &self.shards {
            table.add_row([
                shard.shard,
                shard.found.as_deref().unwrap_or("-"),
                shard.starts_at.as_deref().unwrap_or("-"),
                shard.step,
                &shard.why,
            ]);
        }
        table
    }
}

impl<'a> ShardReport<'a> {
    fn of(import: &'a ShardImport) -> Self {
        Self {
            shard: import.shard.as_str(),
            found: import.found.as_ref().map(ToString::to_string),
            step: import.step.code(),
            starts_at: import.step.starts_at().map(ToString::to_string),
            kind: import.why.code(),
            why: import.why.to_string(),
        }
    }
}

fn next(args: &ImportArgs, import: &Import, applied: bool) -> String {
    let ImportArgs {
        from, to, stream, ..
    } = args;
    let group = args
        .group
        .as_ref()
        .map_or_else(String::new, |group| format!(" --group {group}"));
    let again = format!("shardmill import {from}{group} --stream {stream} --to {to}");
    if applied {
        format!("shardmill run, with the application {to} and the stream {stream}")
    } else if import.alive > 0 {
        format!("{again} --watch, then stop the old fleet")
    } else {
        format!("{again} --apply")
    }
}
