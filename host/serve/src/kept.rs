//! The last versions of each plugin that worked well, as their files were. What a host runs after a
//! restart when the file in the folder is damaged, or is a version that the fleet found bad: until
//! then, a rollback is only in memory. And what an operator may go back to, by pinning one of them.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use shardmill_config::{Config, files};
use shardmill_core::plugin::{PluginDigest, PluginName};
use shardmill_wasm::{
    beside_cache, digest_of, own_folder, refuse_others_file, refuse_others_folder,
};

use crate::clock::wall_now;
use crate::component::{read_signature, signature_of};

/// Of the folder's name, behind that of compiled plugins.
const ENDING: &str = ".kept";
/// Versions of a plugin that are kept: what runs, and two to go back to.
const VERSIONS_MAX: usize = 3;
/// Plugins of which versions are kept though they are not used: what a deploy takes out and puts
/// back. Names that come and go would fill the disk. With three versions of 32 MiB each that is 1.5
/// GiB.
const UNUSED_MAX: usize = 16;
/// Holds the digest of the version to run, whatever file is in the folder.
const PINNED: &str = "pinned";
/// A digest, and a line break.
const PINNED_BYTES_MAX: u64 = 100;
/// Before the name of a file that is not whole yet.
const FRESH: &str = "fresh-";
/// A file that is not whole after so long was left by a process that died.
const FRESH_FOR: Duration = Duration::from_hours(1);

/// A folder with a folder a plugin, which holds components, named by their digests, and their
/// signatures. Its content is run without another check: what another user made, or may write to,
/// counts as not there.
#[derive(Debug, Clone)]
pub struct Kept {
    folder: PathBuf,
    bytes_max: u64,
    /// The user whose files are believed.
    owner: u32,
}

/// A version that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptVersion {
    /// The SHA-256 of the component, which names the version.
    pub digest: PluginDigest,
    /// The file that holds the component's bytes.
    pub path: PathBuf,
    /// When it was last found to do well.
    pub at: SystemTime,
}

impl Kept {
    /// Where a host with this configuration keeps versions, if it has a folder for such things that
    /// is its own. As with what it died of, the host does without if it is not.
    pub(crate) fn of_host(config: &Config) -> Option<Self> {
        let cache = config.host.cache.folder().ok()?;
        let kept = Self::beside(cache, config.host.plugin_bytes_max);
        match own_folder(&kept.folder, kept.owner) {
            Ok(()) => {
                kept.report_others_work();
                Some(kept)
            }
            Err(error) => {
                tracing::warn!(
                    %error,
                    code = "kept-unavailable",
                    "no version is kept to fall back to, and kept or pinned versions do not run"
                );
                None
            }
        }
    }

    /// Beside the folder of compiled plugins.
    pub fn beside(cache: &Path, bytes_max: u64) -> Self {
        Self {
            folder: beside_cache(cache, ENDING),
            bytes_max,
            owner: owner_of(cache),
        }
    }

    fn report_others_work(&self) {
        for name in self.plugins() {
            if let Err(error) = self.own(&name) {
                tracing::warn!(
                    plugin = %name,
                    %error,
                    code = "kept-unavailable-of-plugin",
                    "kept or pinned versions of the plugin do not run"
                );
            }
        }
    }

    /// Keeps `file` as the newest version, if it still has that digest. False if it is another
    /// version by now, or is kept already.
    pub fn keep(&self, name: &PluginName, digest: &PluginDigest, file: &Path) -> io::Result<bool> {
        if self.renew(name, digest)? {
            return Ok(false);
        }
        let bytes = files::read(file, self.bytes_max)?;
        if digest_of(&bytes) != *digest {
            return Ok(false);
        }
        own_folder(&self.folder, self.owner)?;
        own_folder(&self.of(name), self.owner)?;
        let path = self.of(name).join(file_name(digest));
        self.keep_signature(name, file, &path)?;
        self.write_whole(&path, &bytes)?;
        // Last, so that at least one version is there at any time.
        self.forget_old(name)?;
        Ok(true)
    }

