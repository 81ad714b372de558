//! The lease table whose states a command reads.

use anyhow::bail;
use shardmill_aws::LeaseTable;

use crate::cli::ConnectionArgs;
use crate::operate::parts::no_lease_table;

/// The lease table of an application that hosts have served.
pub(super) async fn open(
    application: &str,
    connection: &ConnectionArgs,
) -> anyhow::Result<LeaseTable> {
    let clients = crate::aws::connect_to(connection).await?;
    let table = LeaseTable::new(clients.dynamodb.clone(), application);
    if !table.exists().await? {
        bail!(no_lease_table(application, &clients).await);
    }
    Ok(table)
}
