//! The plugins' components, read from files.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::bail;
use shardmill_config::Config;
use shardmill_core::plugin::PluginName;
use shardmill_core::ports::{PortFuture, ProcessorFactory};
use shardmill_serve::component;
use shardmill_wasm::{Plugin, Runtime};

use super::options::Versions;

/// Compiles each component once.
pub(super) struct ComponentFiles {
    runtime: Runtime,
    config: Config,
    /// Runs all letters, whichever plugin they are of. All must be of one plugin.
    given: Option<PathBuf>,
    loaded: HashMap<PluginName, Arc<Plugin>>,
}

impl ComponentFiles {
    /// Takes components from the plugins folder, unless one is `given`.
    pub(super) fn new(runtime: Runtime, config: Config, given: Option<PathBuf>) -> Self {
        Self {
            runtime,
            config,
            given,
            loaded: HashMap::new(),
        }
    }

    async fn load(&mut self, name: &PluginName) -> anyhow::Result<Arc<dyn ProcessorFactory>> {
        if let Some(plugin) = self.loaded.get(name) {
            return Ok(Arc::<Plugin>::clone(plugin));
        }
        let path = self.path(name)?;
        let plugin = Arc::new(component::load(&self.runtime, &self.config, name, &path).await?);
        if plugin.saves_state() {
            bail!(
                "{name} keeps state, which belongs to its shards: outside its shard a record \
                    would not be counted; replay the letters into the stream with --to-stream"
            );
        }
        tracing::info!(
            plugin = %name,
            digest = %plugin.digest(),
            file = %path.display(),
            "plugin loaded"
        );
        self.loaded.insert(name.clone(), Arc::clone(&plugin));
        Ok(plugin)
    }

    fn path(&self, name: &PluginName) -> anyhow::Result<PathBuf> {
        let Some(given) = &self.given else {
            return Ok(self.config.plugins.join(format!("{name}.wasm")));
        };
        if let Some(other) = self.loaded.keys().next() {
            bail!(
                "there are letters of {other} and of {name}: say with --of whose letters the \
                    --plugin should process"
            );
        }
        Ok(given.clone())
    }
}

impl Versions for ComponentFiles {
    fn version<'a>(
        &'a mut self,
        plugin: &'a PluginName,
    ) -> PortFuture<'a, anyhow::Result<Arc<dyn ProcessorFactory>>> {
        Box::pin(async move { self.load(&plugin.plugin()).await })
    }
}
