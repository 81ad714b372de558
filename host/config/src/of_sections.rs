//! Checks the sections `[plugin.NAME]` against the general settings and against each other.

use std::collections::{BTreeMap, BTreeSet};

use shardmill_core::plugin::PluginName;

use super::config::Config;
use super::plugin::PluginFile;
use super::problem::{At, Problem, Under};
use super::retrieval::refuse_shared_consumers;
use super::sections::Sections;
use super::settings::shared_applications;

impl Config {
    /// The plugins that the operator named himself, by a section `[plugin.NAME]` or by a source.
    pub fn plugins_with_sections(&self) -> BTreeSet<PluginName> {
        let names = self.sections.by_plugin.keys();
        let named = names.filter_map(|name| PluginName::new(name).ok());
        let pulled = self.sources.iter().map(|source| source.plugin.clone());
        named.chain(pulled).collect()
    }

    pub(super) fn check_sections(
        &self,
        by_plugin: BTreeMap<String, PluginFile>,
    ) -> Result<Sections, Problem> {
        let mut sections = Sections::default();
        let mut plugins = BTreeMap::new();
        for (name, file) in &by_plugin {
            let key = format!("plugin.{name}");
            let name = PluginName::new(name).at(&key)?;
            let plugin = self.check_plugin(&name, file.clone()).under(&key)?;
            if let Some(own) = &file.integrity {
                let rules = own.check(&self.integrity).under(&key)?;
                sections.integrity.insert(name.to_string(), rules);
            }
            let application = file.application_of(&name);
            sections.applications.add(&name, application, &plugin);
            plugins.insert(name.to_string(), plugin);
        }
        refuse_shared_consumers(&plugins)?;
        if let Some(shared) = shared_applications(&plugins).pop() {
            let key = format!("plugin.{}.application", shared.plugin);
            return Err(Problem::new(key, shared.message));
        }
        sections.by_plugin = by_plugin;
        Ok(sections)
    }
}
