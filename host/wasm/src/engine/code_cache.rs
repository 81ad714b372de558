//! How compiled code gets from the process that compiles to the one that runs it: through
//! wasmtime's own cache, in a directory that no other user can write to.

use std::fs::Metadata;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use tempfile::TempDir;
use wasmtime::{Cache, CacheConfig};

use crate::EngineError;

/// Where wasmtime puts code, below the cache's directory.
const CODE_FOLDER: &str = "modules";
/// How it names a file while it writes it. One that is left there keeps that code from being
/// written ever again.
const CUT_OFF: &str = ".wip-atomic-write-mod";

/// Code that is kept between runs, in bytes, for all plugins: six in Python, or hundreds in Rust.
/// wasmtime has the same limit, but cleans up in the process that writes, and the compiler's ends
/// soon after.
const KEPT_BYTES_MAX: u64 = 512 << 20;
/// What is left of it when some is removed.
const KEPT_BYTES_AFTER: u64 = KEPT_BYTES_MAX / 4 * 3;

const ROOT: u32 = 0;

/// The ending of the file that says how often and when some code was used.
const USES: &str = "stats";

/// A file in the cache.
struct KeptFile {
    path: PathBuf,
    bytes: u64,
    used_at: SystemTime,
}

/// A directory of compiled code, open.
pub(crate) struct CodeCache {
    cache: Cache,
    /// Set if it lives no longer than this process.
    temporary: Option<TempDir>,
}

impl CodeCache {
    /// Opens a directory that lasts; makes it if it is missing.
    pub(crate) fn open(directory: &Path) -> Result<Self, EngineError> {
        Ok(Self {
            cache: open_cache(directory)?,
            temporary: None,
        })
    }

    /// Makes a directory for this process alone, removed with this value.
    pub(crate) fn temporary() -> Result<Self, EngineError> {
        let parent = std::env::temp_dir();
        let private = std::fs::Permissions::from_mode(0o700);
        let made = tempfile::Builder::new()
            .prefix("shardmill-code-")
            .permissions(private)
            .tempdir_in(&parent);
        let folder = made.map_err(|error| EngineError::Cache {
            path: parent,
            reason: format!(
                "{error}; set host.cache, or TMPDIR, to a folder that can be written to"
            ),
        })?;
        Ok(Self {
            cache: open_cache(folder.path())?,
            temporary: Some(folder),
        })
    }

    /// For the engine, and to ask how often it helped.
    pub(crate) fn cache(&self) -> &Cache {
        &self.cache
    }

    pub(crate) fn directory(&self) -> &Path {
        self.cache.directory()
    }

    /// Whether code is kept for the next compilation, and for the next process.
    pub(crate) fn lasts(&self) -> bool {
        self.temporary.is_none()
    }

    /// Creates the directory again if it was removed, as cleaners of temporary folders do with
    /// files that are not used for days.
    pub(crate) fn restore(&self) -> Result<(), EngineError> {
        private_folder(self.directory()).map(drop)
    }

    /// The code in the cache is loaded. A temporary directory is emptied at once, so that a host
    /// that is killed leaves an empty folder behind, and not its plugins. One that lasts keeps what
    /// was used last: a plugin that changes all the time must not fill the disk.
    pub(crate) fn loaded(&self) {
        if self.temporary.is_some() {
            // What cannot be removed is removed with the directory.
            let _ = std::fs::remove_dir_all(self.code_folder());
        } else {
            self.forget_oldest(KEPT_BYTES_MAX, KEPT_BYTES_AFTER);
        }
    }

    /// If there are more than `most` bytes, removes what was used longest ago until `after` are
    /// left.
    fn forget_oldest(&self, most: u64, after: u64) {
        let mut kept = self.files();
        let mut bytes: u64 = kept.iter().map(|file| file.bytes).sum();
        if bytes <= most {
            return;
        }
        kept.sort_by_key(|file| file.used_at);
        for file in kept {
            if bytes <= after {
                break;
            }
            // What cannot be removed is counted again the next time.
            let _ = std::fs::remove_file(&file.path);
            bytes -= file.bytes;
        }
    }

    /// Removes what a compiler that was killed while writing left.
    pub(crate) fn sweep(&self) {
        for path in self.paths() {
            if path.to_string_lossy().ends_with(CUT_OFF) {
                let _ = std::fs::remove_file(path);
            }
        }
    }

    fn files(&self) -> Vec<KeptFile> {
        self.paths()
            .into_iter()
            .filter_map(|path| {
                let found = path.metadata().ok()?;
                // wasmtime writes down each use beside the code.
                let uses = path.with_extension(USES).metadata();
                let used_at = uses.and_then(|uses| uses.modified());
                Some(KeptFile {
                    bytes: found.len(),
                    used_at: used_at.or_else(|_| found.modified()).ok()?,
                    path,
                })
            })
            .collect()
    }

    /// Every compiler version has a folder of its own.
    fn paths(&self) -> Vec<PathBuf> {
        let entries = |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries(&self.code_folder())
            .flat_map(|folder| entries(&folder.path()))
            .map(|file| file.path())
            .collect()
    }

