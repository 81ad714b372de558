//! `shardmill history`.

use serde::Serialize;
use shardmill_core::control::HistoryEntry;
use shardmill_core::ports::Clock;
use shardmill_core::stream::Utc;
use shardmill_serve::BootClock;

use super::application::Application;
use crate::cli::HistoryArgs;
use crate::output::{millis, print, print_json, short_shard, table, terminal_width};

/// An entry as it is shown.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Row {
    at: String,
    at_millis: u64,
    by: String,
    deed: &'static str,
    shard: Option<String>,
    details: String,
    why: String,
}

pub(crate) async fn history(args: &HistoryArgs) -> anyhow::Result<()> {
    let clients = crate::aws::connect_to(&args.connection).await?;
    let application = Application::open(&args.application, &clients).await?;
    if args.expire {
        application.coordinator().let_history_expire().await?;
    }
    let since_ms = BootClock.wall_ms().saturating_sub(millis(args.since));
    let count_max = usize::try_from(args.count)?;
    let is_meant = |entry: &HistoryEntry| entry.deed.is_wanted() || !args.commands;
    let coordinator = application.coordinator();
    let found = coordinator.history(since_ms, count_max, is_meant).await?;
    if !found.is_searched {
        tracing::warn!(
            code = "history-cut",
            "hosts have written so much that older entries were not looked through: name a shorter \
                --since"
        );
    }
    let rows: Vec<Row> = found.entries.iter().map(Row::of).collect();
    if args.output.json {
        return print_json(&rows);
    }
    print(&as_text(&rows, terminal_width()));
    Ok(())
}

impl Row {
    pub(super) fn of(entry: &HistoryEntry) -> Self {
        Self {
            at: Utc(entry.at_ms).to_string(),
            at_millis: entry.at_ms,
            by: entry.by.clone(),
            deed: entry.deed.code(),
            shard: entry.shard.as_ref().map(ToString::to_string),
            details: entry.details.clone(),
            why: entry.why.clone(),
        }
    }

    fn as_lines(&self) -> String {
        let shard = self
            .shard
            .as_deref()
            .map(|id| format!(" {}", short_shard(id)));
        let mut lines = format!(
            "{}  {}{}  by {}",
            self.at,
            self.deed,
            shard.unwrap_or_default(),
            self.by
        );
        for more in [&self.details, &self.why] {
            if !more.is_empty() {
                lines = format!("{lines}\n  {more}");
            }
        }
        lines
    }
}

/// A table, or, if that is wider than the terminal, some lines for each entry.
pub(super) fn as_text(rows: &[Row], width: Option<usize>) -> String {
    if rows.is_empty() {
        return "nothing was done in that time".to_owned();
    }
    let table = as_table(rows);
    let is_too_wide = |line: &str| width.is_some_and(|width| line.chars().count() > width);
    if !table.lines().any(is_too_wide) {
        return table;
    }
    let entries: Vec<String> = rows.iter().map(Row::as_lines).collect();
    entries.join("\n")
}

fn as_table(rows: &[Row]) -> String {
    let mut table = table(["at", "by", "did", "shard", "details", "why"]);
    for row in rows {
        let shard = row.shard.as_deref().unwrap_or("-");
        table.add_row([
            row.at.as_str(),
            &row.by,
            row.deed,
            shard,
            &row.details,
            &row.why,
        ]);
    }
    table.to_string()
}
