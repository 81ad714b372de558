//! Reads one file, once: the bytes that are hashed are the bytes that are compiled.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use bytes::Bytes;
use rustix::fs::{FileType, Mode, OFlags, fstat, openat};

use super::scan::Stamp;

/// What came of reading.
#[derive(Debug)]
pub(crate) enum Reading {
    Bytes(Bytes),
    /// Not the file that was seen any more, or changed while it was read.
    Moved,
}

/// Reads the file if it is still the one that `stamp` was taken of. Never blocks: not on a named
/// pipe, not on a device.
pub(crate) fn read(folder: &Path, file: &str, stamp: Stamp) -> std::io::Result<Reading> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let handle = match openat(rustix::fs::CWD, folder.join(file), flags, Mode::empty()) {
        Ok(handle) => handle,
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::LOOP) => return Ok(Reading::Moved),
        Err(error) => return Err(error.into()),
    };
    let mut file = File::from(handle);
    let before = fstat(&file)?;
    if FileType::from_raw_mode(before.st_mode) != FileType::RegularFile
        || Stamp::of(&before) != stamp
    {
        return Ok(Reading::Moved);
    }
    let mut bytes = Vec::with_capacity(usize::try_from(stamp.size).unwrap_or(0));
    // One byte more than expected shows that it grew; a file that grows for ever is not followed.
    (&mut file).take(stamp.size + 1).read_to_end(&mut bytes)?;
    let is_same = Stamp::of(&fstat(&file)?) == stamp && bytes.len() as u64 == stamp.size;
    Ok(if is_same {
        Reading::Bytes(bytes.into())
    } else {
        Reading::Moved
    })
}

/// Largest signature file that is read: 64 bytes, or these as text, have far less.
const SIGNATURE_BYTES_MAX: u64 = 1_024;

/// Reads what lies beside a component as its signature; nothing, if it cannot be read, is no
/// signature.
pub(crate) fn read_signature(folder: &Path, file: &str) -> Vec<u8> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut bytes = Vec::new();
    let Ok(handle) = openat(
        rustix::fs::CWD,
        folder.join(format!("{file}.sig")),
        flags,
        Mode::empty(),
    ) else {
        return bytes;
    };
    let is_file = fstat(&handle)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
    if is_file
        && File::from(handle)
            .take(SIGNATURE_BYTES_MAX)
            .read_to_end(&mut bytes)
            .is_err()
    {
        bytes.clear();
    }
    bytes
}
