//! The sections `[plugin.NAME]` of the host's configuration.

use std::collections::BTreeMap;

use shardmill_wasm::IntegrityRules;

use super::plugin::PluginFile;
use super::settings::Applications;

/// What the sections of plugins say.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sections {
    /// Each as written, by the plugin's name. [`crate::Config::of_plugin`] turns one into settings.
    pub(crate) by_plugin: BTreeMap<String, PluginFile>,
    /// The integrity rules of the plugins whose sections have some.
    pub(crate) integrity: BTreeMap<String, IntegrityRules>,
    /// The applications that these sections reserve for their plugins.
    pub(crate) applications: Applications,
}
