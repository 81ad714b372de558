//! `shardmill replay --list`: what is in the files, without running anything.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Table};
use indicatif::{HumanBytes, HumanCount};
use shardmill_core::plugin::PluginName;
use shardmill_core::ports::{Clock, DeadLetter};
use shardmill_serve::BootClock;
use shardmill_sinks::letters::{Item, LetterInput};
use tokio_util::sync::CancellationToken;

use super::super::reading::age;
use crate::output::print;

/// Letters, shards and problems shown one by one; of more, the counts are shown.
const ROWS_MAX: usize = 1_000;
/// Signs of a reason that are shown.
const REASON_SHOWN: usize = 70;
/// Signs of a key that are shown.
const KEY_SHOWN: usize = 24;

/// What was found.
struct Listing {
    table: Table,
    rows: usize,
    /// Letters by plugin, stream and shard, of the first shards.
    counts: BTreeMap<(String, String, String), u64>,
    /// Letters of other shards.
    elsewhere: u64,
    bytes: u64,
    /// The first ones.
    problems: Vec<String>,
    problems_in_all: u64,
}

pub(super) async fn list(files: &[PathBuf], only: Option<&PluginName>, stop: &CancellationToken) -> anyhow::Result<()> {
    let mut input = LetterInput::open(files.to_vec())?;
    let (only, stop) = (only.cloned(), stop.clone());
    let read = tokio::task::spawn_blocking(move || -> anyhow::Result<(Listing, LetterInput)> {
        let mut listing = Listing::new();
        while let Some(item) = input.next_item()? {
            if stop.is_cancelled() {
                bail!("stopped by a signal");
            }
            match item {
                Item::Letter(letter) if only.as_ref().is_none_or(|only| *only == letter.plugin) => listing.add(&letter),
                Item::Letter(_) => {}
                Item::Damaged { problem, .. } => listing.add_problem(problem),
            }
        }
        Ok((listing, input))
    });
    let (mut listing, mut input) = read.await??;
    for incomplete in input.incomplete() {
        let letter = &incomplete.letter;
        let place = format!("{} {} {}", letter.stream, letter.shard, letter.record.position);
        listing.add_problem(format!("{place}: parts {:?} of {} are missing", incomplete.missing, incomplete.parts));
    }
    listing.show(&input)
}

impl Listing {
    fn new() -> Self {
        let mut table = Table::new();
        table.load_preset(NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
        table.set_header(["plugin", "stream", "shard", "position", "key", "bytes", "tries", "given up", "reason"]);
        Self {
            table,
            rows: 0,
            counts: BTreeMap::new(),
            elsewhere: 0,
            bytes: 0,
            problems: Vec::new(),
            problems_in_all: 0,
        }
    }

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

    fn add(&mut self, letter: &DeadLetter) {
        let DeadLetter { plugin, stream, shard, record, .. } = letter;
        self.count((plugin.to_string(), stream.to_string(), shard.to_string()));
        self.bytes += record.data.len() as u64;
        self.rows += 1;
        if self.rows > ROWS_MAX {
            return;
        }
        let ago = Duration::from_millis(BootClock.wall_ms().saturating_sub(letter.failed_at_ms));
        self.table.add_row([
            plugin.to_string(),
            stream.to_string(),
            shard.to_string(),
            record.position.to_string(),
            shown(&record.partition_key, KEY_SHOWN),
            record.data.len().to_string(),
            letter.attempts.to_string(),
            format!("{} ago", age(ago)),
            shown(&letter.reason, REASON_SHOWN),
        ]);
    }

    fn show(&self, input: &LetterInput) -> anyhow::Result<()> {
        if self.rows > 0 {
            print(&self.table.to_string());
        }
        if self.rows > ROWS_MAX {
            print(&format!("... and {} more", HumanCount((self.rows - ROWS_MAX) as u64)));
        }
        for ((plugin, stream, shard), count) in &self.counts {
            print(&format!("{plugin} {stream} {shard}: {}", HumanCount(*count)));
        }
        if self.elsewhere > 0 {
            print(&format!("other shards: {}", HumanCount(self.elsewhere)));
        }
        let (repeats, other) = (HumanCount(input.repeats()), HumanCount(input.other_lines()));
        let (letters, bytes) = (HumanCount(self.rows as u64), HumanBytes(self.bytes));
        print(&format!("{letters} letters, {bytes}; {repeats} repeats, {other} other lines"));
        self.problems.iter().for_each(|problem| print(problem));
        match self.problems_in_all {
            0 => Ok(()),
            damaged => bail!("{damaged} letters cannot be read"),
        }
    }
}

/// One line, cut.
fn shown(text: &str, max: usize) -> String {
    let line: String = text.chars().map(|sign| if sign.is_control() { ' ' } else { sign }).take(max).collect();
    if text.chars().count() > max { format!("{line}...") } else { line }
}
