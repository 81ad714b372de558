//! What `explain` shows people.

use std::collections::BTreeMap;
use std::time::Duration;

use indicatif::HumanBytes;
use shardmill_core::explain::{Cause, Explanation, LeaseStatus, Listed};
use shardmill_core::lease::{Checkpoint, Lease};
use shardmill_core::plugin::StateFill;
use shardmill_core::recording::RecordName;
use shardmill_core::rollout::untaken;
use shardmill_core::stream::{ReadFrom, Utc};

use super::report::relation;
use crate::operate::reading::Reading;
use crate::output::{Page, age, age_since, short_digest};

pub(super) fn as_text(explanation: &Explanation, application: &str, reading: &Reading) -> String {
    let mut page = Page::new(11);
    let (shard, listed) = (&explanation.shard, listed(explanation.listed));
    page.line(
        "shard",
        format_args!("{shard} of application {application}{listed}"),
    );
    write_causes(&mut page, explanation);
    if let Some(status) = &explanation.status {
        write_status(&mut page, status, reading);
        write_debugging(&mut page, &status.lease, application);
    }
    for version in untaken(&reading.fleet) {
        page.line(
            "not run",
            format_args!("{version}; {}", version.mend(application)),
        );
    }
    write_waits(&mut page, explanation);
    write_relatives(&mut page, explanation);
    write_reading(&mut page, reading);
    page.into_text()
}

fn listed(listed: Option<Listed>) -> &'static str {
    match listed {
        Some(Listed::Open) => ", open",
        Some(Listed::Closed) => ", closed (split or merged)",
        Some(Listed::No) => ", not in the stream's shard list",
        None => "",
    }
}

fn write_causes(page: &mut Page, explanation: &Explanation) {
    for cause in &explanation.causes {
        page.line("why", cause);
    }
    if explanation.causes.is_empty() {
        page.line("why", healthy(explanation.status.as_ref()));
    }
}

fn healthy(status: Option<&LeaseStatus>) -> String {
    let owner = status
        .and_then(|status| status.holder.as_ref())
        .map_or("its owner", |holder| holder.worker.as_str());
    match status.and_then(|status| status.has_advanced) {
        Some(true) => "it moves: its checkpoint rose while it was watched".to_owned(),
        Some(false) => format!(
            "the tables show nothing in its way; if records still wait, /status of {owner} shows \
                what its reader and its plugin do"
        ),
        None => {
            "one look shows nothing in its way; watch for longer to see whether it moves".to_owned()
        }
    }
}

/// What the row says.
fn write_status(page: &mut Page, status: &LeaseStatus, reading: &Reading) {
    let lease = &status.lease;
    page.line("owner", owner(status));
    page.line(
        "checkpoint",
        format_args!("{}{}", checkpoint(lease, reading), advance(status, reading)),
    );
    if !lease.is_finished() {
        write_pace(page, lease, reading.wall_ms);
    }
    if let Some(digest) = &lease.plugin_digest {
        page.line("plugin", short_digest(digest.as_str()));
    }
    if let Some(fill) = lease.state_fill {
        page.line("state", state(fill));
    }
    if let Some(given_up) = &lease.given_up {
        page.line("gave up", format_args!("last: {given_up}"));
    }
    if let Some(claim) = &status.claim {
        let waited = age(claim.waited);
        page.line("claimed by", format_args!("{claim}, seen for {waited}"));
    }
}

fn state(fill: StateFill) -> String {
    let advice = if fill.is_nearly_full() {
        ": a state over it stops the shard; raise limits.state, or have the plugin keep less"
    } else {
        ""
    };
    format!("{}% of its limit{advice}", fill.0)
}

/// How to see a failure again, if there was one: on the host that held the shard, since recordings
/// stay there.
fn write_debugging(page: &mut Page, lease: &Lease, application: &str) {
    let place = lease
        .given_up
        .as_ref()
        .and_then(|note| place_in(lease, note));
    let failing = || lease.stuck.as_ref().filter(|why| why.contains("failed: "));
    let command = match place {
        Some(place) => format!("shardmill debug {application} {place}"),
        None if failing().is_some() => format!("shardmill debug {application}"),
        None => return,
    };
    page.line("again", format_args!("{command}, on the host that held it"));
}

