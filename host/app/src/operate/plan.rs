//! `shardmill plan`: the dry run of a host's next look.

use std::fmt::Write;

use anyhow::Context;
use serde::Serialize;
use shardmill_core::lease::{Pulse, WorkerId};
use shardmill_core::plan::{
    FleetView, MissingRow, Plan, PlanLimits, Preview, Reason, Step, missing_rows, observed_workers,
    plan, preview,
};
use shardmill_core::stream::LeaseKey;

use super::reading::{Reading, age};
use crate::cli::PlanArgs;
use crate::output::{print, print_json};

/// What a worker would do, for people and programs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Report {
    application: String,
    worker: String,
    standing: &'static str,
    leads: bool,
    leader: Option<String>,
    stream: Option<String>,
    starts_at: String,
    watched_for_ms: u64,
    notes: Vec<String>,
    /// In this pass.
    now: Vec<StepLine>,
    /// In the pass that follows at once.
    then: Vec<StepLine>,
    held_back: Vec<ShardLine>,
    /// What the leader would do, if that is another worker.
    leader_would: Vec<StepLine>,
    without_row: Vec<ShardLine>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct StepLine {
    step: &'static str,
    shard: String,
    checkpoint: Option<String>,
    /// The reason in a word.
    kind: &'static str,
    reason: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct ShardLine {
    shard: String,
    /// The reason in a word.
    kind: &'static str,
    reason: String,
}

pub(crate) async fn execute(args: &PlanArgs) -> anyhow::Result<()> {
    let worker =
        WorkerId::new(&args.worker).context("--as needs the id of a worker, such as host-3")?;
    let reading = Reading::take(&args.application, &args.reading).await?;
    let report = report(&args.application, &worker, &reading);
    if args.reading.output.json {
        return print_json(&report);
    }
    print(as_text(&report).trim_end());
    Ok(())
}

fn report(application: &str, me: &WorkerId, reading: &Reading) -> Report {
    let leads = reading.would_lead(me);
    let workers = observed_workers(&reading.observer, reading.now);
    let leases = reading.leases_of(me);
    let is_bootstrapped = reading.is_bootstrapped();
    let view = FleetView {
        me,
        leases: &leases,
        workers: &workers,
        shards: reading.shards().filter(|_| leads),
        is_bootstrapped,
    };
    let limits = limits_of(me, reading);
    let decided = preview(&view, &limits);
    let leaders_plan = plan_of_leader(me, leads, reading);
    let missing = reading
        .shards()
        .map(|list| missing_rows(&view, &list, &limits))
        .unwrap_or_default();
    Report {
        application: application.to_owned(),
        worker: me.to_string(),
        standing: standing(me, reading),
        leads,
        leader: reading.leader().map(ToString::to_string),
        stream: reading.stream.as_ref().map(ToString::to_string),
        starts_at: starts_at(reading),
        watched_for_ms: u64::try_from(reading.watched_for.as_millis()).unwrap_or(u64::MAX),
        notes: reading.notes.clone(),
        held_back: left_for_now(&decided, &leaders_plan),
        now: steps(&decided.now),
        then: decided.then.as_ref().map(steps).unwrap_or_default(),
        leader_would: steps(&leaders_plan),
        without_row: missing.iter().filter_map(without_row).collect(),
    }
}

/// Where the application began, or would.
fn starts_at(reading: &Reading) -> String {
    match &reading.fleet.start {
        Some(start) => start.to_string(),
        None => format!(
            "{}, as configured: no host has started yet",
            reading.limits.initial_position
        ),
    }
}

/// What another worker, which leads, would do as the leader; nothing if there is none.
fn plan_of_leader(me: &WorkerId, leads: bool, reading: &Reading) -> Plan {
    let Some(leader) = reading.leader().filter(|leader| !leads && *leader != me) else {
        return Plan::default();
    };
    let workers = observed_workers(&reading.observer, reading.now);
    let leases = reading.leases_of(leader);
    let (shards, is_bootstrapped) = (reading.shards(), reading.is_bootstrapped());
    let view = FleetView {
        me: leader,
        leases: &leases,
        workers: &workers,
        shards,
        is_bootstrapped,
    };
    let mut decided = plan(&view, &limits_of(leader, reading));
    decided
        .steps
        .retain(|step| matches!(step, Step::Create { .. } | Step::Delete { .. }));
    decided
        .held_back
        .retain(|(_, reason)| *reason == Reason::GoneAfterNextListing);
    decided
}

/// What is left alone in the last of the passes, and what the leader, whoever it is, waits with.
fn left_for_now(decided: &Preview, leaders_plan: &Plan) -> Vec<ShardLine> {
    let is_first_only = |(_, reason): &&(LeaseKey, Reason)| {
        decided.then.is_some() && *reason == Reason::GoneAfterNextListing
    };
    let last = decided.then.as_ref().unwrap_or(&decided.now);
    let waiting = leaders_plan
        .held_back
        .iter()
        .chain(decided.now.held_back.iter().filter(is_first_only));
    let line = |(key, reason): &(LeaseKey, Reason)| ShardLine {
        shard: key.shard_id().to_string(),
        kind: reason.code(),
        reason: reason.to_string(),
    };
    waiting.chain(&last.held_back).map(line).collect()
}

fn without_row((shard, start): &MissingRow<'_>) -> Option<ShardLine> {
    let why = start.as_ref().err()?;
    Some(ShardLine {
        shard: shard.id.to_string(),
        kind: why.code(),
        reason: why.to_string(),
    })
}

fn limits_of(me: &WorkerId, reading: &Reading) -> PlanLimits {
    let row = reading.fleet.workers.iter().find(|row| row.worker == *me);
    PlanLimits {
        max_leases: row.map_or(reading.limits.max_leases, |row| row.max_leases),
        ..reading.limits
    }
}

fn standing(me: &WorkerId, reading: &Reading) -> &'static str {
    let row = reading.fleet.workers.iter().find(|row| row.worker == *me);
    match (row, reading.observer.worker_pulse(me, reading.now)) {
        (Some(_), Some(Pulse::Expired { .. })) => "registered but dead: as after its next start",
        (Some(row), _) if row.is_draining => "shutting down: it would take no more leases",
        (Some(_), _) => "running",
        (None, _) => "a worker that would join",
    }
}

