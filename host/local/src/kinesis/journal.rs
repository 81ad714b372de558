//! An append-only file of frames: length, CRC-32, payload.
//!
//! A frame is written with one `write` before the request is answered, so that an answered put
//! survives a killed process; a proper stop calls `sync`. A frame that was cut short by a kill is
//! removed when the journal is opened.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::entry::Entry;
use crate::data_dir::{OWNER_FILE, for_owner_only};
use crate::error::StartError;

/// The first bytes of the file: what it is, and the version of its format.
const MAGIC: &[u8; 8] = b"SMKJ\0\0\0\x01";
const MAGIC_BYTES: u64 = MAGIC.len() as u64;
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
    /// Set once a write failed and could not be undone: nothing more may be written after it.
    is_broken: bool,
}

struct Header {
    len: u32,
    crc: u32,
}

enum Frame {
    Entry(Entry, u64),
    End,
    /// Cut short: no whole frame follows.
    Torn,
    Damaged(String),
}

enum ReadError {
    Io(io::Error),
    Damaged { at: u64, problem: String },
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Journal {
    /// Opens or creates the journal at `path`, and hands each entry, with its size, to `visit`.
    pub(super) fn open(path: &Path, visit: impl FnMut(Entry, u64)) -> Result<Self, StartError> {
        let what = format!("open {}", path.display());
        let file = open_file(path).map_err(StartError::io(&what))?;
        let mut journal = Self {
            path: path.to_owned(),
            file,
            len: 0,
            is_broken: false,
        };
        journal.read(visit).map_err(|error| match error {
            ReadError::Io(error) => StartError::io(what)(error),
            ReadError::Damaged { at, problem } => StartError::Journal {
                path: path.to_owned(),
                at,
                problem,
            },
        })?;
        Ok(journal)
    }

    /// Reads all whole frames, and cuts off what follows them.
    fn read(&mut self, mut visit: impl FnMut(Entry, u64)) -> Result<(), ReadError> {
        let file_len = self.file.metadata()?.len();
        if file_len < MAGIC_BYTES {
            self.restart()?;
            return Ok(());
        }
        let mut reader = BufReader::new(&self.file);
        read_magic(&mut reader)?;
        let mut len = MAGIC_BYTES;
        loop {
            match read_frame(&mut reader, file_len - len)? {
                Frame::Entry(entry, bytes) => {
                    visit(entry, bytes);
                    len += bytes;
                }
                Frame::End => break,
                Frame::Torn => {
                    tracing::warn!(
                        path = %self.path.display(),
                        bytes = file_len - len,
                        code = "local-journal-cut", "removed an incomplete write"
                    );
                    break;
                }
                Frame::Damaged(problem) => return Err(ReadError::Damaged { at: len, problem }),
            }
        }
        self.file.set_len(len)?;
        self.len = len;
        Ok(())
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
        self.refuse_if_deleted()?;
        let bytes = encode(entries)?;
        match self.file.write_all(&bytes) {
            Ok(()) => {
                self.len += bytes.len() as u64;
                Ok(())
            }
            Err(error) => {
                self.is_broken = self.file.set_len(self.len).is_err();
                Err(self.not_written(&error))
            }
        }
    }

    /// What is written to a deleted file is gone at the next start.
    fn refuse_if_deleted(&self) -> io::Result<()> {
        if self.file.metadata()?.nlink() > 0 {
            return Ok(());
        }
        Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!(
                "{}: the file was deleted, so nothing more can be kept; start again",
                self.path.display()
            ),
        ))
    }

    /// The error with the file, and how to fix what a person can.
    fn not_written(&self, error: &io::Error) -> io::Error {
        let fix = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                "; free space there, or keep the data elsewhere with --data"
            }
            _ => "",
        };
        io::Error::new(
            error.kind(),
            format!("{}: {error}{fix}", self.path.display()),
        )
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    /// Replaces the whole journal by `entries` atomically.
    pub(super) fn rewrite(&mut self, entries: impl Iterator<Item = Entry>) -> io::Result<()> {
        let fresh_path = self.path.with_extension("new");
        let mut len = MAGIC_BYTES;
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
        self.len = MAGIC_BYTES;
        Ok(())
    }
}

