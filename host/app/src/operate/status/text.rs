//! The summary as text that fits a narrow terminal.

use std::fmt::Write;
use std::time::Duration;

use shardmill_core::text::shortened;

use super::summary::{ShardStatus, Summary};
use crate::output::{age, or_dash, short_shard, table};

/// Shards that `status` shows; `top` shows as many as fit, `leases` all of them.
const SHARDS_SHOWN: usize = 10;
/// Characters of a reason that a table shows.
const REASON_SHOWN: usize = 160;

/// What `status` prints.
pub(super) fn overview(summary: &Summary) -> String {
    let noted: Vec<&ShardStatus> = summary
        .shards
        .iter()
        .filter(|shard| is_noted(shard))
        .collect();
    let shown = &noted[..noted.len().min(SHARDS_SHOWN)];
    let mut text = head(summary);
    if !shown.is_empty() {
        let _ = write!(text, "\n{}\n", shards(shown));
    }
    if noted.len() > shown.len() {
        let more = noted.len() - shown.len();
        let _ = writeln!(
            text,
            "and {more} more; `shardmill leases {}` shows all",
            summary.application
        );
    }
    let _ = write!(text, "\n{}", hosts(summary));
    text
}

/// What `top` shows on a screen of that size.
pub(super) fn page(summary: &Summary, width: Option<usize>, height: usize) -> String {
    let head = format!("{}\n{}\n", head(summary), hosts(summary));
    // The header of the table of shards.
    let used = head.lines().count() + 1;
    let most = height.saturating_sub(used).min(summary.shards.len());
    let shown: Vec<&ShardStatus> = summary.shards.iter().take(most).collect();
    let page = format!("{head}{}", shards(&shown));
    let Some(width) = width else { return page };
    let cut: Vec<_> = page
        .lines()
        .take(height)
        .map(|line| shortened(line, width))
        .collect();
    cut.join("\n")
}

/// What somebody should see who asks how the application is doing.
fn is_noted(shard: &ShardStatus) -> bool {
    shard.stuck.is_some()
        || shard.owner.is_none()
        || shard.is_nearly_full
        || !shard.wanted.is_empty()
}

fn head(summary: &Summary) -> String {
    let counts = &summary.counts;
    let stream = summary.stream.as_deref();
    let of = stream.map_or(String::new(), |stream| format!(" on stream {stream}"));
    let mut text = format!("{}{of}\n", summary.application);
    let _ = writeln!(
        text,
        "shards: {} open ({} held, {} paused, {} stuck), {} finished",
        counts.open, counts.held, counts.paused, counts.stuck, counts.finished
    );
    if let Some(behind) = farthest_behind(summary) {
        let _ = writeln!(text, "farthest behind: {behind}");
    }
    if let Some(paused) = &summary.paused {
        let _ = writeln!(text, "all shards {paused}");
    }
    for bad in &summary.bad_rows {
        let _ = writeln!(text, "row {bad} (cannot be read)");
    }
    text
}

fn farthest_behind(summary: &Summary) -> Option<String> {
    let behind = |shard: &&ShardStatus| shard.millis_behind_latest;
    let held = summary
        .shards
        .iter()
        .filter(|shard| behind(shard).is_some());
    let shard = held.max_by_key(behind)?;
    let lag = lag(shard.millis_behind_latest?);
    Some(format!("{lag} (shard {})", short_shard(&shard.shard)))
}

fn lag(millis: u64) -> String {
    age(Duration::from_millis(millis))
}

fn shards(shards: &[&ShardStatus]) -> String {
    let mut table = table(["shard", "owner", "lag", "KiB/s", "state"]);
    for shard in shards {
        let rate = shard
            .bytes_per_second
            .map(|bytes| (bytes / 1024).to_string());
        table.add_row([
            short_shard(&shard.shard),
            or_dash(shard.owner.as_deref()),
            or_dash(shard.millis_behind_latest.map(lag).as_deref()),
            or_dash(rate.as_deref()),
            state(shard),
        ]);
    }
    table.trim_fmt()
}

fn state(shard: &ShardStatus) -> String {
    let mut parts: Vec<String> = Vec::new();
    if let Some(why) = &shard.stuck
        // The holder of a paused shard says the same as the operator.
        && (shard.is_stuck() || shard.wanted.is_empty())
    {
        parts.push(shortened(why, REASON_SHOWN).into_owned());
    }
    if shard.owner.is_none() {
        parts.push("not held".to_owned());
    }
    if shard.is_nearly_full
        && let Some(percent) = shard.state_percent
    {
        parts.push(format!("state at {percent}% of its limit"));
    }
    parts.extend(shard.wanted.iter().cloned());
    if parts.is_empty() {
        return "-".to_owned();
    }
    parts.join("; ")
}

fn hosts(summary: &Summary) -> String {
    if let Some(why) = &summary.hosts_unknown {
        return format!("{why}\n");
    }
    if summary.hosts.is_empty() {
        return "no host is registered\n".to_owned();
    }
    let mut table = table(["host", "leases", "state"]);
    for host in &summary.hosts {
        let states = host.states.iter();
        let mut state: Vec<String> = states.map(|word| word.replace('-', " ")).collect();
        state.extend(
            host.troubles
                .iter()
                .map(|why| shortened(why, REASON_SHOWN).into_owned()),
        );
        let state = if state.is_empty() {
            "-".to_owned()
        } else {
            state.join(", ")
        };
        table.add_row([host.worker.clone(), host.leases.to_string(), state]);
    }
    table.trim_fmt() + "\n"
}
