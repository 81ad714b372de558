//! `shardmill leases`.

use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Table};
use serde::Serialize;
use shardmill_aws::LeaseTable;
use shardmill_core::lease::{Checkpoint, Lease};
use shardmill_core::ports::{LeaseListing, LeaseStore};

use super::{print, print_json};
use crate::cli::LeasesArgs;
use crate::config::AwsConfig;
use crate::shutdown::Signals;

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Row {
    shard: String,
    owner: Option<String>,
    counter: u64,
    checkpoint: String,
    millis_behind_latest: Option<u64>,
    plugin_digest: Option<String>,
    parents: Vec<String>,
    children: Vec<String>,
}

pub(super) async fn execute(args: &LeasesArgs) -> anyhow::Result<()> {
    let signals = Signals::listen()?;
    let aws = crate::aws::merge(&AwsConfig::default(), &args.aws)?;
    let clients = crate::aws::connect(&aws).await?;
    let table = LeaseTable::new(clients.dynamodb, args.application.as_str());
    loop {
        show(&table.list().await?, args)?;
        let Some(interval) = args.watch else { return Ok(()) };
        if signals.stop().run_until_cancelled(tokio::time::sleep(interval)).await.is_none() {
            return Ok(());
        }
    }
}

fn show(listing: &LeaseListing, args: &LeasesArgs) -> anyhow::Result<()> {
    let mut rows: Vec<Row> = listing.leases.iter().map(row).collect();
    rows.sort_by(|a, b| a.shard.cmp(&b.shard));
    if args.json {
        return print_json(&rows);
    }
    print(&table(&rows).to_string());
    for bad in &listing.bad_rows {
        print(&format!("row {} cannot be read: {}", bad.key, bad.problem));
    }
    Ok(())
}

fn row(lease: &Lease) -> Row {
    Row {
        shard: lease.key.to_string(),
        owner: lease.owner.as_ref().map(ToString::to_string),
        counter: lease.counter.0,
        checkpoint: lease.checkpoint.to_string(),
        millis_behind_latest: lease.millis_behind_latest,
        plugin_digest: lease.plugin_digest.as_ref().map(|digest| digest.as_str().to_owned()),
        parents: lease.parents.iter().map(ToString::to_string).collect(),
        children: lease.children.iter().map(ToString::to_string).collect(),
    }
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_preset(NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(["shard", "owner", "counter", "checkpoint", "lag", "plugin"]);
    for row in rows {
        let is_ended = row.checkpoint == Checkpoint::ShardEnd.text();
        let lag = match row.millis_behind_latest {
            Some(_) if is_ended => "-".to_owned(),
            Some(ms) => humantime::format_duration(std::time::Duration::from_millis(ms)).to_string(),
            None => "?".to_owned(),
        };
        let digest = row.plugin_digest.as_deref().map_or("-", |digest| &digest[..12]);
        let owner = row.owner.as_deref().unwrap_or("-");
        table.add_row([&row.shard, owner, &row.counter.to_string(), &row.checkpoint, &lag, digest]);
    }
    table
}
