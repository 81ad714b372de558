use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use shardmill_core::artifact::{
    ArtifactRef, Contents, Layer, Location, Sha256, Sizes, contents_of,
};

use crate::aws_access::AwsAccess;
use crate::login::{Login, Logins};
use crate::manifest::layers_of;
use crate::pull_error::{COMPONENT, PullError};
use crate::registry::{Manifest, Registry, Repository};
use crate::transport::Transport;
use crate::web::{Fetched, WebFile};

/// How versions are pulled.
#[derive(Debug, Clone)]
pub struct SourceOptions {
    /// How long one request may take, to the end of its answer.
    pub timeout: Duration,
    /// Hosts, with their ports, that may be reached without encryption.
    pub insecure: BTreeSet<String>,
    /// Who we are to registries, by their hosts; docker's logins are used for all others.
    pub logins: BTreeMap<String, Login>,
    /// How large each file of a plugin may be.
    pub sizes: Sizes,
}

/// Where versions are. Cheap to clone.
#[derive(Clone)]
pub struct Sources {
    pub(crate) registry: Registry,
    pub(crate) sizes: Sizes,
    aws: Option<AwsAccess>,
}

/// What was pulled, besides the component's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pulled {
    /// What tells this from other versions, to be given with the next pull. `None` means that the
    /// server says nothing of the kind.
    pub mark: Option<String>,
    /// The SHA-256 of the component, which names the version.
    pub component: Sha256,
    /// The plugin's manifest, `NAME.toml`; `None` if the artifact has none.
    pub settings: Option<Bytes>,
    /// The signature, `NAME.wasm.sig`; `None` if there is none.
    pub signature: Option<Bytes>,
}

/// A version that a reference names at the moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// The same version, whatever becomes of its tag.
    pub reference: ArtifactRef,
    /// The SHA-256 of the component, which names the version.
    pub component: Sha256,
}

impl Sources {
    /// Sends nothing yet. Without `aws`, no version is pulled from a bucket, and AWS gives no login
    /// for its registries.
    pub fn new(options: SourceOptions, aws: Option<AwsAccess>) -> Result<Self, PullError> {
        let transport = Transport::new(options.timeout, options.insecure)?;
        let logins = Logins::new(options.logins, aws.clone(), transport.clone());
        Ok(Self {
            registry: Registry::new(transport, logins),
            sizes: options.sizes,
            aws,
        })
    }

    /// Writes the component that the reference names into an empty file, and gives the rest; `None`
    /// if it still is what has the mark `known`. Whatever is given has the digests that it should
    /// have, and is no larger than it may be.
    pub async fn pull(
        &self,
        reference: &ArtifactRef,
        known: Option<&str>,
        file: &mut tokio::fs::File,
    ) -> Result<Option<Pulled>, PullError> {
        if let Some(in_registry) = InRegistry::of(reference) {
            return self.pull_artifact(&in_registry, known, file).await;
        }
        let web = WebFile::new(self.registry.transport(), self.aws.as_ref(), reference);
        let fetched = web.fetch(known, self.sizes, file).await?;
        let pulled = |Fetched {
                          mark,
                          component,
                          signature,
                      }| Pulled {
            mark,
            component,
            settings: None,
            signature,
        };
        Ok(fetched.map(pulled))
    }

    async fn pull_artifact(
        &self,
        artifact: &InRegistry<'_>,
        known: Option<&str>,
        file: &mut tokio::fs::File,
    ) -> Result<Option<Pulled>, PullError> {
        let (repository, name) = (artifact.repository, artifact.name.as_str());
        let known = known.and_then(Sha256::parse);
        if known.is_some() && self.registry.digest(repository, name).await? == known {
            return Ok(None);
        }
        let manifest = self.registry.manifest(repository, name).await?;
        if known.as_ref() == Some(&manifest.digest) {
            return Ok(None);
        }
        let Contents {
            component,
            settings,
            signature,
        } = contents_of(&layers_of(&manifest.bytes)?, self.sizes)?;
        let settings = self.small(repository, settings, "the plugin's manifest");
        let settings = settings.await?;
        let signature = self.small(repository, signature, "the signature").await?;
        self.registry
            .store(repository, &component, COMPONENT, file)
            .await?;
        Ok(Some(Pulled {
            mark: Some(manifest.digest.to_string()),
            component: component.digest,
            settings,
            signature,
        }))
    }

    async fn small(
        &self,
        repository: Repository<'_>,
        layer: Option<Layer>,
        what: &str,
    ) -> Result<Option<Bytes>, PullError> {
        match layer {
            Some(layer) => {
                let bytes = self.registry.layer(repository, &layer, what).await?;
                Ok(Some(bytes))
            }
            None => Ok(None),
        }
    }

    /// Which version a reference names now. Fetches no component: outside of registries only a
    /// reference with a digest can be resolved.
    pub async fn resolve(&self, reference: &ArtifactRef) -> Result<Resolved, PullError> {
        let Some(artifact) = InRegistry::of(reference) else {
            let Some(digest) = reference.digest() else {
                return Err(PullError::Unfit(format!(
                    "{reference} names no certain version: put @sha256: and the component's digest \
                        behind it"
                )));
            };
            return Ok(Resolved {
                reference: reference.clone(),
                component: digest.clone(),
            });
        };
        let Manifest { bytes, digest } = self
            .registry
            .manifest(artifact.repository, &artifact.name)
            .await?;
        let contents = contents_of(&layers_of(&bytes)?, self.sizes)?;
        Ok(Resolved {
            reference: reference.pinned(digest),
            component: contents.component.digest,
        })
    }
}

/// A reference into a registry.
pub(crate) struct InRegistry<'a> {
    pub(crate) repository: Repository<'a>,
    /// The digest if there is one, or else the tag.
    pub(crate) name: String,
}

impl<'a> InRegistry<'a> {
    pub(crate) fn of(reference: &'a ArtifactRef) -> Option<Self> {
        let Location::Registry {
            host,
            repository,
            tag,
        } = reference.location()
        else {
            return None;
        };
        let digest = reference.digest().map(ToString::to_string);
        Some(Self {
            repository: Repository {
                host,
                name: repository,
            },
            name: digest.or_else(|| tag.clone())?,
        })
    }
}
