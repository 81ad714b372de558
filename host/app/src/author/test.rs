//! `shardmill test`.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use shardmill_config::Config;
use shardmill_core::stream::StreamName;
use shardmill_serve::Signals;
use shardmill_sinks::LineFormat;
use shardmill_wasm::Metering;

use crate::author::captured;
use crate::author::dry_run::{
    CapturedStream, DryRun, DryRunInput, DryRunReport, Failure, Reload, compare, lines,
    lines_by_shard, rank_sequence_numbers, read_entries,
};
use crate::author::feed::KeySource;
use crate::cli::TestArgs;
use crate::output::print_json;

/// Output that a test may expect; it is held, as what comes out is.
const EXPECTED_BYTES_MAX: u64 = 1 << 30;

pub(crate) async fn execute(args: TestArgs) -> anyhow::Result<()> {
    let signals = Signals::listen()?;
    let expected = args.expect.as_deref().map(read).transpose()?;
    let config = match &args.settings.config {
        Some(path) => Config::load(path)?,
        None => Config::for_stream(&StreamName::new("test")?).map_err(anyhow::Error::msg)?,
    };
    let input = read_input(&args).await?;
    let records = input.count();
    let dry_run = DryRun {
        plugin: args.plugin.clone(),
        config,
        sinks: args.settings.sinks,
        shards: args.shards,
        batch_records: args.settings.batch_records,
        attempts: args.attempts,
        reload: args.reload_after.map(|after| Reload {
            after: usize::try_from(after).unwrap_or(usize::MAX),
            to: args.reload_to.clone(),
        }),
        timeout: args.timeout,
        metering: if args.deterministic {
            Metering::Fuel {
                per_call: args.fuel,
            }
        } else {
            Metering::Deadline
        },
    };
    let mut tried = Box::pin(dry_run.run(input, signals.stop())).await?;
    if args.deterministic {
        tried
            .kept
            .failed
            .sort_by(|one, other| one.shard.cmp(&other.shard));
    }
    let format = if args.envelope {
        LineFormat::Envelope
    } else {
        LineFormat::Data
    };
    let parts = if args.deterministic {
        lines_by_shard(&tried.kept, format)
    } else {
        vec![lines(&tried.kept, format)]
    };
    // Captured records keep their numbers.
    let has_numbers = args.captured.is_some();
    let output: Vec<u8> = parts
        .into_iter()
        .flat_map(|part| {
            if has_numbers {
                part
            } else {
                rank_sequence_numbers(&part)
            }
        })
        .collect();
    let report = DryRunReport {
        records: records as u64,
        batches: tried.batches,
        output: tried.kept.output.len() as u64,
        failures: tried.kept.failed.iter().map(Failure::from).collect(),
        seconds: tried.took.as_secs_f64(),
        digests: tried.digests,
        fuel_per_record: args
            .deterministic
            .then(|| tried.fuel / (records as u64).max(1)),
        comparison: expected.map(|expected| compare(&expected, &output, args.unordered)),
    };
    if args.output.json {
        print_json(&report)?;
    } else {
        if report.comparison.is_none() {
            crate::output::print_bytes(&output);
        }
        tell(&report);
    }
    if !report.is_good(args.allow_failures) {
        bail!("the test failed");
    }
    Ok(())
}

async fn read_input(args: &TestArgs) -> anyhow::Result<DryRunInput> {
    if let Some(path) = args.captured.clone() {
        let read = tokio::task::spawn_blocking(move || captured::read(&path));
        let captured = read.await.context("the reader of the input panicked")??;
        return Ok(DryRunInput::Captured(Arc::new(CapturedStream::new(
            captured,
        )?)));
    }
    let (path, spoil) = (args.input.clone().unwrap_or_default(), args.spoil);
    let key = args
        .key_field
        .clone()
        .map_or(KeySource::LineNumber, KeySource::Field);
    let read = tokio::task::spawn_blocking(move || read_entries(&path, key, spoil));
    Ok(DryRunInput::Put(
        read.await.context("the reader of the input panicked")??,
    ))
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

/// Standard output is the plugin's.
fn tell(report: &DryRunReport) {
    shardmill_serve::telemetry::tell(&report.to_string());
}
