//! Files that somebody else put into a folder for its hosts, such as a restore.

use std::io;
use std::path::Path;

use shardmill_core::artifact::Sha256;
use shardmill_core::plugin::PluginName;
use shardmill_wasm::digest_of;

use super::drop_in::PluginDrop;
use super::record;

/// Notes that files of a plugin, its component first, are or will be in the folder, as if a host
/// had pulled them: a host that pulls there replaces them, once another version is wanted. What
/// hosts noted stays.
///
/// # Errors
/// What was noted before cannot be read, or the note cannot be written.
pub fn note_files(folder: &Path, plugin: &PluginName, files: &[&[u8]]) -> io::Result<()> {
    let digests: Vec<Sha256> = files
        .iter()
        .map(|bytes| Sha256::of_version(&digest_of(bytes)))
        .collect();
    let noted = record::read(folder, plugin)?.with(&digests);
    // Nothing that is read here is limited: only the note is written.
    PluginDrop::new(folder, plugin, u64::MAX).write_record(&noted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_noted_is_a_hosts_own_and_what_it_pulled_itself_stays_noted() {
        let folder = tempfile::tempdir().unwrap();
        let plugin = PluginName::new("alerts").unwrap();
        for (name, text) in [("alerts.wasm", "one"), ("alerts.toml", "a = 1")] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let files = PluginDrop::new(folder.path(), &plugin, 100);
        assert_eq!(files.look().unwrap().pulled(), None);
        note_files(folder.path(), &plugin, &[b"one", b"a = 1"]).unwrap();
        let found = files.look().unwrap();
        assert!(found.pulled().is_some(), "it is known to be a version");
        assert_eq!(found.record.reference, "", "and not where it came from");
        for text in ["one", "a = 1"] {
            let digest = Sha256::of_version(&digest_of(text.as_bytes()));
            assert!(found.record.knows(&digest), "{text}");
        }
        note_files(folder.path(), &plugin, &[b"two"]).unwrap();
        let record = record::read(folder.path(), &plugin).unwrap();
        assert!(record.knows(&Sha256::of_version(&digest_of(b"one"))));
    }
}
