//! `shardmill check`.

mod refusals;
mod report;
mod running;
mod settings;

use std::fmt::Write;

use anyhow::{Context, bail};
use indicatif::HumanBytes;
use shardmill_config::Config;
use shardmill_core::stream::StreamName;
use shardmill_serve::component::Found;
use shardmill_serve::engine::runtime_options;
use shardmill_wasm::{Inspection, Metering, Runtime, RuntimeOptions};

use self::refusals::refusals;
use self::report::{ComponentReport, Report};
use self::running::Running;
use self::settings::{STREAM, Settings};
use crate::cli::CheckArgs;
use crate::output::{print, print_json};

/// Twice the default of what a host takes.
const INSPECTED_BYTES_MAX: u64 = 64 << 20;

pub(crate) async fn execute(args: &CheckArgs) -> anyhow::Result<()> {
    let named = args.place.config.as_deref().map(Config::load).transpose()?;
    let host = match &named {
        Some(config) => config.clone(),
        None => Config::for_stream(&StreamName::new(STREAM)?).map_err(anyhow::Error::msg)?,
    };
    // What is larger than the host takes is still told about, within what compiling it may cost.
    let component = Found::read(
        &args.file,
        host.host.plugin_bytes_max.max(INSPECTED_BYTES_MAX),
    )?;
    let options = runtime_options(&host, Metering::Deadline).context("cannot find the compiler")?;
    // What the host keeps is left alone, and the time that is told is that of compiling.
    let options = RuntimeOptions {
        cache_dir: None,
        ..options
    };
    let runtime = Runtime::new(options).context("cannot start the Wasm engine")?;
    let inspection = runtime.inspect(component.bytes.clone()).await?;
    let settings = Settings::read(&args.file, &host, named.is_some())?;
    let running = if args.running {
        Some(Running::ask(args, named.as_ref(), &settings, &inspection, &runtime).await?)
    } else {
        None
    };
    let problems = refusals(&component, &host, &settings, &inspection);
    if args.output.json {
        print_json(&Report {
            component: ComponentReport::of(&inspection),
            settings: settings.report(),
            problems: &problems,
            running: running.as_ref().map(Running::report),
        })?;
    } else {
        let running = running.as_ref().map(Running::as_text).unwrap_or_default();
        let wrong = problems.iter().fold(String::new(), |text, problem| {
            text + "problem   " + problem + "\n"
        });
        let verdict = if problems.is_empty() {
            "would be run"
        } else {
            "would be refused"
        };
        print(&format!(
            "{}{}{running}{wrong}verdict   {verdict}",
            as_text(&inspection, &settings),
            settings.as_text()
        ));
    }
    if problems.is_empty() {
        return Ok(());
    }
    bail!(
        "the host would refuse {}: {}",
        args.file.display(),
        problems.join("; and ")
    )
}

fn as_text(inspection: &Inspection, settings: &Settings) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(text, "what      {}", inspection.kind);
    if let Some(contract) = &inspection.contract {
        let _ = writeln!(text, "contract  shardmill:processor@{contract}");
    }
    let _ = writeln!(text, "size      {}", HumanBytes(inspection.size as u64));
    let _ = writeln!(text, "digest    {}", inspection.digest.as_str());
    if let Some(time) = inspection.compile_time {
        let _ = writeln!(text, "compiled  in {:.1} ms", time.as_secs_f64() * 1e3);
    }
    for import in &inspection.imports {
        let granted = if import.is_granted {
            "granted"
        } else {
            "NOT GRANTED"
        };
        let _ = writeln!(text, "imports   {:48} {granted}", import.name);
    }
    for export in &inspection.exports {
        let _ = writeln!(text, "exports   {export}");
    }
    if inspection.sends_http && !settings.asks_http() {
        let _ = writeln!(
            text,
            "grant     {:48} not requested: its requests are denied",
            "http"
        );
    }
    text
}
