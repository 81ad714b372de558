//! The last versions of each plugin that worked well, as their files were. What a host runs after a
//! restart when the file in the folder is damaged, or is a version that the fleet found bad: until
//! then, a rollback is only in memory. And what an operator may go back to, by pinning one of them.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use shardmill_config::{Config, files};
use shardmill_core::plugin::{PluginDigest, PluginName};
use shardmill_wasm::{beside_cache, digest_of};

use crate::clock::wall_now;
use crate::component::{read_signature, signature_of};

/// Of the folder's name, behind that of compiled plugins.
const ENDING: &str = ".kept";
/// For the owner only, since its content is run without another check.
const MODE: u32 = 0o700;
/// Versions of a plugin that are kept: what runs, and two to go back to.
const VERSIONS_MAX: usize = 3;
/// Holds the digest of the version to run, whatever file is in the folder.
const PINNED: &str = "pinned";
/// A digest, and a line break.
const PINNED_BYTES_MAX: u64 = 100;

/// A folder with a folder a plugin, which holds components, named by their digests, and their
/// signatures.
#[derive(Debug, Clone)]
pub struct Kept {
    folder: PathBuf,
    bytes_max: u64,
}

/// A version that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptVersion {
    /// Of its component.
    pub digest: PluginDigest,
    /// Its component.
    pub path: PathBuf,
    /// When it was last found to do well.
    pub at: SystemTime,
}

impl Kept {
    /// Where a host with this configuration keeps versions, if it has a folder for such things.
    pub(crate) fn of_host(config: &Config) -> Option<Self> {
        let cache = config.host.cache.folder().ok()?;
        Some(Self::beside(cache, config.host.plugin_bytes_max))
    }

    /// Beside the folder of compiled plugins.
    pub fn beside(cache: &Path, bytes_max: u64) -> Self {
        Self {
            folder: beside_cache(cache, ENDING),
            bytes_max,
        }
    }

    /// Keeps `file` as the newest version, if it still has that digest. False if it is another
    /// version by now, or is kept already.
    pub fn keep(&self, name: &PluginName, digest: &PluginDigest, file: &Path) -> io::Result<bool> {
        let own = self.of(name);
        let path = own.join(file_name(digest));
        if path.exists() {
            File::options()
                .append(true)
                .open(&path)?
                .set_modified(wall_now())?;
            return Ok(false);
        }
        let bytes = files::read(file, self.bytes_max)?;
        if digest_of(&bytes) != *digest {
            return Ok(false);
        }
        DirBuilder::new().recursive(true).mode(MODE).create(&own)?;
        match read_signature(file) {
            Ok(Some(signature)) => write_whole(&signature_of(&path), &signature)?,
            Ok(None) => {}
            Err(error) => {
                let signature = signature_of(file);
                let signature = signature.display();
                tracing::warn!(plugin = %name, %signature, %error, "the kept version has no \
                    signature: put one beside it, or remove the version");
            }
        }
        write_whole(&path, &bytes)?;
        // Last, so that at least one version is there at any time.
        self.forget_old(name)?;
        Ok(true)
    }

    fn forget_old(&self, name: &PluginName) -> io::Result<()> {
        let pinned = self.pinned(name).unwrap_or_default();
        for old in self
            .versions(name)
            .into_iter()
            .skip(VERSIONS_MAX)
            .filter(|old| Some(&old.digest) != pinned.as_ref())
        {
            std::fs::remove_file(&old.path)?;
            // It may have none.
            let _ = std::fs::remove_file(signature_of(&old.path));
        }
        Ok(())
    }

    /// The kept versions of a plugin, the last that worked well first. Does not check whether their
    /// bytes are whole.
    pub fn versions(&self, name: &PluginName) -> Vec<KeptVersion> {
        let entries = std::fs::read_dir(self.of(name))
            .into_iter()
            .flatten()
            .flatten();
        let version = |entry: std::fs::DirEntry| {
            let path = entry.path();
            let digest =
                PluginDigest::from_hex(path.file_name()?.to_str()?.strip_suffix(".wasm")?)?;
            let at = entry
                .metadata()
                .and_then(|file| file.modified())
                .unwrap_or(SystemTime::UNIX_EPOCH);
            Some(KeptVersion { digest, path, at })
        };
        let mut versions: Vec<KeptVersion> = entries.filter_map(version).collect();
        versions.sort_by_key(|version| std::cmp::Reverse(version.at));
        versions
    }

    /// The last version that worked well, if its bytes are whole.
    pub fn find(&self, name: &PluginName) -> Option<(PluginDigest, PathBuf)> {
        let newest = self
            .versions(name)
            .into_iter()
            .find(|version| self.is_whole(version))?;
        Some((newest.digest, newest.path))
    }

    /// Whether the file's bytes are that version.
    pub fn is_whole(&self, version: &KeptVersion) -> bool {
        files::read(&version.path, self.bytes_max)
            .is_ok_and(|bytes| digest_of(&bytes) == version.digest)
    }