/// The record that the row's note of a record that was given up is about: `skip of 4959…, …`.
fn place_in(lease: &Lease, note: &str) -> Option<RecordName> {
    let (_, rest) = note.split_once(" of ")?;
    let (position, _) = rest.split_once(',')?;
    RecordName::parse(&format!("{}@{position}", lease.key.shard_id())).ok()
}

fn owner(status: &LeaseStatus) -> String {
    let Some(holder) = &status.holder else {
        return "none".to_owned();
    };
    let worker = &holder.worker;
    match status.held_for {
        Some(held_for) => format!("{worker} for {} ({holder})", age(held_for)),
        None => format!("{worker} ({holder})"),
    }
}

/// The checkpoint, and the time of a start, which is not in the row.
fn checkpoint(lease: &Lease, reading: &Reading) -> String {
    let start = reading.fleet.start.as_ref();
    let from = start.and_then(|start| lease.checkpoint.read_from(start));
    match (&lease.checkpoint, from) {
        (Checkpoint::Latest | Checkpoint::AtTimestamp, Some(ReadFrom::AtTimestamp(ms))) => {
            format!("{}, which is {}", lease.checkpoint, Utc(ms))
        }
        (at, _) => at.to_string(),
    }
}

/// Whether the checkpoint moved while it was watched.
fn advance(status: &LeaseStatus, reading: &Reading) -> String {
    if status.lease.is_finished() {
        return String::new();
    }
    let moved = match status.has_advanced {
        Some(true) => "rose",
        Some(false) => "did not move",
        None => return String::new(),
    };
    format!(
        ", {moved} in the {} it was watched",
        age(reading.watched_for)
    )
}

/// How fast the shard was processed when the row was last written.
fn write_pace(page: &mut Page, lease: &Lease, wall_ms: u64) {
    if let Some(ms) = lease.millis_behind_latest {
        let behind = age(Duration::from_millis(ms));
        page.line(
            "behind",
            format_args!("{behind}, when the row was last written"),
        );
    }
    if let Some(ms) = lease.settled_arrival_ms {
        let old = age_since(ms, wall_ms);
        page.line(
            "settled",
            format_args!("records up to one that arrived {old} ago"),
        );
    }
    if let Some(bytes) = lease.bytes_per_second {
        page.line("throughput", format_args!("{}/s", HumanBytes(bytes)));
    }
}

/// The ancestors that the shard waits for, and what the workers plan to do about it.
fn write_waits(page: &mut Page, explanation: &Explanation) {
    for ancestor in &explanation.lineage {
        let label = if ancestor.depth == 1 {
            "waits for"
        } else {
            "that for"
        };
        let shard = ancestor.status.lease.key.shard_id();
        page.line(
            label,
            format_args!("{shard}: {}", in_one_line(&ancestor.status)),
        );
    }
    for (intent, workers) in &opinions(explanation) {
        page.line("worker", format_args!("{} {intent}", workers.join(", ")));
    }
}

/// The workers grouped by what they plan to do, if that says more than the causes.
fn opinions(explanation: &Explanation) -> BTreeMap<String, Vec<&str>> {
    let mut workers: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for opinion in &explanation.opinions {
        if opinion.intent.adds_to(&explanation.causes) {
            let of_this_intent = workers.entry(opinion.intent.to_string()).or_default();
            of_this_intent.push(opinion.worker.as_str());
        }
    }
    workers
}

fn write_relatives(page: &mut Page, explanation: &Explanation) {
    for relative in &explanation.relatives {
        let status = relative.status.as_ref();
        let status = status.map_or_else(|| "no row".to_owned(), in_one_line);
        page.line(
            relation(relative.relation),
            format_args!("{}: {status}", relative.shard),
        );
    }
}

fn in_one_line(status: &LeaseStatus) -> String {
    let at = match &status.holder {
        Some(holder) if !status.lease.is_finished() => {
            format!("held by {}, at {}", holder.worker, status.lease.checkpoint)
        }
        _ => format!("at {}", status.lease.checkpoint),
    };
    match status.causes.first() {
        Some(Cause::Finished) | None => at,
        Some(cause) => format!("{at}; {cause}"),
    }
}

fn write_reading(page: &mut Page, reading: &Reading) {
    if let Some(start) = &reading.fleet.start {
        page.line("starts", format_args!("the application starts at {start}"));
    }
    for note in &reading.notes {
        page.line("note", note);
    }
    if reading.watched_for.is_zero() {
        page.line("watched", "one look only: it cannot show what moves");
    }
}
