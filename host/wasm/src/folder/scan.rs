//! Looks at the folder: which names there are, and what each is. Opens nothing, so nothing can
//! block it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, OsStr};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, openat, statat};
use shardmill_core::plugin::{NameFault, PluginName};

use super::Refusal;
use super::writers::{Me, others};

/// Names looked at. A folder with more is not a plugin folder, and each costs a system call at
/// every scan.
const NAMES_MAX: usize = 10_000;
pub(super) const COMPONENT_SUFFIX: &str = ".wasm";
pub(super) const MANIFEST_SUFFIX: &str = ".toml";
const SIGNATURE_SUFFIX: &str = ".wasm.sig";

/// Tells two versions of a file apart without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) inode: u64,
    pub(crate) size: u64,
    pub(crate) modified: (i64, u64),
    /// Set by the system at any change, also where a copy sets `modified` back to the original's.
    pub(crate) changed: (i64, u64),
}

/// A component's file, and the one beside it that holds its signature: either may come first, or
/// change alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamps {
    pub(crate) component: Stamp,
    pub(crate) signature: Option<Stamp>,
}

/// What a name in the folder is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Seen {
    File(PluginName, Stamps),
    Refused(Refusal),
}

/// What the folder holds.
#[derive(Debug)]
pub(crate) struct Listing {
    pub(crate) seen: BTreeMap<String, Seen>,
    /// What is beside components under their names with the ending of a manifest. It need not be a
    /// regular file.
    pub(crate) manifests: BTreeMap<PluginName, Stamp>,
    /// Device and inode, which differ once the directory itself is replaced.
    pub(crate) directory: (u64, u64),
    /// Which other users may write to it, or to files loaded from it, if any may.
    pub(crate) writers: Option<String>,
}

/// A scan that is under way.
struct Scan<'a> {
    folder: &'a Path,
    size_max: u64,
    me: Me,
    seen: BTreeMap<String, Seen>,
    manifests: BTreeMap<PluginName, Stamp>,
    signatures: BTreeMap<PluginName, Stamp>,
    /// By path, so that every scan reports the same one.
    writers: BTreeMap<PathBuf, String>,
}

/// What a name in the folder is meant as.
enum Meant {
    Component {
        /// Printable.
        file: String,
        name: Result<PluginName, NameFault>,
    },
    Manifest(PluginName),
    Signature(PluginName),
}

impl Stamp {
    #[expect(
        clippy::unnecessary_cast,
        reason = "the types of these fields differ between platforms"
    )]
    pub(crate) fn of(stat: &Stat) -> Self {
        Self {
            inode: stat.st_ino as u64,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            modified: (stat.st_mtime as i64, stat.st_mtime_nsec as u64),
            changed: (stat.st_ctime as i64, stat.st_ctime_nsec as u64),
        }
    }
}

/// Lists the folder. An error means that nothing is known, not that nothing is there.
pub(crate) fn scan(folder: &Path, size_max: u64) -> std::io::Result<Listing> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = openat(rustix::fs::CWD, folder, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&directory)?;
    let mut scan = Scan::new(folder, size_max);
    for (names, entry) in Dir::read_from(&directory)?.enumerate() {
        if names >= NAMES_MAX {
            return Err(too_many(folder));
        }
        scan.look_at(&directory, entry?.file_name())?;
    }
    Ok(scan.end(&stat))
}

impl<'a> Scan<'a> {
    fn new(folder: &'a Path, size_max: u64) -> Self {
        Self {
            folder,
            size_max,
            me: Me::of_process(),
            seen: BTreeMap::new(),
            manifests: BTreeMap::new(),
            signatures: BTreeMap::new(),
            writers: BTreeMap::new(),
        }
    }

    fn look_at(&mut self, directory: &OwnedFd, name: &CStr) -> std::io::Result<()> {
        let Some(meant) = Meant::by(name) else {
            return Ok(());
        };
        let stat = match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            // Removed since it was listed.
            Err(rustix::io::Errno::NOENT) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let path = self.folder.join(OsStr::from_bytes(name.to_bytes()));
        if let Some(warning) = others(&path, &stat, self.me) {
            self.writers.insert(path, warning);
        }
        self.add(meant, &stat);
        Ok(())
    }

