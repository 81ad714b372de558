//! What `restore` shows.

use std::time::Duration;

use comfy_table::Table;
use serde::Serialize;
use shardmill_core::backup::{
    Backup, RestorePlan, RestoreReason, RestoreStep, ShardRestore, StreamRelation,
};
use shardmill_core::control::Control;
use shardmill_core::lease::Checkpoint;
use shardmill_core::stream::{LeaseKey, Utc};

use super::facts::{Destination, Stream};
use super::write::{Written, deploy_of};
use crate::cli::{OutputArgs, RestoreArgs};
use crate::output::{Page, age, age_since, millis, or_dash, print, print_json, table};

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Report<'a> {
    file: String,
    of: &'a str,
    at_ms: u64,
    application: &'a str,
    stream: String,
    relation: &'static str,
    #[serde(skip)]
    related: StreamRelation,
    starts_at: String,
    shards: Vec<ShardRow>,
    notes: Vec<String>,
    refused: &'a [String],
    /// `None` if nothing was written.
    pub(super) written: Option<Written>,
    #[serde(skip)]
    next: String,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct ShardRow {
    shard: String,
    now: Option<String>,
    then: Option<String>,
    step: &'static str,
    state_bytes: Option<usize>,
    kind: &'static str,
    why: String,
}

impl<'a> Report<'a> {
    pub(super) fn of(
        args: &RestoreArgs,
        backup: &'a Backup,
        destination: &Destination<'a>,
        plan: &RestorePlan,
        refused: &'a [String],
    ) -> Self {
        Self {
            file: args.file.display().to_string(),
            of: &backup.application,
            at_ms: backup.at_ms,
            application: destination.application,
            stream: destination.stream.arn().to_owned(),
            relation: plan.relation.code(),
            related: plan.relation,
            starts_at: plan.start.to_string(),
            shards: plan.shards.iter().map(ShardRow::of).collect(),
            notes: notes(args, backup, destination, plan),
            refused,
            written: None,
            next: next(args, destination.application, refused),
        }
    }

    /// Prints the report, as JSON if `--json` asks for it.
    pub(super) fn show(&self, output: OutputArgs) -> anyhow::Result<()> {
        if output.json {
            return print_json(self);
        }
        print(self.as_text().trim_end());
        Ok(())
    }

    fn as_text(&self) -> String {
        let mut page = Page::new(11);
        let (file, of) = (&self.file, self.of);
        page.line(
            "backup",
            format_args!("{file}, of {of} at {}", Utc(self.at_ms)),
        );
        page.line("application", self.application);
        page.line("stream", format_args!("{}: {}", self.stream, self.related));
        page.plain(format_args!("\n{}", self.table()));
        for note in self.notes.iter().chain(self.refused) {
            page.plain(format_args!("\n{note}"));
        }
        match &self.written {
            Some(written) => page.plain(format_args!("\n{} rows written", written.rows)),
            None => page.plain("\nnothing was written"),
        }
        if self.written.is_none() && self.refused.is_empty() {
            page.line("next", &self.next);
        }
        page.into_text()
    }

    fn table(&self) -> Table {
        let mut table = table(["SHARD", "NOW", "THEN", "STATE", "STEP", "WHY"]);
        for row in &self.shards {
            let state = row.state_bytes.map(|bytes| format!("{bytes} bytes"));
            table.add_row([
                row.shard.clone(),
                or_dash(row.now.as_deref()),
                or_dash(row.then.as_deref()),
                or_dash(state.as_deref()),
                row.step.to_owned(),
                row.why.clone(),
            ]);
        }
        table
    }
}

impl ShardRow {
    fn of(shard: &ShardRestore) -> Self {
        let row = shard.step.row();
        Self {
            shard: shard.shard.to_string(),
            now: shard.now.as_ref().map(ToString::to_string),
            then: shard.step.place().map(ToString::to_string),
            step: shard.step.code(),
            state_bytes: row.and_then(|row| Some(row.state.as_ref()?.bytes.len())),
            kind: shard.why.code(),
            why: match &shard.step {
                RestoreStep::Refuse { why, .. } => why.to_string(),
                _ => shard.why.to_string(),
            },
        }
    }
}

