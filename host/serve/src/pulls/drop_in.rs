//! Puts the files of a version into the plugins folder: each at once, readable by this user alone,
//! and never over a file that somebody else put there.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use shardmill_core::artifact::{ArtifactRef, Sha256};
use shardmill_core::plugin::{PluginDigest, PluginName};
use shardmill_sources::Pulled;
use shardmill_wasm::digest_of;
use tempfile::NamedTempFile;

use super::record::{self, FileId, Record};
use crate::clock::wall_now;
use shardmill_config::files;

/// Before the name of a file that is not whole yet; the folder's scan passes over it.
const FRESH: &str = ".pulling-";
/// A file that is not whole after so long was left by a process that died.
const FRESH_FOR: Duration = Duration::from_hours(1);

/// The files of one plugin in the folder.
#[derive(Debug, Clone)]
pub(super) struct PluginDrop {
    folder: PathBuf,
    plugin: PluginName,
    bytes_max: u64,
}

/// What is in the folder of a plugin.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct InFolder {
    /// What was pulled last.
    pub(super) record: Record,
    /// The version of the component's file, if there is one.
    pub(super) component: Option<Sha256>,
}

impl InFolder {
    /// The version that was pulled last, if it still is there.
    pub(super) fn pulled(&self) -> Option<PluginDigest> {
        let component = self.component.as_ref()?;
        if component.hex() != self.record.component {
            return None;
        }
        PluginDigest::from_hex(component.hex())
    }

    /// Where that came from.
    pub(super) fn artifact(&self) -> Option<ArtifactRef> {
        self.pulled()?;
        ArtifactRef::parse(&self.record.reference).ok()
    }

    /// Whether that came from this reference.
    pub(super) fn is_of(&self, reference: &ArtifactRef) -> bool {
        self.pulled().is_some() && self.record.reference == reference.as_text()
    }

    /// The source's mark of what is here, if it came from that reference.
    pub(super) fn mark_of(&self, reference: &ArtifactRef) -> Option<&str> {
        if self.is_of(reference) {
            self.record.mark.as_deref()
        } else {
            None
        }
    }
}

/// What the files of a version contain.
struct Digests {
    component: Sha256,
    settings: Option<Sha256>,
    signature: Option<Sha256>,
}

impl Digests {
    fn of(pulled: &Pulled) -> Self {
        Self {
            component: pulled.component.clone(),
            settings: pulled.settings.as_deref().map(digest_in),
            signature: pulled.signature.as_deref().map(digest_in),
        }
    }

    fn all(&self) -> Vec<&Sha256> {
        let mut all = vec![&self.component];
        all.extend(&self.settings);
        all.extend(&self.signature);
        all
    }
}

impl PluginDrop {
    pub(super) fn new(folder: &Path, plugin: &PluginName, bytes_max: u64) -> Self {
        Self {
            folder: folder.to_owned(),
            plugin: plugin.clone(),
            bytes_max,
        }
    }

    /// Looks at what there is. Reads the component.
    pub(super) fn look(&self) -> io::Result<InFolder> {
        Ok(InFolder {
            record: record::read(&self.folder, &self.plugin)?,
            component: self.digest(&self.component())?,
        })
    }

    /// A file in the folder, to be filled and renamed. Removes those that processes left which
    /// died.
    pub(super) fn fresh(&self) -> io::Result<NamedTempFile> {
        let entries = std::fs::read_dir(&self.folder)?.flatten();
        for left in entries.filter(is_left) {
            let _ = std::fs::remove_file(left.path());
        }
        tempfile::Builder::new()
            .prefix(FRESH)
            .tempfile_in(&self.folder)
    }

