//! `shardmill explain`: why a shard moves, or does not.

mod report;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use anyhow::{Context, bail};
use indicatif::HumanBytes;
use shardmill_core::explain::{
    Cause, Evidence, Explanation, LeaseStatus, Listed, explain, shard_named,
};
use shardmill_core::lease::{Checkpoint, Lease, WorkerId};
use shardmill_core::rollout::untaken;
use shardmill_core::stream::{ReadFrom, ShardId, Utc};

use self::report::{Report, relation};
use super::reading::{NOBODY, Reading, age};
use crate::cli::ExplainArgs;
use crate::output::{print, print_json};

pub(crate) async fn execute(args: &ExplainArgs) -> anyhow::Result<()> {
    let (application, shard) = (args.application.as_str(), args.shard.as_str());
    if looks_like_a_shard(application) && !looks_like_a_shard(shard) {
        bail!("the application comes first: shardmill explain {shard} {application}");
    }
    let shard = shard_named(shard)?;
    let reading = Reading::take(&args.application, &args.reading).await?;
    let nobody = WorkerId::new(NOBODY).context("an id")?;
    let evidence = Evidence {
        asker: &nobody,
        observer: &reading.observer,
        now: reading.now,
        wall_ms: reading.wall_ms,
        watched_for: reading.watched_for,
        earlier: &reading.earlier,
        leases: &reading.listing.leases,
        bad_rows: &reading.listing.bad_rows,
        leader: reading.fleet.leader.as_ref(),
        shards: reading.shards(),
        is_bootstrapped: reading.is_bootstrapped(),
        limits: reading.limits,
        lease_duration: reading.lease_duration,
    };
    let Some(explanation) = explain(&shard, &evidence) else {
        bail!("{}", unknown(&shard, &args.application, &reading));
    };
    if args.reading.output.json {
        return print_json(&Report::of(&explanation, &args.application, &reading));
    }
    print(as_text(&explanation, &args.application, &reading).trim_end());
    Ok(())
}

