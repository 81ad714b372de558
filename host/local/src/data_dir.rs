//! The data directory: held by one process at a time, and telling the others where that one can be reached.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::error::StartError;

const LOCK_FILE: &str = "lock";
const ENDPOINTS_FILE: &str = "endpoints.json";

/// A directory that this process holds; given back when dropped, by the kernel too if the process dies.
#[derive(Debug)]
pub(crate) struct DataDir {
    path: PathBuf,
    _lock: File,
}

/// The content of `endpoints.json`.
#[derive(Debug, Serialize)]
pub(crate) struct Endpoints<'a> {
    pub(crate) kinesis: &'a str,
    pub(crate) dynamodb: &'a str,
    pub(crate) pid: u32,
}

impl DataDir {
    /// Makes the directory if need be, and takes it.
    pub(crate) fn hold(path: &Path) -> Result<Self, StartError> {
        fs::create_dir_all(path).map_err(StartError::io(format!("create {}", path.display())))?;
        let lock_path = path.join(LOCK_FILE);
        let what = format!("lock {}", lock_path.display());
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&lock_path);
        let mut lock = opened.map_err(StartError::io(&what))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(StartError::InUse { path: path.to_owned(), holder: read_pid(&mut lock) });
            }
            Err(TryLockError::Error(source)) => return Err(StartError::Io { what, source }),
        }
        write_pid(&mut lock).map_err(StartError::io(what))?;
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Replaced in one step, so that nobody reads half of it.
    pub(crate) fn write_endpoints(&self, endpoints: &Endpoints<'_>) -> Result<(), StartError> {
        let (path, fresh) = (self.path.join(ENDPOINTS_FILE), self.path.join("endpoints.json.new"));
        let mut text = serde_json::to_string_pretty(endpoints).unwrap_or_default();
        text.push('\n');
        fs::write(&fresh, text)
            .and_then(|()| fs::rename(&fresh, &path))
            .map_err(StartError::io(format!("write {}", path.display())))
    }

    /// Best effort: a file left behind by a killed process is overwritten by the next one.
    pub(crate) fn remove_endpoints(&self) {
        if let Err(error) = fs::remove_file(self.path.join(ENDPOINTS_FILE)) {
            tracing::debug!(%error, "cannot remove endpoints.json");
        }
    }
}

fn read_pid(lock: &mut File) -> Option<u32> {
    let mut text = String::new();
    lock.read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

fn write_pid(lock: &mut File) -> std::io::Result<()> {
    lock.set_len(0)?;
    lock.rewind()?;
    writeln!(lock, "{}", std::process::id())
}