    /// Puts a version there. A file that is as it should be is not touched.
    pub(super) fn put(
        &self,
        component: NamedTempFile,
        pulled: &Pulled,
        reference: &ArtifactRef,
    ) -> io::Result<()> {
        let before = self.look()?;
        let digests = Digests::of(pulled);
        let is_damaged = self.is_damaged(&before);
        self.refuse_all_others(&before.record, &digests, is_damaged)?;
        let is_there = before.component.as_ref() == Some(&digests.component);
        let file = if is_there {
            self.component().metadata()?
        } else {
            component.as_file().metadata()?
        };
        let mark = pulled.mark.as_deref();
        let mut next = before.record.followed_by(reference, mark, &digests.all());
        next.file = Some(FileId::of(&file));
        // First: a process that dies now leaves files that the next one knows as its own.
        self.write_record(&next)?;
        // The component last, so that it is tried with the manifest and the signature that it has.
        self.follow_small_files(pulled, &before.record)?;
        if is_damaged {
            self.put_aside()?;
        }
        if !is_there {
            component.as_file().sync_all()?;
            component.persist(self.component())?;
        }
        File::open(&self.folder)?.sync_all()
    }

    /// Refuses a version if any of its files would replace one that no host put there. A damaged
    /// component was put there by a host.
    fn refuse_all_others(
        &self,
        before: &Record,
        next: &Digests,
        is_damaged: bool,
    ) -> io::Result<()> {
        if !is_damaged {
            self.refuse_others(&self.component(), Some(&next.component), before)?;
        }
        self.refuse_others(&self.settings(), next.settings.as_ref(), before)?;
        self.refuse_others(&self.signature(), next.signature.as_ref(), before)
    }

    /// Whether the component is the very file that was put there, with other bytes: the disk or a
    /// mishap changed it. Whoever replaces it by hand puts another file there, or one of another
    /// length.
    fn is_damaged(&self, found: &InFolder) -> bool {
        let Some(digest) = &found.component else {
            return false;
        };
        let now = self.component().symlink_metadata();
        let now = now.ok().map(|file| FileId::of(&file));
        !found.record.knows(digest) && found.record.file.is_some() && found.record.file == now
    }

    /// Keeps the bytes of a damaged component: if somebody wanted them, they are not lost.
    fn put_aside(&self) -> io::Result<()> {
        let aside = self.folder.join(format!(".{}.wasm.damaged", self.plugin));
        std::fs::copy(self.component(), &aside)?;
        tracing::warn!(
            plugin = %self.plugin,
            kept = %aside.display(),
            code = "pulled-damaged",
            "the component that was pulled has other bytes now, and is replaced"
        );
        Ok(())
    }

    /// Whether the plugin would have another manifest with this version than it has.
    pub(super) fn changes_settings(&self, pulled: &Pulled) -> io::Result<bool> {
        let found = self.digest(&self.settings())?;
        let next = pulled.settings.as_deref().map(digest_in);
        if next.is_some() {
            return Ok(found != next);
        }
        // That of somebody else stays where it is.
        let record = record::read(&self.folder, &self.plugin)?;
        Ok(found.is_some_and(|found| record.knows(&found)))
    }

    /// Refuses to replace a file that no host put there, unless it is what would be put.
    fn refuse_others(&self, path: &Path, next: Option<&Sha256>, before: &Record) -> io::Result<()> {
        let Some(found) = self.digest(path)? else {
            return Ok(());
        };
        // Without a file of its own, a version leaves that of somebody else where it is.
        if next.is_none() || next == Some(&found) || before.knows(&found) {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "{} was put there by somebody else, and is not replaced: remove it to have what is \
                pulled",
            path.display()
        )))
    }

    fn follow_small_files(&self, pulled: &Pulled, before: &Record) -> io::Result<()> {
        self.follow(&self.settings(), pulled.settings.as_deref(), before)?;
        self.follow(&self.signature(), pulled.signature.as_deref(), before)
    }

    /// Makes a small file as it should be. One that is not wanted any more is removed, if a host
    /// put it there.
    fn follow(&self, path: &Path, bytes: Option<&[u8]>, before: &Record) -> io::Result<()> {
        let found = self.digest(path)?;
        match (bytes, found) {
            (Some(bytes), found) if found.as_ref() != Some(&digest_in(bytes)) => {
                self.write_whole(path, bytes)
            }
            (None, Some(found)) if before.knows(&found) => std::fs::remove_file(path),
            _ => Ok(()),
        }
    }

    pub(super) fn write_record(&self, record: &Record) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(record)?;
        self.write_whole(&record::path_of(&self.folder, &self.plugin), &text)
    }

    fn write_whole(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut fresh = self.fresh()?;
        fresh.write_all(bytes)?;
        fresh.as_file().sync_all()?;
        fresh.persist(path)?;
        Ok(())
    }

    /// The digest of a file; `None` if there is none.
    fn digest(&self, path: &Path) -> io::Result<Option<Sha256>> {
        match path.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Ok(metadata) if !metadata.is_file() => {
                return Err(io::Error::other(format!(
                    "{} is no regular file: remove it to have what is pulled",
                    path.display()
                )));
            }
            Ok(_) | Err(_) => {}
        }
        let bytes = files::read(path, self.bytes_max)
            .map_err(|error| io::Error::other(format!("{}: {error}", path.display())))?;
        Ok(Some(digest_in(&bytes)))
    }

    fn component(&self) -> PathBuf {
        self.folder.join(format!("{}.wasm", self.plugin))
    }

    fn settings(&self) -> PathBuf {
        self.folder.join(format!("{}.toml", self.plugin))
    }

    fn signature(&self) -> PathBuf {
        self.folder.join(format!("{}.wasm.sig", self.plugin))
    }
}

