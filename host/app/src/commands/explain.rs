//! `shardmill explain`: why a shard moves, or does not.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::{Context, bail};
use indicatif::HumanBytes;
use serde_json::{Value, json};
use shardmill_core::explain::{Cause, Evidence, Explanation, Listed, Place, Relation, explain, shard_named};
use shardmill_core::lease::{Checkpoint, Lease, Standing, WorkerId};
use shardmill_core::stream::{ReadFrom, ShardId, Utc};

use super::reading::{NOBODY, Reading, age};
use super::{print, print_json};
use crate::cli::ExplainArgs;

pub(super) async fn execute(args: &ExplainArgs) -> anyhow::Result<()> {
    let shard = shard_named(&args.shard)?;
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
    if args.reading.json {
        return print_json(&as_json(&explanation, &args.application, &reading));
    }
    print(as_text(&explanation, &args.application, &reading).trim_end());
    Ok(())
}

/// Where it was looked for, and what there is instead.
fn unknown(shard: &ShardId, application: &str, reading: &Reading) -> String {
    let rows = reading.listing.leases.len();
    let mut text = format!("no shard {shard}: the lease table {application} has {rows} rows and none is for it");
    match (reading.shards(), &reading.stream) {
        (Some(list), Some(stream)) => {
            let mut ids: Vec<_> = list.shards.iter().map(|shard| &shard.id).collect();
            ids.sort();
            let _ = write!(text, ", and stream {stream} has {} shards and it is none of them", ids.len());
            if let (Some(first), Some(last)) = (ids.first(), ids.last()) {
                let _ = write!(text, " ({first} to {last})");
            }
        }
        _ => text.push_str("; the stream was not looked at: name it with --stream"),
    }
    for note in &reading.notes {
        let _ = write!(text, "; {note}");
    }
    text
}

fn as_text(told: &Explanation, application: &str, reading: &Reading) -> String {
    let mut text = String::new();
    let mut line = |label: &str, value: &str| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{label:11} {value}");
    };
    line("shard", &format!("{} of application {application}{}", told.shard, listed(told.listed)));
    for cause in &told.causes {
        line("why", &cause.to_string());
    }
    if told.causes.is_empty() {
        line("why", &healthy(told.place.as_ref()));
    }
    if let Some(place) = &told.place {
        for (label, value) in &facts(place, reading) {
            line(label, value);
        }
    }
    for up in &told.lineage {
        let label = if up.depth == 1 { "waits for" } else { "that for" };
        line(label, &format!("{}: {}", up.place.lease.key.shard_id(), in_short(&up.place)));
    }
    let mut opinions: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for opinion in told.opinions.iter().filter(|opinion| opinion.intent.is_telling()) {
        opinions.entry(opinion.intent.to_string()).or_default().push(opinion.worker.as_str());
    }
    for (intent, workers) in &opinions {
        line("worker", &format!("{} {intent}", workers.join(", ")));
    }
    for relative in &told.relatives {
        let where_it_is = relative.place.as_ref().map_or_else(|| "no row".to_owned(), in_short);
        line(relation(relative.relation), &format!("{}: {where_it_is}", relative.shard));
    }
    if let Some(start) = &reading.fleet.start {
        line("starts", &format!("the application starts at {start}"));
    }
    for note in &reading.notes {
        line("note", note);
    }
    if reading.watched_for.is_zero() {
        line("watched", "one look only: nothing is told of what moves");
    }
    text
}

fn listed(listed: Option<Listed>) -> &'static str {
    match listed {
        Some(Listed::Open) => ", open",
        Some(Listed::Closed) => ", closed (split or merged)",
        Some(Listed::No) => ", not in the stream's shard list",
        None => "",
    }
}

fn healthy(place: Option<&Place>) -> String {
    let owner = place.and_then(|place| place.holder.as_ref()).map_or("its owner", |holder| holder.worker.as_str());
    match place.and_then(|place| place.has_advanced) {
        Some(true) => "it moves: its checkpoint rose while it was watched".to_owned(),
        Some(false) => format!(
            "nothing is in its way as far as the tables tell; if records wait all the same, /status of {owner} tells \
             what its reader and its plugin do"
        ),
        None => "nothing is in its way as far as one look tells; watch for longer to see whether it moves".to_owned(),
    }
}

