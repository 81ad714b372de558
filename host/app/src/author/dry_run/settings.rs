//! The settings of a dry run: the plugin's own, with waits and attempts that let the run end.

use std::time::Duration;

use shardmill_config::{Config, ConfigError, Manifest, PluginConfig};
use shardmill_core::lease::WorkerId;
use shardmill_core::pipeline::Order;
use shardmill_core::plugin::PluginName;
use shardmill_core::stream::StreamName;
use shardmill_sinks::{LineFormat, STDOUT, SinkOptions};
use shardmill_wasm::IntegrityRules;
use shardmill_worker::ReadLimits;

use super::folder::PluginFolder;
use super::scene::LOOK_EVERY;

/// Long enough for a batch to fill from a stream that holds everything already, so that batches are
/// cut in the same places in every run.
const FILL: Duration = Duration::from_millis(100);
/// The longest wait for a batch to fill, whatever the plugin's window: by then all that the stream
/// holds has been read, and nothing more comes.
const WINDOW_MAX: Duration = Duration::from_secs(1);

/// What a dry run sets in place of the plugin's own settings.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Deliveries of a record, also of one that the plugin cannot handle now.
    pub(super) attempts: u32,
    /// Most records of a call; `None` keeps the plugin's own.
    pub(super) batch_records: Option<u32>,
}

/// Replaces what the configuration says about places outside, and about pace.
pub(super) fn configure(
    config: &mut Config,
    folder: &PluginFolder,
    stream: &StreamName,
    sinks: &[String],
) {
    // What is in the folder was checked when it was copied.
    config.integrity = IntegrityRules::default();
    config.stream = Some(stream.clone().into());
    folder.path().clone_into(&mut config.plugins);
    config.host.admin = None;
    if let Some(worker) = WorkerId::new("test") {
        config.worker_id = worker;
    }
    config.reads = ReadLimits {
        calls_per_second: 1e4,
        bytes_per_second: 1e12,
        idle_every: LOOK_EVERY,
        idle_max: LOOK_EVERY,
        ..ReadLimits::default()
    };
    let section = config.plugin.entry(folder.name().to_string()).or_default();
    section.remove("streams");
    section.remove("integrity");
    section.insert("stream".to_owned(), stream.as_str().into());
    section.insert("retrieval".to_owned(), "polling".into());
    // Nothing is sent there, but the manifest may name it.
    for sink in sinks {
        let sink = config.sinks.entry(sink.clone());
        sink.or_insert(SinkOptions::Stdout {
            format: LineFormat::Data,
        });
    }
}

/// Writes the waits and attempts of a dry run into the plugin's section. Returns the settings that
/// result.
///
/// # Errors
/// What the configuration or the manifest says about the plugin is not valid.
pub(super) fn settings_for(
    config: &mut Config,
    name: &PluginName,
    manifest: Option<&Manifest>,
    limits: Limits,
) -> Result<PluginConfig, ConfigError> {
    let own = checked(config, name, manifest)?;
    // In the plugin's section, since its manifest overrides the general settings.
    let section = config.plugin.entry(name.to_string()).or_default();
    let window = own.batches.window.clamp(FILL, WINDOW_MAX);
    set(section, "batch", "window", as_text(window));
    set(section, "checkpoint", "age", as_text(FILL));
    if let Some(records) = limits.batch_records {
        set(section, "batch", "records", i64::from(records));
    }
    if own.failure.then.is_none() {
        let failure = failure_section(limits.attempts, own.failure.order);
        section.insert("failure".to_owned(), failure.into());
    }
    checked(config, name, manifest)
}

/// A test that retries for ever would never report what is wrong, and during a test nobody provides
/// what is missing.
fn failure_section(attempts: u32, order: Order) -> toml::Table {
    let order = match order {
        Order::Key => "key",
        Order::Shard => "shard",
    };
    let mut failure = toml::Table::new();
    for key in ["attempts", "unavailable-attempts", "misconfigured-attempts"] {
        failure.insert(key.to_owned(), i64::from(attempts).into());
    }
    failure.insert("on-exhausted".to_owned(), "dead-letter".into());
    failure.insert("dead-letter".to_owned(), STDOUT.into());
    failure.insert("order".to_owned(), order.into());
    failure
}

fn as_text(duration: Duration) -> String {
    humantime::format_duration(duration).to_string()
}

fn checked(
    config: &Config,
    name: &PluginName,
    manifest: Option<&Manifest>,
) -> Result<PluginConfig, ConfigError> {
    config
        .of_plugin(name, manifest)
        .map_err(|message| ConfigError::Plugin { message })
}

/// Sets one key of a plugin's section, and leaves the others of its table.
fn set(section: &mut toml::Table, table: &str, key: &str, value: impl Into<toml::Value>) {
    let table = section
        .entry(table)
        .or_insert_with(|| toml::Table::new().into());
    if let Some(table) = table.as_table_mut() {
        table.insert(key.to_owned(), value.into());
    }
}
