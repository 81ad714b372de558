//! `shardmill state`: what a plugin has saved for each shard.

mod export;
mod lease_table;

use anyhow::bail;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use comfy_table::Table;
use serde::Serialize;
use shardmill_aws::LeaseTable;
use shardmill_core::explain::shard_named;
use shardmill_core::lease::Lease;
use shardmill_core::ports::{LeaseStore, SavedState, StoreError};
use shardmill_core::stream::LeaseKey;

use self::lease_table::open;
use super::control;
use crate::cli::{StateArgs, StateCommand};
use crate::output::{print, print_bytes, print_json, short_digest, table};

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Row {
    shard: String,
    /// Of the lease. The state's is the same, unless something else moved the lease's.
    checkpoint: String,
    state_checkpoint: Option<String>,
    bytes: Option<usize>,
    /// Of the limit, in percent, when it was saved last.
    percent: Option<u8>,
    plugin_digest: Option<String>,
    state: Option<String>,
}

pub(crate) async fn execute(args: &StateArgs) -> anyhow::Result<()> {
    match &args.command {
        Some(StateCommand::Export(args)) => export::execute(args).await,
        Some(StateCommand::Import(args)) => control::import_states(args).await,
        Some(StateCommand::Reset(args)) => control::reset_states(args).await,
        None => show(args, args.application.as_deref().unwrap_or_default()).await,
    }
}

async fn show(args: &StateArgs, application: &str) -> anyhow::Result<()> {
    let table = open(application, &args.connection).await?;
    if let Some(shard) = &args.shard {
        return print_state(&table, application, shard).await;
    }
    let rows = read_all(&table, args.output.json).await?;
    if args.output.json {
        return print_json(&rows);
    }
    print(&as_table(&rows).to_string());
    Ok(())
}

/// Prints the state of one shard as it was saved.
async fn print_state(table: &LeaseTable, application: &str, shard: &str) -> anyhow::Result<()> {
    // A key of a table for many streams is no name of a shard.
    let key = match shard_named(shard) {
        Ok(shard) => LeaseKey::of_shard(&shard),
        Err(_) => LeaseKey::new(shard)?,
    };
    let Some(saved) = table.state(&key).await? else {
        bail!("{application} has no state of shard {shard}; `shardmill leases` lists its shards");
    };
    print_bytes(&saved.bytes);
    Ok(())
}

async fn read_all(table: &LeaseTable, with_bytes: bool) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for lease in table.list_consistently().await?.leases {
        let saved = match table.state(&lease.key).await {
            Err(error @ StoreError::Refused { .. }) => {
                bail!("cannot read the state; does the plugin keep any? {error}")
            }
            saved => saved?,
        };
        rows.push(Row::of(&lease, saved.as_ref(), with_bytes));
    }
    rows.sort_by(|a, b| a.shard.cmp(&b.shard));
    Ok(rows)
}

impl Row {
    fn of(lease: &Lease, saved: Option<&SavedState>, with_bytes: bool) -> Self {
        let digest = saved.and_then(|saved| saved.plugin_digest.as_ref());
        let state = if with_bytes { saved } else { None };
        Self {
            shard: lease.key.to_string(),
            checkpoint: lease.checkpoint.to_string(),
            state_checkpoint: saved.map(|saved| saved.checkpoint.to_string()),
            bytes: saved.map(|saved| saved.bytes.len()),
            percent: saved.and(lease.state_fill).map(|fill| fill.0),
            plugin_digest: digest.map(|digest| digest.as_str().to_owned()),
            state: state.map(|saved| BASE64_STANDARD.encode(&saved.bytes)),
        }
    }
}

fn as_table(rows: &[Row]) -> Table {
    let mut table = table(["shard", "checkpoint", "state", "saved by"]);
    for row in rows {
        let state = match (row.bytes, &row.state_checkpoint) {
            (Some(bytes), Some(at)) if *at == row.checkpoint => match row.percent {
                Some(percent) => format!("{bytes} bytes, {percent}% of the limit"),
                None => format!("{bytes} bytes"),
            },
            (Some(bytes), Some(at)) => format!("{bytes} bytes, of checkpoint {at}!"),
            _ => "-".to_owned(),
        };
        let digest = row.plugin_digest.as_deref().map_or("-", short_digest);
        table.add_row([row.shard.as_str(), &row.checkpoint, &state, digest]);
    }
    table
}
