//! The files of the AWS chain, before the SDK reads them: it reads each as a whole, and so would
//! wait for the end of a pipe for ever.

use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The variables that name a file, with the file that is read where they name none.
const FILES: [(&str, &str); 2] = [
    ("AWS_CONFIG_FILE", "~/.aws/config"),
    ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"),
];
/// The profiles of a large company are some hundred KiB.
const BYTES_MAX: u64 = 1 << 20;
/// What is named to say that there is no such file; it ends at once.
const NOTHING: &str = "/dev/null";

/// What stands where a file of profiles should.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{path:?} is {what}, but the AWS chain would read all of it: put a file of at most 1 MiB \
        there, or name one in {variable} (/dev/null: none)"
)]
pub struct UnfitFile {
    path: PathBuf,
    what: &'static str,
    variable: &'static str,
}

/// Refuses what the SDK could not read in a moment. What is not there, or cannot be looked at, is
/// left to the SDK: it does without.
pub(crate) fn check() -> Result<(), UnfitFile> {
    let home = std::env::var("HOME").ok();
    for (variable, default) in FILES {
        let named = std::env::var(variable).unwrap_or_else(|_| default.to_owned());
        let path = in_home(&named, home.as_deref());
        if let Some(what) = why_unfit(&path) {
            return Err(UnfitFile {
                path,
                what,
                variable,
            });
        }
    }
    Ok(())
}

/// The path as the SDK reads it: only a first part that is `~` alone stands for the home.
fn in_home(named: &str, home: Option<&str>) -> PathBuf {
    match (Path::new(named).strip_prefix("~"), home) {
        (Ok(rest), Some(home)) => Path::new(home).join(rest),
        _ => PathBuf::from(named),
    }
}

fn why_unfit(path: &Path) -> Option<&'static str> {
    let found = path.metadata().ok()?;
    let kind = found.file_type();
    if kind.is_file() {
        return (found.len() > BYTES_MAX).then_some("a file of more than 1 MiB");
    }
    if kind.is_dir() {
        return Some("a folder");
    }
    if kind.is_fifo() {
        return Some("a pipe");
    }
    (!is_nothing(&found)).then_some("a device or a socket")
}

fn is_nothing(found: &Metadata) -> bool {
    let nothing = Path::new(NOTHING).metadata();
    let is_same = |nothing: Metadata| nothing.rdev() == found.rdev();
    found.file_type().is_char_device() && nothing.is_ok_and(is_same)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_is_put_in_where_the_sdk_does_it() {
        let at = |named| in_home(named, Some("/home/me"));
        assert_eq!(at("~/.aws/config"), Path::new("/home/me/.aws/config"));
        assert_eq!(at("~me/config"), Path::new("~me/config"));
        assert_eq!(at("/etc/~/config"), Path::new("/etc/~/config"));
        assert_eq!(in_home("~/x", None), Path::new("~/x"));
    }

    #[test]
    fn only_files_of_a_sane_size_and_dev_null_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: u64| {
            let path = folder.path().join(name);
            std::fs::File::create(&path)
                .unwrap()
                .set_len(bytes)
                .unwrap();
            path
        };
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(file("full", BYTES_MAX), &link).unwrap();
        for (path, told) in [
            (link, None),
            (
                file("large", BYTES_MAX + 1),
                Some("a file of more than 1 MiB"),
            ),
            (folder.path().to_owned(), Some("a folder")),
            (folder.path().join("none"), None),
            (PathBuf::from("/dev/null"), None),
            (PathBuf::from("/dev/zero"), Some("a device or a socket")),
        ] {
            assert_eq!(why_unfit(&path), told, "{path:?}");
        }
    }
}
