//! `shardmill plugins APPLICATION --release`: ends the quarantine of a version.

use std::collections::BTreeSet;

use anyhow::bail;
use shardmill_aws::{AwsClients, CoordinatorTable, applications_of_streams};
use shardmill_core::plugin::PluginDigest;
use shardmill_core::ports::Coordinator;

use super::fleets::{Fleets, look};
use crate::operate::digest_prefix::{PREFIX_MIN, is_prefix};
use crate::output::print;

pub(super) async fn release(
    application: &str,
    digest: &str,
    clients: &AwsClients,
) -> anyhow::Result<()> {
    let wanted = digest.to_ascii_lowercase();
    if !is_prefix(&wanted) {
        bail!(
            "{digest:?} is not a version: give its digest, or the first {PREFIX_MIN} digits or more"
        );
    }
    let mut applications = vec![application.to_owned()];
    applications.extend(applications_of_streams(&clients.dynamodb, application).await);
    let fleets = look(&applications, clients).await?;
    let version = quarantined(&fleets, &wanted, application)?;
    for (name, fleet) in &fleets {
        if fleet
            .quarantined
            .iter()
            .all(|entry| entry.digest != version)
        {
            continue;
        }
        CoordinatorTable::new(clients.dynamodb.clone(), name)
            .release_version(&version)
            .await?;
        print(&format!(
            "released {} of {name}; hosts that have its file try it again within seconds",
            version.as_str()
        ));
    }
    Ok(())
}

/// The one quarantined version whose digest begins with `wanted`.
fn quarantined(fleets: &Fleets, wanted: &str, application: &str) -> anyhow::Result<PluginDigest> {
    let entries = fleets.values().flat_map(|fleet| &fleet.quarantined);
    let found: BTreeSet<&str> = entries
        .map(|entry| entry.digest.as_str())
        .filter(|digest| digest.starts_with(wanted))
        .collect();
    if found.len() == 1
        && let Some(version) = found
            .first()
            .and_then(|digest| PluginDigest::from_hex(digest))
    {
        return Ok(version);
    }
    let how_many = if found.is_empty() {
        "no"
    } else {
        "more than one"
    };
    bail!(
        "{how_many} quarantined version of {application} begins with {wanted}; `shardmill \
            plugins {application}` lists them"
    );
}
