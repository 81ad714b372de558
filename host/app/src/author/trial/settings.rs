//! The settings under which a plugin is tried: its own, with waits and attempts that let a trial
//! end.

use std::time::Duration;

use shardmill_config::{Config, ConfigError, Manifest, PluginConfig, SectionOverrides};
use shardmill_core::pipeline::{FailurePolicy, GiveUp, Order};
use shardmill_core::plugin::PluginName;
use shardmill_sinks::STDOUT;

/// Long enough for a batch to fill from a stream that holds everything already, so that batches are
/// cut in the same places in every run.
const FILL: Duration = Duration::from_millis(100);
/// The longest that a batch is waited for, whatever the plugin's window: what the stream holds is
/// there by then, and nothing more comes.
const WINDOW_MAX: Duration = Duration::from_secs(1);

/// What a trial sets instead of what the plugin says.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Tries of a record, also of one that the plugin cannot handle now.
    pub(super) attempts: u32,
    /// Records of a call, if the author said so.
    pub(super) batch_records: Option<u32>,
}

/// Writes the trial's waits and attempts into the plugin's section, and reads the settings anew.
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
    let overrides = SectionOverrides {
        batch_window: own.batches.window.clamp(FILL, WINDOW_MAX),
        batch_records: limits.batch_records.map(|records| records as usize),
        checkpoint_age: FILL,
        failure: match own.failure.then {
            None => Some(policy(limits.attempts, own.failure.order)),
            Some(_) => None,
        },
    };
    config.override_section(name, overrides);
    checked(config, name, manifest)
}

/// A test that tries for ever would never tell what is wrong, also where nobody will put right what
/// is missing.
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
