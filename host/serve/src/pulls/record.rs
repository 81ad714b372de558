//! What this host, or another with the same folder, pulled: a file beside the plugin's, which the
//! folder's own scan passes over. So a host knows after a restart what it has, without a network,
//! and which files of the plugin are not its own to replace.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use shardmill_config::files;
use shardmill_core::artifact::{ArtifactRef, Sha256};
use shardmill_core::plugin::PluginName;

/// Two references, and the digests of some files.
const BYTES_MAX: u64 = 64 << 10;
/// Digests of files that were put there: those of the last few versions. A process that dies
/// between two files leaves files of two versions.
const KNOWN_MAX: usize = 24;

/// What tells a file that was changed in place from another one that took its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct FileId {
    inode: u64,
    bytes: u64,
}

/// What was pulled last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Record {
    /// Where it came from.
    pub(super) reference: String,
    /// What tells it from other versions at that place.
    pub(super) mark: Option<String>,
    /// The SHA-256 of the component, in hex.
    pub(super) component: String,
    /// The file of the component, as it was put there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) file: Option<FileId>,
    /// The SHA-256 of each file that was put into the folder of late, in hex; the latest first.
    known: Vec<String>,
}

impl FileId {
    pub(super) fn of(file: &std::fs::Metadata) -> Self {
        Self {
            inode: file.ino(),
            bytes: file.len(),
        }
    }
}

impl Record {
    /// The same, with files that somebody put there for the hosts. A component of which it is not
    /// known where it came from is pulled again.
    pub(super) fn with(&self, files: &[Sha256]) -> Self {
        let component = files.first().map(Sha256::hex).unwrap_or_default();
        let is_known = self.component == component;
        let before = if is_known {
            self.clone()
        } else {
            Self::default()
        };
        Self {
            component: component.to_owned(),
            known: self.known_after(files.iter()),
            ..before
        }
    }

    fn known_after<'a>(&self, files: impl Iterator<Item = &'a Sha256>) -> Vec<String> {
        let mut known: Vec<String> = files.map(|digest| digest.hex().to_owned()).collect();
        for digest in &self.known {
            if !known.contains(digest) {
                known.push(digest.clone());
            }
        }
        known.truncate(KNOWN_MAX);
        known
    }

    /// One of a version that is at `reference`, to follow this one. `files` are the digests of all
    /// its files, that of the component first.
    pub(super) fn followed_by(
        &self,
        reference: &ArtifactRef,
        mark: Option<&str>,
        files: &[&Sha256],
    ) -> Self {
        let known = self.known_after(files.iter().copied());
        Self {
            file: None,
            reference: reference.as_text(),
            mark: mark.map(str::to_owned),
            component: known.first().cloned().unwrap_or_default(),
            known,
        }
    }

    /// Whether a file with this digest was put there by a host.
    pub(super) fn knows(&self, digest: &Sha256) -> bool {
        self.known.iter().any(|known| known == digest.hex())
    }
}

/// Where the record of a plugin is.
pub(super) fn path_of(folder: &Path, plugin: &PluginName) -> PathBuf {
    folder.join(format!(".{plugin}.pulled"))
}

/// Reads it; what cannot be read counts as not there, and so the plugin's files as somebody else's.
pub(super) fn read(folder: &Path, plugin: &PluginName) -> io::Result<Record> {
    let path = path_of(folder, plugin);
    let text = match files::read(&path, BYTES_MAX) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Record::default()),
        Err(error) => return Err(error),
    };
    serde_json::from_slice(&text)
        .map_err(|error| io::Error::other(format!("{}: {error}; remove it", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(number: usize) -> Sha256 {
        Sha256::from_hex(&format!("{number:064x}")).unwrap()
    }

    #[test]
    fn the_files_of_the_last_versions_are_known_and_no_others() {
        let mut record = Record::default();
        for version in 1..=30 {
            let text = format!("oci://r.example/alerts:{version}");
            let reference = ArtifactRef::parse(&text).unwrap();
            record = record.followed_by(&reference, Some("mark"), &[&digest(version)]);
        }
        assert_eq!(record.reference, "oci://r.example/alerts:30");
        assert_eq!(record.component, digest(30).hex());
        assert!(record.knows(&digest(30)) && record.knows(&digest(7)));
        assert!(!record.knows(&digest(6)) && !record.knows(&digest(31)));
    }

    #[test]
    fn a_record_that_cannot_be_read_is_an_error_that_names_it_and_none_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let plugin = PluginName::new("alerts").unwrap();
        assert_eq!(read(folder.path(), &plugin).unwrap(), Record::default());
        std::fs::write(path_of(folder.path(), &plugin), "{").unwrap();
        let told = read(folder.path(), &plugin).unwrap_err().to_string();
        assert!(
            told.contains(".alerts.pulled") && told.contains("remove it"),
            "{told}"
        );
    }
}