    /// The version that an operator pinned here, if any.
    pub fn pinned(&self, name: &PluginName) -> io::Result<Option<PluginDigest>> {
        let path = self.of(name).join(PINNED);
        match files::read_text(&path, PINNED_BYTES_MAX) {
            Ok(text) => PluginDigest::from_hex(text.trim())
                .map(Some)
                .ok_or_else(|| {
                    io::Error::other(format!(
                        "{} does not hold a digest; unpin the plugin",
                        path.display()
                    ))
                }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(io::Error::other(format!(
                "{}: {error}; unpin the plugin",
                path.display()
            ))),
        }
    }

    /// Every plugin with a kept or pinned version.
    pub fn plugins(&self) -> Vec<PluginName> {
        let entries = std::fs::read_dir(&self.folder)
            .into_iter()
            .flatten()
            .flatten();
        entries
            .filter_map(|entry| PluginName::new(entry.file_name().to_str()?).ok())
            .collect()
    }

    /// Makes hosts with this cache run a version, which must be kept.
    pub fn pin(&self, name: &PluginName, digest: &PluginDigest) -> io::Result<()> {
        write_whole(
            &self.of(name).join(PINNED),
            format!("{}\n", digest.as_str()).as_bytes(),
        )
    }

    /// Whether a version was pinned.
    pub fn unpin(&self, name: &PluginName) -> io::Result<bool> {
        match std::fs::remove_file(self.of(name).join(PINNED)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            removed => removed.map(|()| true),
        }
    }

    /// The folder of all kept versions.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn of(&self, name: &PluginName) -> PathBuf {
        self.folder.join(name.as_str())
    }
}

/// Replaces the file at once, so that no reader sees a part of it.
fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let fresh = path.with_extension("fresh");
    std::fs::write(&fresh, bytes)?;
    std::fs::rename(&fresh, path)
}

fn file_name(digest: &PluginDigest) -> String {
    format!("{}.wasm", digest.as_str())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn fixture(folder: &Path) -> (Kept, PluginName, PathBuf) {
        let kept = Kept::beside(&folder.join("compiled"), 100);
        (
            kept,
            PluginName::new("orders").unwrap(),
            folder.join("orders.wasm"),
        )
    }

    #[test]
    fn versions_that_did_well_are_kept_whole_and_the_last_of_them_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let (kept, name, file) = fixture(folder.path());
        let keep = |bytes: &[u8], claimed: &[u8]| {
            std::fs::write(&file, bytes).unwrap();
            kept.keep(&name, &digest_of(claimed), &file).unwrap()
        };
        assert!(kept.find(&name).is_none());
        assert!(keep(b"one", b"one"));
        assert!(!keep(b"one", b"one"), "it is there");
        std::fs::write(folder.path().join("orders.wasm.sig"), "signed").unwrap();
        assert!(
            !keep(b"three", b"two"),
            "the file is another version by now"
        );
        assert_eq!(kept.find(&name).unwrap().0, digest_of(b"one"));
        assert!(keep(b"two", b"two"));
        let (digest, path) = kept.find(&name).unwrap();
        assert_eq!(
            (digest, std::fs::read(&path).unwrap()),
            (digest_of(b"two"), b"two".to_vec())
        );
        assert_eq!(std::fs::read(signature_of(&path)).unwrap(), b"signed");
        std::fs::write(&path, "twx").unwrap();
        assert_eq!(
            kept.find(&name).unwrap().0,
            digest_of(b"one"),
            "what is damaged is not run"
        );
        assert!(!keep(b"one", b"one"));
        assert_eq!(
            kept.versions(&name)[0].digest,
            digest_of(b"one"),
            "it did well again"
        );
    }

    #[test]
    fn a_version_is_kept_without_what_is_no_signature_and_nothing_beside_it_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let (kept, name, file) = fixture(folder.path());
        let beside = folder.path().join("orders.wasm.sig");
        let keep = |bytes: &[u8]| {
            std::fs::write(&file, bytes).unwrap();
            assert!(kept.keep(&name, &digest_of(bytes), &file).unwrap());
            signature_of(&kept.of(&name).join(file_name(&digest_of(bytes)))).exists()
        };
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &beside,
            rustix::fs::FileType::Fifo,
            0o600.into(),
            0,
        )
        .unwrap();
        assert!(!keep(b"beside a pipe"));
        std::fs::remove_file(&beside).unwrap();
        File::create(&beside).unwrap().set_len(1 << 40).unwrap();
        assert!(!keep(b"beside a giant"));
        std::fs::write(&beside, "signed").unwrap();
        assert!(keep(b"beside a signature"));
    }

    #[test]
    fn a_few_versions_are_kept_and_a_pinned_one_as_long_as_it_is_pinned() {
        let folder = tempfile::tempdir().unwrap();
        let (kept, name, file) = fixture(folder.path());
        let keep = |bytes: &[u8], age: u64| {
            std::fs::write(&file, bytes).unwrap();
            assert!(kept.keep(&name, &digest_of(bytes), &file).unwrap());
            let path = kept.of(&name).join(file_name(&digest_of(bytes)));
            let at = wall_now() - Duration::from_secs(age);
            File::options()
                .append(true)
                .open(path)
                .unwrap()
                .set_modified(at)
                .unwrap();
        };
        keep(b"1", 50);
        assert_eq!(kept.pinned(&name).unwrap(), None);
        kept.pin(&name, &digest_of(b"1")).unwrap();
        for (version, age) in [(b"2", 40), (b"3", 30), (b"4", 20), (b"5", 10)] {
            keep(version, age);
        }
        let found: Vec<_> = kept
            .versions(&name)
            .into_iter()
            .map(|version| version.digest)
            .collect();
        assert_eq!(
            found,
            [b"5", b"4", b"3", b"1"].map(|bytes| digest_of(bytes))
        );
        assert_eq!(
            (kept.pinned(&name).unwrap(), kept.plugins()),
            (Some(digest_of(b"1")), vec![name.clone()])
        );
        assert!(kept.unpin(&name).unwrap() && !kept.unpin(&name).unwrap());
        keep(b"6", 5);
        assert_eq!(kept.versions(&name).len(), VERSIONS_MAX);
        std::fs::write(kept.of(&name).join(PINNED), "all").unwrap();
        assert!(
            kept.pinned(&name)
                .unwrap_err()
                .to_string()
                .contains("unpin")
        );
    }
}
