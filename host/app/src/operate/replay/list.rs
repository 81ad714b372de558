//! `shardmill replay --list`: what is in the files, without running anything.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use anyhow::bail;
use comfy_table::{ContentArrangement, Table};
use indicatif::{HumanBytes, HumanCount};
use serde::Serialize;
use shardmill_core::plugin::PluginName;
use shardmill_core::ports::{Clock, DeadLetter};
use shardmill_core::text::shortened;
use shardmill_serve::BootClock;
use shardmill_sinks::letters::{Item, LetterInput};
use tokio_util::sync::CancellationToken;

use crate::cli::ReplayArgs;
use crate::output::{age_since, print, print_json, table};

/// Letters, shards and problems shown one by one; of more, the counts are shown.
const ROWS_MAX: usize = 1_000;
/// Characters of a reason that are shown.
const REASON_SHOWN: usize = 70;
/// Characters of a record's data that the table shows.
const DATA_SHOWN: usize = 120;
/// Bytes that are kept of a record's data: [`ROWS_MAX`] of them are a few MiB.
const DATA_BYTES_MAX: usize = 4 << 10;
/// Characters of a key that are shown.
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
    /// The beginning of the record's data, with `--data`.
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

/// The stream, shard and plugin of letters.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LetterOrigin {
    plugin: String,
    stream: String,
    shard: String,
}

/// What was found.
#[derive(Debug, Default)]
struct Listing {
    /// The first letters.
    rows: Vec<Row>,
    letters: u64,
    /// Letters by origin, of the first origins.
    counts: BTreeMap<LetterOrigin, u64>,
    /// Letters of other origins.
    elsewhere: u64,
    bytes: u64,
    /// Letters that were there more than once.
    repeats: u64,
    /// Lines that are not letters.
    other_lines: u64,
    /// The first problems.
    problems: Vec<String>,
    problems_in_all: u64,
}

/// Which letters are shown, and how.
struct Selection {
    only: Option<PluginName>,
    shows_data: bool,
    stop: CancellationToken,
}

pub(super) async fn list(
    args: &ReplayArgs,
    only: Option<&PluginName>,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    let input = LetterInput::open(args.files.clone())?;
    let selection = Selection {
        only: only.cloned(),
        shows_data: args.data,
        stop: stop.clone(),
    };
    let listing = tokio::task::spawn_blocking(move || Listing::read(input, &selection)).await??;
    if args.output.json {
        print_json(&listing.report())?;
    } else {
        listing.show();
    }
    match listing.problems_in_all {
        0 => Ok(()),
        damaged => bail!("{damaged} letters cannot be read"),
    }
}

impl Listing {
    fn read(mut input: LetterInput, selection: &Selection) -> anyhow::Result<Self> {
        let mut listing = Self::default();
        let only = selection.only.as_ref();
        while let Some(item) = input.next_item()? {
            if selection.stop.is_cancelled() {
                bail!("stopped by a signal");
            }
            match item {
                Item::Letter(letter) if only.is_none_or(|only| *only == letter.plugin.plugin()) => {
                    listing.add(&letter, selection.shows_data);
                }
                Item::Letter(_) => {}
                Item::Damaged { problem, .. } => listing.add_problem(problem),
            }
        }
        for incomplete in input.incomplete() {
            let DeadLetter {
                stream,
                shard,
                record,
                ..
            } = &incomplete.letter;
            listing.add_problem(format!(
                "{stream} {shard} {}: parts {:?} of {} are missing",
                record.position, incomplete.missing, incomplete.parts
            ));
        }
        listing.repeats = input.repeats();
        listing.other_lines = input.other_lines();
        Ok(listing)
    }

    fn add_problem(&mut self, problem: String) {
        self.problems_in_all += 1;
        if self.problems.len() < ROWS_MAX {
            self.problems.push(problem);
        }
    }

    fn count(&mut self, origin: LetterOrigin) {
        let is_room = self.counts.len() < ROWS_MAX;
        match self.counts.entry(origin) {
            Entry::Occupied(mut counted) => *counted.get_mut() += 1,
            Entry::Vacant(free) if is_room => drop(free.insert(1)),
            Entry::Vacant(_) => self.elsewhere += 1,
        }
    }

