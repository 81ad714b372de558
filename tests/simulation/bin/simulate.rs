//! Runs seeds and says what happened; replays one with everything written down.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, ValueEnum};
use shardmill_simulation::bugs::Bug;
use shardmill_simulation::dimension::{Dimension, Dimensions};
use shardmill_simulation::lanes::run_all;
use shardmill_simulation::report::{SeedReport, Summary};
use shardmill_simulation::run::run;
use shardmill_simulation::schedule::{Over, Scope};
use shardmill_simulation::trace_file::TraceFile;

/// Seeds that are replayed by the test, next to this package's manifest.
const REGRESSIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/regressions.txt");

#[derive(Parser)]
#[allow(clippy::struct_excessive_bools, reason = "switches of a command line")]
struct Arguments {
    /// One seed, or FIRST..END.
    #[arg(long, default_value = "0..100", value_parser = parse_seeds)]
    seeds: std::ops::Range<u64>,
    /// What hosts work over; else each seed has its own, most of them the ports.
    #[arg(long, value_enum)]
    over: Option<Over>,
    /// Without failure policies, aggregates and fan-out, which earlier seeds did not draw.
    #[arg(long)]
    plain: bool,
    /// What a run over the ports may have beyond what the first seeds drew; else what is usual.
    #[arg(long, value_enum, value_delimiter = ',')]
    with: Option<Vec<Dimension>>,
    /// What a run may not have, of what is usual: for seeds from before it.
    #[arg(long, value_enum, value_delimiter = ',')]
    without: Vec<Dimension>,
    /// Runs at once.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Hosts have this bug.
    #[arg(long)]
    bug: Option<Bug>,
    /// Runs every bug until it is found.
    #[arg(long)]
    bugs: bool,
    /// Ends with the first seed that breaks this invariant, such as `S9`.
    #[arg(long, value_name = "INVARIANT")]
    until: Option<String>,
    /// Writes requests, history and the hosts' log of a single seed to a file.
    #[arg(long)]
    trace: Option<PathBuf>,
    /// Invariants that may be broken, for those under discussion: `S9,S10`.
    #[arg(long, value_delimiter = ',')]
    tolerate: Vec<String>,
    /// Schedules tried for each bug with `--bugs`.
    #[arg(long, default_value_t = 1_000)]
    bug_schedules: u64,
    /// Appends seeds that fail to the list of those that the test replays.
    #[arg(long)]
    keep_failures: bool,
    /// Prints each seed's trace hash.
    #[arg(long)]
    hashes: bool,
}

impl Arguments {
    /// What `seed` runs over. Unless somebody says otherwise, a bug is looked for over the ports,
    /// where all of them act, in runs that have what it needs.
    fn scope(&self, seed: u64, bug: Option<Bug>) -> Scope {
        let dimensions = self
            .with
            .as_deref()
            .map_or_else(|| Dimensions::usual(seed), Dimensions::of);
        let (usual, needed) = match bug {
            Some(bug) => (Over::Ports, bug.needs()),
            None => (Over::of(seed), [].as_slice()),
        };
        Scope {
            over: self.over.unwrap_or(usual),
            is_plain: self.plain,
            dimensions: dimensions.and(needed).without(&self.without),
        }
    }

    fn ends_with(&self, report: &SeedReport) -> bool {
        self.until.as_ref().is_some_and(|id| report.breaks(id))
    }
}

fn parse_seeds(text: &str) -> Result<std::ops::Range<u64>, String> {
    let number = |text: &str| {
        text.parse::<u64>()
            .map_err(|error| format!("{text:?}: {error}"))
    };
    match text.split_once("..") {
        Some((first, end)) => Ok(number(first)?..number(end)?),
        None => number(text).map(|seed| seed..seed + 1),
    }
}

