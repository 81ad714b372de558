//! `shardmill test`.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use shardmill_config::Config;
use shardmill_serve::Signals;
use shardmill_sinks::LineFormat;
use shardmill_wasm::Metering;

use crate::author::arguments::config_or_default;
use crate::author::captured;
use crate::author::dry_run::{
    CapturedStream, DryRun, DryRunInput, DryRunOutcome, DryRunReport, Reload, compare, lines,
    lines_by_shard, rank_sequence_numbers, read_entries,
};
use crate::author::feed::KeySource;
use crate::author::interrupted::unless_interrupted;
use crate::cli::TestArgs;
use crate::output::{print_bytes, print_json};

/// Output that a test may expect; it is held, as what comes out is.
const EXPECTED_BYTES_MAX: u64 = 1 << 30;

pub(crate) async fn execute(args: TestArgs) -> anyhow::Result<()> {
    let signals = Signals::listen()?;
    let expected = args.expect.as_deref().map(read).transpose()?;
    let config = config_or_default(args.settings.config.as_deref(), "test")?;
    let input = read_input(&args).await?;
    let records = input.count() as u64;
    let dry_run = dry_run(&args, config);
    let running = Box::pin(dry_run.run(input, signals.stop()));
    let mut outcome = unless_interrupted(running, signals.stop()).await??;
    if args.deterministic {
        outcome
            .kept
            .failed
            .sort_by(|one, other| one.shard.cmp(&other.shard));
    }
    let output = output_of(&args, &outcome);
    let comparison = expected.map(|expected| compare(&expected, &output, args.unordered));
    let report = DryRunReport::new(records, &outcome, comparison);
    show(&args, &report, &output)?;
    if !report.is_good(args.allow_failures) {
        bail!("the test failed");
    }
    Ok(())
}

fn dry_run(args: &TestArgs, config: Config) -> DryRun {
    DryRun {
        plugin: args.plugin.clone(),
        config,
        sinks: args.settings.sinks.clone(),
        shards: args.shards,
        batch_records: args.settings.batch_records,
        attempts: args.attempts,
        reload: args.reload_after.map(|after| Reload {
            after: usize::try_from(after).unwrap_or(usize::MAX),
            to: args.reload_to.clone(),
        }),
        hand_over_after: args
            .hand_over_after
            .map(|after| usize::try_from(after).unwrap_or(usize::MAX)),
        passes: args.clock,
        ends_shards: args.end_shard,
        timeout: args.timeout,
        metering: if args.deterministic {
            Metering::Fuel {
                per_call: args.fuel,
                wall_ms: Metering::NO_REAL_TIME_MS,
            }
        } else {
            Metering::Deadline
        },
    }
}

/// The output as it is printed and compared. What differs in each run is taken out: the sequence
/// numbers of records that were put, and with `--deterministic` the order among shards.
fn output_of(args: &TestArgs, outcome: &DryRunOutcome) -> Vec<u8> {
    let format = if args.envelope {
        LineFormat::Envelope
    } else {
        LineFormat::Data
    };
    let parts = if args.deterministic {
        lines_by_shard(&outcome.kept, format)
    } else {
        vec![lines(&outcome.kept, format)]
    };
    if args.captured.is_some() {
        return parts.concat();
    }
    let ranked = parts.iter().map(|part| rank_sequence_numbers(part));
    ranked.flatten().collect()
}

/// Standard output is the plugin's, so the report goes to standard error.
fn show(args: &TestArgs, report: &DryRunReport, output: &[u8]) -> anyhow::Result<()> {
    if args.output.json {
        return print_json(report);
    }
    if report.comparison.is_none() {
        print_bytes(output);
    }
    shardmill_serve::telemetry::show(&report.to_string());
    Ok(())
}

async fn read_input(args: &TestArgs) -> anyhow::Result<DryRunInput> {
    const PANICKED: &str = "the reader of the input panicked";
    if let Some(path) = args.captured.clone() {
        let read = tokio::task::spawn_blocking(move || captured::read(&path));
        let stream = CapturedStream::new(read.await.context(PANICKED)??)?;
        return Ok(DryRunInput::Captured(Arc::new(stream)));
    }
    let (path, spoil) = (args.input.clone().unwrap_or_default(), args.spoil);
    let key = KeySource::field_or_number(args.key_field.as_deref());
    let read = tokio::task::spawn_blocking(move || read_entries(&path, key, spoil));
    Ok(DryRunInput::Put(read.await.context(PANICKED)??))
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    let within_bound = || -> std::io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        std::fs::File::open(path)?
            .take(EXPECTED_BYTES_MAX + 1)
            .read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = within_bound().with_context(|| format!("cannot read {}", path.display()))?;
    if bytes.len() as u64 > EXPECTED_BYTES_MAX {
        bail!(
            "{} has more than {} MiB: use part of it",
            path.display(),
            EXPECTED_BYTES_MAX >> 20
        );
    }
    Ok(bytes)
}
