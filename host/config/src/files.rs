//! Reads files that commands are given: whole, up to a limit, and without ever blocking on a pipe
//! or an endless file. Finds out whether a host could write where it is to.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::Access;

/// Opens a regular file. A pipe or a device is an error, and never makes the caller wait.
pub fn open(path: &Path) -> io::Result<File> {
    // Without this flag, opening a pipe would wait for somebody to write to it.
    let flags = rustix::fs::OFlags::NONBLOCK.bits();
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.cast_signed())
        .open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(io::Error::other("it is a directory, not a file"));
    }
    if !metadata.is_file() {
        return Err(io::Error::other(
            "it is a pipe or a device; give a regular file",
        ));
    }
    Ok(file)
}

/// The whole file, which has `bytes_max` at most. Checks the size before it reads anything, and
/// again if the file grows meanwhile.
pub fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    let size = file.metadata()?.len();
    let too_large = |size: u64| {
        io::Error::other(format!(
            "it has {size} bytes, and may have {bytes_max} at most"
        ))
    };
    if size > bytes_max {
        return Err(too_large(size));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
    file.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(too_large(bytes.len() as u64));
    }
    Ok(bytes)
}

/// The same, as text.
pub fn read_text(path: &Path, bytes_max: u64) -> io::Result<String> {
    let bytes = read(path, bytes_max)?;
    String::from_utf8(bytes).map_err(|_| io::Error::other("it is not UTF-8 text"))
}

/// For a `path` that does not exist, the folder beside it with the most similar name, if one is
/// similar enough.
pub fn folder_beside(path: &Path) -> Option<String> {
    const NEAR: f64 = 0.8;
    let name = path.file_name()?.to_str()?;
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let folders = std::fs::read_dir(parent)
        .ok()?
        .flatten()
        .filter(|entry| entry.path().is_dir());
    let names = folders.filter_map(|entry| entry.file_name().into_string().ok());
    let near = names
        .map(|found| (strsim::jaro_winkler(name, &found), found))
        .filter(|(nearness, _)| *nearness > NEAR);
    near.max_by(|(one, _), (other, _)| one.total_cmp(other))
        .map(|(_, name)| name)
}

/// Whether a file could be written at `path`: the one that is there, or a new one in a folder that
/// may have to be made first. Makes nothing.
pub fn check_file_to_write(path: &Path) -> io::Result<()> {
    if path.try_exists()? {
        return Ok(rustix::fs::access(
            path,
            Access::READ_OK | Access::WRITE_OK,
        )?);
    }
    check_folder_to_write(path.parent().unwrap_or(path))
}

/// Whether files could be written into `folder`, which may have to be made first. Makes nothing.
pub fn check_folder_to_write(folder: &Path) -> io::Result<()> {
    for existing in folder.ancestors() {
        // A relative path ends in the folder that it begins in.
        let existing = if existing.as_os_str().is_empty() {
            Path::new(".")
        } else {
            existing
        };
        match existing.metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
            Ok(found) if !found.is_dir() => return Err(io::ErrorKind::NotADirectory.into()),
            Ok(_) => {
                return Ok(rustix::fs::access(
                    existing,
                    Access::WRITE_OK | Access::EXEC_OK,
                )?);
            }
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_with_nearly_that_name_is_suggested() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("plugins")).unwrap();
        std::fs::write(folder.path().join("plugnis.txt"), "").unwrap();
        assert_eq!(
            folder_beside(&folder.path().join("plugnis")).as_deref(),
            Some("plugins")
        );
        assert_eq!(folder_beside(&folder.path().join("elsewhere")), None);
        assert_eq!(folder_beside(Path::new("/no/such/folder")), None);
    }

    #[test]
    fn a_file_is_read_within_its_bound_and_what_never_ends_or_blocks_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "12345678").unwrap();
        assert_eq!(read_text(&path, 8).unwrap(), "12345678");
        let told = |path: &Path| read(path, 7).unwrap_err().to_string();
        assert_eq!(told(&path), "it has 8 bytes, and may have 7 at most");
        std::os::unix::fs::symlink(&path, folder.path().join("link")).unwrap();
        assert_eq!(
            read(&folder.path().join("link"), 8).unwrap().len(),
            8,
            "whoever names a link means its target"
        );
        assert!(told(Path::new("/dev/zero")).contains("a pipe or a device"));
        assert!(told(folder.path()).contains("a directory"));
        let pipe = folder.path().join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        assert!(told(&pipe).contains("a pipe or a device"));
        // A file of the system that says it has no bytes, and has some.
        assert!(read(Path::new("/proc/self/status"), 7).is_err());
    }

    #[test]
    fn a_path_can_be_written_to_if_all_above_it_are_folders_and_nothing_is_made_to_know_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let within = file.join("below");
        let new = folder.path().join("a/b/c");
        assert!(check_file_to_write(&file).is_ok());
        assert!(check_file_to_write(&new).is_ok() && check_folder_to_write(&new).is_ok());
        assert!(check_file_to_write(&within).is_err() && check_folder_to_write(&within).is_err());
        assert!(check_folder_to_write(&file).is_err(), "a file is no folder");
        assert!(check_file_to_write(Path::new("there-is-no-such-folder/x")).is_ok());
        assert!(!folder.path().join("a").exists());
    }
}
