//! The last version of each plugin that did well, as its file was. What a host runs after a restart when the file in the
//! folder is damaged, or is a version that the fleet found bad: until then, a rollback is only in memory.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use shardmill_core::plugin::{PluginDigest, PluginName};
use shardmill_wasm::digest_of;

use crate::files;

/// Behind the name of the folder of compiled plugins: that one's keeper removes what it does not know from it.
const BESIDE: &str = ".kept";
/// For the owner only: it is run without being looked at again.
const MODE: u32 = 0o700;

/// A folder with a folder a plugin, which holds one component, named by its digest, and its signature.
#[derive(Debug, Clone)]
pub(crate) struct Kept {
    folder: PathBuf,
    bytes_max: u64,
}

impl Kept {
    /// Beside the folder of compiled plugins.
    pub(crate) fn beside(cache: &Path, bytes_max: u64) -> Self {
        let mut folder = cache.as_os_str().to_owned();
        folder.push(BESIDE);
        Self { folder: folder.into(), bytes_max }
    }

    /// Keeps what lies at `file`, if that is the version still; false if it is another by now, or is kept already.
    pub(crate) fn keep(&self, name: &PluginName, digest: &PluginDigest, file: &Path) -> io::Result<bool> {
        let own = self.folder.join(name.as_str());
        let path = own.join(file_name(digest));
        if path.exists() {
            return Ok(false);
        }
        let bytes = files::read(file, self.bytes_max)?;
        if digest_of(&bytes) != *digest {
            return Ok(false);
        }
        DirBuilder::new().recursive(true).mode(MODE).create(&own)?;
        let signature = signature_of(file);
        if signature.exists() {
            std::fs::copy(&signature, signature_of(&path))?;
        }
        let fresh = own.join("fresh");
        std::fs::write(&fresh, bytes)?;
        std::fs::rename(&fresh, &path)?;
        // In this order: there is one at any time.
        for entry in std::fs::read_dir(&own)? {
            let other = entry?.path();
            if other != path && other != signature_of(&path) {
                std::fs::remove_file(other)?;
            }
        }
        Ok(true)
    }

    /// The version that is kept, and where, if its bytes are whole.
    pub(crate) fn find(&self, name: &PluginName) -> Option<(PluginDigest, PathBuf)> {
        let entries = std::fs::read_dir(self.folder.join(name.as_str())).ok()?;
        entries.flatten().map(|entry| entry.path()).find_map(|path| {
            let digest = PluginDigest::from_hex(path.file_name()?.to_str()?.strip_suffix(".wasm")?)?;
            let bytes = files::read(&path, self.bytes_max).ok()?;
            (digest_of(&bytes) == digest).then_some((digest, path))
        })
    }
}

fn file_name(digest: &PluginDigest) -> String {
    format!("{}.wasm", digest.as_str())
}

fn signature_of(component: &Path) -> PathBuf {
    let mut path = component.as_os_str().to_owned();
    path.push(".sig");
    path.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_that_did_well_is_kept_whole_and_alone_until_another_did() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Kept::beside(&folder.path().join("compiled"), 100);
        let (name, file) = (PluginName::new("orders").unwrap(), folder.path().join("orders.wasm"));
        let keep = |bytes: &[u8], claimed: &[u8]| {
            std::fs::write(&file, bytes).unwrap();
            kept.keep(&name, &digest_of(claimed), &file).unwrap()
        };
        assert!(kept.find(&name).is_none());
        assert!(keep(b"one", b"one"));
        assert!(!keep(b"one", b"one"), "it is there");
        std::fs::write(folder.path().join("orders.wasm.sig"), "signed").unwrap();
        assert!(!keep(b"three", b"two"), "the file is another version by now");
        assert_eq!(kept.find(&name).unwrap().0, digest_of(b"one"));
        assert!(keep(b"two", b"two"));
        let (digest, path) = kept.find(&name).unwrap();
        assert_eq!((digest, std::fs::read(&path).unwrap()), (digest_of(b"two"), b"two".to_vec()));
        assert_eq!(std::fs::read(signature_of(&path)).unwrap(), b"signed");
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 2, "nothing is left of the one before");
        std::fs::write(&path, "twx").unwrap();
        assert!(kept.find(&name).is_none(), "what is damaged is not run");
    }
}
