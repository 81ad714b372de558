//! Machine code of single functions, kept between compilations: of a component that changed, only
//! the functions that changed are compiled. The compiler asks by a hash of all that its output for
//! a function depends on, so what another plugin brought serves as well.
//!
//! ```text
//!   CACHE.functions/FIT/HASH.pack     one a compilation; small ones become part of the next one
//! ```
//!
//! They are beside the cache and not in it: once an hour, the engine removes from its cache what it
//! does not know.
//!
//! What is read here becomes native code. So it has the rules of [`code_cache`]: this user's alone.
//! A pack that is torn or damaged is not used, nor is one of others: then functions are compiled.
//!
//! [`code_cache`]: crate::engine::code_cache

mod pack;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use wasmtime::{CacheStore, Engine};

use self::pack::{CUT_OFF, ENDING, Key, Pack};
use crate::engine::code_cache::{beside_cache, own_folder, refuse_others_folder};

/// How the name of the folder of packs ends, after that of the cache.
const FOLDER_ENDING: &str = ".functions";
/// No compiler writes for that long. One that is older was left by a compiler that was killed.
const CUT_OFF_AFTER: Duration = Duration::from_hours(1);

/// What may be kept.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    /// Bytes on disk.
    bytes: u64,
    /// Packs, each of which is an open file of the compiler's.
    packs: usize,
    /// Bytes of functions that one compilation adds, held in memory until they are written.
    added: usize,
}

/// 256 MiB: a JavaScript engine is 38 MB, CPython 28 MB, so it is two or three versions of both and
/// what was built with them. 16 packs: each is more than twice the next one, so that they are
/// seldom more; a compiler may have 32 files open. 96 MiB: two engines, and a twentieth of the
/// compiler's address space.
const BOUNDS: Bounds = Bounds {
    bytes: 256 << 20,
    packs: 16,
    added: 96 << 20,
};

/// Functions of former compilations, and what this one adds.
#[derive(Debug)]
pub(super) struct FunctionStore {
    /// Packs of all compilers.
    all: PathBuf,
    /// Packs of compilers with this one's version and settings; unknown until it has an engine.
    own: OnceLock<PathBuf>,
    bounds: Bounds,
    /// Opened for the first function: code that is in the cache as a whole needs none.
    packs: OnceLock<Vec<Pack>>,
    added: Mutex<Added>,
    hits: AtomicUsize,
    misses: AtomicUsize,
}

#[derive(Debug, Default)]
struct Added {
    functions: BTreeMap<Key, Vec<u8>>,
    bytes: usize,
}

/// A pack on disk.
struct KeptPack {
    path: PathBuf,
    bytes: u64,
    used_at: SystemTime,
}

impl FunctionStore {
    /// What is kept beside the cache, in a folder that it makes. Empty until [`Self::serve`].
    pub(super) fn beside(cache: &Path) -> io::Result<Self> {
        let all = beside_cache(cache, FOLDER_ENDING);
        own_folder(&all, own_id())?;
        Ok(Self::bounded(&all, BOUNDS))
    }

    /// Where it keeps them.
    pub(super) fn folder(&self) -> &Path {
        &self.all
    }

    fn bounded(all: &Path, bounds: Bounds) -> Self {
        Self {
            all: all.to_owned(),
            own: OnceLock::new(),
            bounds,
            packs: OnceLock::new(),
            added: Mutex::default(),
            hits: AtomicUsize::new(0),
            misses: AtomicUsize::new(0),
        }
    }

    /// Names the compiler that asks. It is made with this store, so it comes later.
    pub(super) fn serve(&self, engine: &Engine) {
        self.own.get_or_init(|| self.all.join(fit_of(engine)));
    }

    fn packs(&self) -> &[Pack] {
        self.packs
            .get_or_init(|| self.own.get().map_or_else(Vec::new, |own| self.open(own)))
    }

    /// What was used last, as far as it may be trusted.
    fn open(&self, own: &Path) -> Vec<Pack> {
        let owner = own_id();
        let trusted = |folder: &Path| refuse_others_folder(folder, owner).is_ok();
        if !trusted(&self.all) || !trusted(own) {
            return Vec::new();
        }
        let mut found = packs_in(own);
        found.sort_by_key(|pack| std::cmp::Reverse(pack.used_at));
        found.truncate(self.bounds.packs);
        let packs = found.into_iter();
        packs
            .filter_map(|found| open_or_remove(&found.path, owner))
            .collect()
    }

    /// Writes down what was added, and which packs were of use. What is over the bounds then is
    /// removed, by its last use.
    pub(super) fn save(&self) -> io::Result<()> {
        let mut functions = std::mem::take(&mut *self.added()).functions;
        let (Some(own), false) = (self.own.get(), functions.is_empty()) else {
            self.note_use();
            return Ok(());
        };
        own_folder(&self.all, own_id())?;
        own_folder(own, own_id())?;
        self.note_use();
        let absorbed = self.absorb(&mut functions);
        let written = pack::write(own, &functions)?;
        // The same functions have the same name.
        for path in absorbed.into_iter().filter(|path| *path != written) {
            // One that cannot be removed is a copy, which goes in its turn.
            let _ = std::fs::remove_file(path);
        }
        self.forget();
        for folder in folders_in(&self.all) {
            remove_cut_off(&folder);
            // Only if nothing is left in it, which is so for compilers of former versions.
            let _ = std::fs::remove_dir(folder);
        }
        Ok(())
    }