    /// Makes a version that is kept already the newest. False if it is not, or not as a whole.
    fn renew(&self, name: &PluginName, digest: &PluginDigest) -> io::Result<bool> {
        let known = self.versions(name).into_iter();
        let mut known = known.filter(|version| version.digest == *digest);
        // One that is not whole was torn by a power cut, or by a full disk: it is written again.
        let Some(version) = known.find(|version| self.is_whole(version)) else {
            return Ok(false);
        };
        let file = File::options().append(true).open(&version.path)?;
        file.set_modified(wall_now())?;
        Ok(true)
    }

    /// Keeps the signature beside `file`, if it has one, for the copy at `path`.
    fn keep_signature(&self, name: &PluginName, file: &Path, path: &Path) -> io::Result<()> {
        match read_signature(file) {
            Ok(Some(signature)) => self.write_whole(&signature_of(path), &signature)?,
            Ok(None) => {}
            Err(error) => {
                let signature = signature_of(file);
                let signature = signature.display();
                tracing::warn!(
                    plugin = %name,
                    %signature,
                    %error,
                    code = "kept-unsigned",
                    "the kept version has no signature: put one beside it, or remove the version"
                );
            }
        }
        Ok(())
    }

    /// What is not whole is of no use, and must not take the place of what is.
    fn forget_old(&self, name: &PluginName) -> io::Result<()> {
        let pinned = self.pinned(name).unwrap_or_default();
        let (whole, torn): (Vec<_>, Vec<_>) = self
            .versions(name)
            .into_iter()
            .partition(|version| self.is_whole(version));
        let old = whole.into_iter().skip(VERSIONS_MAX).chain(torn);
        for old in old.filter(|old| Some(&old.digest) != pinned.as_ref()) {
            std::fs::remove_file(&old.path)?;
            // It may have none.
            let _ = std::fs::remove_file(signature_of(&old.path));
        }
        for left in entries(&self.of(name)).filter(is_left) {
            let _ = std::fs::remove_file(left.path());
        }
        Ok(())
    }

    /// Forgets plugins of which nothing was kept for the longest time, if more than a few are kept
    /// that are neither pinned nor used.
    pub(crate) fn forget_unused(&self, is_used: impl Fn(&PluginName) -> bool) -> io::Result<()> {
        let mut unused: Vec<(SystemTime, PluginName)> = self
            .plugins()
            .into_iter()
            .filter(|name| self.own(name).is_ok() && !is_used(name) && !self.has_pin(name))
            .map(|name| (self.kept_at(&name), name))
            .collect();
        unused.sort_unstable();
        let too_many = unused.len().saturating_sub(UNUSED_MAX);
        for (_, name) in unused.into_iter().take(too_many) {
            std::fs::remove_dir_all(self.of(&name))?;
            tracing::info!(plugin = %name, "removed the kept versions of a plugin that is gone");
        }
        Ok(())
    }

    /// Also if it cannot be read: somebody wanted a version to stay.
    fn has_pin(&self, name: &PluginName) -> bool {
        self.of(name).join(PINNED).symlink_metadata().is_ok()
    }

    fn kept_at(&self, name: &PluginName) -> SystemTime {
        let newest = self.versions(name).into_iter().next();
        newest.map_or(SystemTime::UNIX_EPOCH, |version| version.at)
    }

    /// The kept versions of a plugin, the last that worked well first. Does not check whether their
    /// bytes are whole.
    pub fn versions(&self, name: &PluginName) -> Vec<KeptVersion> {
        let Ok(own) = self.own(name) else {
            return Vec::new();
        };
        let found = entries(&own).filter_map(|entry| self.version_of(&entry));
        let mut versions: Vec<KeptVersion> = found.collect();
        versions.sort_by_key(|version| std::cmp::Reverse(version.at));
        versions
    }

