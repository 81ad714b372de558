//! `shardmill consumers`: the fan-out consumers of a stream, how many hosts use each, and how to
//! delete one.

use anyhow::bail;
use serde::Serialize;
use shardmill_aws::{AwsClients, CoordinatorTable, KinesisFanOut};
use shardmill_core::ports::{Clock, Coordinator, SubscribeError, Subscriptions};
use shardmill_core::stream::{ConsumerName, StreamRef};
use shardmill_serve::BootClock;

use crate::cli::ConsumersArgs;
use crate::output::{age_since, no_stream, print, print_json, table};

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
    let clients = crate::aws::connect_to(&args.connection).await?;
    let fan_out = KinesisFanOut::new(clients.kinesis.clone(), StreamRef::parse(&args.stream)?);
    let consumers = match fan_out.consumers().await {
        Err(SubscribeError::NotFound { .. }) => return Err(no_stream(&args.stream)),
        consumers => consumers?,
    };
    let mut rows = Vec::new();
    for consumer in consumers {
        rows.push(Row {
            hosts: hosts(&clients, &consumer.name).await,
            name: consumer.name,
            status: consumer.status,
            created_at: consumer.created_at,
            arn: consumer.arn,
        });
    }
    if let Some(name) = &args.delete {
        return delete(&fan_out, &rows, name, args).await;
    }
    if args.output.json {
        return print_json(&rows);
    }
    print(&as_text(&rows, BootClock.wall_ms()));
    Ok(())
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

/// The hosts of the application of this name: consumers are named after applications, unless the
/// configuration says otherwise.
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

fn as_text(rows: &[Row], now_ms: u64) -> String {
    if rows.is_empty() {
        return "no consumer is registered".to_owned();
    }
    let mut table = table(["consumer", "status", "registered", "hosts"]);
    for row in rows {
        let created_s = u64::try_from(row.created_at).unwrap_or(0);
        let registered = age_since(created_s.saturating_mul(1_000), now_ms);
        let hosts = match row.hosts {
            Some(hosts) => hosts.to_string(),
            None => "unknown".to_owned(),
        };
        table.add_row([&row.name, &row.status, &format!("{registered} ago"), &hosts]);
    }
    table.to_string()
}
