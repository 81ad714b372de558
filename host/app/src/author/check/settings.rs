//! The settings under which a plugin would run: its manifest, under the host's configuration.

use std::path::Path;

use bytesize::ByteSize;
use humantime::format_duration;
use shardmill_config::{Config, Manifest, PluginConfig, limits_shown};
use shardmill_core::pipeline::{FailurePolicy, GiveUp, Order, Parallelism};
use shardmill_core::plugin::PluginName;
use shardmill_core::rollout::RolloutPolicy;

use super::report::{Applied, Checked, SettingsReport};
use crate::author::arguments::plugin_of_file;
use crate::output::Page;

/// The stream of a plugin that names none, without a host's configuration.
pub(super) const STREAM: &str = "the-stream-of-the-host";

/// Settings, or what is wrong with them.
pub(super) struct Settings {
    /// The plugin's name: the file's.
    pub(super) name: PluginName,
    /// Whether there is a manifest.
    pub(super) has_manifest: bool,
    /// What the manifest asks for, one item each.
    asked: Vec<String>,
    /// Whether a host's configuration decided what is granted.
    is_decided: bool,
    /// The settings; or the problem, with file, line and fix.
    pub(super) checked: Result<PluginConfig, String>,
}

impl Settings {
    /// Reads the manifest next to `component`, under `config`, which decides on grants only if it
    /// is a host's own. An error means that a plugin cannot have this name.
    pub(super) fn read(
        component: &Path,
        config: &Config,
        is_decided: bool,
    ) -> anyhow::Result<Self> {
        let name = plugin_of_file(component)?;
        let manifest = match Manifest::read(&component.with_file_name(format!("{name}.toml"))) {
            Ok(manifest) => manifest,
            Err(error) => {
                return Ok(Self {
                    name,
                    has_manifest: true,
                    asked: Vec::new(),
                    is_decided,
                    checked: Err(error.to_string()),
                });
            }
        };
        let alike = match &manifest {
            Some(manifest) if !is_decided => Some(manifest.asking_for_what_hosts_agree_on()),
            Some(_) | None => None,
        };
        let applied = alike.as_ref().or(manifest.as_ref());
        let checked = config.of_plugin(&name, applied);
        Ok(Self {
            name,
            has_manifest: manifest.is_some(),
            asked: manifest.as_ref().map(Manifest::asks).unwrap_or_default(),
            is_decided,
            checked,
        })
    }

    /// The application of the plugin's first stream; the plugin's name if that is not known.
    pub(super) fn application(&self) -> String {
        let first = self
            .checked
            .as_ref()
            .ok()
            .and_then(|config| config.streams.first());
        first.map_or_else(|| self.name.to_string(), |own| own.application.clone())
    }

    /// Whether the manifest asks for HTTP.
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
                limits: limits_shown(&config.limits).into_iter().collect(),
            },
        };
        SettingsReport {
            manifest: self.has_manifest,
            grants_asked: &self.asked,
            grants_given: self.is_decided.then_some(self.checked.is_ok()),
            settings,
        }
    }

    pub(super) fn write(&self, page: &mut Page) {
        let manifest = if self.has_manifest {
            "read"
        } else {
            "none: only computes on the host's stream"
        };
        page.line("manifest", manifest);
        let verdict = match (self.is_decided, &self.checked) {
            (false, _) => "requested: --config shows whether it is allowed",
            (true, Ok(_)) => "given",
            (true, Err(_)) => "asked, refused",
        };
        for asked in &self.asked {
            page.line("grant", format_args!("{asked:48} {verdict}"));
        }
        // A problem is shown with the others.
        if let Ok(config) = &self.checked {
            write_config(page, config);
        }
    }
}

fn write_config(page: &mut Page, config: &PluginConfig) {
    for stream in streams(config) {
        page.line("reads", stream);
    }
    let applied = applied(config);
    if let Some(filter) = &applied.filter {
        page.line("setting", format_args!("{:48} {filter}", "filter"));
    }
    if let Some(instances) = applied.parallelism {
        let value = format_args!("{:48} {instances} instances for a shard", "parallelism");
        page.line("setting", value);
    }
    for (name, value) in applied.rows() {
        page.line("setting", format_args!("{name:48} {value}"));
    }
    for (name, limit) in limits_shown(&config.limits) {
        page.line("limit", format_args!("{name:48} {limit}"));
    }
}

/// The streams that it names; empty if it reads the host's.
fn streams(config: &PluginConfig) -> Vec<String> {
    config
        .streams
        .iter()
        .map(|one| one.stream.to_string())
        .filter(|name| name != STREAM)
        .collect()
}

fn applied(config: &PluginConfig) -> Applied {
    let (batch, checkpoint) = (&config.batches, &config.checkpoints);
    Applied {
        filter: config.filter.as_ref().map(ToString::to_string),
        parallelism: Some(config.parallelism)
            .filter(|parallelism| parallelism.is_parallel())
            .map(Parallelism::get),
        sinks: match &config.sinks {
            Some(names) => {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                names.join(", ")
            }
            None => "all".to_owned(),
        },
        batch: format!(
            "{} records or {}, waits {} to fill",
            batch.records,
            ByteSize(batch.bytes as u64),
            format_duration(batch.window)
        ),
        checkpoint: format!(
            "{} records, {} or {}",
            checkpoint.records,
            ByteSize(checkpoint.bytes),
            format_duration(checkpoint.age)
        ),
        failure: failure(&config.failure),
        rollout: rollout(&config.rollout),
    }
}

fn failure(policy: &FailurePolicy) -> String {
    let then = match &policy.then {
        None => "tried forever".to_owned(),
        Some(then @ GiveUp::DeadLetter(sink)) => {
            format!("{} in {sink} {}", then.code(), when_given_up(policy))
        }
        Some(then @ (GiveUp::Skip | GiveUp::Halt)) => {
            format!("{} {}", then.code(), when_given_up(policy))
        }
    };
    let order = match policy.order {
        Order::Shard => "shard",
        Order::Key => "key",
    };
    let bisect = if policy.bisect { ", bisect" } else { "" };
    format!("{then}{bisect}, order {order}")
}

fn when_given_up(policy: &FailurePolicy) -> String {
    let attempts = policy
        .attempts
        .map(|attempts| format!("after {attempts} attempts"));
    let age = policy
        .max_age
        .map(|age| format!("older than {}", format_duration(age)));
    match (attempts, age) {
        (Some(attempts), Some(age)) => format!("{attempts} or {age}"),
        (Some(only), None) | (None, Some(only)) => only,
        (None, None) => "if rejected".to_owned(),
    }
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