    /// Removes all packs, of any compiler: there is no room for what matters more.
    pub(super) fn make_room(&self) {
        for folder in folders_in(&self.all) {
            for pack in packs_in(&folder) {
                // This process may have it open, and then it makes no room to remove its name. What
                // is read of it from here on is not whole, and so not used.
                let emptied = std::fs::OpenOptions::new().write(true).open(&pack.path);
                let _ = emptied.and_then(|file| file.set_len(0));
                // What cannot be removed makes no room.
                let _ = std::fs::remove_file(pack.path);
            }
        }
    }

    fn note_use(&self) {
        for pack in self.packs.get().into_iter().flatten() {
            pack.note_use();
        }
    }

    /// Moves the functions of packs that are at most twice as large as what is written anyway into
    /// it, so that many small changes do not become many files: those that are left are each more
    /// than twice the next one, and a byte is written again once each time that its pack grows by
    /// half.
    fn absorb(&self, functions: &mut BTreeMap<Key, Vec<u8>>) -> Vec<PathBuf> {
        let mut bytes: u64 = functions.values().map(|code| code.len() as u64).sum();
        let mut packs: Vec<&Pack> = self.packs().iter().collect();
        packs.sort_by_key(|pack| pack.bytes());
        let mut absorbed = Vec::new();
        for pack in packs {
            if pack.bytes() > 2 * bytes || bytes + pack.bytes() > self.bounds.added as u64 {
                break;
            }
            bytes += pack.bytes();
            for (key, code) in pack.functions() {
                functions.entry(key).or_insert(code);
            }
            absorbed.push(pack.path().to_owned());
        }
        absorbed
    }

    /// Of all compilers: after an update, nobody else removes what the one before kept.
    fn forget(&self) {
        let mut kept: Vec<KeptPack> = folders_in(&self.all)
            .iter()
            .flat_map(|folder| packs_in(folder))
            .collect();
        kept.sort_by_key(|pack| std::cmp::Reverse(pack.used_at));
        let mut bytes = 0;
        for (place, pack) in kept.into_iter().enumerate() {
            bytes += pack.bytes;
            if bytes > self.bounds.bytes || place >= self.bounds.packs {
                // What cannot be removed is counted again the next time.
                let _ = std::fs::remove_file(pack.path);
            }
        }
    }

    fn added(&self) -> MutexGuard<'_, Added> {
        self.added.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, key: &Key) -> Option<Vec<u8>> {
        // Some functions are in a component several times.
        if let Some(code) = self.added().functions.get(key) {
            return Some(code.clone());
        }
        self.packs().iter().find_map(|pack| pack.find(key))
    }
}

impl CacheStore for FunctionStore {
    fn get(&self, key: &[u8]) -> Option<Cow<'_, [u8]>> {
        let found = key.try_into().ok().and_then(|key| self.find(key));
        let counter = if found.is_some() {
            &self.hits
        } else {
            &self.misses
        };
        counter.fetch_add(1, Ordering::Relaxed);
        found.map(Cow::Owned)
    }

    fn insert(&self, key: &[u8], code: Vec<u8>) -> bool {
        let Ok(key) = key.try_into() else {
            return false;
        };
        let mut added = self.added();
        if added.bytes + code.len() > self.bounds.added {
            return false;
        }
        added.bytes += code.len();
        added.functions.insert(key, code);
        true
    }
}

/// The name of the folder for compilers of this version, with these settings, for this processor.
/// The compiler's keys cover all that, but its packs would be opened for nothing.
fn fit_of(engine: &Engine) -> String {
    let mut hasher = DefaultHasher::new();
    engine.precompile_compatibility_hash().hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// A pack that is damaged, or another user's, would be in the way for ever. What the system says is
/// no fault of the pack.
fn open_or_remove(path: &Path, owner: u32) -> Option<Pack> {
    let opened = Pack::open(path, owner).inspect_err(|error| {
        if error.raw_os_error().is_none() {
            let _ = std::fs::remove_file(path);
        }
    });
    opened.ok()
}

fn own_id() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn folders_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

fn packs_in(folder: &Path) -> Vec<KeptPack> {
    let paths = folders_in(folder).into_iter();
    let packs = paths.filter(|path| path.extension().is_some_and(|ending| ending == ENDING));
    packs
        .filter_map(|path| {
            let found = path.symlink_metadata().ok()?;
            if found.is_dir() {
                return None;
            }
            Some(KeptPack {
                bytes: found.len(),
                used_at: found.modified().ok()?,
                path,
            })
        })
        .collect()
}

fn remove_cut_off(folder: &Path) {
    for path in folders_in(folder) {
        let is_cut_off = path.extension().is_some_and(|ending| ending == CUT_OFF);
        let written_at = path.symlink_metadata().and_then(|found| found.modified());
        let age = written_at.ok().and_then(|at| at.elapsed().ok());
        if is_cut_off && age.is_some_and(|age| age > CUT_OFF_AFTER) {
            let _ = std::fs::remove_file(path);
        }
    }
}
