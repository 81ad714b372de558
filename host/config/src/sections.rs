//! The sections `[plugin.NAME]` of the host's configuration, checked against the general settings
//! and against each other.

use std::collections::BTreeMap;

use shardmill_core::plugin::PluginName;
use shardmill_wasm::IntegrityRules;

use super::config::Config;
use super::plugin::PluginFile;
use super::problem::{At, Problem, Under};
use super::retrieval::refuse_shared_consumers;
use super::settings::{Applications, PluginConfig, shared_applications};

/// What the sections of plugins say.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sections {
    /// Each as written, by the plugin's name. [`Config::of_plugin`] turns one into settings.
    pub(crate) by_plugin: BTreeMap<String, PluginFile>,
    /// The integrity rules of the plugins whose sections have some.
    pub(crate) integrity: BTreeMap<String, IntegrityRules>,
    /// The applications that these sections reserve for their plugins.
    pub(crate) applications: Applications,
}

// === impl Sections ===

impl Sections {
    pub(super) fn check(
        by_plugin: BTreeMap<String, PluginFile>,
        general: &Config,
    ) -> Result<Self, Problem> {
        let mut sections = Self::default();
        let mut plugins = BTreeMap::new();
        for (name, file) in &by_plugin {
            let key = format!("plugin.{name}");
            let name = PluginName::new(name).at(&key)?;
            let plugin = sections.add(&name, file, general).under(&key)?;
            plugins.insert(name.to_string(), plugin);
        }
        refuse_shared_consumers(&plugins)?;
        if let Some(shared) = shared_applications(&plugins).pop() {
            let key = format!("plugin.{}.application", shared.plugin);
            return Err(Problem::new(key, shared.told));
        }
        sections.by_plugin = by_plugin;
        Ok(sections)
    }

    /// Takes in what `file` says about integrity and applications. Returns the settings that follow
    /// from it.
    fn add(
        &mut self,
        name: &PluginName,
        file: &PluginFile,
        general: &Config,
    ) -> Result<PluginConfig, Problem> {
        let plugin = general.check_plugin(name, file.clone())?;
        if let Some(own) = &file.integrity {
            let rules = own.check(&general.integrity)?;
            self.integrity.insert(name.to_string(), rules);
        }
        self.applications
            .add(name, file.application_of(name), &plugin);
        Ok(plugin)
    }
}
