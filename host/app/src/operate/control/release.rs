//! `shardmill release`: the lease goes to another host, by a claim, as hosts ask each other for
//! one.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::bail;
use shardmill_core::control::Deed;
use shardmill_core::explain::shard_named;
use shardmill_core::fleet::{Errand, FleetRows, Mail, Task, WorkerRow};
use shardmill_core::lease::{Lease, WorkerId};
use shardmill_core::ports::{Coordinator, LeaseStore, Written};

use super::application::{Application, Done, asked};
use super::report::{Report, StepRow};
use super::wait::Waited;
use crate::cli::{ChangeArgs, ReleaseArgs};

pub(crate) async fn release(args: &ReleaseArgs) -> anyhow::Result<()> {
    let clients = crate::aws::connect_to(&args.change.connection).await?;
    let application = Application::open(&args.application, &clients).await?;
    let row = application.row(&shard_named(&args.shard)?).await?;
    let Some(owner) = row.owner.clone() else {
        bail!("nobody holds {}: any host may take it", row.key);
    };
    let fleet = application.fleet().await?;
    let rows = application.rows().await?;
    let hand_over = HandOver {
        application: &application,
        to: taker(args, &owner, &fleet, &rows)?,
        row: &row,
        owner,
    };
    let mut report = report(args, &row, hand_over.to);
    if args.change.apply {
        hand_over.apply(&args.change).await?;
        report.waited = hand_over.wait(&args.change).await?;
    }
    if report.waited.as_ref().is_some_and(Waited::is_done) {
        report.notes.extend(hand_over.other_taker().await?);
    }
    report.show(&args.change)?;
    Waited::conclude(report.waited.as_ref())
}

/// A lease that goes from its owner to another host.
struct HandOver<'a> {
    application: &'a Application,
    row: &'a Lease,
    owner: WorkerId,
    to: &'a WorkerRow,
}

/// The host that is to have it: the one that was named, or the one that holds the fewest leases.
fn taker<'a>(
    args: &ReleaseArgs,
    owner: &WorkerId,
    fleet: &'a FleetRows,
    rows: &[Lease],
) -> anyhow::Result<&'a WorkerRow> {
    let mut others = fleet
        .workers
        .iter()
        .filter(|row| row.worker != *owner && takes_leases(row, fleet));
    if let Some(wanted) = &args.to {
        let found = others.find(|row| row.worker.as_str() == wanted);
        return found.ok_or_else(|| {
            anyhow::anyhow!(
                "{wanted} cannot take it: it is not registered, is drained, or holds it already"
            )
        });
    }
    let held = held_by_each(rows);
    let fewest = others.min_by_key(|row| held.get(&row.worker).copied().unwrap_or(0));
    fewest.ok_or_else(|| anyhow::anyhow!("there is no other host that could take it"))
}

fn held_by_each(rows: &[Lease]) -> BTreeMap<&WorkerId, usize> {
    let mut held = BTreeMap::new();
    for owner in rows.iter().filter_map(|row| row.owner.as_ref()) {
        *held.entry(owner).or_default() += 1;
    }
    held
}

fn takes_leases(row: &WorkerRow, fleet: &FleetRows) -> bool {
    !row.is_draining && !fleet.control.drains.contains_key(&row.worker)
}

fn report(args: &ReleaseArgs, row: &Lease, to: &WorkerRow) -> Report {
    Report {
        application: args.application.clone(),
        command: "release",
        applied: args.change.apply,
        steps: vec![StepRow {
            what: row.key.to_string(),
            now: row
                .owner
                .as_ref()
                .map_or_else(String::new, ToString::to_string),
            then: to.worker.to_string(),
            by: row.owner.as_ref().map(ToString::to_string),
            refused: None,
        }],
        waited: None,
        notes: Vec::new(),
    }
}

impl HandOver<'_> {
    async fn apply(&self, change: &ChangeArgs) -> anyhow::Result<()> {
        self.claim().await?;
        let done = Done {
            deed: Deed::Move,
            shard: Some(self.row.key.shard_id()),
            details: format!("{} to {}", self.owner, self.to.worker),
        };
        self.application.record(&asked(change), done).await
    }

    /// Claims the lease for the other host, and tells both: the owner gives it up, and the other
    /// follows its row until then.
    async fn claim(&self) -> anyhow::Result<()> {
        let (application, row, to) = (self.application, self.row, self.to);
        if let Written::Conflict(_) = application.leases.claim(row, &to.worker).await? {
            bail!("{} has changed meanwhile: run it again", row.key);
        }
        let mail = self.mail();
        let coordinator = application.coordinator();
        coordinator.leave_mail(&to.worker, Some(&mail)).await?;
        let owner = BTreeSet::from([self.owner.clone()]);
        application.nudge_all(owner).await;
        Ok(())
    }

    fn mail(&self) -> Mail {
        let task = Task::Claim {
            from: self.owner.clone(),
            replaces: self.row.claimant.clone(),
            lead: 0,
        };
        Mail {
            to: self.to.incarnation.clone(),
            number: fastrand::u64(1..),
            errands: vec![Errand {
                key: self.row.key.clone(),
                task,
            }],
        }
    }

    /// Until another host has it.
    async fn wait(&self, change: &ChangeArgs) -> anyhow::Result<Option<Waited>> {
        let shards = BTreeSet::from([self.row.key.shard_id()]);
        Waited::until(self.application, &shards, change, |row| {
            row.owner.as_ref().is_some_and(|now| *now != self.owner)
        })
        .await
    }

    /// What to say if another host was faster: the one that was to take it does not live, for
    /// instance.
    async fn other_taker(&self) -> anyhow::Result<Option<String>> {
        let to = &self.to.worker;
        let now = self.application.row(&self.row.key.shard_id()).await?.owner;
        let other = now.filter(|owner| owner != to);
        Ok(other.map(|other| {
            format!(
                "{other} took it, and not {to}, which did not in time: `shardmill status` shows \
                    whether it runs"
            )
        }))
    }
}
