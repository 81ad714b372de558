//! How far each shard is, for people; programs have all of it in the JSON.

use std::fmt::Write;

use shardmill_core::doctor::{LeaseTableFacts, PredecessorFacts};
use shardmill_core::migration::Found;

/// Shards shown of a place: a page of them helps nobody, and `--json` has all.
const SHOWN_MAX: usize = 20;

/// The places of another library: its workers and shards.
pub(super) fn write_places(text: &mut String, facts: &PredecessorFacts) {
    for (place, workers) in facts.places.iter().zip(&facts.workers) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "place     {}", name_of(place));
        for life in workers {
            let _ = writeln!(
                text,
                "worker    {}: {} shards, {}",
                life.worker, life.shards, life.pulse
            );
        }
        let shards = place.shards.iter().map(|found| {
            let checkpoint = found.checkpoint.as_ref();
            let checkpoint =
                checkpoint.map_or_else(|| "no checkpoint".to_owned(), ToString::to_string);
            format!("{} at {checkpoint}", found.shard)
        });
        write_shards(text, shards);
    }
}

/// The leases of a lease table.
pub(super) fn write_leases(text: &mut String, table: &LeaseTableFacts) {
    let leases = table.leases.iter().map(|facts| &facts.lease);
    write_shards(
        text,
        leases.map(|lease| format!("{} at {}", lease.key, lease.checkpoint)),
    );
}

/// A place as a person names it.
pub(super) fn name_of(place: &Found) -> String {
    let stream = place
        .stream
        .as_deref()
        .unwrap_or("a stream that the table does not name");
    match &place.group {
        Some(group) => format!("group {group}, {stream}"),
        None => stream.to_owned(),
    }
}

fn write_shards(text: &mut String, shards: impl Iterator<Item = String>) {
    let mut shards: Vec<String> = shards.collect();
    shards.sort();
    for shard in shards.iter().take(SHOWN_MAX) {
        let _ = writeln!(text, "shard     {shard}");
    }
    let more = shards.len().saturating_sub(SHOWN_MAX);
    if more > 0 {
        let _ = writeln!(text, "          and {more} more; --json has all");
    }
}
