//! The reasons why a host would refuse a component, found by the host's own code.

use std::path::Path;

use shardmill_config::{Config, PluginConfig};
use shardmill_core::plugin::{check_state_permission, check_ticks};
use shardmill_serve::component::Found;
use shardmill_wasm::Inspection;
use shardmill_wasm::folder::Refusal;

use super::settings::Settings;

/// The reasons with their fixes, in the order in which the host checks; empty if the component
/// would run.
pub(super) fn refusals(
    file: &Path,
    component: &Found,
    config: &Config,
    settings: &Settings,
    inspection: &Inspection,
) -> Vec<String> {
    let mut found = Vec::new();
    if file.is_symlink() {
        let what = "a symbolic link";
        found.push(Refusal::NotAFile { what }.to_string());
    }
    let (size, limit) = (component.bytes.len() as u64, config.host.plugin_bytes_max);
    if size > limit {
        found.push(Refusal::TooBig { size, limit }.to_string());
    }
    let trusted = component.check(&config.integrity(), &settings.name);
    found.extend(trusted.err().map(|error| error.to_string()));
    found.extend(inspection.refusal.as_ref().map(ToString::to_string));
    match &settings.checked {
        Err(problem) => found.push(problem.clone()),
        // Bytes that are not a plugin ask for nothing.
        Ok(_) if inspection.refusal.is_some() => {}
        Ok(plugin) => found.extend(refusals_of_settings(plugin, inspection)),
    }
    found
}

/// What the component needs and its settings do not give.
fn refusals_of_settings(plugin: &PluginConfig, inspection: &Inspection) -> Vec<String> {
    let contract = plugin.refuse_other_contract(inspection.contract.as_deref());
    let state = check_state_permission(plugin.permissions.state, inspection.saves_state);
    let ticks = check_ticks(!plugin.parallelism.is_parallel(), inspection.ticks);
    let mut found = Vec::new();
    found.extend(contract.err());
    found.extend(state.err().map(|error| error.to_string()));
    found.extend(ticks.err().map(|error| error.to_string()));
    found
}