    fn add(&mut self, meant: Meant, stat: &Stat) {
        match meant {
            Meant::Component { file, name } => {
                let seen = judge(name, stat, self.size_max).unwrap_or_else(Seen::Refused);
                self.seen.insert(file, seen);
            }
            Meant::Manifest(plugin) => {
                self.manifests.insert(plugin, Stamp::of(stat));
            }
            Meant::Signature(plugin) => {
                self.signatures.insert(plugin, Stamp::of(stat));
            }
        }
    }

    fn end(mut self, directory: &Stat) -> Listing {
        for seen in self.seen.values_mut() {
            if let Seen::File(name, stamps) = seen {
                stamps.signature = self.signatures.get(name).copied();
            }
        }
        let of_folder = others(self.folder, directory, self.me);
        Listing {
            seen: self.seen,
            manifests: self.manifests,
            directory: (directory.st_dev, directory.st_ino),
            writers: of_folder.or_else(|| self.writers.into_values().next()),
        }
    }
}

impl Listing {
    /// Refuses the components of all other plugins, before they are read.
    pub(crate) fn refuse_all_but(&mut self, listed: &BTreeSet<PluginName>) {
        for seen in self.seen.values_mut() {
            let Seen::File(name, _) = seen else { continue };
            let name = name.shadowed().unwrap_or_else(|| name.clone());
            if !listed.contains(&name) {
                *seen = Seen::Refused(Refusal::Unlisted { name });
            }
        }
    }
}

/// Which users besides this one and root may write to the folder, or to files that a host loads
/// from it, in words that say what to do; `None` if no others may, or if the folder cannot be read.
pub fn writers(folder: &Path) -> Option<String> {
    scan(folder, u64::MAX).ok()?.writers
}

/// The components in the folder: each with the plugin that it is, or why a host refuses it by what
/// it is or by its size.
///
/// # Errors
///
/// The folder cannot be read, or has too many names.
pub fn components(
    folder: &Path,
    size_max: u64,
) -> std::io::Result<Vec<(PathBuf, Result<PluginName, Refusal>)>> {
    let mut found = Vec::new();
    for (file, seen) in scan(folder, size_max)?.seen {
        let path = folder.join(file);
        match seen {
            Seen::File(name, _) => found.push((path, Ok(name))),
            Seen::Refused(why @ (Refusal::NotAFile { .. } | Refusal::TooBig { .. })) => {
                found.push((path, Err(why)));
            }
            Seen::Refused(_) => {}
        }
    }
    Ok(found)
}

/// Which names are listed first is chance: with some left out, a plugin would seem to have gone
/// that is there.
fn too_many(folder: &Path) -> std::io::Error {
    std::io::Error::other(format!(
        "there are more than {NAMES_MAX} names in {}: loading, changing and removing plugins is \
            suspended; leave only plugins there",
        folder.display()
    ))
}

impl Meant {
    /// `None` for a name that a host does not read.
    fn by(name: &CStr) -> Option<Self> {
        if let Some(stem) = stem(name, MANIFEST_SUFFIX) {
            // A shadow has no manifest: its settings are those of the plugin.
            return PluginName::new(stem).ok().map(Self::Manifest);
        }
        if let Some(stem) = stem(name, SIGNATURE_SUFFIX) {
            return PluginName::of_file(stem).ok().map(Self::Signature);
        }
        let bytes = name.to_bytes();
        // Editors and copy tools write under dot names first.
        if bytes.starts_with(b".") || !is_component(bytes) {
            return None;
        }
        Some(Self::Component {
            file: String::from_utf8_lossy(bytes).escape_debug().to_string(),
            name: plugin_of_component(name),
        })
    }
}

/// Whether the name has a component's ending, in whatever letters: one in capitals is refused, and
/// not passed over.
fn is_component(name: &[u8]) -> bool {
    let suffix = COMPONENT_SUFFIX.as_bytes();
    let ending = name.len().checked_sub(suffix.len());
    ending.is_some_and(|at| name[at..].eq_ignore_ascii_case(suffix))
}

/// The name without `suffix`, if it ends in that.
fn stem<'a>(name: &'a CStr, suffix: &str) -> Option<&'a str> {
    name.to_str().ok()?.strip_suffix(suffix)
}

