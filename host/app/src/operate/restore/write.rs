//! Writes what was planned. In this order, so that a host that starts too early, or a run that is
//! cut short, leaves nothing out: where the application began comes before any row that means it,
//! and parents come before their children.

use std::sync::Arc;

use anyhow::bail;
use serde::Serialize;
use shardmill_aws::{AwsClients, CoordinatorTable, LeaseTable, RowMove, StateRestored};
use shardmill_core::backup::{Backup, RestorePlan, RestoreStep, RestoredRow, StreamRelation};
use shardmill_core::control::{Control, Deed, DeployAsked, HistoryEntry};
use shardmill_core::fleet::{FleetRows, StreamRow};
use shardmill_core::lease::Lease;
use shardmill_core::ports::{Coordinator, LeaseStore, Raced};
use shardmill_core::stream::Utc;

use super::facts::{Stream, Target};
use crate::cli::RestoreArgs;
use crate::operate::control::asked_by;
use crate::operate::living::refuse_newcomers;

/// The results of the writes.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct Written {
    pub(super) rows: usize,
    /// Rows that somebody else wrote meanwhile.
    pub(super) lost: usize,
}

/// See the module's description.
pub(super) struct Writer<'a> {
    pub(super) application: &'a str,
    pub(super) backup: &'a Backup,
    pub(super) plan: &'a RestorePlan,
    pub(super) stream: &'a Stream,
    pub(super) target: &'a Target,
}

impl Writer<'_> {
    pub(super) async fn write(
        &self,
        args: &RestoreArgs,
        clients: &AwsClients,
    ) -> anyhow::Result<Written> {
        let made_as = crate::aws::table_options(&args.connection)?;
        let leases = LeaseTable::new(clients.dynamodb.clone(), self.application);
        let leases = leases.made_as(Arc::clone(&made_as));
        let coordinator = CoordinatorTable::new(clients.dynamodb.clone(), self.application);
        let coordinator = coordinator.made_as(made_as);
        coordinator.ensure_table().await?;
        let fleet = coordinator.fleet().await?;
        refuse_newcomers(&self.target.look.fleet, &fleet)?;
        self.write_beginning(&coordinator, &fleet).await?;
        leases.ensure_table().await?;
        if self.rows() > 0 {
            // A run that is cut short is in the history too.
            let entry = self.entry(args, &format!("begun: up to {} row(s)", self.rows()));
            coordinator.record(&entry).await?;
        }
        let has_states = self.target.has_states || self.restores_states();
        if has_states {
            leases.ensure_state_table().await?;
        }
        let written = self.write_rows(&leases, has_states).await?;
        // Last: until it is there, a host takes the shards that have no row for new ones.
        self.write_stream(&coordinator, &fleet).await?;
        let entry = self.entry(args, &format!("{} row(s)", written.rows));
        coordinator.record(&entry).await?;
        Ok(written)
    }

    /// Where the application began, and what operators want of all hosts: a host that starts before
    /// this is done must not deliver what is paused.
    async fn write_beginning(
        &self,
        coordinator: &CoordinatorTable,
        fleet: &FleetRows,
    ) -> anyhow::Result<()> {
        if fleet.start.is_none() {
            won(coordinator.write_start(&self.plan.start).await?)?;
        }
        let control = &fleet.control;
        let pause = match control.pause {
            Some(_) => None,
            None => self.backup.pause.as_ref(),
        };
        let deploy = deploy_of(self.backup, self.plan, control);
        if pause.is_some() || deploy.is_some() {
            let next = control.changed(|next| {
                next.pause = pause.or(control.pause.as_ref()).cloned();
                next.deploy = deploy.or(control.deploy.as_ref()).cloned();
            });
            won(coordinator.write_control(control, &next).await?)?;
        }
        for entry in &self.backup.quarantined {
            if !fleet.quarantined.iter().any(|it| it.digest == entry.digest) {
                coordinator.quarantine(entry).await?;
            }
        }
        Ok(())
    }

    fn rows(&self) -> usize {
        let shards = self.plan.shards.iter();
        shards.filter(|shard| shard.step.row().is_some()).count()
    }

    fn restores_states(&self) -> bool {
        let mut rows = self.plan.shards.iter().filter_map(|shard| shard.step.row());
        rows.any(|row| row.state.is_some())
    }

    async fn write_rows(&self, leases: &LeaseTable, has_states: bool) -> anyhow::Result<Written> {
        let mut written = Written::default();
        for shard in &self.plan.shards {
            let (seen, row) = match &shard.step {
                RestoreStep::Create(row) => (None, row),
                RestoreStep::Replace { seen, to, .. } => (Some(&**seen), to),
                RestoreStep::Keep(_) | RestoreStep::Leave | RestoreStep::Refuse { .. } => continue,
            };
            match write_row(leases, seen, row, has_states).await? {
                RowMove::Moved => written.rows += 1,
                RowMove::Changed => written.lost += 1,
            }
        }
        Ok(written)
    }

    async fn write_stream(
        &self,
        coordinator: &CoordinatorTable,
        fleet: &FleetRows,
    ) -> anyhow::Result<()> {
        if fleet.stream.is_some() {
            return Ok(());
        }
        let is_same = self.plan.relation == StreamRelation::Same;
        let row = StreamRow {
            name: self.stream.now().name.clone(),
            identity: self.stream.identity,
            is_bootstrapped: !is_same || self.backup.stream.row.is_bootstrapped,
        };
        won(coordinator.write_stream(None, &row).await?)
    }

    fn entry(&self, args: &RestoreArgs, what: &str) -> HistoryEntry {
        let asked = asked_by(args.by.as_deref(), args.why.as_deref());
        HistoryEntry {
            at_ms: asked.at_ms,
            by: asked.by,
            deed: Deed::Restore,
            shard: None,
            details: format!(
                "{what}, of the backup of {} at {}",
                self.backup.application,
                Utc(self.backup.at_ms)
            ),
            why: asked.why,
        }
    }
}

/// The deploy that is put back: on the backup's own stream, unless another is there. Elsewhere hosts
/// have a configuration of their own, and maybe another registry.
pub(super) fn deploy_of<'a>(
    backup: &'a Backup,
    plan: &RestorePlan,
    control: &Control,
) -> Option<&'a DeployAsked> {
    let has_one = control.deploy.is_some() || control.unread_deploy.is_some();
    if plan.relation != StreamRelation::Same || has_one {
        return None;
    }
    backup.deploy.as_ref()
}

async fn write_row(
    leases: &LeaseTable,
    seen: Option<&Lease>,
    row: &RestoredRow,
    has_states: bool,
) -> anyhow::Result<RowMove> {
    let state = match &row.state {
        Some(state) => StateRestored::Saved(state.clone()),
        None if has_states => StateRestored::None,
        None => StateRestored::NoTable,
    };
    Ok(leases.restore(seen, &row.lease, &state).await?)
}

fn won(raced: Raced) -> anyhow::Result<()> {
    match raced {
        Raced::Applied => Ok(()),
        Raced::Lost => {
            bail!("somebody else writes to these tables: stop the hosts, and run it again")
        }
    }
}
