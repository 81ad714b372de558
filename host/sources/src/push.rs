use bytes::Bytes;
use shardmill_core::artifact::{
    ArtifactRef, COMPONENT_TYPE, Layer, SETTINGS_TYPE, SIGNATURE_TYPE, Sha256, contents_of,
};

use crate::answer::digest_of;
use crate::manifest::written;
use crate::pull_error::{COMPONENT, PullError};
use crate::sources::{InRegistry, Sources};

/// The files of a plugin, to be pushed.
#[derive(Debug, Clone)]
pub struct PluginFiles {
    /// The bytes of `NAME.wasm`.
    pub component: Bytes,
    /// The text of `NAME.toml`, if it goes along.
    pub settings: Option<Bytes>,
    /// The content of `NAME.wasm.sig`, if it goes along.
    pub signature: Option<Bytes>,
}

/// What is in the registry now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pushed {
    /// The version, whatever becomes of its tag.
    pub reference: ArtifactRef,
    /// The SHA-256 of the component, which names the version.
    pub component: Sha256,
}

impl Sources {
    /// Stores a plugin in a registry, under a tag. The same files are the same artifact, however
    /// often they are pushed.
    pub async fn push(
        &self,
        reference: &ArtifactRef,
        files: &PluginFiles,
    ) -> Result<Pushed, PullError> {
        let target = InRegistry::of(reference).ok_or_else(|| {
            PullError::Unfit(format!(
                "{reference} is in no registry: push to one, such as oci://registry.example.org/\
                    team/alerts:1.4, or copy the file to where it is by other means"
            ))
        })?;
        if reference.digest().is_some() {
            return Err(PullError::Unfit(format!(
                "{reference} has a digest, which follows from what is pushed: name a tag"
            )));
        }
        let parts = parts_of(files);
        let layers: Vec<Layer> = parts.iter().map(|(layer, _, _)| layer.clone()).collect();
        // What no host would take is not pushed.
        let contents = contents_of(&layers, self.sizes)?;
        let (config, manifest) = written(&layers)?;
        for (_, bytes, what) in &parts {
            let put = self.registry.put_blob(target.repository, bytes, what);
            put.await?;
        }
        let config = Bytes::from(config);
        self.registry
            .put_blob(target.repository, &config, "its configuration")
            .await?;
        let manifest = Bytes::from(manifest);
        self.registry
            .put_manifest(target.repository, &target.name, &manifest)
            .await?;
        Ok(Pushed {
            reference: reference.pinned(digest_of(&manifest)),
            component: contents.component.digest,
        })
    }
}

fn parts_of(files: &PluginFiles) -> Vec<(Layer, Bytes, &'static str)> {
    let part = |media_type: &str, bytes: &Bytes, what| {
        let layer = Layer {
            media_type: media_type.to_owned(),
            digest: digest_of(bytes),
            size: bytes.len() as u64,
        };
        (layer, bytes.clone(), what)
    };
    let mut parts = vec![part(COMPONENT_TYPE, &files.component, COMPONENT)];
    let settings = files.settings.iter();
    parts.extend(settings.map(|bytes| part(SETTINGS_TYPE, bytes, "the plugin's manifest")));
    let signature = files.signature.iter();
    parts.extend(signature.map(|bytes| part(SIGNATURE_TYPE, bytes, "the signature")));
    parts
}
