//! `--cancel`: takes back what no host has done yet.

use std::collections::BTreeSet;

use anyhow::bail;
use shardmill_core::control::{Deed, Directives};
use shardmill_core::lease::Lease;

use super::application::{Application, Done, asked};
use super::report::{Report, StepRow};
use crate::cli::ChangeArgs;

/// What is taken back.
pub(super) struct Cancelled {
    /// The command that asked for it.
    pub(super) command: &'static str,
    /// What of a shard's directives it is, for people; `None` if there is none.
    pub(super) of: fn(&Directives) -> Option<String>,
    /// Takes it back.
    pub(super) remove: fn(&mut Directives),
}

impl Cancelled {
    /// Takes it back on these shards; on all if none is named.
    pub(super) async fn execute(
        &self,
        name: &str,
        shards: &[String],
        change: &ChangeArgs,
    ) -> anyhow::Result<()> {
        let clients = crate::aws::connect_to(&change.connection).await?;
        let application = Application::open(name, &clients).await?;
        let mut rows = application.rows_of(shards).await?;
        rows.retain(|row| (self.of)(&row.directives).is_some());
        if rows.is_empty() {
            bail!(
                "there is no {} to take back: none is waiting to be done",
                self.command
            );
        }
        let report = self.report(name, &rows, change);
        if change.apply {
            self.apply(&application, &rows, change).await?;
        }
        report.show(change)
    }

    fn report(&self, name: &str, rows: &[Lease], change: &ChangeArgs) -> Report {
        let step = |row: &Lease| StepRow {
            what: row.key.to_string(),
            now: (self.of)(&row.directives).unwrap_or_default(),
            then: "taken back".to_owned(),
            by: row.owner.as_ref().map(ToString::to_string),
            refused: None,
        };
        Report {
            application: name.to_owned(),
            command: self.command,
            applied: change.apply,
            steps: rows.iter().map(step).collect(),
            waited: None,
            notes: vec![
                "what its holder has done of it stays done; it may go on until it hears of this, \
                    about a second"
                    .to_owned(),
            ],
        }
    }

    async fn apply(
        &self,
        application: &Application,
        rows: &[Lease],
        change: &ChangeArgs,
    ) -> anyhow::Result<()> {
        let mut told = BTreeSet::new();
        for row in rows {
            let now = application.direct(row, self.remove).await?;
            told.extend(now.owner);
            let done = Done {
                deed: Deed::Withdraw,
                shard: Some(row.key.shard_id()),
                details: (self.of)(&row.directives).unwrap_or_default(),
            };
            application.record(&asked(change), done).await?;
        }
        application.nudge_all(told).await;
        Ok(())
    }
}
