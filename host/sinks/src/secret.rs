//! A header's value, which may be a secret: never shown, and read from the environment or a file
//! where the configuration says so.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use reqwest::header::HeaderValue;
use serde::Deserialize;

/// Where a header's value comes from. Never shown, not even a value from the configuration file.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
pub struct HeaderSource(Source);

#[derive(Clone, PartialEq, Eq)]
enum Source {
    /// The value itself.
    Value(String),
    /// A variable of the environment, by name.
    Variable(String),
    /// A file that holds nothing else.
    File(PathBuf),
}

/// Precedes the name of an environment variable.
const FROM_ENV: &str = "env:";
/// Precedes the path of a file.
const FROM_FILE: &str = "file:";
/// Largest file: a server takes no header that is larger.
const FILE_BYTES_MAX: u64 = 64 << 10;

impl HeaderSource {
    /// A value that is at hand, whatever it looks like.
    pub fn value(value: String) -> Self {
        Self(Source::Value(value))
    }

    /// The variable that holds the value, if one does.
    pub fn variable(&self) -> Option<&str> {
        match &self.0 {
            Source::Variable(name) => Some(name),
            Source::Value(_) | Source::File(_) => None,
        }
    }

    /// The file that holds the value, if one does.
    pub fn file(&self) -> Option<&Path> {
        match &self.0 {
            Source::File(path) => Some(path),
            Source::Value(_) | Source::Variable(_) => None,
        }
    }

    /// The same, where a relative path is relative to `folder`.
    #[must_use]
    pub fn in_folder(self, folder: &Path) -> Self {
        match self.0 {
            Source::File(path) => Self(Source::File(folder.join(path))),
            other => Self(other),
        }
    }

    /// The value, without a line break at its end, which is never intended.
    ///
    /// # Errors
    /// It is not where the configuration says; the text says why.
    pub fn read(&self) -> Result<String, String> {
        let value = match &self.0 {
            Source::Value(value) => return Ok(value.clone()),
            Source::Variable(name) => std::env::var(name).map_err(|error| match error {
                std::env::VarError::NotPresent => {
                    format!("the environment variable {name} is not set")
                }
                std::env::VarError::NotUnicode(_) => {
                    format!("the environment variable {name} is not text")
                }
            })?,
            Source::File(path) => read_file(path)
                .map_err(|error| format!("cannot read {}: {error}", path.display()))?,
        };
        Ok(value.trim_end_matches(['\r', '\n']).to_owned())
    }

    /// The value as a header has it, marked as a secret.
    ///
    /// # Errors
    /// It cannot be read, or HTTP does not allow it; the text says why, without the value.
    pub fn header_value(&self) -> Result<HeaderValue, String> {
        let mut value = HeaderValue::from_str(&self.read()?)
            .map_err(|_| "its value has a character that no header may have".to_owned())?;
        value.set_sensitive(true);
        Ok(value)
    }
}

/// A link is followed: secrets that are mounted into containers are links.
fn read_file(path: &Path) -> io::Result<String> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut text = String::new();
    File::open(path)?
        .take(FILE_BYTES_MAX + 1)
        .read_to_string(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::other(format!(
            "it has more than {FILE_BYTES_MAX} bytes, which no header may have"
        )));
    }
    Ok(text)
}

impl From<String> for HeaderSource {
    fn from(text: String) -> Self {
        if let Some(name) = text.strip_prefix(FROM_ENV) {
            return Self(Source::Variable(name.to_owned()));
        }
        match text.strip_prefix(FROM_FILE) {
            Some(path) => Self(Source::File(path.into())),
            None => Self(Source::Value(text)),
        }
    }
}

impl fmt::Debug for HeaderSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Source::Value(_) => f.write_str("(not shown)"),
            Source::Variable(name) => write!(f, "{FROM_ENV}{name}"),
            Source::File(path) => write!(f, "{FROM_FILE}{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_never_shown() {
        assert_eq!(
            format!("{:?}", HeaderSource::from("hush".to_owned())),
            "(not shown)"
        );
        assert_eq!(
            format!("{:?}", HeaderSource::from("env:TOKEN".to_owned())),
            "env:TOKEN"
        );
    }

    #[test]
    fn a_variable_is_read_and_a_missing_one_is_named() {
        assert_eq!(
            HeaderSource::from("env:CARGO_PKG_NAME".to_owned())
                .read()
                .unwrap(),
            env!("CARGO_PKG_NAME")
        );
        let error = HeaderSource::from("env:SHARDMILL_NOT_SET_ANYWHERE".to_owned())
            .read()
            .unwrap_err();
        assert!(
            error.contains("SHARDMILL_NOT_SET_ANYWHERE is not set"),
            "{error}"
        );
    }

    #[test]
    fn a_file_is_read_each_time_without_its_line_break_and_what_is_no_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let source = HeaderSource::from("file:token".to_owned()).in_folder(folder.path());
        assert_eq!(source.file(), Some(path.as_path()));
        assert_eq!(format!("{source:?}"), format!("file:{}", path.display()));
        let told = || source.read().unwrap_err();
        assert!(told().starts_with(&format!("cannot read {}: ", path.display())));
        for value in ["Bearer one", "Bearer two"] {
            std::fs::write(&path, format!("{value}\r\n")).unwrap();
            assert_eq!(source.read().unwrap(), value);
        }
        std::fs::write(&path, "x".repeat(70_000)).unwrap();
        assert!(told().contains("more than 65536 bytes"));
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(told().contains("not a regular file"));
    }
}
