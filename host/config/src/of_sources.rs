//! What a configuration says about where versions of plugins are.

use shardmill_core::artifact::Sizes;
use shardmill_core::plugin::PluginName;
use shardmill_sources::SourceOptions;

use super::config::Config;
use super::manifest;
use super::settings::SourceConfig;

/// Far more than a signature takes in any form.
const SIGNATURE_BYTES_MAX: u64 = 1_024;

impl Config {
    /// Where the plugin's versions are pulled from, if they are.
    pub fn source_of(&self, plugin: &PluginName) -> Option<&SourceConfig> {
        let mut sources = self.sources.iter();
        sources.find(|source| source.plugin == *plugin)
    }

    /// How versions are pulled and pushed by a host with this configuration.
    pub fn source_options(&self) -> SourceOptions {
        SourceOptions {
            timeout: self.pull.timeout,
            insecure: self.pull.insecure.clone(),
            logins: self.pull.logins.clone(),
            sizes: Sizes {
                component: self.host.plugin_bytes_max,
                settings: manifest::BYTES_MAX,
                signature: SIGNATURE_BYTES_MAX,
            },
        }
    }
}
