//! Finds the tables of an application's further streams by their names, for commands that should
//! mention them.

use aws_sdk_dynamodb::Client;
use shardmill_core::plugin::coordinator_table;
use shardmill_core::ports::StoreError;

use super::errors::store_error;

/// The applications `APPLICATION.STREAM` that hosts have served. One page of a hundred tables,
/// which holds them all (32 streams of two tables); empty if tables may not be listed, since
/// nothing else needs that right.
pub async fn applications_of_streams(client: &Client, application: &str) -> Vec<String> {
    let prefix = format!("{application}.");
    match client
        .list_tables()
        .exclusive_start_table_name(&prefix)
        .send()
        .await
    {
        Ok(page) => beside(page.table_names(), &prefix),
        Err(error) => {
            tracing::debug!(%error, "cannot list tables, so further streams are not shown");
            Vec::new()
        }
    }
}

/// Every application that shardmill hosts have served in this account and region.
pub async fn served_applications(client: &Client) -> Result<Vec<String>, StoreError> {
    /// A page has a hundred tables, and an account at most 2,500 unless AWS allows more.
    const PAGES_MAX: usize = 1_000;
    let (mut tables, mut start) = (Vec::new(), None);
    for _ in 0..PAGES_MAX {
        let page = client
            .list_tables()
            .set_exclusive_start_table_name(start)
            .send()
            .await;
        let page = page.map_err(|error| store_error("(all tables)", &error))?;
        tables.extend(page.table_names.unwrap_or_default());
        start = page.last_evaluated_table_name;
        if start.is_none() {
            break;
        }
    }
    Ok(beside(&tables, ""))
}

fn beside(tables: &[String], prefix: &str) -> Vec<String> {
    let of_streams = tables.iter().filter(|table| table.starts_with(prefix));
    let served = of_streams.filter(|table| tables.contains(&coordinator_table(table)));
    served.cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tables_that_hosts_have_served_are_an_applications_streams() {
        let tables = [
            "orders.returns",
            "orders.returns-coordinator",
            "orders.unrelated",
            "orders.123456789012.clicks",
            "orders.123456789012.clicks-coordinator",
            "orders2.returns",
            "orders2.returns-coordinator",
        ]
        .map(str::to_owned);
        assert_eq!(
            beside(&tables, "orders."),
            ["orders.returns", "orders.123456789012.clicks"]
        );
    }
}