fn digest_in(bytes: &[u8]) -> Sha256 {
    Sha256::of_version(&digest_of(bytes))
}

/// Whether a process died while it wrote that file.
fn is_left(entry: &std::fs::DirEntry) -> bool {
    let is_fresh = entry.file_name().to_string_lossy().starts_with(FRESH);
    let modified = entry.metadata().and_then(|file| file.modified());
    let age = modified.map(|at| wall_now().duration_since(at));
    is_fresh && matches!(age, Ok(Ok(age)) if age > FRESH_FOR)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const REFERENCE: &str = "oci://r.example/alerts:1";

    struct Fixture {
        folder: tempfile::TempDir,
        files: PluginDrop,
    }

    impl Fixture {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let plugin = PluginName::new("alerts").unwrap();
            let files = PluginDrop::new(folder.path(), &plugin, 1_000);
            Self { folder, files }
        }

        fn put(&self, component: &str, others: [Option<&str>; 2]) -> io::Result<()> {
            let [settings, signature] = others.map(|text| text.map(|text| text.to_owned().into()));
            let mut fresh = self.files.fresh().unwrap();
            fresh.write_all(component.as_bytes()).unwrap();
            let pulled = Pulled {
                mark: Some("mark".to_owned()),
                component: digest_in(component.as_bytes()),
                settings,
                signature,
            };
            let reference = ArtifactRef::parse(REFERENCE).unwrap();
            self.files.put(fresh, &pulled, &reference)
        }

        fn read(&self, name: &str) -> Option<String> {
            std::fs::read_to_string(self.folder.path().join(name)).ok()
        }

        fn write(&self, name: &str, text: &str) {
            std::fs::write(self.folder.path().join(name), text).unwrap();
        }

        fn names(&self) -> Vec<String> {
            let entries = std::fs::read_dir(self.folder.path()).unwrap();
            let mut names: Vec<String> = entries
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        }
    }

    #[test]
    fn a_version_is_put_with_what_belongs_to_it_and_the_next_one_leaves_nothing_of_it() {
        let fixture = Fixture::new();
        fixture.put("one", [Some("a = 1"), Some("signed")]).unwrap();
        let all = [
            ".alerts.pulled",
            "alerts.toml",
            "alerts.wasm",
            "alerts.wasm.sig",
        ];
        assert_eq!(fixture.names(), all);
        for name in all {
            let file = fixture.folder.path().join(name).metadata().unwrap();
            assert_eq!(file.permissions().mode() & 0o777, 0o600, "{name}");
        }
        let found = fixture.files.look().unwrap();
        assert!(found.is_of(&ArtifactRef::parse(REFERENCE).unwrap()));
        assert_eq!(found.record.mark.as_deref(), Some("mark"));
        fixture.put("two", [None, None]).unwrap();
        assert_eq!(fixture.names(), [".alerts.pulled", "alerts.wasm"]);
        assert_eq!(fixture.read("alerts.wasm").as_deref(), Some("two"));
    }

    #[test]
    fn what_somebody_else_put_there_is_never_replaced_and_the_error_names_it() {
        for name in ["alerts.wasm", "alerts.toml", "alerts.wasm.sig"] {
            let fixture = Fixture::new();
            fixture.put("one", [None, None]).unwrap();
            fixture.write(name, "by hand");
            let told = fixture
                .put("two", [Some("a = 1"), Some("signed")])
                .unwrap_err();
            assert!(
                told.to_string().contains(&format!("{name} was put there")),
                "{told}"
            );
            assert_eq!(fixture.read(name).as_deref(), Some("by hand"));
            assert_ne!(fixture.read("alerts.wasm").as_deref(), Some("two"));
        }
        let fixture = Fixture::new();
        fixture.write("alerts.toml", "by hand");
        fixture.put("one", [None, None]).unwrap();
        assert_eq!(fixture.read("alerts.toml").as_deref(), Some("by hand"));
        fixture.write("alerts.wasm", "by hand");
        assert_eq!(fixture.files.look().unwrap().pulled(), None);
    }

    #[test]
    fn a_damaged_component_is_pulled_again_and_kept_aside_and_another_file_of_its_length_stays() {
        let fixture = Fixture::new();
        fixture.put("one", [None, None]).unwrap();
        // In place, as a disk does it.
        fixture.write("alerts.wasm", "oNe");
        assert_eq!(fixture.files.look().unwrap().pulled(), None);
        fixture.put("one", [None, None]).unwrap();
        assert_eq!(fixture.read("alerts.wasm").as_deref(), Some("one"));
        assert_eq!(fixture.read(".alerts.wasm.damaged").as_deref(), Some("oNe"));
        // By hand, as anybody replaces a file that is in use.
        fixture.write("next", "two");
        let folder = fixture.folder.path();
        std::fs::rename(folder.join("next"), folder.join("alerts.wasm")).unwrap();
        let why = fixture.put("one", [None, None]).unwrap_err().to_string();
        assert!(why.contains("put there by somebody else"), "{why}");
        assert_eq!(fixture.read("alerts.wasm").as_deref(), Some("two"));
    }

    #[test]
    fn a_process_that_dies_between_two_files_leaves_none_that_the_next_one_takes_for_somebody_elses()
     {
        let fixture = Fixture::new();
        fixture.put("one", [Some("a = 1"), None]).unwrap();
        // It wrote the record and the manifest of the second version, and no more.
        fixture.put("two", [Some("a = 2"), None]).unwrap();
        fixture.write("alerts.wasm", "one");
        assert_eq!(
            fixture.files.look().unwrap().pulled(),
            None,
            "it is pulled again"
        );
        fixture.put("three", [Some("a = 3"), None]).unwrap();
        assert_eq!(fixture.read("alerts.wasm").as_deref(), Some("three"));
        assert_eq!(fixture.read("alerts.toml").as_deref(), Some("a = 3"));
    }

    #[test]
    fn a_version_changes_the_settings_if_its_manifest_is_another_or_goes() {
        let fixture = Fixture::new();
        let changes = |settings: Option<&str>| {
            let pulled = Pulled {
                mark: None,
                component: digest_in(b"one"),
                settings: settings.map(|text| text.to_owned().into()),
                signature: None,
            };
            fixture.files.changes_settings(&pulled).unwrap()
        };
        assert!(!changes(None) && changes(Some("a = 1")));
        fixture.put("one", [Some("a = 1"), None]).unwrap();
        assert!(changes(None) && changes(Some("a = 2")) && !changes(Some("a = 1")));
        fixture.write("alerts.toml", "by hand");
        assert!(!changes(None), "that of somebody else stays");
    }

    #[test]
    fn a_link_is_no_file_that_is_replaced() {
        let fixture = Fixture::new();
        fixture.write("elsewhere", "x");
        let (from, to) = (
            fixture.folder.path().join("elsewhere"),
            fixture.folder.path().join("alerts.wasm"),
        );
        std::os::unix::fs::symlink(from, to).unwrap();
        let told = fixture.put("one", [None, None]).unwrap_err().to_string();
        assert!(told.contains("is no regular file"), "{told}");
        assert_eq!(fixture.read("elsewhere").as_deref(), Some("x"));
    }
}