fn open_file(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(OWNER_FILE)
        .open(path)?;
    for_owner_only(path)?;
    Ok(file)
}

fn encode(entries: &[Entry]) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for entry in entries {
        let start = bytes.len();
        bytes.extend_from_slice(&[0; HEADER_BYTES]);
        bytes = postcard::to_extend(entry, bytes).map_err(io::Error::other)?;
        let payload = &bytes[start + HEADER_BYTES..];
        let header = Header::of(payload)
            .ok_or_else(|| io::Error::other("an entry is too large for the journal"))?;
        bytes[start..start + HEADER_BYTES].copy_from_slice(&header.encode());
    }
    Ok(bytes)
}

fn read_magic(reader: &mut impl Read) -> Result<(), ReadError> {
    let mut magic = [0; MAGIC.len()];
    reader.read_exact(&mut magic)?;
    if magic == *MAGIC {
        return Ok(());
    }
    Err(ReadError::Damaged {
        at: 0,
        problem: "it is not a journal of this version".to_owned(),
    })
}

/// A frame that reaches past the end was torn by a kill; so was one whose check fails with nothing
/// but zeros after it, which is what a power cut leaves. Anything else is damage, and nothing may
/// be cut off because of it.
fn read_frame(reader: &mut impl Read, remaining: u64) -> io::Result<Frame> {
    if remaining == 0 {
        return Ok(Frame::End);
    }
    if remaining < HEADER_BYTES as u64 {
        return Ok(Frame::Torn);
    }
    let mut header = [0; HEADER_BYTES];
    reader.read_exact(&mut header)?;
    let header = Header::decode(header);
    if header.len > FRAME_BYTES_MAX {
        let problem = format!("a frame of {} bytes", header.len);
        return Ok(Frame::Damaged(problem));
    }
    let bytes = HEADER_BYTES as u64 + u64::from(header.len);
    if bytes > remaining {
        return Ok(Frame::Torn);
    }
    read_entry(reader, &header, bytes)
}

/// Reads the entry of a frame, which has `bytes` bytes in all.
fn read_entry(reader: &mut impl Read, header: &Header, bytes: u64) -> io::Result<Frame> {
    let mut payload = vec![0; header.len as usize];
    reader.read_exact(&mut payload)?;
    if payload.is_empty() {
        return torn_or_damaged(reader, "an empty frame");
    }
    if crc32fast::hash(&payload) != header.crc {
        return torn_or_damaged(reader, "a frame does not match its check sum");
    }
    Ok(match postcard::from_bytes(&payload) {
        Ok(entry) => Frame::Entry(entry, bytes),
        Err(error) => Frame::Damaged(format!("an unknown entry: {error}")),
    })
}

fn torn_or_damaged(reader: &mut impl Read, problem: &str) -> io::Result<Frame> {
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest)?;
    Ok(if rest.iter().all(|byte| *byte == 0) {
        Frame::Torn
    } else {
        Frame::Damaged(problem.to_owned())
    })
}

impl Header {
    /// The header of a frame; `None` if it is too large.
    fn of(payload: &[u8]) -> Option<Self> {
        let len = u32::try_from(payload.len()).ok()?;
        let crc = crc32fast::hash(payload);
        (len <= FRAME_BYTES_MAX).then_some(Self { len, crc })
    }

    fn encode(&self) -> [u8; HEADER_BYTES] {
        let [l0, l1, l2, l3] = self.len.to_le_bytes();
        let [c0, c1, c2, c3] = self.crc.to_le_bytes();
        [l0, l1, l2, l3, c0, c1, c2, c3]
    }

    fn decode([l0, l1, l2, l3, c0, c1, c2, c3]: [u8; HEADER_BYTES]) -> Self {
        Self {
            len: u32::from_le_bytes([l0, l1, l2, l3]),
            crc: u32::from_le_bytes([c0, c1, c2, c3]),
        }
    }
}

#[cfg(test)]
#[path = "journal_tests.rs"]
mod tests;
