//! What the host would refuse, asked of the code that refuses it there.

use shardmill_config::Config;
use shardmill_core::plugin::check_state_permission;
use shardmill_serve::component::Found;
use shardmill_wasm::Inspection;
use shardmill_wasm::folder::Refusal;

use super::settings::Settings;

/// Each with its mend, in the order in which the host looks; none if the component would run.
pub(super) fn refusals(
    component: &Found,
    config: &Config,
    settings: &Settings,
    inspection: &Inspection,
) -> Vec<String> {
    let mut found = Vec::new();
    let (size, limit) = (component.bytes.len() as u64, config.host.plugin_bytes_max);
    if size > limit {
        found.push(format!(
            "{}; make it smaller, or raise host.plugin-bytes-max",
            Refusal::TooBig { size, limit }
        ));
    }
    let trusted = component.check(&config.integrity(), &settings.name);
    found.extend(trusted.err().map(|error| error.to_string()));
    found.extend(inspection.refusal.as_ref().map(ToString::to_string));
    match &settings.checked {
        Err(problem) => found.push(problem.clone()),
        // Of bytes that are no plugin it is not known what they want.
        Ok(_) if inspection.refusal.is_some() => {}
        Ok(plugin) => {
            found.extend(
                plugin
                    .refuse_other_contract(inspection.contract.as_deref())
                    .err(),
            );
            let fits = check_state_permission(plugin.permissions.state, inspection.saves_state);
            found.extend(fits.err().map(|error| error.to_string()));
        }
    }
    found
}
