//! How far each shard is, for people; `--json` has every shard.

use shardmill_core::doctor::{LeaseTableFacts, PredecessorFacts};
use shardmill_core::migration::{Found, FoundShard};

use crate::output::Page;

/// Shards shown of a place; `--json` has all.
const SHOWN_MAX: usize = 20;

/// The places of another library, with its workers and shards.
pub(super) fn write_found(page: &mut Page, facts: &PredecessorFacts) {
    for (place, workers) in facts.places.iter().zip(&facts.workers) {
        page.line("place", name_of(place));
        for life in workers {
            let (worker, shards, pulse) = (&life.worker, life.shards, life.pulse);
            page.line("worker", format_args!("{worker}: {shards} shards, {pulse}"));
        }
        write_shards(page, place.shards.iter().map(progress_of).collect());
    }
}

/// The leases of a lease table.
pub(super) fn write_leases(page: &mut Page, table: &LeaseTableFacts) {
    let leases = table.leases.iter().map(|facts| &facts.lease);
    let shards = leases.map(|lease| format!("{} at {}", lease.key, lease.checkpoint));
    write_shards(page, shards.collect());
}

fn name_of(place: &Found) -> String {
    let stream = place.stream.as_deref();
    let stream = stream.unwrap_or("a stream that the table does not name");
    match &place.group {
        Some(group) => format!("group {group}, {stream}"),
        None => stream.to_owned(),
    }
}

fn progress_of(found: &FoundShard) -> String {
    match &found.checkpoint {
        Some(checkpoint) => format!("{} at {checkpoint}", found.shard),
        None => format!("{} at no checkpoint", found.shard),
    }
}

fn write_shards(page: &mut Page, mut shards: Vec<String>) {
    shards.sort();
    for shard in shards.iter().take(SHOWN_MAX) {
        page.line("shard", shard);
    }
    let more = shards.len().saturating_sub(SHOWN_MAX);
    if more > 0 {
        page.line("", format_args!("and {more} more; --json has all"));
    }
}