fn plugin_of_component(file: &CStr) -> Result<PluginName, NameFault> {
    let text = file.to_str().ok();
    if !file.to_bytes().ends_with(COMPONENT_SUFFIX.as_bytes()) {
        return Err(NameFault::Ending);
    }
    let name = text.and_then(|text| text.strip_suffix(COMPONENT_SUFFIX));
    PluginName::of_file(name.ok_or(NameFault::Letters)?).map_err(|error| error.why)
}

fn judge(name: Result<PluginName, NameFault>, stat: &Stat, size_max: u64) -> Result<Seen, Refusal> {
    let name = name.map_err(|why| Refusal::Name { why })?;
    if let Some(what) = special_file(stat) {
        return Err(Refusal::NotAFile { what });
    }
    let component = Stamp::of(stat);
    if component.size > size_max {
        return Err(Refusal::TooBig {
            size: component.size,
            limit: size_max,
        });
    }
    let stamps = Stamps {
        component,
        signature: None,
    };
    Ok(Seen::File(name, stamps))
}

/// What it is, if it is not a regular file.
fn special_file(stat: &Stat) -> Option<&'static str> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => None,
        FileType::Symlink => Some("a symbolic link"),
        FileType::Directory => Some("a directory"),
        FileType::Fifo => Some("a named pipe"),
        FileType::Socket => Some("a socket"),
        FileType::CharacterDevice | FileType::BlockDevice => Some("a device"),
        FileType::Unknown => Some("of an unknown type"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_too_many_names_is_reported_and_nothing_of_it_is_known() {
        let folder = tempfile::tempdir().unwrap();
        // And the two that every folder has.
        for name in 2..NAMES_MAX {
            std::fs::File::create(folder.path().join(format!("{name}.txt"))).unwrap();
        }
        assert!(scan(folder.path(), 1).unwrap().seen.is_empty());
        std::fs::write(folder.path().join("orders.wasm"), "").unwrap();
        let told = scan(folder.path(), 1).unwrap_err().to_string();
        assert!(
            told.contains("more than 10000 names") && told.contains("leave only plugins there"),
            "{told}"
        );
    }

    #[test]
    fn who_else_may_write_is_told_of_the_folder_and_of_what_is_loaded_from_it() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let set = |name: &str, mode: u32| {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(folder.path().join(name), permissions).unwrap();
        };
        for name in ["notes.txt", "bbb.toml", "aaa.wasm.sig", "orders.wasm"] {
            std::fs::write(folder.path().join(name), "").unwrap();
            set(name, 0o644);
        }
        set("notes.txt", 0o666);
        assert_eq!(writers(folder.path()), None, "that is not loaded");
        for name in ["orders.wasm", "bbb.toml", "aaa.wasm.sig", "."] {
            set(name, if name == "." { 0o777 } else { 0o646 });
            let told = writers(folder.path()).unwrap();
            let whole = folder.path().join(name);
            let shown = if name == "." { folder.path() } else { &whole };
            assert!(told.contains(&format!("{},", shown.display())), "{told}");
        }
    }

    #[test]
    fn a_file_that_names_a_table_of_another_plugin_is_refused_and_says_whose() {
        let folder = tempfile::tempdir().unwrap();
        for name in [
            "totals-state.wasm",
            "totals-coordinator.wasm",
            "totals.wasm",
            "a b.wasm",
        ] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let seen = scan(folder.path(), 1).unwrap().seen;
        let told = |name: &str| match &seen[name] {
            Seen::Refused(refusal) => refusal.to_string(),
            Seen::File(name, _) => panic!("{name} is a plugin"),
        };
        for (file, ending) in [
            ("totals-state.wasm", "-state"),
            ("totals-coordinator.wasm", "-coordinator"),
        ] {
            let expected = format!(
                "its name cannot name a plugin: it ends in \"{ending}\", like a table of the \
                    application \"totals\"; choose another ending"
            );
            assert_eq!(told(file), expected);
        }
        assert!(told("a b.wasm").contains("use 3 to 100 letters"));
        assert!(matches!(&seen["totals.wasm"], Seen::File(..)));
    }
}
