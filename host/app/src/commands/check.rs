//! `shardmill check`.

use std::fmt::Write;

use anyhow::{Context, bail};
use bytes::Bytes;
use indicatif::HumanBytes;
use serde_json::json;
use shardmill_core::plugin::PluginName;
use shardmill_wasm::{Inspection, Runtime};

use super::{print, print_json};
use crate::cli::CheckArgs;
use crate::config::{Config, Manifest};
use crate::engine::default_runtime_options;

pub(super) async fn execute(args: &CheckArgs) -> anyhow::Result<()> {
    let bytes = std::fs::read(&args.file).with_context(|| format!("cannot read {}", args.file.display()))?;
    let options = default_runtime_options().context("cannot find the compiler")?;
    let runtime = Runtime::new(options).context("cannot start the Wasm engine")?;
    let inspection = runtime.inspect(Bytes::from(bytes)).await?;
    let grants = Grants::of(args)?;
    if args.json {
        print_json(&as_json(&inspection, &grants))?;
    } else {
        print(as_text(&inspection, &grants).trim_end());
    }
    let refusal = inspection.refusal.as_ref().map(ToString::to_string).or_else(|| grants.given.clone()?.err());
    match refusal {
        Some(refusal) => bail!("the host would refuse {}: {refusal}", args.file.display()),
        None => Ok(()),
    }
}

/// What the manifest asks for, and what becomes of it.
struct Grants {
    asked: Vec<String>,
    /// Whether the host gives it, if one is named; its problem if not.
    given: Option<Result<(), String>>,
}

impl Grants {
    fn of(args: &CheckArgs) -> anyhow::Result<Self> {
        let manifest = Manifest::read(&args.file.with_extension("toml"))?;
        let asked = manifest.as_ref().map(Manifest::asks).unwrap_or_default();
        let Some(config) = &args.config else { return Ok(Self { asked, given: None }) };
        let stem = args.file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let name = PluginName::new(stem).with_context(|| format!("{} names no plugin", args.file.display()))?;
        let settings = Config::load(config)?.of_plugin(&name, manifest.as_ref());
        Ok(Self { asked, given: Some(settings.map(drop)) })
    }

    fn verdict(&self) -> &'static str {
        match self.given {
            None => "asked",
            Some(Ok(())) => "given",
            Some(Err(_)) => "asked, refused",
        }
    }
}

fn as_json(inspection: &Inspection, grants: &Grants) -> serde_json::Value {
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
        "grants-asked": grants.asked,
        "grants-given": grants.given.as_ref().map(Result::is_ok),
        "grants-refusal": grants.given.as_ref().and_then(|given| given.as_ref().err()),
        "refusal": inspection.refusal.as_ref().map(ToString::to_string),
    })
}

fn as_text(inspection: &Inspection, grants: &Grants) -> String {
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
    for asked in &grants.asked {
        let _ = writeln!(text, "grant     {asked:48} {}", grants.verdict());
    }
    if inspection.sends_http && !grants.asked.iter().any(|asked| asked.starts_with("http ")) {
        let _ = writeln!(text, "grant     {:48} not asked: its requests are denied", "http");
    }
    let is_refused = inspection.refusal.is_some() || matches!(grants.given, Some(Err(_)));
    let verdict = if !is_refused { "would be run" } else { "would be refused" };
    let _ = writeln!(text, "verdict   {verdict}");
    text
}
