//! The folder of recordings. Only the host's own user may read it, since recordings hold records.

use std::fs::{DirEntry, Metadata, Permissions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use shardmill_config::files;
use shardmill_core::plugin::PluginDigest;
use shardmill_core::recording::{KeptFile, RecordName, Recording, Retention};
use shardmill_sinks::recordings::{RecordingError, Summary, decode, encode, summary};
use shardmill_wasm::{beside_cache, own_folder, refuse_others_file, refuse_others_folder};

use super::file_name::FileName;

/// Of the folder's name, behind that of compiled plugins.
const ENDING: &str = ".recordings";
/// For the owner only.
const MODE: u32 = 0o700;
/// Before the name of a file that is not whole yet.
const FRESH: &str = "fresh-";
/// A file that is not whole after so long was left by a process that died.
const FRESH_FOR: Duration = Duration::from_hours(1);
/// A head holds a state, the plugin's settings, and what failed of a batch: far less than this.
const HEAD_BYTES_MAX: u64 = 64 << 20;
/// The largest recording that is read, in bytes: one of the largest batch that fits into a host's
/// usual buffer.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// See the module's description. Cheap to clone.
#[derive(Debug, Clone)]
pub struct RecordingsFolder {
    path: PathBuf,
    /// The user whose files are believed.
    owner: u32,
}

/// A recording in a folder.
#[derive(Debug, Clone)]
pub struct Found {
    /// The file that it is kept in.
    pub path: PathBuf,
    /// What it is of, or why that cannot be read.
    pub summary: Result<Summary, String>,
}

/// A recording that counts for what may be kept.
struct Kept {
    path: PathBuf,
    digest: PluginDigest,
    file: KeptFile,
}

impl RecordingsFolder {
    /// Beside the folder of compiled plugins.
    pub fn beside(cache: &Path) -> Self {
        Self::at(beside_cache(cache, ENDING))
    }

    /// The folder at this very path.
    pub fn at(path: PathBuf) -> Self {
        Self {
            path,
            owner: rustix::process::geteuid().as_raw(),
        }
    }

    /// Where it is in the file system.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes it, for this user alone. An error if others may write to it.
    pub(super) fn prepare(&self) -> io::Result<()> {
        own_folder(&self.path, self.owner)?;
        let mode = std::fs::metadata(&self.path)?.permissions().mode();
        if mode & 0o077 != 0 {
            std::fs::set_permissions(&self.path, Permissions::from_mode(MODE))?;
        }
        Ok(())
    }

    /// Writes a recording. Whoever looks sees all of it or nothing, also after a crash.
    pub(super) fn write(&self, recording: &Recording) -> io::Result<()> {
        let name = FileName::of(recording).to_string();
        self.write_whole(&name, &encode(recording))
    }

    /// The file gets its name once its bytes are on the disk.
    pub(super) fn write_whole(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        // Also again: somebody may remove it while the host runs.
        self.prepare()?;
        let mut fresh = tempfile::Builder::new()
            .prefix(FRESH)
            .tempfile_in(&self.path)?;
        fresh.write_all(bytes)?;
        fresh.as_file().sync_all()?;
        fresh.persist(self.path.join(name))?;
        Ok(())
    }

    /// Removes what is too much or too old. Of each recording that is left, the version and when it
    /// was made.
    pub(super) fn prune(
        &self,
        retention: &Retention,
        now: SystemTime,
    ) -> io::Result<Vec<(PluginDigest, u64)>> {
        refuse_others_folder(&self.path, self.owner)?;
        let kept = self.without_left(now)?;
        let files: Vec<KeptFile> = kept.iter().map(|one| one.file.clone()).collect();
        let removed = retention.to_remove(&files, millis(now));
        for index in &removed {
            remove(&kept[*index].path)?;
        }
        let left = kept.into_iter().enumerate();
        let left = left.filter(|(index, _)| !removed.contains(index));
        let in_use = left.map(|(_, one)| (one.digest, one.file.at_ms));
        Ok(in_use.collect())
    }

    /// The recordings that it has. Removes what processes left that died.
    fn without_left(&self, now: SystemTime) -> io::Result<Vec<Kept>> {
        let mut kept = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            let Some((path, metadata)) = as_file(entry)? else {
                continue;
            };
            let at = metadata.modified().unwrap_or(UNIX_EPOCH);
            if is_left(&path, at, now) {
                let _ = std::fs::remove_file(&path);
            }
            if let Some(name) = FileName::read(&path) {
                let file = KeptFile {
                    shard: name.shard,
                    bytes: metadata.len(),
                    at_ms: millis(at),
                };
                kept.push(Kept {
                    path,
                    digest: name.digest,
                    file,
                });
            }
        }
        Ok(kept)
    }

    // What it holds.

    /// All recordings, the newest first. Reads only what they are of.
    ///
    /// # Errors
    /// There is no such folder, or it cannot be read.
    pub fn list(&self) -> io::Result<Vec<Found>> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            let path = entry?.path();
            if FileName::read(&path).is_some() {
                let summary = read_summary(&path);
                found.push(Found { path, summary });
            }
        }
        found.sort_by_key(|found| {
            let at_ms = found.summary.as_ref().map_or(0, |summary| summary.at_ms);
            std::cmp::Reverse(at_ms)
        });
        Ok(found)
    }

    /// Whether nobody else can have written that file of it.
    pub(super) fn believes(&self, file: &Path) -> bool {
        refuse_others_folder(&self.path, self.owner).is_ok()
            && refuse_others_file(file, self.owner).is_ok()
    }
}

impl Found {
    /// Whether it is of that shard, and may be of a batch with that record.
    pub fn may_hold(&self, application: &str, place: &RecordName) -> bool {
        self.summary.as_ref().is_ok_and(|summary| {
            summary.application == application
                && summary.shard == place.shard
                && place.may_be_within(&summary.first, &summary.last)
        })
    }
}

/// Reads a recording's whole file.
///
/// # Errors
/// It cannot be read, or is no whole recording.
pub fn read(path: &Path) -> Result<Recording, String> {
    let bytes = files::read(path, FILE_BYTES_MAX).map_err(|error| error.to_string())?;
    decode(&bytes).map_err(|error| error.to_string())
}

fn read_summary(path: &Path) -> Result<Summary, String> {
    let first_line = || -> io::Result<Vec<u8>> {
        let mut line = Vec::new();
        let file = files::open(path)?.take(HEAD_BYTES_MAX);
        BufReader::new(file).read_until(b'\n', &mut line)?;
        Ok(line)
    };
    let line = first_line().map_err(|error| error.to_string())?;
    summary(&line).map_err(|error: RecordingError| error.to_string())
}

/// `None` for what is no file, or not there any more.
fn as_file(entry: io::Result<DirEntry>) -> io::Result<Option<(PathBuf, Metadata)>> {
    match entry.and_then(|entry| Ok((entry.path(), entry.metadata()?))) {
        // A folder is somebody else's: it can be neither read nor removed as a recording.
        Ok((path, metadata)) => Ok(metadata.is_file().then_some((path, metadata))),
        // Another process has removed it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        // Another process was quicker.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Whether a process died while it wrote that file.
fn is_left(path: &Path, at: SystemTime, now: SystemTime) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let age = now.duration_since(at);
    name.starts_with(FRESH) && age.is_ok_and(|age| age > FRESH_FOR)
}

fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
