//! A file of functions, which is written once and never changed.
//!
//! ```text
//!   magic (8) · functions (4) · SHA-256 of the index (32)
//!   index, by key: key (32) · place (8) · bytes (4) · SHA-256 of key and code (32)
//!   code, one function after the other
//! ```
//!
//! The index is checked when a pack is opened, a function when it is read: most are not, and what
//! is read is little. Hashes find damage. They are no proof of who wrote a file: its owner is.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Mode, OFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, futimens};
use sha2::{Digest, Sha256};

use crate::engine::code_cache::refuse_others_file;

/// What the compiler calls a function: a hash of all that its code depends on.
pub(super) type Key = [u8; 32];

/// The ending of a pack's name.
pub(super) const ENDING: &str = "pack";
/// The ending while it is written.
pub(super) const CUT_OFF: &str = "part";

/// Changes with the format.
const MAGIC: &[u8; 8] = b"smfuncs1";
/// Bytes of a pack: more than twice what one compilation adds. Its index is held in memory, and a
/// file may claim to be of any size.
const BYTES_MAX: u64 = 256 << 20;
const HEAD_BYTES: usize = 8 + 4 + 32;
const ENTRY_BYTES: usize = 32 + 8 + 4 + 32;

/// One file, open.
#[derive(Debug)]
pub(super) struct Pack {
    path: PathBuf,
    file: File,
    bytes: u64,
    index: Vec<u8>,
    was_used: AtomicBool,
}

/// Where a function is in its pack.
struct Entry {
    key: Key,
    place: u64,
    bytes: usize,
    digest: [u8; 32],
}

impl Pack {
    /// Fails if it is not whole, if others could have written it, or if it is larger than any is.
    pub(super) fn open(path: &Path, owner: u32) -> io::Result<Self> {
        refuse_others_file(path, owner)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
        let bytes = file.metadata()?.len();
        if bytes > BYTES_MAX {
            return Err(damaged());
        }
        let index = read_index(&file, bytes)?;
        Ok(Self {
            path: path.to_owned(),
            file,
            bytes,
            index,
            was_used: AtomicBool::new(false),
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The code of a function, if it is here and whole.
    pub(super) fn find(&self, key: &Key) -> Option<Vec<u8>> {
        let (entries, _) = self.index.as_chunks::<ENTRY_BYTES>();
        let at = entries
            .binary_search_by(|entry| entry[..32].cmp(key))
            .ok()?;
        let code = self.read(&Entry::of(&entries[at]))?;
        self.was_used.store(true, Ordering::Relaxed);
        Some(code)
    }

    /// All functions that are whole.
    pub(super) fn functions(&self) -> impl Iterator<Item = (Key, Vec<u8>)> {
        let (entries, _) = self.index.as_chunks::<ENTRY_BYTES>();
        entries.iter().filter_map(|entry| {
            let entry = Entry::of(entry);
            Some((entry.key, self.read(&entry)?))
        })
    }

    /// For [`super::FunctionStore::forget`], by the time of the file.
    pub(super) fn note_use(&self) {
        if self.was_used.load(Ordering::Relaxed) {
            let time = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
            let times = Timestamps {
                last_access: time(UTIME_OMIT),
                last_modification: time(UTIME_NOW),
            };
            // Without it, it is forgotten earlier.
            let _ = futimens(&self.file, &times);
        }
    }

    fn read(&self, entry: &Entry) -> Option<Vec<u8>> {
        if entry.place.checked_add(entry.bytes as u64)? > self.bytes {
            return None;
        }
        let mut code = vec![0; entry.bytes];
        self.file.read_exact_at(&mut code, entry.place).ok()?;
        (digest_of(&entry.key, &code) == entry.digest).then_some(code)
    }
}

impl Entry {
    fn of(bytes: &[u8; ENTRY_BYTES]) -> Self {
        let (mut key, mut digest, mut place, mut size) = ([0; 32], [0; 32], [0; 8], [0; 4]);
        key.copy_from_slice(&bytes[..32]);
        place.copy_from_slice(&bytes[32..40]);
        size.copy_from_slice(&bytes[40..44]);
        digest.copy_from_slice(&bytes[44..]);
        Self {
            key,
            place: u64::from_le_bytes(place),
            bytes: u32::from_le_bytes(size) as usize,
            digest,
        }
    }
}

fn read_index(file: &File, bytes: u64) -> io::Result<Vec<u8>> {
    let mut head = [0; HEAD_BYTES];
    file.read_exact_at(&mut head, 0)?;
    let (magic, rest) = head.split_at(MAGIC.len());
    let (count, digest) = rest.split_at(4);
    let index_bytes = from_le_bytes(count) * ENTRY_BYTES as u64;
    // Before anything is allocated for it.
    if magic != MAGIC || HEAD_BYTES as u64 + index_bytes > bytes {
        return Err(damaged());
    }
    let index_bytes = usize::try_from(index_bytes).map_err(|_| damaged())?;
    let mut index = vec![0; index_bytes];
    file.read_exact_at(&mut index, HEAD_BYTES as u64)?;
    if Sha256::digest(&index)[..] != *digest {
        return Err(damaged());
    }
    Ok(index)
}

/// A number of fewer bytes than the type has.
fn from_le_bytes(bytes: &[u8]) -> u64 {
    let largest_first = bytes.iter().rev();
    largest_first.fold(0, |sum, byte| (sum << 8) | u64::from(*byte))
}

fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "it is not whole")
}

/// With its key: code of one function never becomes that of another.
fn digest_of(key: &Key, code: &[u8]) -> [u8; 32] {
    Sha256::new()
        .chain_update(key)
        .chain_update(code)
        .finalize()
        .into()
}

/// Writes a pack into the folder, and returns its path. It gets its name when it is whole. It is
/// not forced to the disk: what a crash of the machine tears is found to be damaged.
pub(super) fn write(folder: &Path, functions: &BTreeMap<Key, Vec<u8>>) -> io::Result<PathBuf> {
    let index = index_of(functions)?;
    let digest = Sha256::digest(&index);
    let count = u32::try_from(functions.len()).map_err(io::Error::other)?;
    let cut_off = tempfile::Builder::new()
        .suffix(&format!(".{CUT_OFF}"))
        .tempfile_in(folder)?;
    let mut writer = BufWriter::with_capacity(1 << 20, cut_off.as_file());
    writer.write_all(MAGIC)?;
    writer.write_all(&count.to_le_bytes())?;
    writer.write_all(&digest)?;
    writer.write_all(&index)?;
    for code in functions.values() {
        writer.write_all(code)?;
    }
    writer.flush()?;
    drop(writer);
    let path = folder.join(format!("{}.{ENDING}", hex::encode(&digest[..16])));
    cut_off.persist(&path).map_err(|error| error.error)?;
    Ok(path)
}

fn index_of(functions: &BTreeMap<Key, Vec<u8>>) -> io::Result<Vec<u8>> {
    let mut place = (HEAD_BYTES + functions.len() * ENTRY_BYTES) as u64;
    let mut index = Vec::with_capacity(functions.len() * ENTRY_BYTES);
    for (key, code) in functions {
        let bytes = u32::try_from(code.len()).map_err(io::Error::other)?;
        index.extend_from_slice(key);
        index.extend_from_slice(&place.to_le_bytes());
        index.extend_from_slice(&bytes.to_le_bytes());
        index.extend_from_slice(&digest_of(key, code));
        place += u64::from(bytes);
    }
    Ok(index)
}
