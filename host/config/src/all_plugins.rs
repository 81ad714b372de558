//! The settings of several plugins at once: of those in the folder, and of those that are
//! configured.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use shardmill_core::plugin::PluginName;
use shardmill_core::stream::StreamRef;

use super::config::Config;
use super::manifest::Manifest;
use super::settings::{PluginConfig, StreamConfig};

impl Config {
    /// The plugins whose components are in the folder, or are pulled into it. Names that no plugin
    /// can have are left out.
    pub fn plugins_meant(&self) -> BTreeSet<PluginName> {
        let pulled = self.sources.iter().map(|source| source.plugin.clone());
        usable(self.components()).chain(pulled).collect()
    }

    /// The settings of these plugins, without those that cannot be read.
    pub fn plugins_to_serve(&self) -> Vec<PluginConfig> {
        let names = self.plugins_meant().into_iter();
        self.readable(names.map(|name| name.to_string()).collect())
    }

    /// The settings of each plugin that is in the folder, is configured here or has a manifest
    /// there, by name. Names that no plugin can have are left out.
    ///
    /// # Errors
    /// The settings of one cannot be used.
    pub fn all_plugins(&self) -> Result<BTreeMap<String, PluginConfig>, String> {
        let mut plugins = self.settings_of_plugins()?;
        for name in usable(self.components()) {
            if !plugins.contains_key(name.as_str()) {
                // It has no manifest, or it would be among them.
                let plugin = self.of_plugin(&name, None)?;
                plugins.insert(name.to_string(), plugin);
            }
        }
        Ok(plugins)
    }

    /// The settings of each plugin that is configured here or has a manifest in the folder, by
    /// name. Those of a plugin that reads no stream have none.
    ///
    /// # Errors
    /// The settings of one cannot be used.
    pub fn settings_of_plugins(&self) -> Result<BTreeMap<String, PluginConfig>, String> {
        let mut plugins = BTreeMap::new();
        for name in usable(self.configured()) {
            let manifest = Manifest::read(&Manifest::path_in(&self.plugins, &name))
                .map_err(|error| error.to_string())?;
            let plugin = self.overlaid(&name, manifest.as_ref())?;
            plugins.insert(name.to_string(), plugin);
        }
        Ok(plugins)
    }

    /// The streams of the plugins that are configured here or have a manifest in the folder,
    /// without those whose settings cannot be read.
    pub fn streams_of_plugins(&self) -> BTreeSet<StreamRef> {
        let streams = self.streams_of_configured();
        streams.into_iter().map(|one| one.stream).collect()
    }

    /// The stream whose leases are kept under `application`, if a section or a manifest says so.
    pub fn stream_of_application(&self, application: &str) -> Option<StreamConfig> {
        let mut streams = self.streams_of_configured().into_iter();
        streams.find(|one| one.application == application)
    }

    fn streams_of_configured(&self) -> Vec<StreamConfig> {
        let plugins = self.readable(self.configured()).into_iter();
        plugins.flat_map(|plugin| plugin.streams).collect()
    }

    /// The settings that can be read of these plugins. Their start reports the others.
    fn readable(&self, names: BTreeSet<String>) -> Vec<PluginConfig> {
        let mut plugins = Vec::new();
        for name in usable(names) {
            if let Ok(manifest) = Manifest::read(&Manifest::path_in(&self.plugins, &name)) {
                plugins.extend(self.of_plugin(&name, manifest.as_ref()));
            }
        }
        plugins
    }

    /// The names that have a section or a source here, or a manifest in the folder.
    fn configured(&self) -> BTreeSet<String> {
        let mut names = self.names_in_folder("toml");
        names.extend(self.sections.by_plugin.keys().cloned());
        names.extend(self.sources.iter().map(|source| source.plugin.to_string()));
        names
    }

    /// The names of the components in the folder, whether they can name plugins or not.
    pub(super) fn components(&self) -> BTreeSet<String> {
        self.names_in_folder("wasm")
    }

    fn names_in_folder(&self, extension: &str) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for path in self.files_in_folder() {
            if path.extension().is_some_and(|found| found == extension) {
                let stem = path.file_stem().and_then(|stem| stem.to_str());
                names.extend(stem.map(str::to_owned));
            }
        }
        names
    }

    /// What is in the folder of plugins; nothing if it cannot be read.
    pub(super) fn files_in_folder(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.plugins).into_iter().flatten();
        entries.flatten().map(|entry| entry.path()).collect()
    }
}

/// Those that can name plugins.
fn usable(names: BTreeSet<String>) -> impl Iterator<Item = PluginName> {
    let names = names.into_iter();
    names.filter_map(|name| PluginName::new(&name).ok())
}
