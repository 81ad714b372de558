//! Components from files that commands are given: read within the host's size limit, and checked
//! against its `[integrity]` before anything is done with them. Nothing else in this package loads
//! a component that came from a file.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use bytes::Bytes;
use shardmill_core::plugin::{PluginDigest, PluginName};
use shardmill_wasm::{Integrity, IntegrityError, Plugin, Runtime, digest_of};

use shardmill_config::files;
use shardmill_config::{Config, ConfigError};

/// Far more than a signature takes in any form.
const SIGNATURE_BYTES_MAX: u64 = 1_024;

/// The bytes of a component, and the signature file beside it.
pub struct Found {
    /// As they were read.
    pub bytes: Bytes,
    /// The SHA-256 of `bytes`, which names the version.
    pub digest: PluginDigest,
    signature: Option<Vec<u8>>,
}

impl Found {
    /// Reads both; a component may have `bytes_max` bytes.
    pub fn read(path: &Path, bytes_max: u64) -> anyhow::Result<Self> {
        let bytes = files::read(path, bytes_max)
            .with_context(|| format!("cannot read {}", path.display()))?;
        // A signature that cannot be read is reported as malformed.
        let signature = read_signature(path).unwrap_or_else(|_| Some(Vec::new()));
        let digest = digest_of(&bytes);
        Ok(Self {
            bytes: bytes.into(),
            digest,
            signature,
        })
    }

    /// The same, if the host's rules let it run under this name.
    pub fn read_trusted(
        path: &Path,
        bytes_max: u64,
        integrity: &Integrity,
        name: &PluginName,
    ) -> anyhow::Result<Self> {
        let found = Self::read(path, bytes_max)?;
        found.check(integrity, name).map_err(|error| {
            let message = format!("{} is not run: {error}", path.display());
            anyhow::Error::new(ConfigError::Plugin { message })
        })?;
        Ok(found)
    }

    /// Whether the host's rules let it run under this name.
    pub fn check(&self, integrity: &Integrity, name: &PluginName) -> Result<(), IntegrityError> {
        let signature = self.signature.as_deref();
        integrity
            .check(name, &self.bytes, &self.digest, signature)
            .map(drop)
    }
}

/// The path of a component's signature.
pub(crate) fn signature_of(component: &Path) -> PathBuf {
    let mut path = component.as_os_str().to_owned();
    path.push(".sig");
    path.into()
}

/// The signature file beside a component; `None` if there is none. A link is refused, since the
/// plugins folder takes none for a signature.
pub fn read_signature(component: &Path) -> io::Result<Option<Vec<u8>>> {
    let path = signature_of(component);
    match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
        Ok(found) if found.is_file() => files::read(&path, SIGNATURE_BYTES_MAX).map(Some),
        Ok(_) => Err(io::Error::other(
            "it is not a regular file: put the signature itself there, not a link to it",
        )),
    }
}

/// Loads the component of that file as a host with this configuration would.
pub async fn load(
    runtime: &Runtime,
    config: &Config,
    name: &PluginName,
    path: &Path,
) -> anyhow::Result<Plugin> {
    let found = read_as_host(config, name, path)?;
    let plugin = runtime.load(name.clone(), found.bytes).await;
    plugin.with_context(|| format!("{} cannot be run", path.display()))
}

/// The same, if the file still has that digest: the bytes that are run are those that were hashed.
pub(crate) async fn load_exactly(
    runtime: &Runtime,
    config: &Config,
    name: &PluginName,
    path: &Path,
    digest: &PluginDigest,
) -> anyhow::Result<Plugin> {
    let found = read_as_host(config, name, path)?;
    if found.digest != *digest {
        let path = path.display();
        bail!("{path} is damaged: its bytes are those of {}", found.digest);
    }
    let plugin = runtime.load(name.clone(), found.bytes).await;
    plugin.with_context(|| format!("{} cannot be run", path.display()))
}

fn read_as_host(config: &Config, name: &PluginName, path: &Path) -> anyhow::Result<Found> {
    Found::read_trusted(
        path,
        config.host.plugin_bytes_max,
        &config.integrity(),
        name,
    )
}

#[cfg(test)]
mod tests {
    use shardmill_wasm::{EMPTY_COMPONENT, RuntimeOptions};

    use super::*;

    #[tokio::test]
    async fn a_component_that_the_host_would_refuse_is_run_by_no_command() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("orders.wasm");
        std::fs::write(&path, EMPTY_COMPONENT).unwrap();
        let name = PluginName::new("orders").unwrap();
        let runtime = Runtime::new(RuntimeOptions::default()).unwrap();
        let key = "00".repeat(32);
        let with = |text: String| {
            Config::parse(&format!("stream = \"s\"\n{text}"), Path::new(".")).unwrap()
        };
        let told = async |config: Config| {
            load(&runtime, &config, &name, &path)
                .await
                .err()
                .map(|error| format!("{error:#}"))
        };
        let signed = with(format!(
            "[integrity]\nrequire-signature = true\nkeys = [\"{key}\"]\n"
        ));
        assert!(
            told(signed.clone())
                .await
                .unwrap()
                .contains("it is not signed")
        );
        std::fs::write(
            folder.path().join("orders.wasm.sig"),
            "version 1\nsignature 00\n",
        )
        .unwrap();
        assert!(told(signed).await.unwrap().contains("is malformed"));
        let other = with(format!(
            "[plugin.orders.integrity]\nallowed-digests = [\"{key}\"]\n"
        ));
        assert!(told(other).await.unwrap().contains("allowed-digests"));
        assert!(
            told(with("[host]\nplugin-bytes-max = \"10B\"\n".to_owned()))
                .await
                .unwrap()
                .contains("10 at most")
        );
        assert_eq!(told(with(String::new())).await, None);
    }

    #[tokio::test]
    async fn a_kept_version_whose_bytes_are_anothers_is_not_run() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kept.wasm");
        std::fs::write(&path, EMPTY_COMPONENT).unwrap();
        let name = PluginName::new("orders").unwrap();
        let runtime = Runtime::new(RuntimeOptions::default()).unwrap();
        let config = Config::parse("stream = \"s\"", folder.path()).unwrap();
        let load = async |bytes: &[u8]| {
            load_exactly(&runtime, &config, &name, &path, &digest_of(bytes)).await
        };
        let refused = load(b"another").await.err().unwrap().to_string();
        assert!(refused.contains("kept.wasm is damaged"), "{refused}");
        let own = load(EMPTY_COMPONENT)
            .await
            .map_err(|error| error.to_string());
        assert!(!own.is_err_and(|error| error.contains("damaged")));
    }
}
