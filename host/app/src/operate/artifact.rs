//! Where versions of plugins are pushed to, for commands.

use std::path::Path;

use anyhow::{Context, anyhow, bail};
use shardmill_config::{Config, Manifest, files};
use shardmill_core::stream::StreamName;
use shardmill_serve::component::read_signature;
use shardmill_sources::{PluginFiles, SourceOptions, Sources};
use shardmill_wasm::BytesKind;

/// Speaks to the registries that a configuration names, as its hosts do; without one, as by
/// default.
pub(crate) struct Registries {
    pub(crate) sources: Sources,
    options: SourceOptions,
}

impl Registries {
    pub(crate) fn of(config: Option<&Config>) -> anyhow::Result<Self> {
        let options = match config {
            Some(config) => config.source_options(),
            None => defaults()?.source_options(),
        };
        // Nothing is pulled from buckets here.
        let sources = Sources::new(options.clone(), None)?;
        Ok(Self { sources, options })
    }

    /// The files of a plugin: a component, a manifest if one is named, and the signature if one
    /// lies beside the component.
    pub(crate) fn files(
        &self,
        component: &Path,
        manifest: Option<&Path>,
    ) -> anyhow::Result<PluginFiles> {
        let cannot_read = |path: &Path| format!("cannot read {}", path.display());
        let bytes = files::read(component, self.options.sizes.component)
            .with_context(|| cannot_read(component))?;
        let kind = BytesKind::of(&bytes);
        if kind != BytesKind::Component {
            bail!("{} is {kind}: {}", component.display(), kind.mend());
        }
        let signature = read_signature(component)
            .with_context(|| format!("cannot read the signature of {}", component.display()))?;
        let settings = match manifest {
            None => None,
            Some(path) => {
                if Manifest::read(path)?.is_none() {
                    bail!("there is no manifest {}", path.display());
                }
                let text = files::read(path, self.options.sizes.settings);
                Some(text.with_context(|| cannot_read(path))?)
            }
        };
        Ok(PluginFiles {
            component: bytes.into(),
            settings: settings.map(Into::into),
            signature: signature.map(Into::into),
        })
    }
}

/// The defaults of a host, which reads some stream.
fn defaults() -> anyhow::Result<Config> {
    let stream = StreamName::new("any").map_err(|error| anyhow!("{error}"))?;
    Config::for_stream(&stream).map_err(|why| anyhow!("{why}"))
}
