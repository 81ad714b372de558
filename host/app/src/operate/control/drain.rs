//! `shardmill drain`.

use std::collections::BTreeSet;

use anyhow::bail;
use shardmill_core::control::{Asked, Control, DRAINS_MAX, Deed};
use shardmill_core::fleet::FleetRows;
use shardmill_core::lease::{Lease, WorkerId};
use shardmill_core::stream::ShardId;

use super::application::{Application, Done, asked};
use super::report::{Report, StepRow};
use super::wait::Waited;
use crate::cli::DrainArgs;

pub(crate) async fn drain(args: &DrainArgs) -> anyhow::Result<()> {
    let clients = crate::aws::connect_to(&args.change.connection).await?;
    let application = Application::open(&args.application, &clients).await?;
    let Some(worker) = WorkerId::new(&args.worker) else {
        bail!(
            "a worker has a name: `shardmill leases {}` lists them",
            args.application
        );
    };
    let fleet = application.fleet().await?;
    refuse_unknown(args, &worker, &fleet)?;
    let asked = asked(&args.change);
    let held = held_by(&application.rows().await?, &worker);
    let mut report = report(args, &worker, &fleet, &held);
    if args.change.apply {
        apply(args, &application, &worker, &asked).await?;
        if !args.undo {
            report.waited = Waited::until(&application, &held, &args.change, |row| {
                row.owner.as_ref() != Some(&worker)
            })
            .await?;
        }
    }
    report.show(&args.change)?;
    Waited::conclude(report.waited.as_ref())
}

fn held_by(rows: &[Lease], worker: &WorkerId) -> BTreeSet<ShardId> {
    let held = rows.iter().filter(|row| row.owner.as_ref() == Some(worker));
    held.map(|row| row.key.shard_id()).collect()
}

/// A drain of a host that does not exist would wait for one that comes under that name.
fn refuse_unknown(args: &DrainArgs, worker: &WorkerId, fleet: &FleetRows) -> anyhow::Result<()> {
    let is_known = fleet.workers.iter().any(|row| row.worker == *worker);
    let is_drained = fleet.control.drains.contains_key(worker);
    match (args.undo, is_known, is_drained) {
        (false, false, false) => {
            let names: Vec<String> = fleet
                .workers
                .iter()
                .map(|row| row.worker.to_string())
                .collect();
            bail!(
                "no worker {worker} is registered; these are: {}",
                names.join(", ")
            )
        }
        (true, _, false) => bail!("{worker} is not drained"),
        _ => Ok(()),
    }
}

fn report(
    args: &DrainArgs,
    worker: &WorkerId,
    fleet: &FleetRows,
    held: &BTreeSet<ShardId>,
) -> Report {
    let drained = fleet.control.drains.get(worker);
    let notes = if args.undo {
        Vec::new()
    } else {
        notes(worker, fleet, held)
    };
    Report {
        application: args.application.clone(),
        command: "drain",
        applied: args.change.apply,
        steps: vec![StepRow {
            what: worker.to_string(),
            now: match drained {
                Some(asked) => format!("drained {asked}"),
                None => format!("holds {} lease(s)", held.len()),
            },
            then: if args.undo {
                "takes leases".to_owned()
            } else {
                "holds nothing, and takes nothing".to_owned()
            },
            by: Some(worker.to_string()),
            refused: None,
        }],
        waited: None,
        notes,
    }
}

/// What to know before the host is drained.
fn notes(worker: &WorkerId, fleet: &FleetRows, held: &BTreeSet<ShardId>) -> Vec<String> {
    let drains = &fleet.control.drains;
    let mut others = fleet.workers.iter().filter(|row| row.worker != *worker);
    let mut notes = Vec::new();
    if others.all(|row| row.is_draining || drains.contains_key(&row.worker)) {
        notes.push("no other host would take its leases: nobody would read the shards".to_owned());
    }
    if held.is_empty() {
        notes.push(format!(
            "{worker} holds no lease: from now on it takes none, should it run"
        ));
    }
    notes
}

async fn apply(
    args: &DrainArgs,
    application: &Application,
    worker: &WorkerId,
    asked: &Asked,
) -> anyhow::Result<()> {
    let known = application.workers().await?;
    application
        .change_control(|control| {
            if args.undo {
                control.drains.remove(worker);
                return Ok(());
            }
            add(control, worker, asked, &known)
        })
        .await?;
    application
        .nudge_all(BTreeSet::from([worker.clone()]))
        .await;
    let done = Done {
        deed: if args.undo {
            Deed::Undrain
        } else {
            Deed::Drain
        },
        shard: None,
        details: worker.to_string(),
    };
    application.record(asked, done).await
}

/// Those of workers that are gone make room.
fn add(
    control: &mut Control,
    worker: &WorkerId,
    asked: &Asked,
    known: &BTreeSet<WorkerId>,
) -> anyhow::Result<()> {
    control.drains.insert(worker.clone(), asked.clone());
    if control.drains.len() > DRAINS_MAX {
        control.drains.retain(|drained, _| known.contains(drained));
    }
    if control.drains.len() > DRAINS_MAX {
        bail!("{DRAINS_MAX} hosts are drained already: --undo some of them first");
    }
    Ok(())
}