fn looks_like_a_shard(text: &str) -> bool {
    text.starts_with("shardId-") || text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Where it was looked for, and what there is instead.
fn unknown(shard: &ShardId, application: &str, reading: &Reading) -> String {
    let rows = reading.listing.leases.len();
    let mut text =
        format!("no shard {shard}: none of the {rows} rows of lease table {application} is for it");
    match (reading.shards(), &reading.stream) {
        (Some(list), Some(stream)) => {
            let mut ids: Vec<_> = list.shards.iter().map(|shard| &shard.id).collect();
            ids.sort();
            let _ = write!(
                text,
                ", and it is none of the {} shards of stream {stream}",
                ids.len()
            );
            if let (Some(first), Some(last)) = (ids.first(), ids.last()) {
                let _ = write!(text, " ({first} to {last})");
            }
        }
        _ => text.push_str("; the stream was not read: name it with --stream"),
    }
    for note in &reading.notes {
        let _ = write!(text, "; {note}");
    }
    text
}

fn as_text(told: &Explanation, application: &str, reading: &Reading) -> String {
    let mut lines = Lines::default();
    let (shard, listed) = (&told.shard, listed(told.listed));
    lines.add(
        "shard",
        &format!("{shard} of application {application}{listed}"),
    );
    for cause in &told.causes {
        lines.add("why", &cause.to_string());
    }
    if told.causes.is_empty() {
        lines.add("why", &healthy(told.status.as_ref()));
    }
    if let Some(place) = &told.status {
        for (label, value) in facts(place, reading) {
            lines.add(label, &value);
        }
    }
    for version in untaken(&reading.fleet) {
        lines.add(
            "not run",
            &format!("{version}; {}", version.mend(application)),
        );
    }
    for up in &told.lineage {
        let label = if up.depth == 1 {
            "waits for"
        } else {
            "that for"
        };
        let shard = up.status.lease.key.shard_id();
        lines.add(label, &format!("{shard}: {}", in_short(&up.status)));
    }
    for (intent, workers) in &opinions(told) {
        lines.add("worker", &format!("{} {intent}", workers.join(", ")));
    }
    for relative in &told.relatives {
        let place = relative.status.as_ref();
        let where_it_is = place.map_or_else(|| "no row".to_owned(), in_short);
        let text = format!("{}: {where_it_is}", relative.shard);
        lines.add(relation(relative.relation), &text);
    }
    if let Some(start) = &reading.fleet.start {
        lines.add("starts", &format!("the application starts at {start}"));
    }
    for note in &reading.notes {
        lines.add("note", note);
    }
    if reading.watched_for.is_zero() {
        lines.add("watched", "one look only: it cannot show what moves");
    }
    lines.text
}

/// What each worker means to do about the shard, where that tells something: workers by intent.
fn opinions(told: &Explanation) -> BTreeMap<String, Vec<&str>> {
    let mut workers: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for opinion in &told.opinions {
        if opinion.intent.adds_to(&told.causes) {
            let of_this_intent = workers.entry(opinion.intent.to_string()).or_default();
            of_this_intent.push(opinion.worker.as_str());
        }
    }
    workers
}

/// Labelled lines, one below the other.
#[derive(Default)]
struct Lines {
    text: String,
}

impl Lines {
    fn add(&mut self, label: &str, value: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{label:11} {value}");
    }
}

fn listed(listed: Option<Listed>) -> &'static str {
    match listed {
        Some(Listed::Open) => ", open",
        Some(Listed::Closed) => ", closed (split or merged)",
        Some(Listed::No) => ", not in the stream's shard list",
        None => "",
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

/// What the row says, label by label.
fn facts(place: &LeaseStatus, reading: &Reading) -> Vec<(&'static str, String)> {
    let lease = &place.lease;
    let owner = match &place.holder {
        None => "none".to_owned(),
        Some(holder) => {
            let since = place
                .held_for
                .map(|since| format!(" for {}", age(since)))
                .unwrap_or_default();
            format!("{}{since} ({holder})", holder.worker)
        }
    };
    let moved = match place.has_advanced {
        _ if lease.is_finished() => String::new(),
        Some(true) => format!(", rose in the {} it was watched", age(reading.watched_for)),
        Some(false) => format!(
            ", did not move in the {} it was watched",
            age(reading.watched_for)
        ),
        None => String::new(),
    };
    let mut facts = vec![
        ("owner", owner),
        (
            "checkpoint",
            format!("{}{moved}", checkpoint(lease, reading)),
        ),
    ];
    if let Some(ms) = lease.millis_behind_latest.filter(|_| !lease.is_finished()) {
        let behind = age(Duration::from_millis(ms));
        facts.push(("behind", format!("{behind}, when the row was last written")));
    }
    if let Some(ms) = lease.settled_arrival_ms.filter(|_| !lease.is_finished()) {
        let old = age(Duration::from_millis(reading.wall_ms.saturating_sub(ms)));
        facts.push((
            "settled",
            format!("records up to one that arrived {old} ago"),
        ));
    }
    if let Some(bytes) = lease.bytes_per_second.filter(|_| !lease.is_finished()) {
        facts.push(("throughput", format!("{}/s", HumanBytes(bytes))));
    }
    if let Some(digest) = &lease.plugin_digest {
        facts.push((
            "plugin",
            digest
                .as_str()
                .get(..12)
                .unwrap_or(digest.as_str())
                .to_owned(),
        ));
    }
    if let Some(given_up) = &lease.given_up {
        facts.push(("gave up", format!("last: {given_up}")));
    }
    if let Some(claim) = &place.claim {
        facts.push((
            "claimed by",
            format!("{claim}, seen for {}", age(claim.waited)),
        ));
    }
    facts
}

/// With the time that a start stands for, which is not in the row.
fn checkpoint(lease: &Lease, reading: &Reading) -> String {
    let from = reading
        .fleet
        .start
        .as_ref()
        .and_then(|start| lease.checkpoint.read_from(start));
    match (&lease.checkpoint, from) {
        (Checkpoint::Latest | Checkpoint::AtTimestamp, Some(ReadFrom::AtTimestamp(ms))) => {
            format!("{}, which is {}", lease.checkpoint, Utc(ms))
        }
        (at, _) => at.to_string(),
    }
}

/// A place in one line.
fn in_short(place: &LeaseStatus) -> String {
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
