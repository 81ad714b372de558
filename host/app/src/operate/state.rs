//! `shardmill state`: what a plugin has saved of each shard.

use anyhow::bail;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Table};
use serde::Serialize;
use shardmill_aws::LeaseTable;
use shardmill_core::lease::Lease;
use shardmill_core::ports::{LeaseStore, SavedState, StoreError};
use shardmill_core::stream::LeaseKey;

use crate::cli::StateArgs;
use crate::output::{print, print_bytes, print_json};

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Row {
    shard: String,
    /// Of the lease; that of the state is the same, unless something else moved it.
    checkpoint: String,
    state_checkpoint: Option<String>,
    bytes: Option<usize>,
    plugin_digest: Option<String>,
    state: Option<String>,
}

pub(crate) async fn execute(args: &StateArgs) -> anyhow::Result<()> {
    let clients = crate::aws::connect_to(&args.place).await?;
    let table = LeaseTable::new(clients.dynamodb.clone(), args.application.as_str());
    if !table.exists().await? {
        let application = &args.application;
        bail!(
            "there is no lease table {application}: no host has served this application here; \
                `shardmill plugins` lists those that have been served"
        );
    }
    if let Some(shard) = &args.shard {
        return match table.state(&LeaseKey::new(shard)?).await? {
            Some(saved) => {
                print_bytes(&saved.bytes);
                Ok(())
            }
            None => bail!(
                "{} has no state of shard {shard}; `shardmill leases` lists its shards",
                args.application
            ),
        };
    }
    let mut rows = Vec::new();
    for lease in table.list_consistently().await?.leases {
        let saved = match table.state(&lease.key).await {
            Ok(saved) => saved,
            Err(error @ StoreError::Refused { .. }) => {
                bail!("cannot read the state; does the plugin keep any? {error}")
            }
            Err(error) => return Err(error.into()),
        };
        rows.push(row(&lease, saved, args.output.json));
    }
    rows.sort_by(|a, b| a.shard.cmp(&b.shard));
    if args.output.json {
        return print_json(&rows);
    }
    print(&shown(&rows).to_string());
    Ok(())
}

fn row(lease: &Lease, saved: Option<SavedState>, is_whole: bool) -> Row {
    Row {
        shard: lease.key.to_string(),
        checkpoint: lease.checkpoint.to_string(),
        state_checkpoint: saved.as_ref().map(|saved| saved.checkpoint.to_string()),
        bytes: saved.as_ref().map(|saved| saved.bytes.len()),
        plugin_digest: saved
            .as_ref()
            .and_then(|saved| saved.plugin_digest.as_ref())
            .map(|digest| digest.as_str().to_owned()),
        state: saved
            .filter(|_| is_whole)
            .map(|saved| BASE64_STANDARD.encode(&saved.bytes)),
    }
}

fn shown(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table
        .load_preset(NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(["shard", "checkpoint", "state", "saved by"]);
    for row in rows {
        let state = match (row.bytes, &row.state_checkpoint) {
            (Some(bytes), Some(at)) if *at == row.checkpoint => format!("{bytes} bytes"),
            (Some(bytes), Some(at)) => format!("{bytes} bytes, of checkpoint {at}!"),
            _ => "-".to_owned(),
        };
        let digest = row
            .plugin_digest
            .as_deref()
            .map_or("-", |digest| digest.get(..12).unwrap_or(digest));
        table.add_row([row.shard.as_str(), &row.checkpoint, &state, digest]);
    }
    table
}