    fn code_folder(&self) -> PathBuf {
        self.directory().join(CODE_FOLDER)
    }
}

fn open_cache(directory: &Path) -> Result<Cache, EngineError> {
    let directory = private_folder(directory)?;
    let mut config = CacheConfig::new();
    config.with_directory(&directory);
    Cache::new(config).map_err(|error| refused(&directory, &format!("{error:#}")))
}

/// Whether a host may keep what outlives it in `cache` and beside it: this process can write there,
/// and no other user. Makes the folder.
pub fn try_cache(cache: &Path) -> Result<(), EngineError> {
    let whole = std::path::absolute(cache).unwrap_or_else(|_| cache.to_owned());
    refuse_to_make_roots(&whole)?;
    // Of the folder around it, others could rename what is beside the cache.
    let around = private_folder(whole.parent().unwrap_or(&whole))?;
    private_folder(&whole)?;
    // A full disk may give a file a name and no bytes.
    let tried = tempfile::tempfile_in(&around).and_then(|mut file| file.write_all(&[0; 4_096]));
    tried.map_err(|error| refused(&around, &error.to_string()))
}

/// Whether a host could use a `cache` that is there already, as far as can be known without making
/// anything.
pub fn check_cache(cache: &Path) -> Result<(), EngineError> {
    match cache.metadata() {
        Ok(metadata) => refuse_shared(cache, &metadata),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(refused(cache, &error.to_string())),
    }
}

/// Root with the home of a user, as under `sudo -E`, would make folders there that are closed to
/// that user, who then has no cache.
fn refuse_to_make_roots(cache: &Path) -> Result<(), EngineError> {
    let existing = cache.ancestors().find_map(|path| path.metadata().ok());
    let owner = existing.map_or(ROOT, |found| found.uid());
    if rustix::process::geteuid().is_root() && owner != ROOT {
        return Err(refused(
            cache,
            "it would be root's, in a folder of another user",
        ));
    }
    Ok(())
}

/// Makes a folder for the owner only if it is missing; gives its path without links.
fn private_folder(directory: &Path) -> Result<PathBuf, EngineError> {
    let refuse = |reason: &str| refused(directory, reason);
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(|error| refuse(&error.to_string()))?;
    // wasmtime wants an absolute path without links in it.
    let directory = directory
        .canonicalize()
        .map_err(|error| refuse(&error.to_string()))?;
    let metadata = directory
        .metadata()
        .map_err(|error| refuse(&error.to_string()))?;
    refuse_shared(&directory, &metadata)?;
    if metadata.mode() & 0o077 != 0 {
        // Its files may have been created with a mask that lets others write. A file system without
        // modes has none to set.
        let _ = std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o700));
    }
    Ok(directory)
}

/// The contents of the cache run as native code: write access to it controls this process.
fn refuse_shared(directory: &Path, metadata: &Metadata) -> Result<(), EngineError> {
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        let reason = "it belongs to another user; name one that this user owns";
        return Err(refused(directory, reason));
    }
    if is_open(metadata) {
        let reason = "others may write to it; run chmod 700 on it";
        return Err(refused(directory, reason));
    }
    Ok(())
}

fn refused(directory: &Path, reason: &str) -> EngineError {
    EngineError::Cache {
        path: directory.to_owned(),
        reason: reason.to_owned(),
    }
}

/// Makes a folder beside the cache if it is missing, for its owner only, and refuses it as
/// [`refuse_others_folder`] does.
pub fn own_folder(folder: &Path, owner: u32) -> std::io::Result<()> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|error| at(folder, &error))?;
    refuse_others_folder(folder, owner)
}

/// Refuses a folder that others made, or may write to, and what only leads to one: what is in it
/// decides what this process runs.
pub fn refuse_others_folder(folder: &Path, owner: u32) -> std::io::Result<()> {
    let found = folder
        .symlink_metadata()
        .map_err(|error| at(folder, &error))?;
    if found.is_dir() && found.uid() == owner && !is_open(&found) {
        return Ok(());
    }
    Err(std::io::Error::other(format!(
        "{}: it must be a folder that this user owns and no other may write to; remove it",
        folder.display()
    )))
}

/// The same for a file in such a folder. It may be root's, who can do what this user can.
pub fn refuse_others_file(file: &Path, owner: u32) -> std::io::Result<()> {
    let found = file.symlink_metadata().map_err(|error| at(file, &error))?;
    if found.is_file() && [owner, ROOT].contains(&found.uid()) && !is_open(&found) {
        return Ok(());
    }
    Err(std::io::Error::other(format!(
        "{}: it must be a file that this user owns and no other may write to; remove it",
        file.display()
    )))
}

fn is_open(found: &Metadata) -> bool {
    found.mode() & 0o022 != 0
}

