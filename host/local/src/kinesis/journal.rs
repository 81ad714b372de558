//! An append-only file of frames: length, CRC-32, payload.
//!
//! A frame is written with one `write` before the request is answered, so that an answered put
//! survives a killed process; `sync` at a proper stop. A frame that was cut short by a kill is cut
//! off when the journal is opened.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::entry::Entry;
use crate::data_dir::{OWNER_FILE, for_owner_only};
use crate::error::StartError;

/// The first bytes of the file: what it is, and the version of its format.
const MAGIC: &[u8; 8] = b"SMKJ\0\0\0\x01";
const HEADER_BYTES: usize = 8;
/// A put is at most 10 MiB of data, a third more in base64, and the keys: more is not a frame but
/// damage.
const FRAME_BYTES_MAX: u32 = 64 * 1024 * 1024;

/// The open journal.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    file: File,
    len: u64,
    /// Set once a write failed and could not be taken back: nothing more may be written behind it.
    is_broken: bool,
}

enum Frame {
    Entry(Entry, u64),
    End,
    /// Cut short: what follows is no whole frame.
    Torn,
    Damaged(String),
}

impl Journal {
    /// Opens or makes the journal at `path`, and hands each entry, with its size, to `visit`.
    pub(super) fn open(path: &Path, mut visit: impl FnMut(Entry, u64)) -> Result<Self, StartError> {
        let what = format!("open {}", path.display());
        let opened = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(OWNER_FILE)
            .open(path);
        let file = opened.map_err(StartError::io(&what))?;
        for_owner_only(path).map_err(StartError::io(&what))?;
        let file_len = file.metadata().map_err(StartError::io(&what))?.len();
        let mut journal = Self {
            path: path.to_owned(),
            file,
            len: 0,
            is_broken: false,
        };
        if file_len < MAGIC.len() as u64 {
            journal.restart().map_err(StartError::io(what))?;
            return Ok(journal);
        }
        let mut reader = BufReader::new(&journal.file);
        let mut magic = [0; 8];
        reader
            .read_exact(&mut magic)
            .map_err(StartError::io(&what))?;
        let damaged = |at, problem| StartError::Journal {
            path: path.to_owned(),
            at,
            problem,
        };
        if magic != *MAGIC {
            return Err(damaged(0, "it is not a journal of this version".to_owned()));
        }
        let mut len = MAGIC.len() as u64;
        loop {
            match read_frame(&mut reader, file_len - len).map_err(StartError::io(&what))? {
                Frame::Entry(entry, bytes) => {
                    visit(entry, bytes);
                    len += bytes;
                }
                Frame::End => break,
                Frame::Torn => {
                    tracing::warn!(path = %path.display(), bytes = file_len - len, "removed an incomplete write");
                    break;
                }
                Frame::Damaged(problem) => return Err(damaged(len, problem)),
            }
        }
        drop(reader);
        journal.file.set_len(len).map_err(StartError::io(what))?;
        journal.len = len;
        Ok(journal)
    }

    /// The size of the file.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Writes the entries with one call; on failure none of them is in the journal.
    pub(super) fn append(&mut self, entries: &[Entry]) -> io::Result<()> {
        if self.is_broken {
            return Err(io::Error::other("an earlier write to the journal failed"));
        }
        let bytes = encode(entries)?;
        match self.file.write_all(&bytes) {
            Ok(()) => {
                self.len += bytes.len() as u64;
                Ok(())
            }
            Err(error) => {
                self.is_broken = self.file.set_len(self.len).is_err();
                Err(error)
            }
        }
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    /// Replaces the whole journal by `entries`, in one step.
    pub(super) fn rewrite(&mut self, entries: impl Iterator<Item = Entry>) -> io::Result<()> {
        let fresh_path = self.path.with_extension("new");
        let mut len = MAGIC.len() as u64;
        let mut fresh = File::create(&fresh_path)?;
        for_owner_only(&fresh_path)?;
        fresh.write_all(MAGIC)?;
        for entry in entries {
            let bytes = encode(&[entry])?;
            fresh.write_all(&bytes)?;
            len += bytes.len() as u64;
        }
        fresh.sync_all()?;
        fs::rename(&fresh_path, &self.path)?;
        self.file = OpenOptions::new()
            .read(true)
            .append(true)
            .open(&self.path)?;
        self.len = len;
        Ok(())
    }

    fn restart(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.write_all(MAGIC)?;
        self.len = MAGIC.len() as u64;
        Ok(())
    }
}

fn encode(entries: &[Entry]) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for entry in entries {
        let start = bytes.len();
        bytes.extend_from_slice(&[0; HEADER_BYTES]);
        bytes = postcard::to_extend(entry, bytes).map_err(io::Error::other)?;
        let payload = &bytes[start + HEADER_BYTES..];
        let too_large = || io::Error::other("an entry is too large for the journal");
        let len = u32::try_from(payload.len())
            .ok()
            .filter(|len| *len <= FRAME_BYTES_MAX)
            .ok_or_else(too_large)?;
        let crc = crc32fast::hash(payload);
        bytes[start..start + 4].copy_from_slice(&len.to_le_bytes());
        bytes[start + 4..start + HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
    }
    Ok(bytes)
}

/// A frame that reaches past the end was torn by a kill; so was one whose check fails with nothing
/// but zeros after it, which is what a power cut leaves. Anything else is damage, and nothing may
/// be cut off over it.
fn read_frame(reader: &mut impl Read, remaining: u64) -> io::Result<Frame> {
    if remaining == 0 {
        return Ok(Frame::End);
    }
    if remaining < HEADER_BYTES as u64 {
        return Ok(Frame::Torn);
    }
    let mut header = [0; HEADER_BYTES];
    reader.read_exact(&mut header)?;
    let [l0, l1, l2, l3, c0, c1, c2, c3] = header;
    let (len, crc) = (
        u32::from_le_bytes([l0, l1, l2, l3]),
        u32::from_le_bytes([c0, c1, c2, c3]),
    );
    let after_header = remaining - HEADER_BYTES as u64;
    if len > FRAME_BYTES_MAX {
        return Ok(Frame::Damaged(format!("a frame of {len} bytes")));
    }
    if u64::from(len) > after_header {
        return Ok(Frame::Torn);
    }
    let mut payload = vec![0; len as usize];
    reader.read_exact(&mut payload)?;
    let problem = if payload.is_empty() {
        "an empty frame".to_owned()
    } else if crc32fast::hash(&payload) == crc {
        match postcard::from_bytes(&payload) {
            Ok(entry) => return Ok(Frame::Entry(entry, HEADER_BYTES as u64 + u64::from(len))),
            Err(error) => return Ok(Frame::Damaged(format!("an unknown entry: {error}"))),
        }
    } else {
        "a frame does not match its check sum".to_owned()
    };
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest)?;
    Ok(if rest.iter().all(|byte| *byte == 0) {
        Frame::Torn
    } else {
        Frame::Damaged(problem)
    })
}

#[cfg(test)]
#[path = "journal_tests.rs"]
mod tests;
