//! `shardmill replay --list`: what is in the files, without running anything.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use anyhow::bail;
use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Table};
use indicatif::{HumanBytes, HumanCount};
use serde::Serialize;
use shardmill_core::plugin::PluginName;
use shardmill_core::ports::{Clock, DeadLetter};
use shardmill_serve::BootClock;
use shardmill_sinks::letters::{Item, LetterInput};
use tokio_util::sync::CancellationToken;

use super::super::reading::age;
use crate::cli::ReplayArgs;
use crate::output::{print, print_json};

/// Letters, shards and problems shown one by one; of more, the counts are shown.
const ROWS_MAX: usize = 1_000;
/// Signs of a reason that are shown.
const REASON_SHOWN: usize = 70;
/// Signs of a record's data that a table shows.
const DATA_SHOWN: usize = 120;
/// Bytes of a record's data that are kept to be shown: [`ROWS_MAX`] of them are a few MiB.
const DATA_BYTES_MAX: usize = 4 << 10;
/// Signs of a key that are shown.
const KEY_SHOWN: usize = 24;

/// A letter that is shown.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Row {
    plugin: String,
    stream: String,
    shard: String,
    position: String,
    key: String,
    bytes: usize,
    attempts: u32,
    failed_at_ms: u64,
    reason: String,
    /// The beginning of it, if it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<String>,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Report<'a> {
    first_letters: &'a [Row],
    letters: u64,
    bytes: u64,
    repeats: u64,
    other_lines: u64,
    first_problems: &'a [String],
    problems: u64,
}

/// What was found.
#[derive(Debug, Default)]
struct Listing {
    /// The first letters.
    rows: Vec<Row>,
    letters: u64,
    /// Letters by plugin, stream and shard, of the first shards.
    counts: BTreeMap<(String, String, String), u64>,
    /// Letters of other shards.
    elsewhere: u64,
    bytes: u64,
    /// The first ones.
    problems: Vec<String>,
    problems_in_all: u64,
}

pub(super) async fn list(
    args: &ReplayArgs,
    only: Option<&PluginName>,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    let mut input = LetterInput::open(args.files.clone())?;
    let (only, stop, shows_data) = (only.cloned(), stop.clone(), args.data);
    let read = tokio::task::spawn_blocking(move || -> anyhow::Result<(Listing, LetterInput)> {
        let mut listing = Listing::default();
        while let Some(item) = input.next_item()? {
            if stop.is_cancelled() {
                bail!("stopped by a signal");
            }
            match item {
                Item::Letter(letter) if only.as_ref().is_none_or(|only| *only == letter.plugin) => {
                    listing.add(&letter, shows_data);
                }
                Item::Letter(_) => {}
                Item::Damaged { problem, .. } => listing.add_problem(problem),
            }
        }
        Ok((listing, input))
    });
    let (mut listing, mut input) = read.await??;
    for incomplete in input.incomplete() {
        let letter = &incomplete.letter;
        let place = format!(
            "{} {} {}",
            letter.stream, letter.shard, letter.record.position
        );
        listing.add_problem(format!(
            "{place}: parts {:?} of {} are missing",
            incomplete.missing, incomplete.parts
        ));
    }
    if args.output.json {
        print_json(&listing.report(&input))?;
    } else {
        listing.show(&input);
    }
    match listing.problems_in_all {
        0 => Ok(()),
        damaged => bail!("{damaged} letters cannot be read"),
    }
}

impl Listing {
    fn add_problem(&mut self, problem: String) {
        self.problems_in_all += 1;
        if self.problems.len() < ROWS_MAX {
            self.problems.push(problem);
        }
    }

    fn count(&mut self, place: (String, String, String)) {
        let is_room = self.counts.len() < ROWS_MAX;
        match self.counts.entry(place) {
            Entry::Occupied(mut counted) => *counted.get_mut() += 1,
            Entry::Vacant(free) if is_room => drop(free.insert(1)),
            Entry::Vacant(_) => self.elsewhere += 1,
        }
    }

