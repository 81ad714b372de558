//! The settings of a dry run: the plugin's own, with waits and attempts that let the run end.

use std::time::Duration;

use shardmill_config::{Config, ConfigError, Manifest, PluginConfig, SectionOverrides};
use shardmill_core::lease::WorkerId;
use shardmill_core::pipeline::{FailurePolicy, GiveUp, Order};
use shardmill_core::plugin::PluginName;
use shardmill_core::stream::StreamName;
use shardmill_sinks::{LineFormat, STDOUT, SinkOptions};
use shardmill_worker::ReadLimits;

use super::folder::PluginFolder;
use super::scene::LOOK_EVERY;

/// Long enough for a batch to fill from a stream that holds everything already, so that batches are
/// cut in the same places in every run.
const FILL: Duration = Duration::from_millis(100);
/// The longest wait for a batch to fill, even if the plugin's window is longer: by then everything
/// in the stream has been read, and nothing more comes.
const WINDOW_MAX: Duration = Duration::from_secs(1);

/// What a dry run sets in place of the plugin's own settings.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Deliveries of a record, also of one that the plugin cannot handle now.
    pub(super) attempts: u32,
    /// Most records of a call; `None` keeps the plugin's own.
    pub(super) batch_records: Option<u32>,
}

/// Replaces the configuration's external places and its pace.
pub(super) fn configure(
    config: &mut Config,
    folder: &PluginFolder,
    stream: &StreamName,
    sinks: &[String],
) {
    // What is in the folder was checked when it was copied.
    config.trust_every_component();
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
    config.read_only(folder.name(), stream);
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
    let failure = match own.failure.then {
        None => Some(policy(limits.attempts, own.failure.order)),
        Some(_) => None,
    };
    let overrides = SectionOverrides {
        batch_window: own.batches.window.clamp(FILL, WINDOW_MAX),
        batch_records: limits.batch_records.map(|records| records as usize),
        checkpoint_age: FILL,
        failure,
    };
    config.override_section(name, overrides);
    checked(config, name, manifest)
}

/// A test that retries for ever would never report what is wrong, and during a test nothing that is
/// missing will appear.
fn policy(attempts: u32, order: Order) -> FailurePolicy {
    FailurePolicy {
        attempts: Some(attempts),
        unavailable_attempts: Some(attempts),
        misconfigured_attempts: Some(attempts),
        max_age: None,
        bisect: true,
        then: Some(GiveUp::DeadLetter(STDOUT.to_owned())),
        order,
    }
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
