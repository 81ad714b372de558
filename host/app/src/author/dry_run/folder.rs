//! The plugins folder of a dry run, with one plugin in it.

use std::path::{Path, PathBuf};

use anyhow::Context;
use shardmill_config::{Config, Manifest};
use shardmill_core::plugin::PluginName;
use shardmill_serve::component::Found;
use shardmill_wasm::Integrity;

/// A temporary folder that a host watches. It is removed when this is dropped.
pub(super) struct PluginFolder {
    name: PluginName,
    folder: tempfile::TempDir,
    /// What the host demands of components. They are checked here, before they are copied.
    integrity: Integrity,
    bytes_max: u64,
}

impl PluginFolder {
    /// An empty folder for the plugin `name`.
    pub(super) fn new(name: PluginName, config: &Config) -> anyhow::Result<Self> {
        Ok(Self {
            name,
            folder: tempfile::tempdir().context("cannot make a folder for the test")?,
            integrity: config.integrity(),
            bytes_max: config.host.plugin_bytes_max,
        })
    }

    pub(super) fn name(&self) -> &PluginName {
        &self.name
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Copies `component` and its manifest, which it returns, into the folder.
    pub(super) fn fill(&self, component: &Path) -> anyhow::Result<Option<Manifest>> {
        let beside = component.with_extension("toml");
        let manifest = Manifest::read(&beside)?;
        std::fs::write(self.component(), self.read(component)?)
            .context("cannot copy the component")?;
        if manifest.is_some() {
            let copy = self.path().join(format!("{}.toml", self.name));
            std::fs::copy(&beside, copy)
                .with_context(|| format!("cannot read {}", beside.display()))?;
        }
        Ok(manifest)
    }

    /// Replaces the plugin by another component.
    pub(super) fn replace(&self, component: &Path) -> anyhow::Result<()> {
        self.rename_in(&self.read(component)?)
    }

    /// Replaces the plugin by the same code under another digest.
    pub(super) fn replace_by_same_code(&self, component: &Path) -> anyhow::Result<()> {
        let mut bytes = self.read(component)?;
        bytes.extend(custom_section());
        self.rename_in(&bytes)
    }

    fn rename_in(&self, bytes: &[u8]) -> anyhow::Result<()> {
        let fresh = self.path().join(".fresh");
        std::fs::write(&fresh, bytes).context("cannot write the new version")?;
        std::fs::rename(fresh, self.component())?;
        Ok(())
    }

    fn component(&self) -> PathBuf {
        self.path().join(format!("{}.wasm", self.name))
    }

    fn read(&self, component: &Path) -> anyhow::Result<Vec<u8>> {
        let found = Found::read_trusted(component, self.bytes_max, &self.integrity, &self.name)?;
        Ok(found.bytes.into())
    }
}

/// A section that engines ignore.
fn custom_section() -> [u8; 6] {
    const CUSTOM: u8 = 0;
    [CUSTOM, 4, 3, b's', b'm', b't']
}
