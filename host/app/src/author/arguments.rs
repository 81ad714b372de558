//! Values that several commands derive from the same arguments.

use std::path::Path;

use anyhow::Context;
use shardmill_config::Config;
use shardmill_core::plugin::{InvalidPluginName, PluginName};
use shardmill_core::stream::StreamName;

/// In the data directory of `shardmill dev`: where it keeps what outlives it.
pub(crate) const DEV_CACHE: &str = "compiled";

/// The name that a component's file gives its plugin.
pub(super) fn plugin_name(component: &Path) -> anyhow::Result<PluginName> {
    plugin_of_file(component)
        .with_context(|| format!("{} cannot name a plugin", component.display()))
}

/// The same, or why there is none. A version in the shadow of a plugin runs as that.
pub(super) fn plugin_of_file(component: &Path) -> Result<PluginName, InvalidPluginName> {
    let name = PluginName::of_file(stem(component))?;
    Ok(name.shadowed().unwrap_or(name))
}

/// The name of a file without its extension; empty if it has none, or one that is not UTF-8.
pub(super) fn stem(file: &Path) -> &str {
    let stem = file.file_stem().and_then(|stem| stem.to_str());
    stem.unwrap_or_default()
}

/// The configuration in `file`; without a file, the defaults for a host that reads `stream`.
pub(super) fn config_or_default(file: Option<&Path>, stream: &str) -> anyhow::Result<Config> {
    match file {
        Some(path) => Ok(Config::load(path)?),
        None => Config::for_stream(&StreamName::new(stream)?).map_err(anyhow::Error::msg),
    }
}
