//! `shardmill plan`: the dry run of a host's next look; with `--hosts`, of the leader's figure.

mod hosts;

use std::time::Duration;

use anyhow::{Context, bail};
use serde::Serialize;
use shardmill_core::lease::{Pulse, WorkerId};
use shardmill_core::plan::{
    FleetView, MissingRow, ObservedLease, ObservedWorker, Plan, PlanLimits, Preview, Reason, Step,
    missing_rows, observed_workers, plan, preview,
};
use shardmill_core::plugin::{Part, split_part};
use shardmill_core::stream::LeaseKey;

use super::reading::Reading;
use crate::cli::PlanArgs;
use crate::output::{Page, age, millis, print, print_json};

/// What a worker would do, as `--json` prints it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Report {
    application: String,
    worker: String,
    #[serde(rename = "standing")]
    part: &'static str,
    leads: bool,
    leader: Option<String>,
    stream: Option<String>,
    starts_at: String,
    watched_for_ms: u64,
    notes: Vec<String>,
    /// The steps of this pass.
    now: Vec<StepLine>,
    /// The steps of the pass that follows at once.
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
    let worker = worker_to_ask(args)?;
    let reading = Reading::take(&args.application, &args.reading).await?;
    if args.hosts {
        return hosts::execute(args, &reading);
    }
    let report = report(&args.application, &worker, &reading);
    if args.reading.output.json {
        return print_json(&report);
    }
    print(as_text(&report).trim_end());
    Ok(())
}

/// Nobody but the standalone host itself uses its rows.
fn worker_to_ask(args: &PlanArgs) -> anyhow::Result<WorkerId> {
    const WOULD_JOIN: &str = "plan";
    let named = args.worker.as_deref();
    let id = match split_part(&args.application).1 {
        Part::Host(host) if named.is_some_and(|named| named != host) => bail!(
            "{} are the rows of {host} alone: leave out --as",
            args.application
        ),
        Part::Host(host) => host,
        Part::Whole | Part::Stream(_) => named.unwrap_or(WOULD_JOIN),
    };
    WorkerId::new(id).context("--as needs the id of a worker, such as host-3")
}

fn report(application: &str, me: &WorkerId, reading: &Reading) -> Report {
    let leads = reading.would_lead(me);
    let view = View::of(me, reading);
    let mut own_view = view.as_seen();
    own_view.shards = if leads { reading.shards() } else { None };
    let limits = limits_of(me, reading);
    let decided = preview(&own_view, &limits);
    let leaders_plan = plan_of_leader(me, leads, reading);
    let missing = reading
        .shards()
        .map(|list| missing_rows(&own_view, &list, &limits))
        .unwrap_or_default();
    Report {
        application: application.to_owned(),
        worker: me.to_string(),
        part: part(me, reading),
        leads,
        leader: reading.leader().map(ToString::to_string),
        stream: reading.stream.as_ref().map(ToString::to_string),
        starts_at: starts_at(reading),
        watched_for_ms: millis(reading.watched_for),
        notes: reading.notes.clone(),
        held_back: left_for_now(&decided, &leaders_plan),
        now: StepLine::all(&decided.now),
        then: decided.then.as_ref().map(StepLine::all).unwrap_or_default(),
        leader_would: StepLine::all(&leaders_plan),
        without_row: missing.iter().filter_map(ShardLine::without_row).collect(),
    }
}

/// The fleet as one of its workers sees it.
struct View<'a> {
    me: &'a WorkerId,
    leases: Vec<ObservedLease>,
    workers: Vec<ObservedWorker>,
    reading: &'a Reading,
}

impl<'a> View<'a> {
    fn of(me: &'a WorkerId, reading: &'a Reading) -> Self {
        Self {
            me,
            leases: reading.leases_of(me),
            workers: observed_workers(&reading.observer, reading.now),
            reading,
        }
    }

    fn as_seen(&self) -> FleetView<'_> {
        FleetView {
            me: self.me,
            leases: &self.leases,
            workers: &self.workers,
            shards: self.reading.shards(),
            is_bootstrapped: self.reading.is_bootstrapped(),
        }
    }
}

/// Where the application began, or would begin.
fn starts_at(reading: &Reading) -> String {
    match &reading.fleet.start {
        Some(start) => start.to_string(),
        None => format!(
            "{}, as configured: no host has started yet",
            reading.limits.initial_position
        ),
    }
}

/// What the leader would do as leader; empty if this worker leads, or no worker does.
fn plan_of_leader(me: &WorkerId, leads: bool, reading: &Reading) -> Plan {
    let Some(leader) = reading.leader().filter(|leader| !leads && *leader != me) else {
        return Plan::default();
    };
    let view = View::of(leader, reading);
    let mut decided = plan(&view.as_seen(), &limits_of(leader, reading));
    decided
        .steps
        .retain(|step| matches!(step, Step::Create { .. } | Step::Delete { .. }));
    decided
        .held_back
        .retain(|(_, reason)| *reason == Reason::GoneAfterNextListing);
    decided
}

/// What the last pass leaves alone, and what the leader, this worker or another, does not do yet.
fn left_for_now(decided: &Preview, leaders_plan: &Plan) -> Vec<ShardLine> {
    let last = decided.then.as_ref().unwrap_or(&decided.now);
    let mut left: Vec<&(LeaseKey, Reason)> = leaders_plan.held_back.iter().collect();
    if decided.then.is_some() {
        let first_only = decided.now.held_back.iter();
        left.extend(first_only.filter(|(_, reason)| *reason == Reason::GoneAfterNextListing));
    }
    left.extend(&last.held_back);
    left.into_iter()
        .map(|(key, reason)| ShardLine::held_back(key, reason))
        .collect()
}

