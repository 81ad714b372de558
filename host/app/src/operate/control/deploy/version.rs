//! Which version is meant, and where it is.

use std::path::Path;

use anyhow::{Context, anyhow, bail};
use shardmill_config::{Config, SourceConfig};
use shardmill_core::artifact::{ArtifactRef, Location, Sha256};
use shardmill_core::plugin::{PluginDigest, PluginName};
use shardmill_sources::PluginFiles;
use shardmill_wasm::digest_of;

use crate::cli::DeployArgs;
use crate::operate::artifact::Registries;

/// The version to be deployed.
pub(super) struct Chosen {
    /// Where it is, or goes; with its digest once it is there.
    pub(super) reference: ArtifactRef,
    /// The SHA-256 of its component.
    pub(super) version: PluginDigest,
    /// Its files, if they are to be pushed first.
    files: Option<PluginFiles>,
    registries: Registries,
}

/// Finds out what is meant. Writes nothing.
pub(super) async fn choose(
    args: &DeployArgs,
    version: &str,
    config: Option<&Config>,
) -> anyhow::Result<Chosen> {
    let registries = Registries::of(config)?;
    if ArtifactRef::is_meant(version) {
        if args.to.is_some() || args.manifest.is_some() {
            bail!("--to and --manifest go with a file, which is pushed; {version} was pushed");
        }
        let reference =
            ArtifactRef::parse(version).map_err(|fault| anyhow!("the version {fault}"))?;
        let resolved = registries.sources.resolve(&reference).await?;
        return Ok(Chosen {
            version: resolved.component.version(),
            reference: resolved.reference,
            files: None,
            registries,
        });
    }
    let files = registries.files(Path::new(version), args.manifest.as_deref())?;
    let digest = digest_of(&files.component);
    let target = match &args.to {
        Some(target) => target.clone(),
        None => target(args, config)?.tagged(&format!("v-{}", digest.short())),
    };
    Ok(Chosen {
        reference: target,
        version: digest,
        files: Some(files),
        registries,
    })
}

impl Chosen {
    /// The same, once it is where hosts find it.
    pub(super) async fn push(self, args: &DeployArgs) -> anyhow::Result<Self> {
        let Some(files) = &self.files else {
            return Ok(self);
        };
        let pushed = self.registries.sources.push(&self.reference, files).await?;
        if !args.change.output.json {
            crate::output::print(&format!("pushed {}", self.reference));
        }
        debug_assert_eq!(pushed.component, Sha256::of_version(&self.version));
        Ok(Self {
            reference: pushed.reference,
            ..self
        })
    }
}

/// The place that the hosts' configuration names for the application's plugin.
fn target(args: &DeployArgs, config: Option<&Config>) -> anyhow::Result<ArtifactRef> {
    let config = config.context(
        "say where the file goes: name the hosts' configuration with --config, or a place with --to",
    )?;
    let source = source_of(&args.application, config).with_context(|| {
        format!(
            "`plugins` names no source for {}: add one, such as \
                \"oci://registry.example.org/team/{0}:1\", so that hosts pull it",
            args.application
        )
    })?;
    match source.reference.location() {
        Location::Registry { .. } => Ok(source.reference.clone()),
        Location::Web { .. } | Location::Bucket { .. } => bail!(
            "{} is in no registry: copy the file there by other means, and deploy its reference with \
                @sha256: and its digest",
            source.reference
        ),
    }
}

/// Where the plugin of an application is pulled from, as hosts' configuration says.
pub(super) fn source_of<'c>(application: &str, config: &'c Config) -> Option<&'c SourceConfig> {
    let serves = |plugin: &PluginName| {
        let settings = config.of_plugin(plugin, None).ok();
        settings.is_some_and(|settings| {
            let mut streams = settings.streams.iter();
            streams.any(|stream| stream.application == application)
        })
    };
    let by_name = PluginName::new(application)
        .ok()
        .and_then(|name| config.source_of(&name));
    let mut sources = config.sources.iter();
    sources.find(|source| serves(&source.plugin)).or(by_name)
}
