//! `shardmill skip`.

use std::collections::BTreeSet;

use anyhow::bail;
use shardmill_core::control::{Asked, Deed, RecordRange, Skip};
use shardmill_core::explain::shard_named;
use shardmill_core::lease::{Checkpoint, Lease};
use shardmill_core::ports::{Directing, LeaseStore};

use super::application::{Application, Done, asked};
use super::cancel::Cancelled;
use super::place::reached;
use super::report::{Report, StepRow};
use super::seek::reader;
use super::wait::Waited;
use crate::cli::SkipArgs;
use crate::output::short_reason;

/// How much is shown of why the shard makes no progress: `explain` shows all of it.
const REASON_CHARS_SHOWN: usize = 100;

/// A skip that waits to be done.
const WAITING: Cancelled = Cancelled {
    command: "skip",
    of: |directives| {
        let skip = directives.skip.as_ref();
        skip.map(|skip| format!("skips {} {}", skip.records, skip.asked))
    },
    remove: |directives| directives.skip = None,
};

pub(crate) async fn skip(args: &SkipArgs) -> anyhow::Result<()> {
    let Some(first) = args.first.clone() else {
        let shards = std::slice::from_ref(&args.shard);
        return WAITING
            .execute(&args.application, shards, &args.change)
            .await;
    };
    let last = args.last.clone().unwrap_or_else(|| first.clone());
    match RecordRange::new(first, last) {
        Some(records) => skip_records(args, records).await,
        None => bail!("the last record comes before the first"),
    }
}

async fn skip_records(args: &SkipArgs, records: RecordRange) -> anyhow::Result<()> {
    let clients = crate::aws::connect_to(&args.change.connection).await?;
    let application = Application::open(&args.application, &clients).await?;
    let row = application.row(&shard_named(&args.shard)?).await?;
    refuse_pointless(&row, &records)?;
    let fleet = application.fleet().await?;
    let reader = reader(None, &args.application, &args.change, &clients, &fleet)?;
    reached(records.last(), &reader, &row).await?;
    let skip = Skip {
        records,
        dead_letters: args.dead_letters.clone(),
        asked: asked(&args.change),
    };
    let mut report = report(args, &row, &skip);
    if args.change.apply {
        apply(&application, &row, &skip).await?;
        report.waited = wait(args, &application, &row).await?;
    }
    report.show(&args.change)?;
    Waited::conclude(report.waited.as_ref())
}

fn refuse_pointless(row: &Lease, records: &RecordRange) -> anyhow::Result<()> {
    if let Some(waiting) = &row.directives.skip {
        bail!(
            "{} already skips {}, {}: wait until that is done",
            row.key,
            waiting.records,
            waiting.asked
        );
    }
    let is_past = match &row.checkpoint {
        Checkpoint::ShardEnd => true,
        Checkpoint::At(position) => position.sequence > *records.last(),
        _ => false,
    };
    if is_past {
        bail!(
            "{} is past these records already: its checkpoint is {}",
            row.key,
            row.checkpoint
        );
    }
    Ok(())
}

fn report(args: &SkipArgs, row: &Lease, skip: &Skip) -> Report {
    let then = match &skip.dead_letters {
        Some(sink) => format!("records {} are dead letters in {sink}", skip.records),
        None => format!("records {} are dropped", skip.records),
    };
    let stuck = row.stuck.as_deref();
    let stuck = stuck.map(|why| format!("; {}", short_reason(why, REASON_CHARS_SHOWN)));
    Report {
        application: args.application.clone(),
        command: "skip",
        applied: args.change.apply,
        steps: vec![StepRow {
            what: row.key.to_string(),
            now: format!("at {}{}", row.checkpoint, stuck.unwrap_or_default()),
            then,
            by: row.owner.as_ref().map(ToString::to_string),
            refused: None,
        }],
        waited: None,
        notes: notes(row, skip),
    }
}

fn notes(row: &Lease, skip: &Skip) -> Vec<String> {
    if !is_reached_by(row, &skip.records) {
        return Vec::new();
    }
    let note = "its checkpoint is at that record: only what is left of an aggregate is skipped";
    vec![note.to_owned()]
}

/// Whether nothing of these records is left to skip, unless they are of an aggregate.
fn is_reached_by(row: &Lease, records: &RecordRange) -> bool {
    matches!(&row.checkpoint, Checkpoint::At(position) if position.sequence == *records.last())
}

/// Until the holder has skipped them, or will not.
async fn wait(
    args: &SkipArgs,
    application: &Application,
    row: &Lease,
) -> anyhow::Result<Option<Waited>> {
    let shards = BTreeSet::from([row.key.shard_id()]);
    Waited::until(application, &shards, &args.change, |row| {
        row.directives.skip.is_none()
    })
    .await
}

async fn apply(application: &Application, row: &Lease, skip: &Skip) -> anyhow::Result<()> {
    let next = row
        .directives
        .changed(|next| next.skip = Some(skip.clone()));
    let Directing::Applied(now) = application.leases.direct(row, &next).await? else {
        bail!("{} has changed meanwhile: run it again", row.key);
    };
    application.nudge_all(now.owner.into_iter().collect()).await;
    let asked: &Asked = &skip.asked;
    let done = Done {
        deed: Deed::Skip,
        shard: Some(row.key.shard_id()),
        details: skip.records.to_string(),
    };
    application.record(asked, done).await
}
