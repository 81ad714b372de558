//! `shardmill reload`.

use std::collections::BTreeSet;

use anyhow::bail;
use shardmill_core::control::{Asked, Deed, ReloadAsked};
use shardmill_core::lease::WorkerId;

use super::answers::{Answers, Awaited, conclude};
use super::application::{Application, Done, asked};
use super::report::{Report, StepRow};
use super::wait::Waited;
use crate::cli::ReloadArgs;

/// What hosts say they did, or did not.
const DEEDS: [Deed; 2] = [Deed::Reloaded, Deed::NotReloaded];

pub(crate) async fn reload(args: &ReloadArgs) -> anyhow::Result<()> {
    let clients = crate::aws::connect_to(&args.change.connection).await?;
    let application = Application::open(&args.application, &clients).await?;
    let asked = asked(&args.change);
    let meant = meant(args, application.workers().await?)?;
    let mut answers = Answers::default();
    let mut waited = None;
    if args.change.apply {
        let awaited = Awaited::from(&application, &asked, DEEDS).await?;
        apply(args, &application, &asked, &meant).await?;
        waited = awaited.wait(&args.change, &meant).await?;
        answers = awaited.answers().await?;
    }
    let report = report(args, &meant, waited, &answers);
    report.show(&args.change)?;
    let silence = format!(
        "they read the file when they see this, and `shardmill history {}` then says what came of it",
        args.application
    );
    conclude(report.waited.as_ref(), &answers, &silence)
}

/// The hosts that are to do it.
fn meant(args: &ReloadArgs, known: BTreeSet<WorkerId>) -> anyhow::Result<BTreeSet<WorkerId>> {
    let Some(name) = &args.worker else {
        return Ok(known);
    };
    match known.into_iter().find(|worker| worker.as_str() == name) {
        Some(worker) => Ok(BTreeSet::from([worker])),
        None => bail!(
            "no worker {name} is registered; `shardmill status {}` lists them",
            args.application
        ),
    }
}

async fn apply(
    args: &ReloadArgs,
    application: &Application,
    asked: &Asked,
    meant: &BTreeSet<WorkerId>,
) -> anyhow::Result<()> {
    let wanted = ReloadAsked {
        asked: asked.clone(),
        worker: args.worker.as_deref().and_then(WorkerId::new),
    };
    application
        .change_control(|control| {
            control.reload = Some(wanted.clone());
            Ok(())
        })
        .await?;
    application.nudge_all(meant.clone()).await;
    let done = Done {
        deed: Deed::Reload,
        shard: None,
        details: args.worker.clone().unwrap_or_default(),
    };
    application.record(asked, done).await
}

fn report(
    args: &ReloadArgs,
    meant: &BTreeSet<WorkerId>,
    waited: Option<Waited>,
    answers: &Answers,
) -> Report {
    let step = |worker: &WorkerId| {
        let name = worker.to_string();
        StepRow {
            now: "runs with what it read last".to_owned(),
            then: match answers.get(&name) {
                Some(answer) => answer.text.clone(),
                None => "reads its configuration again".to_owned(),
            },
            by: Some(name.clone()),
            what: name,
            refused: None,
        }
    };
    Report {
        application: args.application.clone(),
        command: "reload",
        applied: args.change.apply,
        steps: meant.iter().map(step).collect(),
        waited,
        notes: Vec::new(),
    }
}
