//! The secrets of one instance. Read when the instance is made, so that each new one has the
//! current values. Never shown.

pub(crate) mod redactor;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use shardmill_core::plugin::{ProcessorError, SecretSource};

/// Largest value. A key with its chain of certificates has some 10 KB.
const BYTES_MAX: u64 = 64 << 10;
/// Shortest value, in characters. A shorter one could not be distinguished from ordinary text, from
/// which it must be removed.
const CHARS_MIN: usize = 4;

/// Values by name.
#[derive(Default)]
pub(crate) struct Secrets(BTreeMap<String, String>);

impl Secrets {
    /// Reads all of them. Blocks for as long as reading small files takes. The error names the one
    /// that cannot be read.
    pub(crate) fn read(sources: &BTreeMap<String, SecretSource>) -> Result<Self, ProcessorError> {
        let mut values = BTreeMap::new();
        for (name, source) in sources {
            let value = read(source).map_err(|problem| ProcessorError::Host {
                message: format!("cannot read the secret {name}: {source} {problem}"),
            })?;
            values.insert(name.clone(), value);
        }
        Ok(Self(values))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &str> {
        self.0.values().map(String::as_str)
    }

    #[cfg(test)]
    pub(crate) fn of(values: &[&str]) -> Self {
        Self(
            values
                .iter()
                .enumerate()
                .map(|(n, value)| (n.to_string(), (*value).to_owned()))
                .collect(),
        )
    }
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Whether an instance could read the secret, as it does when it is made.
///
/// # Errors
///
/// What is wrong, to be shown after the source; nothing of the value is in it.
pub fn check_secret(source: &SecretSource) -> Result<(), String> {
    read(source).map(|_value| ())
}

/// Nothing of the value ends in an error.
fn read(source: &SecretSource) -> Result<String, String> {
    let value = match source {
        SecretSource::File(path) => read_file(path)?,
        SecretSource::Variable(name) => match std::env::var(name) {
            Ok(value) => value,
            Err(std::env::VarError::NotPresent) => return Err("is not set".to_owned()),
            Err(std::env::VarError::NotUnicode(_)) => return Err("is not UTF-8 text".to_owned()),
        },
    };
    // Editors and `echo` end a file with a line break that is not part of the secret.
    let value = value.trim_end_matches(['\r', '\n']);
    if value.chars().count() < CHARS_MIN {
        return Err(format!(
            "has less than {CHARS_MIN} characters, too few to keep it out of logs"
        ));
    }
    Ok(value.to_owned())
}

fn read_file(path: &Path) -> Result<String, String> {
    let mut bytes = Vec::new();
    open_regular(path)?
        .take(BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("cannot be read: {error}"))?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(format!("has more than {BYTES_MAX} bytes"));
    }
    String::from_utf8(bytes).map_err(|_| "is not UTF-8 text".to_owned())
}

/// Follows links, which is how secrets are mounted into containers; does not wait for a writer as a
/// named pipe would.
fn open_regular(path: &Path) -> Result<File, String> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let handle = open(path, flags, Mode::empty())
        .map_err(|error| format!("cannot be read: {}", std::io::Error::from(error)))?;
    let stat = fstat(&handle)
        .map_err(|error| format!("cannot be read: {}", std::io::Error::from(error)))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err("is not a regular file".to_owned());
    }
    Ok(File::from(handle))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_from(content: &[u8]) -> Result<String, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, content).unwrap();
        read(&SecretSource::File(path))
    }

    #[test]
    fn a_file_is_read_without_the_line_break_at_its_end() {
        assert_eq!(read_from(b"hush hush\r\n").unwrap(), "hush hush");
        assert_eq!(
            read_from("-----\nkey\n-----\n".as_bytes()).unwrap(),
            "-----\nkey\n-----"
        );
    }

    #[test]
    fn what_cannot_be_a_secret_is_refused_without_showing_it() {
        for (content, expected) in [
            (b"hus".to_vec(), "less than 4 characters"),
            (b"\n\n\n\n\n".to_vec(), "less than 4 characters"),
            (b"hush\xff".to_vec(), "not UTF-8"),
            (vec![b'x'; (64 << 10) + 1], "more than 65536 bytes"),
        ] {
            let error = read_from(&content).unwrap_err();
            assert!(
                error.contains(expected) && !error.contains("hus"),
                "{error}"
            );
        }
        let folder = tempfile::tempdir().unwrap();
        assert!(
            read(&SecretSource::File(folder.path().into()))
                .unwrap_err()
                .contains("not a regular file")
        );
    }

    #[test]
    fn the_error_names_the_secret_and_where_it_should_be() {
        let file = SecretSource::File("/nowhere/token".into());
        let error = Secrets::read(&BTreeMap::from([("api".to_owned(), file)]))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("cannot read the secret api: the file /nowhere/token cannot be read"),
            "{error}"
        );
        let variable = SecretSource::Variable("SHARDMILL_NOT_SET_ANYWHERE".to_owned());
        let error = Secrets::read(&BTreeMap::from([("api".to_owned(), variable)]))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("the environment variable SHARDMILL_NOT_SET_ANYWHERE is not set"),
            "{error}"
        );
    }

    #[test]
    fn no_value_is_shown_for_debugging() {
        assert_eq!(format!("{:?}", Secrets::of(&["hush hush"])), r#"{"0"}"#);
    }
}
