//! Judges the data that another library keeps under the application's name.

use super::finding::{Findings, some_of};
use super::{PredecessorFacts, Severity, Topic};
use crate::lease::Checkpoint;
use crate::migration::{Found, WorkerLife};

/// Reports which library wrote the data, which of its workers are alive, and what cannot be read.
/// Never advises to delete anything: it is the only record of the progress made.
pub(super) fn judge(facts: &PredecessorFacts, application: &str, findings: &mut Findings) {
    let library = facts.library;
    findings.add(
        Severity::Warning,
        Topic::OtherLibrary,
        format!(
            "{library} ({}) keeps its place under this name: {}. No host reads it, and a host of \
                this name would start at initial-position",
            library.versions(),
            shards_of(&facts.places)
        ),
        &format!(
            "keep it, and continue from it: `shardmill import {application}`, which writes \
                nothing until it is told to"
        ),
    );
    let alive = facts
        .workers
        .iter()
        .flatten()
        .filter(|worker| worker.pulse.may_live());
    let alive: Vec<&str> = alive
        .map(|life: &WorkerLife| life.worker.as_str())
        .collect();
    if !alive.is_empty() {
        findings.add(
            Severity::Note,
            Topic::OtherWorkers,
            format!("{} of {library} may be alive", some_of("worker", alive)),
            "stop them when you move; an import waits for that with --watch",
        );
    }
    let bad = facts.places.iter().flat_map(|place| &place.bad_rows);
    let bad: Vec<String> = bad
        .map(|row| format!("{}: {}", row.key, row.problem))
        .collect();
    if !bad.is_empty() {
        findings.add(
            Severity::Warning,
            Topic::BadRows,
            format!("{} of {library} cannot be read", some_of("row", bad)),
            "correct the attribute: nothing is imported before that",
        );
    }
}

fn shards_of(places: &[Found]) -> String {
    let all = || places.iter().flat_map(|place| &place.shards);
    let finished = all()
        .filter(|found| found.checkpoint == Some(Checkpoint::ShardEnd))
        .count();
    let unread = all().filter(|found| found.checkpoint.is_none()).count();
    format!(
        "{} shards, {finished} finished, {unread} without a checkpoint",
        all().count()
    )
}
