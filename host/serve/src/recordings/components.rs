//! The components of versions that failed, beside the recordings: a version that was tried and
//! found bad is in no other folder by the time that somebody looks.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use shardmill_config::files;
use shardmill_core::plugin::PluginDigest;
use shardmill_wasm::digest_of;

use super::folder::RecordingsFolder;
use crate::component::read_signature;

/// Versions whose components are kept: the one that runs, and those that were tried in its place
/// lately. With components of 32 MiB each that is 128 MiB.
const COMPONENTS_MAX: usize = 4;

/// See the module's description.
#[derive(Debug)]
pub struct Components<'a> {
    folder: &'a RecordingsFolder,
}

impl<'a> Components<'a> {
    /// Those in that folder.
    pub fn new(folder: &'a RecordingsFolder) -> Self {
        Self { folder }
    }

    /// The component of that version, if it is kept. Its bytes are not checked.
    pub fn find(&self, digest: &PluginDigest) -> Option<PathBuf> {
        Some(self.path(digest)).filter(|path| self.folder.believes(path))
    }

    fn path(&self, digest: &PluginDigest) -> PathBuf {
        self.folder.path().join(file_name(digest))
    }

    /// Keeps the component of that version, from the first of `files` that has its bytes. Whether
    /// it is kept.
    pub(super) fn keep(
        &self,
        digest: &PluginDigest,
        files: &[PathBuf],
        bytes_max: u64,
    ) -> io::Result<bool> {
        if self.path(digest).exists() {
            return Ok(true);
        }
        for file in files {
            let Ok(bytes) = files::read(file, bytes_max) else {
                continue;
            };
            if digest_of(&bytes) == *digest {
                // A host that demands signatures runs nothing without one, nor do its commands.
                if let Ok(Some(signature)) = read_signature(file) {
                    self.folder
                        .write_whole(&signature_name(digest), &signature)?;
                }
                self.folder.write_whole(&file_name(digest), &bytes)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Removes the components of which there is no recording, and those of too many versions. In
    /// use: versions of recordings, and when each was made.
    pub(super) fn prune(&self, in_use: Vec<(PluginDigest, u64)>) -> io::Result<()> {
        let mut newest: HashMap<PluginDigest, u64> = HashMap::new();
        for (digest, at_ms) in in_use {
            let newest = newest.entry(digest).or_default();
            *newest = at_ms.max(*newest);
        }
        let mut kept: Vec<(PluginDigest, u64)> = newest.into_iter().collect();
        kept.sort_by_key(|(_, at_ms)| std::cmp::Reverse(*at_ms));
        kept.truncate(COMPONENTS_MAX);
        for entry in std::fs::read_dir(self.folder.path())? {
            let path = entry?.path();
            let Some(digest) = digest_of_name(&path) else {
                continue;
            };
            if !kept.iter().any(|(other, _)| *other == digest) {
                // It may be gone already, and may have had no signature.
                let _ = std::fs::remove_file(path);
                let _ = std::fs::remove_file(self.folder.path().join(signature_name(&digest)));
            }
        }
        Ok(())
    }
}

fn file_name(digest: &PluginDigest) -> String {
    format!("{}.wasm", digest.as_str())
}

fn signature_name(digest: &PluginDigest) -> String {
    format!("{}.sig", file_name(digest))
}

fn digest_of_name(path: &Path) -> Option<PluginDigest> {
    PluginDigest::from_hex(path.file_name()?.to_str()?.strip_suffix(".wasm")?)
}
