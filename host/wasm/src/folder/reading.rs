//! Reads one file, once: the bytes that are hashed are the bytes that are compiled.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use bytes::Bytes;
use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, openat};
use rustix::io::Errno;

use super::scan::Stamp;

/// What came of reading.
#[derive(Debug)]
pub(crate) enum Reading {
    Bytes(Bytes),
    /// Not the file that was seen any more, or changed while it was read.
    Moved,
}

/// Reads the file if it is still the one that `stamp` was taken of.
pub(crate) fn read(folder: &Path, file: &str, stamp: Stamp) -> std::io::Result<Reading> {
    let mut file = match open(&folder.join(file)) {
        Ok(file) => file,
        Err(Errno::NOENT | Errno::LOOP) => return Ok(Reading::Moved),
        Err(error) => return Err(error.into()),
    };
    if !is_as_seen(&file, stamp)? {
        return Ok(Reading::Moved);
    }
    let mut bytes = Vec::with_capacity(usize::try_from(stamp.size).unwrap_or(0));
    // One byte more than expected shows that it grew; a file that grows for ever is not followed.
    (&mut file).take(stamp.size + 1).read_to_end(&mut bytes)?;
    if !is_as_seen(&file, stamp)? || bytes.len() as u64 != stamp.size {
        return Ok(Reading::Moved);
    }
    Ok(Reading::Bytes(bytes.into()))
}

/// Never blocks: not on a named pipe, not on a device. Follows no link.
fn open(path: &Path) -> rustix::io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    openat(rustix::fs::CWD, path, flags, Mode::empty()).map(File::from)
}

fn is_as_seen(file: &File, stamp: Stamp) -> std::io::Result<bool> {
    let stat = fstat(file)?;
    Ok(is_regular(&stat) && Stamp::of(&stat) == stamp)
}

fn is_regular(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

/// Largest signature file that is read: 64 bytes, or these as text, have far less.
const SIGNATURE_BYTES_MAX: u64 = 1_024;

/// Reads the signature file beside a component. What is no regular file, or gone, counts as empty,
/// which is not a signature.
pub(crate) fn read_signature(folder: &Path, file: &str) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let signature = match open(&folder.join(format!("{file}.sig"))) {
        Ok(signature) => signature,
        // The last is what a socket answers.
        Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => return Ok(bytes),
        Err(error) => return Err(error.into()),
    };
    if is_regular(&fstat(&signature)?) {
        signature
            .take(SIGNATURE_BYTES_MAX)
            .read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_that_cannot_be_read_is_not_taken_for_one_that_is_wrong() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("odd.wasm.sig")).unwrap();
        for no_signature in ["missing.wasm", "odd.wasm"] {
            let read = read_signature(folder.path(), no_signature).unwrap();
            assert!(read.is_empty());
        }
        // An error of the system like any other.
        assert!(read_signature(folder.path(), &"x".repeat(300)).is_err());
    }
}
