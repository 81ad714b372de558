//! The settings under which a plugin is tried: its own, with waits and attempts that let a dry run
//! end.

use std::time::Duration;

use shardmill_config::{Config, ConfigError, Manifest, PluginConfig};
use shardmill_core::pipeline::Order;
use shardmill_core::plugin::PluginName;
use shardmill_sinks::STDOUT;

/// Long enough for a batch to fill from a stream that holds everything already, so that batches are
/// cut in the same places in every run.
const FILL: Duration = Duration::from_millis(100);
/// The longest that a batch is waited for, whatever the plugin's window: what the stream holds is
/// there by then, and nothing more comes.
const WINDOW_MAX: Duration = Duration::from_secs(1);

/// What a dry run sets instead of what the plugin says.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Tries of a record, also of one that the plugin cannot handle now.
    pub(super) attempts: u32,
    /// Records of a call, if the author said so.
    pub(super) batch_records: Option<u32>,
}

/// Writes the dry run's waits and attempts into the plugin's section, and reads the settings anew.
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
    // In the plugin's section, since what its manifest says stands over the general settings.
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

/// A test that tries for ever would never tell what is wrong, also where nobody will put right what
/// is missing.
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
