//! Applications in whose tables each standalone host, or each stream, has rows of its own: commands
//! name one of these parts.

use anyhow::bail;
use shardmill_aws::{AwsClients, CoordinatorTable, applications_of_streams};
use shardmill_core::fleet::FleetRows;
use shardmill_core::plugin::{Part, of_standalone_host, of_stream, split_part};
use shardmill_core::ports::Coordinator;

/// Refuses an application that has parts: nobody would read what is wanted of all.
pub(super) fn refuse_several_parts(application: &str, fleet: &FleetRows) -> anyhow::Result<()> {
    let hosts = fleet.standalone.iter();
    let hosts = hosts.map(|host| of_standalone_host(application, host.id.as_str()));
    let streams = fleet.streams.iter();
    let streams = streams.map(|stream| of_stream(application, stream));
    let parts: Vec<String> = hosts.chain(streams).collect();
    let Some(first) = parts.first() else {
        return Ok(());
    };
    bail!(
        "application {application} has {} part(s) with leases of their own: name one, such as \
            {first}; `shardmill plugins {application}` lists them",
        parts.len()
    );
}

/// Refuses a standalone host that is not in the list: what is wanted of it would wait for it, and
/// nobody would remove it.
pub(super) async fn refuse_unknown_host(
    application: &str,
    clients: &AwsClients,
) -> anyhow::Result<()> {
    let (base, Part::Host(host)) = split_part(application) else {
        return Ok(());
    };
    let list = CoordinatorTable::new(clients.dynamodb.clone(), base);
    let hosts = list.board().await?.standalone;
    if hosts.iter().any(|entry| entry.id.as_str() == host) {
        return Ok(());
    }
    bail!(
        "application {base} has no standalone host {host}; `shardmill plugins {base}` lists those \
            that it has"
    );
}

/// Why nothing is known under a name of which there is no lease table.
pub(super) async fn no_lease_table(application: &str, clients: &AwsClients) -> String {
    let others = applications_of_streams(&clients.dynamodb, application).await;
    if others.is_empty() {
        return format!(
            "there is no lease table {application}: no host has served this application here; \
                `shardmill plugins` lists those that have been served"
        );
    }
    only_streams(application, &others)
}

/// The same, where its plugin reads only other streams than its first.
pub(super) fn only_streams(application: &str, others: &[String]) -> String {
    format!(
        "there is no lease table {application}, but its streams have their own leases; name one of \
            these: {}",
        others.join(", ")
    )
}