/// What the row says, label by label.
fn facts(place: &Place, reading: &Reading) -> Vec<(&'static str, String)> {
    let lease = &place.lease;
    let owner = match &place.holder {
        None => "nobody".to_owned(),
        Some(holder) => {
            let since = place.held_for.map(|since| format!(" for {}", age(since))).unwrap_or_default();
            format!("{}{since} ({holder})", holder.worker)
        }
    };
    let moved = match place.has_advanced {
        _ if lease.is_finished() => String::new(),
        Some(true) => format!(", rose in the {} that it was watched", age(reading.watched_for)),
        Some(false) => format!(", stood in the {} that it was watched", age(reading.watched_for)),
        None => String::new(),
    };
    let mut facts = vec![("owner", owner), ("checkpoint", format!("{}{moved}", checkpoint(lease, reading)))];
    if let Some(ms) = lease.millis_behind_latest.filter(|_| !lease.is_finished()) {
        let behind = age(std::time::Duration::from_millis(ms));
        facts.push(("behind", format!("{behind}, when the row was last written")));
    }
    if let Some(ms) = lease.settled_arrival_ms.filter(|_| !lease.is_finished()) {
        let old = age(std::time::Duration::from_millis(reading.wall_ms.saturating_sub(ms)));
        facts.push(("settled", format!("records up to one that arrived {old} ago")));
    }
    if let Some(bytes) = lease.bytes_per_second.filter(|_| !lease.is_finished()) {
        facts.push(("throughput", format!("{}/s", HumanBytes(bytes))));
    }
    if let Some(digest) = &lease.plugin_digest {
        facts.push(("plugin", digest.as_str().get(..12).unwrap_or(digest.as_str()).to_owned()));
    }
    if let Some(given_up) = &lease.given_up {
        facts.push(("gave up", format!("last: {given_up}")));
    }
    if let Some(claim) = &place.claim {
        facts.push(("claimed by", format!("{claim}, seen for {}", age(claim.waited))));
    }
    facts
}

/// With the time that a start stands for, which is not in the row.
fn checkpoint(lease: &Lease, reading: &Reading) -> String {
    let from = reading.fleet.start.as_ref().and_then(|start| lease.checkpoint.read_from(start));
    match (&lease.checkpoint, from) {
        (Checkpoint::Latest | Checkpoint::AtTimestamp, Some(ReadFrom::AtTimestamp(ms))) => {
            format!("{}, which is {}", lease.checkpoint, Utc(ms))
        }
        (at, _) => at.to_string(),
    }
}

/// A place in one line.
fn in_short(place: &Place) -> String {
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

fn relation(relation: Relation) -> &'static str {
    match relation {
        Relation::Parent => "parent",
        Relation::Child => "child",
        Relation::SameHashKeys => "beside",
    }
}

fn as_json(told: &Explanation, application: &str, reading: &Reading) -> Value {
    let listed = told.listed.map(|listed| match listed {
        Listed::Open => "open",
        Listed::Closed => "closed",
        Listed::No => "not-listed",
    });
    let worker = |opinion: &shardmill_core::explain::Opinion| json!({ "worker": opinion.worker.as_str(), "intent": opinion.intent.to_string() });
    let ancestor = |up: &shardmill_core::explain::Ancestor| json!({ "shard": up.place.lease.key.shard_id().as_str(), "depth": up.depth, "place": place_json(&up.place) });
    let relative = |relative: &shardmill_core::explain::Relative| {
        json!({
            "relation": relation(relative.relation),
            "shard": relative.shard.as_str(),
            "place": relative.place.as_ref().map(place_json),
        })
    };
    json!({
        "application": application,
        "shard": told.shard.as_str(),
        "listed": listed,
        "why": causes_json(&told.causes),
        "place": told.place.as_ref().map(place_json),
        "waits-for": told.lineage.iter().map(ancestor).collect::<Vec<_>>(),
        "workers": told.opinions.iter().map(worker).collect::<Vec<_>>(),
        "relatives": told.relatives.iter().map(relative).collect::<Vec<_>>(),
        "starts-at": reading.fleet.start.as_ref().map(ToString::to_string),
        "notes": reading.notes,
        "watched-for-ms": u64::try_from(reading.watched_for.as_millis()).unwrap_or(u64::MAX),
    })
}

fn causes_json(causes: &[Cause]) -> Value {
    causes.iter().map(|cause| json!({ "kind": cause.word(), "text": cause.to_string() })).collect()
}

fn place_json(place: &Place) -> Value {
    let lease = &place.lease;
    json!({
        "standing": match place.standing {
            Standing::Free => "free",
            Standing::Held => "held",
            Standing::Expired => "expired",
        },
        "owner": place.holder.as_ref().map(|holder| json!({
            "worker": holder.worker.as_str(),
            "run": holder.run.as_ref().map(ToString::to_string),
            "state": holder.to_string(),
            "silent-ms": u64::try_from(holder.silent.as_millis()).unwrap_or(u64::MAX),
        })),
        "held-for-ms": place.held_for.map(|held| u64::try_from(held.as_millis()).unwrap_or(u64::MAX)),
        "checkpoint": lease.checkpoint.to_string(),
        "has-advanced": place.has_advanced,
        "millis-behind-latest": lease.millis_behind_latest,
        "settled-arrival-ms": lease.settled_arrival_ms,
        "bytes-per-second": lease.bytes_per_second,
        "last-given-up": lease.given_up,
        "plugin-digest": lease.plugin_digest.as_ref().map(shardmill_core::plugin::PluginDigest::as_str),
        "claimed-by": place.claim.as_ref().map(|claim| json!({
            "worker": claim.by.as_str(), "is-fresh": claim.is_fresh,
        })),
        "why": causes_json(&place.causes),
    })
}