impl ShardLine {
    fn held_back(key: &LeaseKey, reason: &Reason) -> Self {
        Self {
            shard: key.shard_id().to_string(),
            kind: reason.code(),
            reason: reason.to_string(),
        }
    }

    /// `None` for a shard that gets a row.
    fn without_row(missing: &MissingRow<'_>) -> Option<Self> {
        let (shard, start) = missing;
        let why = start.as_ref().err()?;
        Some(Self {
            shard: shard.id.to_string(),
            kind: why.code(),
            reason: why.to_string(),
        })
    }
}

fn limits_of(me: &WorkerId, reading: &Reading) -> PlanLimits {
    let row = reading.fleet.workers.iter().find(|row| row.worker == *me);
    PlanLimits {
        max_leases: row.map_or(reading.limits.max_leases, |row| row.max_leases),
        ..reading.limits
    }
}

/// The worker's role in the fleet.
fn part(me: &WorkerId, reading: &Reading) -> &'static str {
    let row = reading.fleet.workers.iter().find(|row| row.worker == *me);
    match (row, reading.observer.worker_pulse(me, reading.now)) {
        (Some(_), Some(Pulse::Expired { .. })) => {
            "registered but dead: planned as if it had started again"
        }
        (Some(row), _) if row.is_draining => "shutting down: it would take no more leases",
        (Some(_), _) => "running",
        (None, _) => "a worker that would join",
    }
}

impl StepLine {
    fn all(plan: &Plan) -> Vec<Self> {
        plan.steps.iter().map(Self::of).collect()
    }

    fn of(step: &Step) -> Self {
        let row = match step {
            Step::Create { lease: row, .. } | Step::Take { seen: row, .. } => Some(row),
            Step::Delete { .. }
            | Step::Claim { .. }
            | Step::Release { .. }
            | Step::HandOver { .. } => None,
        };
        Self {
            step: step.code(),
            shard: step.key().shard_id().to_string(),
            checkpoint: row.map(|row| row.checkpoint.to_string()),
            kind: step.reason().code(),
            reason: step.reason().to_string(),
        }
    }
}

fn as_text(report: &Report) -> String {
    let mut page = Page::new(8);
    write_fleet(&mut page, report);
    write_steps(&mut page, "now", &report.now);
    write_steps(&mut page, "then, once these rows are there", &report.then);
    write_steps(
        &mut page,
        "meanwhile the leader, at its next listing",
        &report.leader_would,
    );
    if report.now.is_empty() && report.then.is_empty() {
        page.plain("\nnow\n  nothing");
    }
    write_shards(&mut page, "left for now", &report.held_back);
    write_shards(&mut page, "shards that need no row", &report.without_row);
    page.plain("\nNothing was written.");
    page.into_text()
}

fn write_fleet(page: &mut Page, report: &Report) {
    page.line("worker", format_args!("{}, {}", report.worker, report.part));
    page.line("leader", leader(report));
    page.line("stream", report.stream.as_deref().unwrap_or("not known"));
    page.line("starts", &report.starts_at);
    match report.watched_for_ms {
        0 => page.line(
            "watched",
            "watched once: every registered worker counts as alive",
        ),
        ms => page.line(
            "watched",
            format_args!("for {}", age(Duration::from_millis(ms))),
        ),
    }
    for note in &report.notes {
        page.line("note", note);
    }
}

fn leader(report: &Report) -> String {
    match (&report.leader, report.leads) {
        (Some(leader), true) if *leader == report.worker => "this worker".to_owned(),
        (Some(leader), true) => format!("this worker would: {leader}, which did, is silent"),
        (None, true) => "none; this worker would become leader".to_owned(),
        (Some(leader), false) => leader.clone(),
        (None, false) => "none".to_owned(),
    }
}

fn write_steps(page: &mut Page, title: &str, steps: &[StepLine]) {
    if steps.is_empty() {
        return;
    }
    page.plain(format_args!("\n{title}"));
    let width = widest(steps.iter().map(|line| line.shard.as_str()));
    for line in steps {
        let (step, shard, reason) = (line.step, &line.shard, &line.reason);
        let at = match &line.checkpoint {
            Some(checkpoint) => format!(" at {checkpoint}"),
            None => String::new(),
        };
        page.plain(format_args!("  {step:9}  {shard:width$}{at}  {reason}"));
    }
}

fn write_shards(page: &mut Page, title: &str, shards: &[ShardLine]) {
    if shards.is_empty() {
        return;
    }
    page.plain(format_args!("\n{title}"));
    let width = widest(shards.iter().map(|line| line.shard.as_str()));
    for ShardLine { shard, reason, .. } in shards {
        page.plain(format_args!("  {shard:width$}  {reason}"));
    }
}

fn widest<'a>(texts: impl Iterator<Item = &'a str>) -> usize {
    texts.map(str::len).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command, OperateCommand};

    fn asked(words: &[&str]) -> anyhow::Result<String> {
        let line = ["shardmill", "plan"].iter().chain(words);
        let Command::Operate(OperateCommand::Plan(args)) = Cli::parse_from(line).command else {
            panic!("it is one")
        };
        Ok(worker_to_ask(&args)?.to_string())
    }

    #[test]
    fn the_rows_of_a_standalone_host_are_planned_for_that_host_alone() {
        assert_eq!(asked(&["prices@pod-7"]).unwrap(), "pod-7");
        assert_eq!(asked(&["prices@pod-7", "--as", "pod-7"]).unwrap(), "pod-7");
        assert!(asked(&["prices@pod-7", "--as", "pod-8"]).is_err());
        assert_eq!(asked(&["prices", "--as", "pod-8"]).unwrap(), "pod-8");
        assert_eq!(asked(&["prices:orders"]).unwrap(), "plan");
    }
}