fn steps(decided: &Plan) -> Vec<StepLine> {
    let line = |step: &Step| StepLine {
        step: step.code(),
        shard: step.key().shard_id().to_string(),
        checkpoint: match step {
            Step::Create { lease: row, .. } | Step::Take { seen: row, .. } => {
                Some(row.checkpoint.to_string())
            }
            Step::Delete { .. }
            | Step::Claim { .. }
            | Step::Release { .. }
            | Step::HandOver { .. } => None,
        },
        kind: step.reason().code(),
        reason: step.reason().to_string(),
    };
    decided.steps.iter().map(line).collect()
}

fn as_text(report: &Report) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(text, "worker   {}, {}", report.worker, report.standing);
    let leader = match (&report.leader, report.leads) {
        (Some(leader), true) if *leader == report.worker => "this worker".to_owned(),
        (Some(leader), true) => format!("this worker would: {leader}, which did, is silent"),
        (None, true) => "none; this worker would become leader".to_owned(),
        (Some(leader), false) => leader.clone(),
        (None, false) => "none".to_owned(),
    };
    let _ = writeln!(text, "leader   {leader}");
    let _ = writeln!(
        text,
        "stream   {}",
        report.stream.as_deref().unwrap_or("not known")
    );
    let _ = writeln!(text, "starts   {}", report.starts_at);
    let watched = match report.watched_for_ms {
        0 => "watched once: every registered worker counts as alive".to_owned(),
        ms => format!("for {}", age(std::time::Duration::from_millis(ms))),
    };
    let _ = writeln!(text, "watched  {watched}");
    for note in &report.notes {
        let _ = writeln!(text, "note     {note}");
    }
    write_steps(&mut text, "now", &report.now);
    write_steps(&mut text, "then, once these rows are there", &report.then);
    write_steps(
        &mut text,
        "meanwhile the leader, at its next listing",
        &report.leader_would,
    );
    if report.now.is_empty() && report.then.is_empty() {
        text.push_str("\nnow\n  nothing\n");
    }
    write_shards(&mut text, "left for now", &report.held_back);
    write_shards(&mut text, "shards that need no row", &report.without_row);
    text.push_str("\nNothing was written.\n");
    text
}

fn write_steps(text: &mut String, title: &str, steps: &[StepLine]) {
    if steps.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n{title}");
    let width = steps
        .iter()
        .map(|line| line.shard.len())
        .max()
        .unwrap_or_default();
    for StepLine {
        step,
        shard,
        checkpoint,
        reason,
        ..
    } in steps
    {
        let at = checkpoint
            .as_ref()
            .map(|checkpoint| format!(" at {checkpoint}"))
            .unwrap_or_default();
        let _ = writeln!(text, "  {step:9}  {shard:width$}{at}  {reason}");
    }
}

fn write_shards(text: &mut String, title: &str, shards: &[ShardLine]) {
    if shards.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n{title}");
    let width = shards
        .iter()
        .map(|line| line.shard.len())
        .max()
        .unwrap_or_default();
    for ShardLine { shard, reason, .. } in shards {
        let _ = writeln!(text, "  {shard:width$}  {reason}");
    }
}
