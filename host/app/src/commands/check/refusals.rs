//! What the host would refuse, asked of the code that refuses it there.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use shardmill_core::plugin::check_state_grant;
use shardmill_wasm::folder::Refusal;
use shardmill_wasm::{Inspection, Integrity};

use super::settings::Settings;
use crate::config::Config;

/// Far more than the 64 bytes of a signature take in any form.
const SIGNATURE_BYTES_MAX: u64 = 1_024;

/// Each with its mend, in the order in which the host looks; none if the component would run.
pub(super) fn refusals(
    (file, bytes): (&Path, &[u8]),
    config: &Config,
    settings: &Settings,
    inspection: &Inspection,
) -> Vec<String> {
    let mut found = Vec::new();
    let (size, limit) = (bytes.len() as u64, config.host.plugin_bytes_max);
    if size > limit {
        found.push(format!("{}; make it smaller, or raise host.plugin-bytes-max", Refusal::TooBig { size, limit }));
    }
    let integrity = Integrity { general: config.integrity.clone(), of_plugins: config.integrity_of_plugins() };
    let signature = signature_beside(file);
    let trusted = integrity.check(&settings.name, (bytes, &inspection.digest), signature.as_deref());
    found.extend(trusted.err().map(|error| error.to_string()));
    found.extend(inspection.refusal.as_ref().map(ToString::to_string));
    match &settings.checked {
        Err(problem) => found.push(problem.clone()),
        // Of bytes that are no plugin it is not known what they want.
        Ok(_) if inspection.refusal.is_some() => {}
        Ok(plugin) => {
            found.extend(plugin.refuse_other_contract(inspection.contract.as_deref()).err());
            let fits = check_state_grant(plugin.grants.state, inspection.saves_state);
            found.extend(fits.err().map(|error| error.to_string()));
        }
    }
    found
}

/// What lies beside the component as its signature, if anything does.
fn signature_beside(component: &Path) -> Option<Vec<u8>> {
    let mut name = component.as_os_str().to_owned();
    name.push(".sig");
    let mut bytes = Vec::new();
    File::open(name).ok()?.take(SIGNATURE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}
