//! `shardmill consumers`: which fan-out consumers a stream has, who uses them, and removing one.

use std::time::Duration;

use anyhow::bail;
use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Table};
use serde::Serialize;
use shardmill_aws::{AwsClients, ConsumerDescription, CoordinatorTable, KinesisFanOut};
use shardmill_core::ports::{Clock, Coordinator, SubscribeError, Subscriptions};
use shardmill_core::stream::{ConsumerName, StreamRef};
use shardmill_serve::BootClock;

use super::reading::age;
use crate::cli::ConsumersArgs;
use crate::output::{no_stream, print, print_json};

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Row {
    name: String,
    status: String,
    created_at: i64,
    /// Hosts registered under an application of this name; `None` if there is no such application,
    /// or it may not be read.
    hosts: Option<usize>,
    arn: String,
}

pub(crate) async fn execute(args: &ConsumersArgs) -> anyhow::Result<()> {
    let clients = crate::aws::connect_to(&args.place).await?;
    let fan_out = KinesisFanOut::new(clients.kinesis.clone(), StreamRef::parse(&args.stream)?);
    let mut rows = Vec::new();
    let consumers = match fan_out.consumers().await {
        Err(SubscribeError::NotFound { .. }) => return Err(no_stream(&args.stream)),
        consumers => consumers?,
    };
    for consumer in consumers {
        let hosts = hosts(&clients, &consumer.name).await;
        let ConsumerDescription {
            name,
            arn,
            status,
            created_at,
        } = consumer;
        rows.push(Row {
            name,
            status,
            created_at,
            hosts,
            arn,
        });
    }
    match &args.delete {
        Some(name) => delete(&fan_out, &rows, name, args).await,
        None if args.output.json => print_json(&rows),
        None => {
            print(&table(&rows, BootClock.wall_ms()));
            Ok(())
        }
    }
}

async fn delete(
    fan_out: &KinesisFanOut,
    rows: &[Row],
    name: &str,
    args: &ConsumersArgs,
) -> anyhow::Result<()> {
    let Some(row) = rows.iter().find(|row| row.name == name) else {
        bail!(
            "stream {} has no consumer {name}; `shardmill consumers {}` lists those it has",
            args.stream,
            args.stream
        );
    };
    if let Some(hosts) = row.hosts.filter(|hosts| *hosts > 0 && !args.force) {
        bail!(
            "{hosts} hosts are registered under application {name}, and would register the \
                consumer again: stop them, or set their retrieval to \"polling\"; --force deletes it anyway"
        );
    }
    fan_out.remove_consumer(&ConsumerName::new(name)?).await?;
    print(&format!(
        "consumer {name} of stream {} is being deleted",
        args.stream
    ));
    Ok(())
}

/// Consumers are named as applications, unless the configuration says otherwise.
async fn hosts(clients: &AwsClients, application: &str) -> Option<usize> {
    match CoordinatorTable::new(clients.dynamodb.clone(), application)
        .fleet()
        .await
    {
        Ok(fleet) => Some(fleet.workers.len()),
        Err(error) => {
            tracing::debug!(application, %error, "no coordinator table to read");
            None
        }
    }
}

fn table(rows: &[Row], now_ms: u64) -> String {
    if rows.is_empty() {
        return "no consumer is registered".to_owned();
    }
    let mut table = Table::new();
    table
        .load_preset(NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(["consumer", "status", "registered", "hosts"]);
    for row in rows {
        let registered_ms = u64::try_from(row.created_at)
            .unwrap_or(0)
            .saturating_mul(1_000);
        let registered = age(Duration::from_millis(now_ms.saturating_sub(registered_ms)));
        let hosts = row
            .hosts
            .map_or_else(|| "unknown".to_owned(), |hosts| hosts.to_string());
        table.add_row([
            row.name.clone(),
            row.status.clone(),
            format!("{registered} ago"),
            hosts,
        ]);
    }
    table.to_string()
}