/// The same kind of error, with its place.
fn at(path: &Path, error: &std::io::Error) -> std::io::Error {
    std::io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// A folder beside that of compiled plugins, for what its keeper must not remove from it, and the
/// compiler not write: it removes what it does not know. However the folder is written: `cache/`
/// and `.` name one too.
pub fn beside_cache(cache: &Path, ending: &str) -> PathBuf {
    let whole = std::path::absolute(cache).unwrap_or_else(|_| cache.to_owned());
    let mut name = whole.file_name().unwrap_or_default().to_owned();
    name.push(ending);
    whole.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_good_if_this_process_can_write_there_and_nobody_else() {
        let folder = tempfile::tempdir().unwrap();
        let cache = folder.path().join("state/one/cache");
        try_cache(&cache).unwrap();
        let around = cache.parent().unwrap();
        assert_eq!(std::fs::read_dir(around).unwrap().count(), 1);
        let mode = std::fs::metadata(around).unwrap().mode();
        assert_eq!(mode & 0o777, 0o700);
        let everybodys = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(around, everybodys).unwrap();
        let told = try_cache(&cache).unwrap_err().to_string();
        assert!(told.contains("others may write to it"), "{told}");
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(try_cache(&file.join("one/cache")).is_err());
    }

    #[test]
    fn what_lies_beside_the_cache_is_never_in_it_however_its_folder_is_written() {
        let here = std::env::current_dir().unwrap();
        for (cache, beside) in [
            ("/a/cache".into(), PathBuf::from("/a/cache.kept")),
            ("/a/cache/".into(), "/a/cache.kept".into()),
            ("/a/cache/.".into(), "/a/cache.kept".into()),
            (PathBuf::from("cache/"), here.join("cache.kept")),
            (".".into(), format!("{}.kept", here.display()).into()),
        ] {
            assert_eq!(beside_cache(&cache, ".kept"), beside, "{}", cache.display());
        }
    }

    #[test]
    fn code_that_was_used_longest_ago_goes_once_there_is_too_much() {
        let folder = tempfile::tempdir().unwrap();
        let cache = CodeCache::open(&folder.path().join("cache")).unwrap();
        let modules = cache.code_folder().join("wasmtime-1");
        std::fs::create_dir_all(&modules).unwrap();
        let write = |name: &str, bytes: usize, used_at: u64| {
            let file = std::fs::File::create(modules.join(name)).unwrap();
            file.set_len(bytes as u64).unwrap();
            let used_at = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(used_at);
            file.set_modified(used_at).unwrap();
        };
        for (name, made_at, used_at) in [("a", 1, 9), ("b", 2, 3), ("c", 4, 5)] {
            write(name, 100, made_at);
            write(&format!("{name}.stats"), 1, used_at);
        }
        cache.forget_oldest(303, 150);
        assert_eq!(cache.paths().len(), 6, "there is room for all");
        cache.forget_oldest(302, 150);
        let mut left = cache.paths();
        left.sort();
        assert_eq!(left, [modules.join("a"), modules.join("a.stats")]);
    }

    #[test]
    fn the_cache_is_private_and_a_shared_directory_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let cache = folder.path().join("cache");
        CodeCache::open(&cache).unwrap();
        assert_eq!(cache.metadata().unwrap().mode() & 0o777, 0o700);

        std::fs::set_permissions(&cache, std::fs::Permissions::from_mode(0o755)).unwrap();
        CodeCache::open(&cache).unwrap();
        assert_eq!(
            cache.metadata().unwrap().mode() & 0o777,
            0o700,
            "others could look for files that they may write to"
        );

        std::fs::set_permissions(&cache, std::fs::Permissions::from_mode(0o777)).unwrap();
        let error = CodeCache::open(&cache).err().unwrap().to_string();
        assert!(error.contains("chmod 700"), "{error}");
    }

    #[test]
    fn a_temporary_directory_is_private_and_gone_with_its_owner() {
        let cache = CodeCache::temporary().unwrap();
        let directory = cache.directory().to_owned();
        assert_eq!(directory.metadata().unwrap().mode() & 0o777, 0o700);
        let code = directory.join(CODE_FOLDER).join("wasmtime/code");
        std::fs::create_dir_all(code.parent().unwrap()).unwrap();
        std::fs::write(&code, "x").unwrap();
        cache.loaded();
        assert!(!code.exists(), "code that is in use is not kept");
        drop(cache);
        assert!(!directory.exists());
    }

    #[test]
    fn a_directory_that_somebody_removed_is_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("kept").join("cache");
        let lasting = CodeCache::open(&directory).unwrap();
        for cache in [lasting, CodeCache::temporary().unwrap()] {
            std::fs::remove_dir_all(cache.directory()).unwrap();
            cache.restore().unwrap();
            assert_eq!(cache.directory().metadata().unwrap().mode() & 0o777, 0o700);
        }
    }

    #[test]
    fn what_a_killed_compiler_left_half_written_is_removed_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let cache = CodeCache::open(folder.path()).unwrap();
        let code = cache.directory().join(CODE_FOLDER).join("wasmtime-1.2.3");
        std::fs::create_dir_all(&code).unwrap();
        let (whole, half) = (code.join("abc"), code.join(format!("abc{CUT_OFF}")));
        std::fs::write(&whole, "x").unwrap();
        std::fs::write(&half, "x").unwrap();
        cache.sweep();
        cache.loaded();
        assert!(whole.exists() && !half.exists());
    }
}
