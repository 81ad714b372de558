//! Changes of states, as the holders of the shards are told to make them.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::bail;
use shardmill_core::control::{Asked, Deed, ShardStateEdit, StateEdit, StateStep};
use shardmill_core::lease::{Lease, WorkerId};
use shardmill_core::ports::{Directing, LeaseStore, SavedState};
use shardmill_core::stream::ShardId;

use super::application::{Application, Done};
use super::report::{Report, StepRow};
use super::wait::Waited;
use crate::cli::ChangeArgs;

/// See the module's description.
pub(super) struct StateEdits {
    pub(super) command: &'static str,
    pub(super) deed: Deed,
    pub(super) steps: Vec<ShardStateEdit>,
    /// The states that are to be taken over.
    pub(super) states: BTreeMap<ShardId, SavedState>,
    pub(super) asked: Asked,
    pub(super) notes: Vec<String>,
}

impl StateEdits {
    /// Shows them, and with `--apply` has them made.
    pub(super) async fn execute(
        self,
        application: &Application,
        change: &ChangeArgs,
    ) -> anyhow::Result<()> {
        let mut report = self.report(application);
        let mut refused = self.refused();
        if change.apply && refused == 0 {
            self.apply(application).await?;
            report.applied = true;
            let shards = self.shards();
            report.waited = Waited::until(application, &shards, change, is_over).await?;
            refused = withdraw_refused(application, &shards, &mut report).await?;
        }
        report.show(change)?;
        if refused > 0 {
            bail!("{refused} shard(s) are refused, and their states are as they were");
        }
        Waited::conclude(report.waited.as_ref())
    }

    fn shards(&self) -> BTreeSet<ShardId> {
        self.steps.iter().map(|step| step.shard.clone()).collect()
    }

    fn refused(&self) -> usize {
        let steps = self.steps.iter();
        steps
            .filter(|step| matches!(step.step, StateStep::Refuse(_)))
            .count()
    }

    fn report(&self, application: &Application) -> Report {
        Report {
            application: application.name.clone(),
            command: self.command,
            applied: false,
            steps: self.steps.iter().map(|step| self.step_row(step)).collect(),
            waited: None,
            notes: self.notes.clone(),
        }
    }

    fn step_row(&self, step: &ShardStateEdit) -> StepRow {
        let row = step.row.as_ref();
        let bytes = self.states.get(&step.shard).map(|state| state.bytes.len());
        let bytes = bytes.map(|bytes| format!(", {bytes} bytes"));
        let (then, refused) = match &step.step {
            StateStep::Direct(edit) => (edit.to_string(), None),
            StateStep::Refuse(refusal) => (String::new(), Some(refusal.to_string())),
        };
        let owner = row.and_then(|row| row.owner.as_ref());
        StepRow {
            what: step.shard.to_string(),
            now: row.map_or_else(|| "-".to_owned(), |row| format!("at {}", row.checkpoint)),
            then: then + &bytes.unwrap_or_default(),
            by: owner.map(ToString::to_string),
            refused,
        }
    }

    async fn apply(&self, application: &Application) -> anyhow::Result<()> {
        let mut told = BTreeSet::new();
        let mut changed = Vec::new();
        for step in &self.steps {
            let (StateStep::Direct(edit), Some(row)) = (&step.step, &step.row) else {
                continue;
            };
            let Some(owner) = self.direct(application, row, edit).await? else {
                changed.push(step.shard.to_string());
                continue;
            };
            told.extend(owner);
            let done = Done {
                deed: self.deed,
                shard: Some(step.shard.clone()),
                details: edit.to_string(),
            };
            application.record(&self.asked, done).await?;
        }
        application.nudge_all(told).await;
        if !changed.is_empty() {
            bail!(
                "changed meanwhile, and left as they were: {}: run it again",
                changed.join(", ")
            );
        }
        Ok(())
    }

    /// Leaves the state first: a holder that is told finds it. Who is to be told; `None` if
    /// somebody else wants something of the shard since its row was read.
    async fn direct(
        &self,
        application: &Application,
        row: &Lease,
        edit: &StateEdit,
    ) -> anyhow::Result<Option<Option<WorkerId>>> {
        let leases = &application.leases;
        let earlier = row.directives.state.as_ref().and_then(StateEdit::staged);
        let state = self.states.get(&row.key.shard_id());
        if let (Some(key), Some(state)) = (edit.staged(), state) {
            leases.stage_state(key, state).await?;
        }
        let next = row
            .directives
            .changed(|next| next.state = Some(edit.clone()));
        match leases.direct(row, &next).await? {
            Directing::Applied(now) => {
                // What was refused before is not wanted any more.
                if let Some(key) = earlier {
                    leases.unstage_state(key).await?;
                }
                Ok(Some(now.owner))
            }
            Directing::Changed(_) => {
                if let Some(key) = edit.staged() {
                    leases.unstage_state(key).await?;
                }
                Ok(None)
            }
        }
    }
}

/// Whether the holder has done it, or has said that it does not.
fn is_over(row: &Lease) -> bool {
    let edit = row.directives.state.as_ref();
    edit.is_none_or(|edit| !edit.is_waiting())
}

/// Takes back what holders refused, and shows why. How many there are.
async fn withdraw_refused(
    application: &Application,
    shards: &BTreeSet<ShardId>,
    report: &mut Report,
) -> anyhow::Result<usize> {
    let mut refused = 0;
    for row in application.rows().await? {
        let shard = row.key.shard_id();
        let edit = row.directives.state.as_ref();
        let why = edit.and_then(|edit| edit.refused.clone());
        let (Some(edit), Some(why), true) = (edit, why, shards.contains(&shard)) else {
            continue;
        };
        refused += 1;
        let shown = report.steps.iter_mut();
        for step in shown.filter(|step| step.what == shard.as_str()) {
            step.refused = Some(why.clone());
        }
        let next = row.directives.changed(|next| next.state = None);
        let is_withdrawn = matches!(
            application.leases.direct(&row, &next).await?,
            Directing::Applied(_)
        );
        if is_withdrawn && let Some(key) = edit.staged() {
            application.leases.unstage_state(key).await?;
        }
    }
    Ok(refused)
}