fn notes(
    args: &RestoreArgs,
    backup: &Backup,
    destination: &Destination<'_>,
    plan: &RestorePlan,
) -> Vec<String> {
    let mut notes = again(args, backup, plan);
    notes.extend(left_out(plan));
    if !plan.dropped.is_empty() {
        let dropped: Vec<String> = plan.dropped.iter().map(ToString::to_string).collect();
        notes.push(format!("states that are dropped: {}", dropped.join(", ")));
    }
    if plan.relation == StreamRelation::Same {
        notes.extend(too_old(backup, destination.stream, plan));
    }
    if backup.pause.is_some() {
        notes.push(
            "the application was paused, and is: `shardmill resume` when it is to go on".to_owned(),
        );
    }
    notes.extend(deployed(
        backup,
        plan,
        &destination.target.look.fleet.control,
    ));
    notes
}

/// What becomes of the version that was deployed, if one was.
fn deployed(backup: &Backup, plan: &RestorePlan, control: &Control) -> Option<String> {
    let reference = &backup.deploy.as_ref()?.reference;
    let now = control.deploy.as_ref();
    Some(match now {
        Some(now) if now.reference == *reference => format!("{reference} is deployed, as it was"),
        Some(now) => format!(
            "{} is deployed now, and stays: not {reference}, of then",
            now.reference
        ),
        None if deploy_of(backup, plan, control).is_some() => {
            format!("{reference} was deployed, and is again: hosts that pull from there run it")
        }
        None => format!(
            "{reference} was deployed, and is not here: these hosts run what they are configured to \
                run, unless you deploy it with `shardmill deploy`"
        ),
    })
}

/// What is delivered once more, if anything is.
fn again(args: &RestoreArgs, backup: &Backup, plan: &RestorePlan) -> Vec<String> {
    let is_again = |step: &RestoreStep| match step {
        RestoreStep::Create(_) => true,
        RestoreStep::Replace { is_forward, .. } => !is_forward,
        RestoreStep::Keep(_) | RestoreStep::Leave | RestoreStep::Refuse { .. } => false,
    };
    if !plan.shards.iter().any(|shard| is_again(&shard.step)) {
        return Vec::new();
    }
    vec![match plan.relation {
        StreamRelation::Same => format!(
            "what was delivered after {} is delivered again, to a plugin that has the state of then",
            Utc(backup.at_ms)
        ),
        _ => format!(
            "sequence numbers mean nothing there: each shard is read from {} before the record of its \
                checkpoint arrived, so what lies in between is delivered again, also to a state that \
                has counted it",
            match args.from_time {
                Some(_) => "--from-time and not from".to_owned(),
                None => age(args.margin),
            }
        ),
    }]
}

/// What is never delivered, if anything is not.
fn left_out(plan: &RestorePlan) -> Option<String> {
    let is_forward = |shard: &&ShardRestore| {
        let step = &shard.step;
        matches!(step, RestoreStep::Replace { is_forward, .. } if *is_forward)
    };
    let forward = plan.shards.iter().filter(is_forward);
    let forward: Vec<String> = forward.map(|it| it.shard.to_string()).collect();
    (!forward.is_empty()).then(|| {
        format!(
            "FORWARD, from NOW to THEN, and what lies between is never delivered: {}",
            forward.join(", ")
        )
    })
}

/// Kinesis never says what retention took: it goes on at the oldest record that is left.
fn too_old(backup: &Backup, stream: &Stream, plan: &RestorePlan) -> Option<String> {
    const HOUR: Duration = Duration::from_hours(1);
    let retention_ms = millis(HOUR * stream.retention_hours);
    let oldest_ms = stream.now_ms.saturating_sub(retention_ms);
    let is_old = |shard: &&ShardRestore| {
        let key = LeaseKey::of_shard(&shard.shard);
        let lease = backup
            .shards
            .iter()
            .map(|it| &it.lease)
            .find(|it| it.key == key);
        let at_record = lease.filter(|it| matches!(it.checkpoint, Checkpoint::At(_)));
        let arrived = at_record.and_then(|lease| lease.settled_arrival_ms);
        shard.why == RestoreReason::Continues && arrived.is_some_and(|ms| ms < oldest_ms)
    };
    let old: Vec<String> = plan
        .shards
        .iter()
        .filter(is_old)
        .map(|it| it.shard.to_string())
        .collect();
    (!old.is_empty()).then(|| {
        format!(
            "the stream keeps records for {} h, and the backup is {} old: records of {} may be lost",
            stream.retention_hours,
            age_since(backup.at_ms, stream.now_ms),
            old.join(", ")
        )
    })
}

fn next(args: &RestoreArgs, application: &str, refused: &[String]) -> String {
    if refused.is_empty() {
        "the same with --why and --apply; then start the hosts".to_owned()
    } else {
        format!("{}: nothing, for {application}", args.file.display())
    }
}
