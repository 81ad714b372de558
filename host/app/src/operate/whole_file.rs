//! A file that gets its name once all of it is there: half a file looks like a whole one.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use tempfile::NamedTempFile;

/// See the module's description. For this user only: what plugins and streams hold may be anything.
pub(super) struct WholeFile {
    file: NamedTempFile,
    path: PathBuf,
}

impl WholeFile {
    /// Replaces nothing.
    pub(super) fn to(path: &Path) -> anyhow::Result<Self> {
        let name = path.display();
        if path.symlink_metadata().is_ok() {
            bail!("cannot create {name}: name a file that does not exist");
        }
        let folder = path.parent().filter(|folder| *folder != Path::new(""));
        let folder = folder.unwrap_or(Path::new("."));
        let file = tempfile::Builder::new()
            .prefix(".shardmill-")
            .tempfile_in(folder);
        let file = file.with_context(|| format!("cannot create {name}"))?;
        Ok(Self {
            file,
            path: path.to_owned(),
        })
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        let written = self.file.write_all(bytes);
        written.with_context(|| format!("cannot write {}", self.path.display()))
    }

    pub(super) fn finish(self) -> anyhow::Result<()> {
        let name = self.path.display();
        let cannot = || format!("cannot write {name}");
        self.file.as_file().sync_all().with_context(cannot)?;
        self.file
            .persist_noclobber(&self.path)
            .with_context(cannot)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_there_as_a_whole_or_not_at_all_and_replaces_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("states");
        let mut unfinished = WholeFile::to(&path).unwrap();
        unfinished.write(b"{}\n").unwrap();
        assert!(!path.exists());
        drop(unfinished);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        let (mut first, second) = (WholeFile::to(&path).unwrap(), WholeFile::to(&path).unwrap());
        first.write(b"{}\n").unwrap();
        first.finish().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{}\n");
        assert!(second.finish().is_err());
        assert!(WholeFile::to(&path).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{}\n");
    }

    #[test]
    fn nobody_else_may_read_it() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("states");
        WholeFile::to(&path).unwrap().finish().unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
