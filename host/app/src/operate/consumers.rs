//! `shardmill consumers`: the fan-out consumers of a stream, how many hosts use each, and how to
//! delete one.

use anyhow::bail;
use serde::Serialize;
use shardmill_aws::{AwsClients, CoordinatorTable, KinesisFanOut, TableInspector};
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
    /// or its table cannot be read.
    hosts: Option<usize>,
    arn: String,
    #[serde(skip)]
    use_by: UseBy,
}

/// Who uses a consumer.
#[derive(Debug)]
enum UseBy {
    /// No application has its name.
    Nobody,
    /// So many hosts are registered under the application of its name.
    Hosts(usize),
    /// The application's table cannot be read, and why.
    Unreadable(String),
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
        let use_by = use_by(&clients, &consumer.name).await;
        rows.push(Row {
            hosts: match use_by {
                UseBy::Hosts(hosts) => Some(hosts),
                UseBy::Nobody | UseBy::Unreadable(_) => None,
            },
            use_by,
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
    match &row.use_by {
        UseBy::Hosts(hosts) if *hosts > 0 && !args.force => bail!(
            "{hosts} hosts are registered under application {name}, and would register the \
                consumer again: stop them, or set their retrieval to \"polling\"; --force deletes it anyway"
        ),
        UseBy::Unreadable(error) if !args.force => bail!(
            "which hosts use consumer {name} cannot be read from the coordinator table of \
                application {name}: {error}; --force deletes it anyway"
        ),
        UseBy::Hosts(_) | UseBy::Nobody | UseBy::Unreadable(_) => {}
    }
    fan_out.remove_consumer(&ConsumerName::new(name)?).await?;
    print(&format!(
        "consumer {name} of stream {} is being deleted",
        args.stream
    ));
    Ok(())
}

/// Who uses the consumer of this name: consumers are named after applications, unless the
/// configuration says otherwise.
async fn use_by(clients: &AwsClients, application: &str) -> UseBy {
    let table = CoordinatorTable::new(clients.dynamodb.clone(), application);
    let error = match table.fleet().await {
        Ok(fleet) => return UseBy::Hosts(fleet.workers.len()),
        Err(error) => error,
    };
    let inspector = TableInspector::new(clients.dynamodb.clone(), application);
    match inspector.companions().await {
        Ok(companions) if !companions.own_coordinator => UseBy::Nobody,
        _ => {
            tracing::debug!(application, %error, "the coordinator table cannot be read");
            UseBy::Unreadable(error.to_string())
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