    /// The version that a file of a plugin's folder holds; `None` if it is another user's, or its
    /// name is not a digest.
    fn version_of(&self, entry: &std::fs::DirEntry) -> Option<KeptVersion> {
        let path = entry.path();
        let digest = PluginDigest::from_hex(path.file_name()?.to_str()?.strip_suffix(".wasm")?)?;
        refuse_others_file(&path, self.owner).ok()?;
        let at = modified(entry);
        Some(KeptVersion { digest, path, at })
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
        let text = self.own(name).and_then(|_| {
            refuse_others_file(&path, self.owner)?;
            files::read_text(&path, PINNED_BYTES_MAX).map_err(|error| {
                io::Error::new(error.kind(), format!("{}: {error}", path.display()))
            })
        });
        match text {
            Ok(text) => PluginDigest::from_hex(text.trim())
                .map(Some)
                .ok_or_else(|| {
                    io::Error::other(format!(
                        "{} does not hold a digest; unpin the plugin",
                        path.display()
                    ))
                }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(io::Error::other(format!("{error}; unpin the plugin"))),
        }
    }

    /// Every plugin with a kept or pinned version.
    pub fn plugins(&self) -> Vec<PluginName> {
        entries(&self.folder)
            .filter_map(|entry| PluginName::new(entry.file_name().to_str()?).ok())
            .collect()
    }

    /// Makes hosts with this cache run a version, which must be kept.
    pub fn pin(&self, name: &PluginName, digest: &PluginDigest) -> io::Result<()> {
        let path = self.own(name)?.join(PINNED);
        self.write_whole(&path, format!("{}\n", digest.as_str()).as_bytes())
    }

    /// Whether a version was pinned.
    pub fn unpin(&self, name: &PluginName) -> io::Result<bool> {
        let removed = self
            .own(name)
            .and_then(|own| std::fs::remove_file(own.join(PINNED)));
        match removed {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            removed => removed.map(|()| true),
        }
    }

    /// The folder of all kept versions.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A plugin's folder, if nobody else can have put anything into it.
    fn own(&self, name: &PluginName) -> io::Result<PathBuf> {
        let own = self.of(name);
        refuse_others_folder(&self.folder, self.owner)?;
        refuse_others_folder(&own, self.owner)?;
        Ok(own)
    }

    fn of(&self, name: &PluginName) -> PathBuf {
        self.folder.join(name.as_str())
    }

    /// Replaces the file at once, so that no reader sees a part of it; and only once its bytes are
    /// on the disk, so that neither does one after a power cut.
    fn write_whole(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let folder = path.parent().unwrap_or(&self.folder);
        let mut fresh = tempfile::Builder::new().prefix(FRESH).tempfile_in(folder)?;
        fresh.write_all(bytes)?;
        if fresh.as_file().metadata()?.uid() != self.owner {
            // Root pins for the host, which has to read it.
            std::os::unix::fs::fchown(fresh.as_file(), Some(self.owner), None)?;
        }
        fresh.as_file().sync_all()?;
        fresh.persist(path)?;
        File::open(folder)?.sync_all()
    }
}

/// Who owns what lies beside the cache: a host has a cache of its own, and root acts for the host
/// whose cache it is.
fn owner_of(cache: &Path) -> u32 {
    let user = rustix::process::geteuid();
    if user.is_root()
        && let Ok(cache) = cache.metadata()
    {
        return cache.uid();
    }
    user.as_raw()
}

fn entries(folder: &Path) -> impl Iterator<Item = std::fs::DirEntry> + use<> {
    std::fs::read_dir(folder).into_iter().flatten().flatten()
}

fn modified(entry: &std::fs::DirEntry) -> SystemTime {
    let modified = entry.metadata().and_then(|file| file.modified());
    modified.unwrap_or(SystemTime::UNIX_EPOCH)
}

/// Whether a process died while it wrote that file.
fn is_left(entry: &std::fs::DirEntry) -> bool {
    let is_fresh = entry.file_name().to_string_lossy().starts_with(FRESH);
    let age = wall_now().duration_since(modified(entry));
    is_fresh && age.is_ok_and(|age| age > FRESH_FOR)
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

    #[test]
    fn what_others_made_or_may_write_to_is_neither_run_nor_pinned_nor_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let (kept, name, file) = fixture(folder.path());
        let digest = digest_of(b"one");
        std::fs::write(&file, b"one").unwrap();
        assert!(kept.keep(&name, &digest, &file).unwrap());
        kept.pin(&name, &digest).unwrap();
        let is_believed = || (kept.find(&name).is_some(), kept.pinned(&name).is_ok());
        let whole = kept.of(&name).join(file_name(&digest));
        for path in [kept.folder(), &kept.of(&name)] {
            set_mode(path, 0o770);
            assert_eq!(is_believed(), (false, false), "{}", path.display());
            let refused = kept.keep(&name, &digest, &file).unwrap_err().to_string();
            assert!(refused.contains("no other may write to"), "{refused}");
            assert!(kept.pin(&name, &digest).is_err() && kept.unpin(&name).is_err());
            set_mode(path, 0o700);
        }
        set_mode(&whole, 0o666);
        assert_eq!(is_believed(), (false, true));
        assert!(kept.keep(&name, &digest, &file).unwrap(), "it is replaced");
        set_mode(&kept.of(&name).join(PINNED), 0o666);
        assert_eq!(is_believed(), (true, false));
        assert!(kept.unpin(&name).unwrap(), "which mends it");
        let elsewhere = folder.path().join("elsewhere");
        std::fs::rename(kept.of(&name), &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, kept.of(&name)).unwrap();
        assert_eq!(is_believed(), (false, false), "a link");
        assert!(kept.keep(&name, &digest, &file).is_err());
        let others = Kept {
            owner: kept.owner + 1,
            ..Kept::beside(&folder.path().join("compiled"), 100)
        };
        assert!(others.find(&name).is_none() && others.pinned(&name).is_err());
    }

