//! `shardmill delete`: the tables of an application that nobody serves any more.

mod found;
mod report;

use anyhow::bail;
use shardmill_aws::{AwsClients, CoordinatorTable, StandaloneTables, delete_table};
use shardmill_core::control::{Deed, HistoryEntry};
use shardmill_core::lease::WorkerId;
use shardmill_core::plugin::{Part, check_ending, split_part};
use shardmill_core::ports::{Clock, Coordinator, Extent, Raced, StandaloneHosts};
use shardmill_serve::BootClock;

use self::found::Found;
use self::report::Report;
use super::application::asked_by;
use crate::cli::DeleteArgs;
use crate::operate::living::refuse_newcomers;
use crate::operate::parts::refuse_several_parts;

pub(crate) async fn delete(args: &DeleteArgs) -> anyhow::Result<()> {
    let name = &args.application;
    if let Err(taken) = check_ending(name) {
        bail!("{name} is not an application: {taken}");
    }
    if args.confirm.as_ref().is_some_and(|again| again != name) {
        bail!("--confirm names another application than {name}: nothing is deleted");
    }
    let clients = crate::aws::connect_to(&args.connection).await?;
    let found = Found::read(args, &clients).await?;
    let refusals = found.refusals(args);
    let mut report = Report::of(name, &found, &refusals);
    if args.apply && refusals.is_empty() {
        delete_found(&found, args, &clients).await?;
        report.is_applied = true;
    }
    report.show(args.output)?;
    if refusals.is_empty() {
        return Ok(());
    }
    bail!("the tables of {name} are kept")
}

async fn delete_found(
    found: &Found,
    args: &DeleteArgs,
    clients: &AwsClients,
) -> anyhow::Result<()> {
    let coordinator = CoordinatorTable::new(clients.dynamodb.clone(), &args.application);
    let fleet = coordinator.fleet().await?;
    refuse_newcomers(&found.last.fleet, &fleet)?;
    match split_part(&args.application) {
        (application, Part::Host(host)) => delete_rows(application, host, clients).await,
        (application, Part::Stream(_)) => bail!(
            "the tables of {application} hold the leases of other streams too: no command deletes \
                those of one; `shardmill reset` begins again"
        ),
        (_, Part::Whole) => {
            refuse_several_parts(&args.application, &fleet)?;
            delete_tables(found, args, clients).await
        }
    }
}

/// The rows of one standalone host. Its entry of the list goes last, and with it the way to go on.
async fn delete_rows(application: &str, host: &str, clients: &AwsClients) -> anyhow::Result<()> {
    let Some(host) = WorkerId::new(host) else {
        bail!("{application}@ names no host");
    };
    let hosts = StandaloneTables::new(clients.dynamodb.clone(), application).with_state(true);
    let Some(entry) = hosts.entry(&host).await? else {
        bail!("application {application} has no standalone host {host}");
    };
    let mark = entry.going(BootClock.wall_ms());
    let is_done = hosts.write(Some(&entry), &mark).await? == Raced::Applied
        && hosts.clear(&mark, Extent::All).await? == Raced::Applied
        && hosts.remove(&mark).await? == Raced::Applied;
    if !is_done {
        bail!("host {host} has started meanwhile: it begins as a new host");
    }
    tracing::info!(application, %host, "the rows of the standalone host are deleted");
    Ok(())
}

/// If it is interrupted, the coordinator table is left, and with it the way to go on.
async fn delete_tables(
    found: &Found,
    args: &DeleteArgs,
    clients: &AwsClients,
) -> anyhow::Result<()> {
    let coordinator = CoordinatorTable::new(clients.dynamodb.clone(), &args.application);
    let asked = asked_by(args.by.as_deref(), args.why.as_deref());
    let entry = HistoryEntry {
        at_ms: asked.at_ms,
        by: asked.by.clone(),
        deed: Deed::Delete,
        shard: None,
        details: found.tables.join(", "),
        why: asked.why.clone(),
    };
    coordinator.record(&entry).await?;
    for table in &found.tables {
        delete_table(&clients.dynamodb, table).await?;
        tracing::info!(table, %asked, "the table is deleted");
    }
    Ok(())
}
