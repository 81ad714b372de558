//! Tables, and the short forms in which their cells and other texts show values.

use std::time::Duration;

use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Row, Table};
use shardmill_core::text::shortened;

/// How many digits of a version's digest are shown: enough to distinguish versions.
const DIGEST_SHOWN: usize = 12;

/// A table without rules. Its lines are as long as its cells need, even if the terminal is
/// narrower.
pub(crate) fn table(header: impl Into<Row>) -> Table {
    let mut table = Table::new();
    table
        .load_preset(NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(header);
    table
}

/// The text of a cell, `-` if there is none.
pub(crate) fn or_dash(text: Option<&str>) -> String {
    text.unwrap_or("-").to_owned()
}

/// The first line of a reason, in `max` characters at most, with its cause.
pub(crate) fn short_reason(reason: &str, max: usize) -> String {
    let line = reason.lines().next().unwrap_or_default();
    shortened(line, max).into_owned()
}

/// The beginning of a digest in hexadecimal digits.
pub(crate) fn short_digest(digest: &str) -> &str {
    digest.get(..DIGEST_SHOWN).unwrap_or(digest)
}

/// The number of a shard, which commands accept instead of its id.
pub(crate) fn short_shard(id: &str) -> String {
    let number = id.rsplit('-').next().unwrap_or(id).trim_start_matches('0');
    if number.is_empty() { "0" } else { number }.to_owned()
}

/// A duration in whole seconds, or in milliseconds below one second.
pub(crate) fn age(duration: Duration) -> String {
    let whole = if duration < Duration::from_secs(1) {
        u64::try_from(duration.as_millis()).unwrap_or(0)
    } else {
        duration.as_secs() * 1_000
    };
    humantime::format_duration(Duration::from_millis(whole)).to_string()
}

/// The time from `then_ms` to `now_ms`, both in milliseconds since 1970.
pub(crate) fn age_since(then_ms: u64, now_ms: u64) -> String {
    age(Duration::from_millis(now_ms.saturating_sub(then_ms)))
}

/// Whole milliseconds, for reports that programs read.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
