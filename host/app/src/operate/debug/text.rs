//! What `debug` shows people.

use shardmill_core::plugin::plugin_of_label;
use shardmill_core::ports::Outcome;
use shardmill_core::recording::{Likeness, Recording};
use shardmill_core::stream::{Emitted, Record, Utc};
use shardmill_core::text::shortened;
use similar::{ChangeTag, TextDiff};

use super::report::{kind_code, likeness};
use super::rerun::{Call, Ran};
use crate::cli::DebugArgs;
use crate::output::{Page, age, short_digest};

/// Characters of a piece of output, or of a record, that are shown.
const DATA_CHARS_MAX: usize = 200;
/// Pieces of output, log lines and differences that are shown of each run.
const SHOWN_MAX: usize = 20;

pub(super) fn as_text(
    recording: &Recording,
    again: &Ran,
    other: Option<&Ran>,
    args: &DebugArgs,
) -> String {
    let mut page = Page::new(10);
    write_recorded(&mut page, recording);
    write_denied(&mut page, recording, args);
    page.plain("");
    page.line("again", verdict(recording, again));
    write_run(&mut page, again);
    if let Some(other) = other {
        page.plain("");
        page.line("compared", verdict(recording, other));
        write_run(&mut page, other);
        write_difference(&mut page, &again.emitted, &other.emitted);
    }
    page.into_text()
}

fn write_recorded(page: &mut Page, recording: &Recording) {
    let context = &recording.context;
    page.line(
        "shard",
        format_args!("{} of application {}", context.shard, context.application),
    );
    page.line("batch", batch(&recording.batch.records));
    page.line(
        "failed",
        format_args!(
            "at {} on {}, at delivery {}, after {}",
            Utc(recording.at_ms),
            context.worker.as_str(),
            recording.batch.attempt,
            age(recording.took)
        ),
    );
    page.line("why", &recording.failure.message);
    let plugin = plugin_of_label(context.plugin.as_str());
    let digest = short_digest(recording.digest.as_str());
    page.line("version", format_args!("{plugin} {digest}"));
    page.line("before", before(recording));
}

fn batch(records: &[Record]) -> String {
    let (Some(first), Some(last)) = (records.first(), records.last()) else {
        return "no records".to_owned();
    };
    if records.len() == 1 {
        let data = String::from_utf8_lossy(&first.data);
        let data = shortened(&data, DATA_CHARS_MAX);
        return format!("one record at {}: {data}", first.position);
    }
    format!(
        "{} records, {} to {}",
        records.len(),
        first.position,
        last.position
    )
}

/// What the instance had been given.
fn before(recording: &Recording) -> String {
    let state = match &recording.state {
        Some(state) => format!("a state of {} bytes, and ", state.len()),
        None => String::new(),
    };
    let batches = recording.run_up.len();
    let missing = match (recording.is_state_missing, recording.missing_batches) {
        (false, 0) => "",
        (true, _) => "; the state is not known: what depends on it may not show",
        (false, _) => {
            "; what it was given before that is not kept: what depends on it may not show"
        }
    };
    format!("{state}{batches} batches{missing}")
}

/// What the plugin had in production and does not have here.
fn write_denied(page: &mut Page, recording: &Recording, args: &DebugArgs) {
    if args.grants {
        return;
    }
    let permissions = &recording.context.permissions;
    let mut denied = Vec::new();
    denied.extend(permissions.http.iter().map(|host| format!("http {host}")));
    denied.extend(permissions.env.iter().map(|name| format!("env {name}")));
    denied.extend(
        recording
            .secrets
            .iter()
            .map(|name| format!("secret {name}")),
    );
    if !denied.is_empty() {
        denied.push("(--grants gives them)".to_owned());
    }
    page.list("without", &denied);
}

fn verdict(recording: &Recording, ran: &Ran) -> String {
    let digest = short_digest(ran.digest.as_str());
    let verdict = match (ran.call, likeness(recording, ran)) {
        (Call::Start, _) => "the instance does not start".to_owned(),
        (Call::RunUp(at), _) => format!("batch {at} of those before fails already"),
        (Call::Batch, Likeness::Same) => "the batch fails as it did".to_owned(),
        (Call::Batch, Likeness::FailsOtherwise) => "the batch fails, but otherwise".to_owned(),
        (Call::Batch, Likeness::DoesNotFail) => "the batch does not fail".to_owned(),
    };
    format!("{verdict} (version {digest})")
}

fn write_run(page: &mut Page, ran: &Ran) {
    match &ran.result {
        Ok(outcome) => write_failures(page, outcome),
        Err(error) => write_error(page, &error.to_string()),
    }
    page.line("fuel", ran.fuel);
    write_some(page, "log", &ran.lines);
    let output: Vec<String> = ran.emitted.iter().map(shown).collect();
    write_some(page, "output", &output);
}

fn write_failures(page: &mut Page, outcome: &Outcome) {
    let failures: Vec<String> = outcome
        .failures
        .iter()
        .map(|failure| {
            let kind = kind_code(failure.kind);
            format!("record {}, {kind}: {}", failure.index, failure.message)
        })
        .collect();
    write_some(page, "failed", &failures);
}

/// The frames of a trap on a line each, the innermost first.
fn write_error(page: &mut Page, error: &str) {
    let mut frames = error.split(" < ");
    page.line("error", frames.next().unwrap_or_default());
    for frame in frames {
        page.line("called by", frame);
    }
}

fn write_some(page: &mut Page, label: &str, lines: &[String]) {
    for line in lines.iter().take(SHOWN_MAX) {
        page.line(label, line);
    }
    if lines.len() > SHOWN_MAX {
        let more = lines.len() - SHOWN_MAX;
        page.line(label, format_args!("and {more} more; --json shows all"));
    }
}

fn shown(emitted: &Emitted) -> String {
    let data = String::from_utf8_lossy(&emitted.data);
    let data = shortened(&data, DATA_CHARS_MAX);
    format!("{} {}: {data}", emitted.destination, emitted.key)
}

/// What the other version emits instead.
fn write_difference(page: &mut Page, again: &[Emitted], other: &[Emitted]) {
    let lines = |all: &[Emitted]| -> String {
        let lines = all.iter().map(|emitted| shown(emitted) + "\n");
        lines.collect()
    };
    let (again, other) = (lines(again), lines(other));
    let difference = TextDiff::from_lines(&again, &other);
    let mut changed = Vec::new();
    for change in difference.iter_all_changes() {
        let sign = match change.tag() {
            ChangeTag::Equal => continue,
            ChangeTag::Delete => '-',
            ChangeTag::Insert => '+',
        };
        changed.push(format!("{sign} {}", change.value().trim_end()));
    }
    write_some(page, "difference", &changed);
}