    fn add(&mut self, letter: &DeadLetter, shows_data: bool) {
        let DeadLetter {
            plugin,
            stream,
            shard,
            record,
            ..
        } = letter;
        self.count((plugin.to_string(), stream.to_string(), shard.to_string()));
        self.bytes += record.data.len() as u64;
        self.letters += 1;
        if self.rows.len() < ROWS_MAX {
            self.rows.push(Row {
                plugin: plugin.to_string(),
                stream: stream.to_string(),
                shard: shard.to_string(),
                position: record.position.to_string(),
                key: record.partition_key.clone(),
                bytes: record.data.len(),
                attempts: letter.attempts,
                failed_at_ms: letter.failed_at_ms,
                reason: letter.reason.clone(),
                data: shows_data.then(|| beginning(&record.data)),
            });
        }
    }

    fn report(&self, input: &LetterInput) -> Report<'_> {
        Report {
            first_letters: &self.rows,
            letters: self.letters,
            bytes: self.bytes,
            repeats: input.repeats(),
            other_lines: input.other_lines(),
            first_problems: &self.problems,
            problems: self.problems_in_all,
        }
    }

    fn show(&self, input: &LetterInput) {
        if !self.rows.is_empty() {
            print(&letter_table(&self.rows).to_string());
        }
        let more = self.letters - self.rows.len() as u64;
        if more > 0 {
            print(&format!("... and {} more", HumanCount(more)));
        }
        for ((plugin, stream, shard), count) in &self.counts {
            print(&format!(
                "{plugin} {stream} {shard}: {}",
                HumanCount(*count)
            ));
        }
        if self.elsewhere > 0 {
            print(&format!("other shards: {}", HumanCount(self.elsewhere)));
        }
        let (repeats, other) = (HumanCount(input.repeats()), HumanCount(input.other_lines()));
        let (letters, bytes) = (HumanCount(self.letters), HumanBytes(self.bytes));
        print(&format!(
            "{letters} letters, {bytes}; {repeats} repeats, {other} other lines"
        ));
        self.problems.iter().for_each(|problem| print(problem));
    }
}

fn letter_table(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table
        .load_preset(NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic);
    let has_data = rows.iter().any(|row| row.data.is_some());
    let mut header = vec![
        "plugin", "stream", "shard", "position", "key", "bytes", "tries", "given up", "reason",
    ];
    header.extend(has_data.then_some("data"));
    table.set_header(header);
    for row in rows {
        let ago = Duration::from_millis(BootClock.wall_ms().saturating_sub(row.failed_at_ms));
        let mut cells = vec![
            row.plugin.clone(),
            row.stream.clone(),
            row.shard.clone(),
            row.position.clone(),
            shown(&row.key, KEY_SHOWN),
            row.bytes.to_string(),
            row.attempts.to_string(),
            format!("{} ago", age(ago)),
            shown(&row.reason, REASON_SHOWN),
        ];
        cells.extend(row.data.as_deref().map(|data| shown(data, DATA_SHOWN)));
        table.add_row(cells);
    }
    table
}

/// Text that it begins with; what is no text shows as such.
fn beginning(data: &[u8]) -> String {
    let start = data.get(..DATA_BYTES_MAX).unwrap_or(data);
    let text = String::from_utf8_lossy(start);
    if start.len() < data.len() {
        // A character that the cut halved is not part of it.
        format!("{}...", text.trim_end_matches('\u{fffd}'))
    } else {
        text.into_owned()
    }
}

/// One line, cut.
fn shown(text: &str, max: usize) -> String {
    let line: String = text
        .chars()
        .map(|sign| if sign.is_control() { ' ' } else { sign })
        .take(max)
        .collect();
    if text.chars().count() > max {
        format!("{line}...")
    } else {
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_shown_from_its_beginning_and_never_half_a_character() {
        assert_eq!(beginning(br#"{"a":1}"#), r#"{"a":1}"#);
        assert_eq!(beginning(&[0xff, b'a']), "\u{fffd}a");
        let long = "é".repeat(DATA_BYTES_MAX);
        let shown = beginning(format!("a{long}").as_bytes());
        assert_eq!(shown, format!("a{}...", "é".repeat(DATA_BYTES_MAX / 2 - 1)));
    }
}
