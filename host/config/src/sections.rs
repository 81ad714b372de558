//! The sections `[plugin.NAME]` of the host's configuration.

use std::collections::BTreeMap;

use shardmill_core::plugin::PluginName;
use shardmill_wasm::IntegrityRules;

use super::plugin::PluginFile;
use super::problem::Problem;
use super::settings::{Applications, PluginConfig};

/// What the sections of plugins say.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sections {
    /// Each as written, by the plugin's name. `Config::of_plugin` turns one into settings.
    pub(crate) by_plugin: BTreeMap<String, PluginFile>,
    /// The integrity rules of the plugins whose sections have some.
    pub(crate) integrity: BTreeMap<String, IntegrityRules>,
    /// The applications that these sections reserve for their plugins.
    pub(crate) applications: Applications,
}

// === impl Sections ===

impl Sections {
    /// Takes in what `file` says about integrity and applications; `plugin` are the settings that
    /// follow from it.
    pub(super) fn add(
        &mut self,
        name: &PluginName,
        file: &PluginFile,
        plugin: &PluginConfig,
        of_host: &IntegrityRules,
    ) -> Result<(), Problem> {
        if let Some(own) = &file.integrity {
            let rules = own.check(of_host)?;
            self.integrity.insert(name.to_string(), rules);
        }
        self.applications
            .add(name, file.application_of(name), plugin);
        Ok(())
    }
}