fn main() -> io::Result<ExitCode> {
    let arguments = Arguments::parse();
    let mut out = io::stdout().lock();
    if arguments.bugs {
        return table_of_bugs(&arguments, &mut out);
    }
    let (began, mut summary, mut problem) = (Instant::now(), Summary::default(), Ok(()));
    let job = |seed| one(&arguments, seed);
    run_all(
        arguments.seeds.clone(),
        arguments.threads,
        &job,
        |seed, result| {
            let is_over = result.as_ref().is_ok_and(|seed| arguments.ends_with(seed));
            problem = report(&mut out, &arguments, &mut summary, seed, result);
            if problem.is_err() || is_over {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        },
    );
    problem?;
    let seconds = began.elapsed().as_secs_f64();
    writeln!(out, "{summary}")?;
    writeln!(
        out,
        "{:.1} s, {:.2} schedules/s",
        seconds,
        summary.seeds as f64 / seconds
    )?;
    Ok(if summary.failing.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn one(arguments: &Arguments, seed: u64) -> SeedReport {
    let file = arguments
        .trace
        .as_ref()
        .map(|path| TraceFile::create(path).expect("the trace file can be made"));
    run(
        seed,
        arguments.scope(seed, arguments.bug),
        arguments.bug,
        file,
    )
}

fn report(
    out: &mut impl Write,
    arguments: &Arguments,
    summary: &mut Summary,
    seed: u64,
    result: Result<SeedReport, String>,
) -> io::Result<()> {
    match result {
        Ok(mut report) => {
            let is_tolerated = |what: &String| {
                arguments
                    .tolerate
                    .iter()
                    .any(|id| what.starts_with(&format!("{id} ")))
            };
            report.violations.retain(|what| !is_tolerated(what));
            summary.add(&report);
            if arguments.hashes {
                writeln!(out, "seed {seed} hash {:016x}", report.hash)?;
            }
            if !report.violations.is_empty() {
                writeln!(out, "seed {seed}: {} violations", report.violations.len())?;
                for violation in report.violations.iter().take(8) {
                    writeln!(out, "  {violation}")?;
                }
                writeln!(out, "  replay: {}", replay(arguments, seed))?;
                keep(arguments, seed, &report.violations[0])?;
            }
        }
        Err(problem) => {
            summary.seeds += 1;
            summary.failing.push(seed);
            writeln!(
                out,
                "seed {seed}: {problem}\n  replay: {}",
                replay(arguments, seed)
            )?;
            keep(arguments, seed, &problem)?;
        }
    }
    out.flush()
}

/// Runs with a seeded bug are meant to fail.
fn keep(arguments: &Arguments, seed: u64, what: &str) -> io::Result<()> {
    if !arguments.keep_failures || arguments.bug.is_some() {
        return Ok(());
    }
    let what: String = what.chars().take(80).collect();
    let mut list = OpenOptions::new()
        .append(true)
        .create(true)
        .open(REGRESSIONS)?;
    let mut words = words(arguments.scope(seed, arguments.bug), " ", " ");
    words += &dimensions(arguments, " with:", " without:");
    writeln!(list, "{seed}{words} # {what}")
}

/// What makes a run what it is, beside its seed: as options if `prefix` is ` --`, as words of the
/// list if it is a space.
fn words(scope: Scope, over: &str, prefix: &str) -> String {
    let over = match scope.over {
        Over::Wire => format!("{over}wire"),
        Over::Ports => format!("{over}ports"),
    };
    if scope.is_plain {
        format!("{over}{prefix}plain")
    } else {
        over
    }
}

fn replay(arguments: &Arguments, seed: u64) -> String {
    let bug = arguments
        .bug
        .map(|bug| format!(" --bug {bug}"))
        .unwrap_or_default();
    let mut scope = words(arguments.scope(seed, arguments.bug), " --over ", " --");
    scope += &dimensions(arguments, " --with ", " --without ");
    format!("cargo run --bin simulate -- --seeds {seed}{scope}{bug} --trace seed-{seed}.trace")
}

/// The dimensions that the command line names, each list after its word.
fn dimensions(arguments: &Arguments, with: &str, without: &str) -> String {
    let mut text = String::new();
    if let Some(dimensions) = &arguments.with {
        text += with;
        text += &names(dimensions);
    }
    if !arguments.without.is_empty() {
        text += without;
        text += &names(&arguments.without);
    }
    text
}

/// As they are written on the command line.
fn names(dimensions: &[Dimension]) -> String {
    let values = dimensions.iter().filter_map(ValueEnum::to_possible_value);
    let names: Vec<String> = values.map(|value| value.get_name().to_owned()).collect();
    names.join(",")
}

fn table_of_bugs(arguments: &Arguments, out: &mut impl Write) -> io::Result<ExitCode> {
    let (mut all, mut found) = (0, 0);
    for bug in Bug::all() {
        let (tried, first) = find(arguments, bug);
        all += 1;
        match first {
            Some((seed, what)) => {
                found += 1;
                let what: String = what.chars().take(100).collect();
                writeln!(out, "{bug:<40} {tried:>5} schedules  seed {seed}: {what}")?;
            }
            None => writeln!(out, "{bug:<40} NOT FOUND in {tried} schedules")?,
        }
        out.flush()?;
    }
    writeln!(out, "found {found} of {all}")?;
    Ok(if found == all {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// How many schedules were tried, and the first that is wrong with `bug` and right without it.
fn find(arguments: &Arguments, bug: Bug) -> (u64, Option<(u64, String)>) {
    let (mut tried, mut found) = (0, None);
    let job = |seed| run(seed, arguments.scope(seed, Some(bug)), Some(bug), None);
    run_all(
        0..arguments.bug_schedules,
        arguments.threads,
        &job,
        |seed, result| {
            tried += 1;
            match what_is_wrong(result) {
                Some(what) if !is_wrong_without(arguments, bug, seed) => {
                    found = Some((seed, what));
                    ControlFlow::Break(())
                }
                _ => ControlFlow::Continue(()),
            }
        },
    );
    (tried, found)
}

fn is_wrong_without(arguments: &Arguments, bug: Bug, seed: u64) -> bool {
    let mut is_wrong = false;
    let job = |seed| run(seed, arguments.scope(seed, Some(bug)), None, None);
    run_all([seed], 1, &job, |_, result| {
        is_wrong = what_is_wrong(result).is_some();
        ControlFlow::Continue(())
    });
    is_wrong
}

fn what_is_wrong(result: Result<SeedReport, String>) -> Option<String> {
    result.map_or_else(Some, |report| report.violations.into_iter().next())
}
