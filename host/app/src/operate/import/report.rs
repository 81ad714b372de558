//! What `import` says.

use std::fmt::Write;

use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Table};
use serde::Serialize;
use shardmill_core::migration::{Library, ShardImport, WorkerLife};

use super::outcome::Import;
use crate::cli::ImportArgs;

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
struct WorkerReport<'a> {
    worker: &'a str,
    shards: usize,
    life: &'static str,
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

    pub(super) fn as_text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "from      {}, table {} ({})",
            self.library, self.from, self.versions
        );
        let _ = writeln!(text, "to        {}, stream {}", self.to, self.stream);
        for worker in &self.workers {
            let _ = writeln!(
                text,
                "worker    {}: {} shards, {}",
                worker.worker, worker.shards, worker.life
            );
        }
        let fleet = if self.stopped {
            "stopped"
        } else {
            "may be alive"
        };
        let _ = writeln!(text, "old fleet {fleet}\n\n{}\n", self.table());
        let done = if self.applied {
            format!("{} rows written", self.written)
        } else {
            "nothing was written".to_owned()
        };
        let _ = write!(text, "{done}\nnext      {}", self.next);
        text
    }

    fn table(&self) -> Table {
        let mut table = Table::new();
        table
            .load_preset(NOTHING)
            .set_content_arrangement(ContentArrangement::Disabled)
            .set_header(["SHARD", "THEIR CHECKPOINT", "STARTS AT", "STEP", "WHY"]);
        for shard in &self.shards {
            let told = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
            table.add_row([
                shard.shard.to_owned(),
                told(&shard.found),
                told(&shard.starts_at),
                shard.step.to_owned(),
                shard.why.clone(),
            ]);
        }
        table
    }
}

impl<'a> WorkerReport<'a> {
    fn of(life: &'a WorkerLife) -> Self {
        Self {
            worker: &life.worker,
            shards: life.shards,
            life: life.pulse.code(),
        }
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
