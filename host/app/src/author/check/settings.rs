//! What a plugin would be run with: its manifest, under the host's configuration.

use std::fmt::Write;
use std::path::Path;

use bytesize::ByteSize;
use humantime::format_duration;
use shardmill_core::pipeline::{FailurePolicy, GiveUp, Order};
use shardmill_core::plugin::PluginName;
use shardmill_core::rollout::RolloutPolicy;

use shardmill_config::{Config, Manifest, PluginConfig, limits_told};

use super::report::{Applied, Checked, SettingsReport};

/// What an instance is told that it reads where nobody says.
pub(super) const STREAM: &str = "the-stream-of-the-host";

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
    /// Reads the manifest beside `component`, under `config`, which decides on grants only if it is
    /// a host's own. An error says that its name cannot be a plugin's.
    pub(super) fn read(
        component: &Path,
        config: &Config,
        is_decided: bool,
    ) -> anyhow::Result<Self> {
        let stem = component
            .file_stem()
            .and_then(|stem| stem.to_str())
            .unwrap_or_default();
        let name = PluginName::new(stem)?;
        let manifest = match Manifest::read(&component.with_extension("toml")) {
            Err(error) => {
                let checked = Err(error.to_string());
                return Ok(Self {
                    name,
                    has_manifest: true,
                    asked: Vec::new(),
                    is_decided,
                    checked,
                });
            }
            Ok(manifest) => manifest,
        };
        let asked = manifest.as_ref().map(Manifest::asks).unwrap_or_default();
        let under = match &manifest {
            Some(manifest) if !is_decided => Some(manifest.asking_for_state_only()),
            manifest => manifest.clone(),
        };
        let checked = config.of_plugin(&name, under.as_ref());
        Ok(Self {
            name,
            has_manifest: manifest.is_some(),
            asked,
            is_decided,
            checked,
        })
    }

    /// Whether it asks to send requests anywhere.
    pub(super) fn asks_http(&self) -> bool {
        self.asked.iter().any(|asked| asked.starts_with("http "))
    }

    pub(super) fn report(&self) -> SettingsReport<'_> {
        let settings = match &self.checked {
            Err(problem) => Checked::Wrong { problem },
            Ok(config) => Checked::Right {
                streams: streams(config),
                batch_records: config.batches.records,
                applied: applied(config),
                limits: limits_told(&config.limits).into_iter().collect(),
            },
        };
        SettingsReport {
            manifest: self.has_manifest,
            grants_asked: &self.asked,
            grants_given: self.is_decided.then_some(self.checked.is_ok()),
            settings,
        }
    }

    pub(super) fn as_text(&self) -> String {
        let mut text = String::new();
        let manifest = if self.has_manifest {
            "read"
        } else {
            "none: only computes on the host's stream"
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "manifest  {manifest}");
        let verdict = match (self.is_decided, &self.checked) {
            (false, _) => "requested: --config shows whether it is allowed",
            (true, Ok(_)) => "given",
            (true, Err(_)) => "asked, refused",
        };
        for asked in &self.asked {
            let _ = writeln!(text, "grant     {asked:48} {verdict}");
        }
        // A problem is told with the others.
        let Ok(config) = &self.checked else {
            return text;
        };
        for stream in streams(config) {
            let _ = writeln!(text, "reads     {stream}");
        }
        for (name, value) in applied(config).rows() {
            let _ = writeln!(text, "setting   {name:48} {value}");
        }
        for (name, limit) in limits_told(&config.limits) {
            let _ = writeln!(text, "limit     {name:48} {limit}");
        }
        text
    }
}

/// Those that it names; none where it takes the host's.
fn streams(config: &PluginConfig) -> Vec<String> {
    config
        .streams
        .iter()
        .map(|one| one.stream.to_string())
        .filter(|name| name != STREAM)
        .collect()
}

fn applied(config: &PluginConfig) -> Applied {
    let sinks = match &config.sinks {
        Some(names) => names
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join(", "),
        None => "all".to_owned(),
    };
    let (batch, checkpoint) = (&config.batches, &config.checkpoints);
    let (batch_bytes, checkpoint_bytes) =
        (ByteSize(batch.bytes as u64), ByteSize(checkpoint.bytes));
    let (window, age) = (
        format_duration(batch.window),
        format_duration(checkpoint.age),
    );
    Applied {
        sinks,
        batch: format!(
            "{} records or {batch_bytes}, waits {window} to fill",
            batch.records
        ),
        checkpoint: format!(
            "{} records, {checkpoint_bytes} or {age}",
            checkpoint.records
        ),
        failure: failure(&config.failure),
        rollout: rollout(&config.rollout),
    }
}

fn failure(policy: &FailurePolicy) -> String {
    let then = match &policy.then {
        None => "tried forever".to_owned(),
        Some(then) => {
            let attempts = policy
                .attempts
                .map(|attempts| format!("after {attempts} attempts"));
            let age = policy
                .max_age
                .map(|age| format!("older than {}", format_duration(age)));
            let when = attempts
                .into_iter()
                .chain(age)
                .collect::<Vec<_>>()
                .join(" or ");
            let when = if when.is_empty() {
                "if rejected".to_owned()
            } else {
                when
            };
            match then {
                GiveUp::DeadLetter(sink) => format!("{} in {sink} {when}", then.code()),
                GiveUp::Skip | GiveUp::Halt => format!("{} {when}", then.code()),
            }
        }
    };
    let order = match policy.order {
        Order::Shard => "shard",
        Order::Key => "key",
    };
    let bisect = if policy.bisect { ", bisect" } else { "" };
    format!("{then}{bisect}, order {order}")
}

fn rollout(policy: &RolloutPolicy) -> String {
    if !policy.enabled {
        return "off: a new version is used at once".to_owned();
    }
    let RolloutPolicy {
        canary_records,
        canary_batches,
        share,
        ..
    } = policy;
    let (canary_for, probation) = (
        format_duration(policy.canary_for),
        format_duration(policy.probation),
    );
    format!(
        "canary {canary_records} records in {canary_batches} batches or {canary_for}, probation \
            {probation}, share {share}"
    )
}