    fn add(&mut self, letter: &DeadLetter, shows_data: bool) {
        self.count(LetterOrigin {
            plugin: letter.plugin.to_string(),
            stream: letter.stream.to_string(),
            shard: letter.shard.to_string(),
        });
        self.bytes += letter.record.data.len() as u64;
        self.letters += 1;
        if self.rows.len() < ROWS_MAX {
            self.rows.push(Row::of(letter, shows_data));
        }
    }

    fn report(&self) -> Report<'_> {
        Report {
            first_letters: &self.rows,
            letters: self.letters,
            bytes: self.bytes,
            repeats: self.repeats,
            other_lines: self.other_lines,
            first_problems: &self.problems,
            problems: self.problems_in_all,
        }
    }

    fn show(&self) {
        if !self.rows.is_empty() {
            print(&letter_table(&self.rows).to_string());
        }
        let more = self.letters - self.rows.len() as u64;
        if more > 0 {
            print(&format!("... and {} more", HumanCount(more)));
        }
        for (origin, count) in &self.counts {
            let (plugin, stream, shard) = (&origin.plugin, &origin.stream, &origin.shard);
            print(&format!(
                "{plugin} {stream} {shard}: {}",
                HumanCount(*count)
            ));
        }
        if self.elsewhere > 0 {
            print(&format!("other shards: {}", HumanCount(self.elsewhere)));
        }
        self.show_totals();
        self.problems.iter().for_each(|problem| print(problem));
    }

    fn show_totals(&self) {
        let (letters, bytes) = (HumanCount(self.letters), HumanBytes(self.bytes));
        let (repeats, other) = (HumanCount(self.repeats), HumanCount(self.other_lines));
        print(&format!(
            "{letters} letters, {bytes}; {repeats} repeats, {other} other lines"
        ));
    }
}

impl Row {
    fn of(letter: &DeadLetter, shows_data: bool) -> Self {
        let record = &letter.record;
        Self {
            plugin: letter.plugin.to_string(),
            stream: letter.stream.to_string(),
            shard: letter.shard.to_string(),
            position: record.position.to_string(),
            key: record.partition_key.clone(),
            bytes: record.data.len(),
            attempts: letter.attempts,
            failed_at_ms: letter.failed_at_ms,
            reason: letter.reason.clone(),
            data: shows_data.then(|| beginning(&record.data)),
        }
    }

    fn cells(&self, now_ms: u64) -> Vec<String> {
        let mut cells = vec![
            self.plugin.clone(),
            self.stream.clone(),
            self.shard.clone(),
            self.position.clone(),
            shown(&self.key, KEY_SHOWN),
            self.bytes.to_string(),
            self.attempts.to_string(),
            format!("{} ago", age_since(self.failed_at_ms, now_ms)),
            shortened(&in_one_line(&self.reason), REASON_SHOWN).into_owned(),
        ];
        cells.extend(self.data.as_deref().map(|data| shown(data, DATA_SHOWN)));
        cells
    }
}

fn letter_table(rows: &[Row]) -> Table {
    let mut header = vec![
        "plugin", "stream", "shard", "position", "key", "bytes", "tries", "given up", "reason",
    ];
    let has_data = rows.iter().any(|row| row.data.is_some());
    header.extend(has_data.then_some("data"));
    let mut table = table(header);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    let now_ms = BootClock.wall_ms();
    for row in rows {
        table.add_row(row.cells(now_ms));
    }
    table
}

/// The text that `data` begins with; bytes that are not UTF-8 show as replacement characters.
fn beginning(data: &[u8]) -> String {
    let start = data.get(..DATA_BYTES_MAX).unwrap_or(data);
    let text = String::from_utf8_lossy(start);
    if start.len() < data.len() {
        // A character that the cut splits is left out.
        format!("{}...", text.trim_end_matches('\u{fffd}'))
    } else {
        text.into_owned()
    }
}

/// `text` in one line, cut after `max` characters.
fn shown(text: &str, max: usize) -> String {
    let line: String = in_one_line(text).chars().take(max).collect();
    if text.chars().count() > max {
        format!("{line}...")
    } else {
        line
    }
}

fn in_one_line(text: &str) -> String {
    text.chars()
        .map(|sign| if sign.is_control() { ' ' } else { sign })
        .collect()
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