    #[test]
    fn versions_of_names_that_come_and_go_are_kept_of_a_few_and_never_lost_of_what_is_used() {
        let folder = tempfile::tempdir().unwrap();
        let (kept, _, file) = fixture(folder.path());
        std::fs::write(&file, b"one").unwrap();
        let names: Vec<PluginName> = (0..UNUSED_MAX + 5)
            .map(|number| PluginName::new(&format!("gone-{number}")).unwrap())
            .collect();
        for (number, name) in names.iter().enumerate() {
            assert!(kept.keep(name, &digest_of(b"one"), &file).unwrap());
            let path = kept.of(name).join(file_name(&digest_of(b"one")));
            // Each was kept an hour after the one before it.
            let age = Duration::from_hours(100 - number as u64);
            File::options()
                .append(true)
                .open(path)
                .unwrap()
                .set_modified(wall_now() - age)
                .unwrap();
        }
        kept.pin(&names[0], &digest_of(b"one")).unwrap();
        kept.forget_unused(|name| *name == names[1]).unwrap();
        let gone = |name: &&PluginName| kept.find(name).is_none();
        assert_eq!(
            names.iter().filter(gone).collect::<Vec<_>>(),
            [&names[2], &names[3], &names[4]],
            "the oldest, but neither what is pinned nor what is used"
        );
        assert_eq!(kept.plugins().len(), UNUSED_MAX + 2);
    }

    #[test]
    fn a_version_that_a_power_cut_tore_is_replaced_when_it_does_well_again() {
        let folder = tempfile::tempdir().unwrap();
        let (kept, name, file) = fixture(folder.path());
        let keep = |bytes: &[u8]| {
            std::fs::write(&file, bytes).unwrap();
            kept.keep(&name, &digest_of(bytes), &file).unwrap()
        };
        let path = |bytes: &[u8]| kept.of(&name).join(file_name(&digest_of(bytes)));
        assert!(keep(b"one"));
        for torn in [b"six", b"ten", b"two"] {
            assert!(keep(torn));
            std::fs::write(path(torn), "").unwrap();
        }
        let left = kept.of(&name).join("fresh-of-a-process-that-died");
        File::create(&left)
            .unwrap()
            .set_modified(wall_now() - FRESH_FOR * 2)
            .unwrap();
        assert_eq!(kept.find(&name).unwrap().0, digest_of(b"one"));
        assert!(keep(b"two"), "not taken for kept");
        assert_eq!(kept.find(&name).unwrap().0, digest_of(b"two"));
        let found: Vec<_> = std::fs::read_dir(kept.of(&name))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        assert_eq!(found.len(), 2, "what is torn is no version: {found:?}");
        assert!(path(b"one").exists(), "and pushes none out");
    }

    fn set_mode(path: &Path, mode: u32) {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
}
