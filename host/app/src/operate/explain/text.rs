//! What `explain` shows people.

use std::collections::BTreeMap;
use std::time::Duration;

use indicatif::HumanBytes;
use shardmill_core::explain::{Cause, Explanation, LeaseStatus, Listed};
use shardmill_core::lease::{Checkpoint, Lease};
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
    if let Some(place) = &explanation.status {
        write_place(&mut page, place, reading);
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

fn healthy(place: Option<&LeaseStatus>) -> String {
    let owner = place
        .and_then(|place| place.holder.as_ref())
        .map_or("its owner", |holder| holder.worker.as_str());
    match place.and_then(|place| place.has_advanced) {
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
fn write_place(page: &mut Page, place: &LeaseStatus, reading: &Reading) {
    let lease = &place.lease;
    page.line("owner", owner(place));
    page.line(
        "checkpoint",
        format_args!("{}{}", checkpoint(lease, reading), advance(place, reading)),
    );
    if !lease.is_finished() {
        write_pace(page, lease, reading.wall_ms);
    }
    if let Some(digest) = &lease.plugin_digest {
        page.line("plugin", short_digest(digest.as_str()));
    }
    if let Some(given_up) = &lease.given_up {
        page.line("gave up", format_args!("last: {given_up}"));
    }
    if let Some(claim) = &place.claim {
        let waited = age(claim.waited);
        page.line("claimed by", format_args!("{claim}, seen for {waited}"));
    }
}

fn owner(place: &LeaseStatus) -> String {
    let Some(holder) = &place.holder else {
        return "none".to_owned();
    };
    let worker = &holder.worker;
    match place.held_for {
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
fn advance(place: &LeaseStatus, reading: &Reading) -> String {
    if place.lease.is_finished() {
        return String::new();
    }
    let moved = match place.has_advanced {
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
        let place = relative.status.as_ref();
        let place = place.map_or_else(|| "no row".to_owned(), in_one_line);
        page.line(
            relation(relative.relation),
            format_args!("{}: {place}", relative.shard),
        );
    }
}

fn in_one_line(place: &LeaseStatus) -> String {
    let at = match &place.holder {
        Some(holder) if !place.lease.is_finished() => {
            format!("held by {}, at {}", holder.worker, place.lease.checkpoint)
        }
        _ => format!("at {}", place.lease.checkpoint),
    };
    match place.causes.first() {
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
