//! `shardmill check`.

mod running;
mod settings;

use std::fmt::Write;

use anyhow::{Context, bail};
use bytes::Bytes;
use indicatif::HumanBytes;
use serde_json::json;
use shardmill_wasm::{Inspection, Runtime};

use self::running::Running;
use self::settings::Settings;
use super::{print, print_json};
use crate::cli::CheckArgs;
use crate::config::Config;
use crate::engine::default_runtime_options;

pub(super) async fn execute(args: &CheckArgs) -> anyhow::Result<()> {
    let config = args.config.as_deref().map(Config::load).transpose()?;
    let bytes = std::fs::read(&args.file).with_context(|| format!("cannot read {}", args.file.display()))?;
    let options = default_runtime_options().context("cannot find the compiler")?;
    let runtime = Runtime::new(options).context("cannot start the Wasm engine")?;
    let inspection = runtime.inspect(Bytes::from(bytes)).await?;
    let settings = Settings::read(&args.file, config.as_ref())?;
    let running = if args.running {
        Some(Running::ask(args, config.as_ref(), &settings, &inspection, &runtime).await?)
    } else {
        None
    };
    let mut problems: Vec<String> = inspection.refusal.iter().map(ToString::to_string).collect();
    problems.extend(settings.checked.as_ref().err().cloned());
    if args.json {
        let mut report = as_json(&inspection);
        report["settings"] = settings.as_json();
        report["running"] = running.as_ref().map(Running::as_json).into();
        print_json(&report)?;
    } else {
        let running = running.as_ref().map(Running::as_text).unwrap_or_default();
        let verdict = if problems.is_empty() { "would be run" } else { "would be refused" };
        print(&format!("{}{}{running}verdict   {verdict}", as_text(&inspection, &settings), settings.as_text()));
    }
    if problems.is_empty() {
        return Ok(());
    }
    bail!("the host would refuse {}: {}", args.file.display(), problems.join("; and "))
}

fn as_json(inspection: &Inspection) -> serde_json::Value {
    let import =
        |import: &shardmill_wasm::InspectedImport| json!({ "name": import.name, "granted": import.is_granted });
    json!({
        "kind": inspection.kind.to_string(),
        "contract": inspection.contract,
        "size": inspection.size,
        "digest": inspection.digest.as_str(),
        "compile-ms": inspection.compile_time.map(|time| time.as_secs_f64() * 1e3),
        "imports": inspection.imports.iter().map(import).collect::<Vec<_>>(),
        "exports": inspection.exports,
        "sends-http": inspection.sends_http,
        "refusal": inspection.refusal.as_ref().map(ToString::to_string),
    })
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
        let granted = if import.is_granted { "granted" } else { "NOT GRANTED" };
        let _ = writeln!(text, "imports   {:48} {granted}", import.name);
    }
    for export in &inspection.exports {
        let _ = writeln!(text, "exports   {export}");
    }
    if inspection.sends_http && !settings.asks_http() {
        let _ = writeln!(text, "grant     {:48} not asked: its requests are denied", "http");
    }
    text
}
