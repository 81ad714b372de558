//! What a plugin would be run with: its manifest, under the host's configuration.

use std::fmt::Write;
use std::path::Path;

use bytesize::ByteSize;
use serde_json::{Value, json};
use shardmill_core::plugin::PluginName;
use shardmill_core::stream::StreamName;

use crate::config::{Config, Manifest, PluginConfig};

/// What an instance is told that it reads where nobody says.
const STREAM: &str = "the-stream-of-the-host";

/// Settings, or what is wrong with them.
pub(super) struct Settings {
    /// The plugin's name: the file's.
    pub(super) name: PluginName,
    /// Whether there is a manifest.
    pub(super) has_manifest: bool,
    /// What it asks to be granted, an item a line.
    asked: Vec<String>,
    /// Whether a host's configuration says what of it is given.
    is_decided: bool,
    /// Its settings; or the problem, with file, line and mend.
    pub(super) checked: Result<PluginConfig, String>,
}

impl Settings {
    /// Reads the manifest beside `component`. An error says that its name cannot be a plugin's.
    pub(super) fn read(component: &Path, config: Option<&Config>) -> anyhow::Result<Self> {
        let stem = component.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let name = PluginName::new(stem)?;
        let is_decided = config.is_some();
        let manifest = match Manifest::read(&component.with_extension("toml")) {
            Err(error) => {
                let checked = Err(error.to_string());
                return Ok(Self { name, has_manifest: true, asked: Vec::new(), is_decided, checked });
            }
            Ok(manifest) => manifest,
        };
        let asked = manifest.as_ref().map(Manifest::asks).unwrap_or_default();
        let checked = match config {
            Some(config) => config.of_plugin(&name, manifest.as_ref()),
            // What is granted is for a host to say.
            None => Config::for_stream(&StreamName::new(STREAM)?)
                .and_then(|config| config.of_plugin(&name, manifest.as_ref().map(Manifest::without_grants).as_ref())),
        };
        Ok(Self { name, has_manifest: manifest.is_some(), asked, is_decided, checked })
    }

    /// Whether it asks to send requests anywhere.
    pub(super) fn asks_http(&self) -> bool {
        self.asked.iter().any(|asked| asked.starts_with("http "))
    }

    pub(super) fn as_json(&self) -> Value {
        let mut report = json!({
            "manifest": self.has_manifest,
            "grants-asked": self.asked,
            "grants-given": self.is_decided.then_some(self.checked.is_ok()),
        });
        match &self.checked {
            Err(problem) => report["problem"] = problem.as_str().into(),
            Ok(config) => {
                report["streams"] = streams(config).into();
                report["batch-records"] = config.batches.records.into();
                report["limits"] = json!(limits(config).into_iter().collect::<std::collections::BTreeMap<_, _>>());
            }
        }
        report
    }

    pub(super) fn as_text(&self) -> String {
        let mut text = String::new();
        let manifest = if self.has_manifest { "read" } else { "none: pure computing on the host's stream" };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "manifest  {manifest}");
        let verdict = match (self.is_decided, &self.checked) {
            (false, _) => "asked: --config tells whether it is given",
            (true, Ok(_)) => "given",
            (true, Err(_)) => "asked, refused",
        };
        for asked in &self.asked {
            let _ = writeln!(text, "grant     {asked:48} {verdict}");
        }
        match &self.checked {
            Err(problem) => {
                let _ = writeln!(text, "problem   {problem}");
            }
            Ok(config) => {
                for stream in streams(config) {
                    let _ = writeln!(text, "reads     {stream}");
                }
                for (name, limit) in limits(config) {
                    let _ = writeln!(text, "limit     {name:48} {limit}");
                }
            }
        }
        text
    }
}

/// Those that it names; none where it takes the host's.
fn streams(config: &PluginConfig) -> Vec<String> {
    config.streams.iter().map(|one| one.stream.to_string()).filter(|name| name != STREAM).collect()
}

/// By their keys under `[limits]`.
fn limits(config: &PluginConfig) -> Vec<(&'static str, String)> {
    let limits = &config.limits;
    let bytes = |bytes: usize| ByteSize(bytes as u64).to_string();
    vec![
        ("memory", bytes(limits.memory_bytes)),
        ("process-deadline", humantime::format_duration(limits.process_deadline).to_string()),
        ("init-deadline", humantime::format_duration(limits.init_deadline).to_string()),
        ("emit-bytes", bytes(limits.emit_bytes)),
        ("state", bytes(limits.state_bytes)),
    ]
}
