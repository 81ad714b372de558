//! The data directory: one process at a time holds it, and writes there where it can be reached.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::error::StartError;

const LOCK_FILE: &str = "lock";
const ENDPOINTS_FILE: &str = "endpoints.json";

/// Streams and tables hold copies of production records, as often as not.
const OWNER_FOLDER: u32 = 0o700;
pub(crate) const OWNER_FILE: u32 = 0o600;

/// Makes a file accessible only to its owner, whatever umask it was created with.
pub(crate) fn for_owner_only(path: &Path) -> std::io::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(OWNER_FILE))
}

/// A directory that this process holds. Released when dropped; the kernel releases it if the
/// process dies.
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
    /// Creates the directory if need be, and holds it for this process.
    pub(crate) fn hold(path: &Path) -> Result<Self, StartError> {
        make_folder(path).map_err(|source| StartError::NoDirectory {
            path: path.to_owned(),
            source,
        })?;
        let lock_path = path.join(LOCK_FILE);
        let what = format!("lock {}", lock_path.display());
        let mut lock = open_lock(&lock_path).map_err(StartError::io(&what))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(StartError::InUse {
                    path: path.to_owned(),
                    holder: read_pid(&mut lock),
                });
            }
            Err(TryLockError::Error(source)) => return Err(StartError::Io { what, source }),
        }
        write_pid(&mut lock).map_err(StartError::io(what))?;
        Ok(Self {
            path: path.to_owned(),
            _lock: lock,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces the file atomically, so that a reader never sees half of it.
    pub(crate) fn write_endpoints(&self, endpoints: &Endpoints<'_>) -> Result<(), StartError> {
        let path = self.path.join(ENDPOINTS_FILE);
        let fresh = self.path.join("endpoints.json.new");
        let mut text = serde_json::to_string_pretty(endpoints).unwrap_or_default();
        text.push('\n');
        fs::write(&fresh, text)
            .and_then(|()| for_owner_only(&fresh))
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

fn make_folder(path: &Path) -> std::io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(OWNER_FOLDER)
        .create(path)
}

fn open_lock(path: &Path) -> std::io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(OWNER_FILE)
        .open(path)
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use crate::{LocalOptions, LocalStack};

    #[test]
    fn a_data_directory_that_cannot_be_made_is_reported_with_what_to_do() {
        let told = super::DataDir::hold(std::path::Path::new("/proc/nowhere"))
            .unwrap_err()
            .to_string();
        assert!(
            told.starts_with("cannot create the data directory /proc/nowhere: "),
            "{told}"
        );
        assert!(
            told.ends_with("name another with --data, in a folder that this user may write to"),
            "{told}"
        );
    }

    #[tokio::test]
    async fn what_a_stack_keeps_is_for_its_owner_only_also_what_was_there_before() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        for _ in 0..2 {
            let stack = LocalStack::start(LocalOptions::kept_in(&data))
                .await
                .unwrap();
            for entry in std::fs::read_dir(&data).unwrap() {
                let entry = entry.unwrap();
                let mode = entry.metadata().unwrap().mode() & 0o777;
                assert_eq!(mode, 0o600, "{:?} has {mode:o}", entry.file_name());
            }
            stack.stop().await;
            assert_eq!(std::fs::metadata(&data).unwrap().mode() & 0o777, 0o700);
            for file in ["kinesis.journal", "dynamodb.sqlite"] {
                use std::os::unix::fs::PermissionsExt;
                std::fs::set_permissions(data.join(file), std::fs::Permissions::from_mode(0o644))
                    .unwrap();
            }
        }
    }
}
