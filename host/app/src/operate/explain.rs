//! `shardmill explain`: why a shard moves, or does not.

mod report;
mod text;

use std::fmt::Write;

use anyhow::bail;
use shardmill_core::explain::{Evidence, Explanation, explain, shard_named};
use shardmill_core::plan::ShardList;
use shardmill_core::stream::{ShardId, StreamName};

use self::report::Report;
use self::text::as_text;
use super::reading::{Reading, nobody};
use crate::cli::ExplainArgs;
use crate::output::{print, print_json};

pub(crate) async fn execute(args: &ExplainArgs) -> anyhow::Result<()> {
    let (application, shard) = (args.application.as_str(), args.shard.as_str());
    if looks_like_a_shard(application) && !looks_like_a_shard(shard) {
        bail!("the application comes first: shardmill explain {shard} {application}");
    }
    let shard = shard_named(shard)?;
    let reading = Reading::take(application, &args.reading).await?;
    let Some(explanation) = explanation(&shard, &reading)? else {
        bail!("{}", unknown(&shard, application, &reading));
    };
    if args.reading.output.json {
        return print_json(&Report::of(&explanation, application, &reading));
    }
    print(as_text(&explanation, application, &reading).trim_end());
    Ok(())
}

fn explanation(shard: &ShardId, reading: &Reading) -> anyhow::Result<Option<Explanation>> {
    let evidence = Evidence {
        asker: &nobody()?,
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
    Ok(explain(shard, &evidence))
}

fn looks_like_a_shard(text: &str) -> bool {
    text.starts_with("shardId-") || text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Where the shard was looked for, and what there is instead.
fn unknown(shard: &ShardId, application: &str, reading: &Reading) -> String {
    let rows = reading.listing.leases.len();
    let mut text =
        format!("no shard {shard}: none of the {rows} rows of lease table {application} is for it");
    match (reading.shards(), &reading.stream) {
        (Some(list), Some(stream)) => text += &not_among(&list, stream),
        _ => text.push_str("; the stream was not read: name it with --stream"),
    }
    for note in &reading.notes {
        let _ = write!(text, "; {note}");
    }
    text
}

fn not_among(list: &ShardList<'_>, stream: &StreamName) -> String {
    let count = list.shards.len();
    let ids = || list.shards.iter().map(|shard| &shard.id);
    let range = match (ids().min(), ids().max()) {
        (Some(first), Some(last)) => format!(" ({first} to {last})"),
        _ => String::new(),
    };
    format!(", and it is none of the {count} shards of stream {stream}{range}")
}
