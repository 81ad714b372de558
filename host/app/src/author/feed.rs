//! Lines of a file, or of standard input, as records to put.

use std::io::{self, BufRead, Read};
use std::path::Path;

use serde_json::Value;

use shardmill_sinks::letters::{input_name, open_input};

/// Largest record Kinesis takes, in bytes of data and key (AWS limit).
const RECORD_BYTES_MAX: usize = 10 << 20;
/// Longest partition key, in Unicode characters (AWS limit).
pub(crate) const KEY_CHARS_MAX: usize = 256;

/// Where a record's partition key comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeySource {
    /// A field of the line's JSON object; dots lead into objects, as in `properties.net`.
    Field(String),
    /// The same for every line, so that all of them go to one shard.
    Given(String),
    /// The line's number: spreads evenly, keeps no order.
    LineNumber,
}

impl KeySource {
    /// The field that was named, or else the line's number.
    pub(crate) fn field_or_number(field: Option<&str>) -> Self {
        field.map_or(Self::LineNumber, |field| Self::Field(field.to_owned()))
    }
}

/// One line to be put.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FeedLine {
    /// The line without its end.
    pub(crate) data: Vec<u8>,
    /// The partition key.
    pub(crate) partition_key: String,
}

/// A line that cannot be put. The lines before it were put, and those after it were not.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FeedError {
    /// The input cannot be read.
    #[error("cannot read {name}: {source}")]
    Read {
        /// The file, or `standard input`.
        name: String,
        /// What the system said.
        source: io::Error,
    },
    /// A line is not what it should be.
    #[error("{name}, line {line}: {problem}")]
    BadLine {
        /// The file, or `standard input`.
        name: String,
        /// Counted from 1.
        line: u64,
        /// What is wrong, and what would be right.
        problem: String,
    },
}

/// Reads lines, plain or gzip; blank lines are skipped.
pub(crate) struct Feed {
    name: String,
    input: Box<dyn BufRead + Send>,
    key: KeySource,
    line: u64,
}

impl Feed {
    /// Opens `path`, or standard input for `-`. Gzip is recognised by its first bytes, not by its
    /// name.
    pub(crate) fn open(path: &Path, key: KeySource) -> Result<Self, FeedError> {
        let name = input_name(path);
        match open_input(path) {
            Ok(input) => Ok(Self {
                name,
                input,
                key,
                line: 0,
            }),
            Err(source) => Err(FeedError::Read { name, source }),
        }
    }

    /// The next line; `None` at the end. Blocks, so call it on the blocking pool.
    pub(crate) fn next_line(&mut self) -> Result<Option<FeedLine>, FeedError> {
        while let Some(data) = self.read_line()? {
            if data.is_empty() {
                continue;
            }
            let key = self.key_of(&data);
            let partition_key = key.map_err(|problem| self.bad_line(problem))?;
            if data.len() + partition_key.len() > RECORD_BYTES_MAX {
                return Err(self.bad_line(
                    "longer than the maximum of a record, 10 MiB with its key".to_owned(),
                ));
            }
            return Ok(Some(FeedLine {
                data,
                partition_key,
            }));
        }
        Ok(None)
    }

    /// A line without its end, or the beginning of one that is too long.
    fn read_line(&mut self) -> Result<Option<Vec<u8>>, FeedError> {
        // One byte more than allowed, so that a line of any length is recognised without being
        // held.
        let limit = RECORD_BYTES_MAX as u64 + 1;
        let mut data = Vec::new();
        let read = self.input.by_ref().take(limit).read_until(b'\n', &mut data);
        let count = read.map_err(|source| FeedError::Read {
            name: self.name.clone(),
            source,
        })?;
        if count == 0 {
            return Ok(None);
        }
        self.line += 1;
        while let Some(b'\n' | b'\r') = data.last() {
            data.pop();
        }
        Ok(Some(data))
    }

    /// The number of the last line, counted from 1.
    pub(crate) fn line(&self) -> u64 {
        self.line
    }

    fn bad_line(&self, problem: String) -> FeedError {
        FeedError::BadLine {
            name: self.name.clone(),
            line: self.line,
            problem,
        }
    }

    fn key_of(&self, data: &[u8]) -> Result<String, String> {
        match &self.key {
            KeySource::LineNumber => Ok(self.line.to_string()),
            KeySource::Given(key) => Ok(key.clone()),
            KeySource::Field(path) => key_in_field(path, data),
        }
    }
}

/// The partition key in the field `path` of a JSON object.
fn key_in_field(path: &str, data: &[u8]) -> Result<String, String> {
    let object: Value = serde_json::from_slice(data)
        .map_err(|error| format!("not JSON, so it has no field {path:?}: {error}"))?;
    let found = path
        .split('.')
        .try_fold(&object, |value, name| value.get(name));
    let key = match found {
        Some(Value::String(text)) => text.clone(),
        Some(value @ (Value::Number(_) | Value::Bool(_))) => value.to_string(),
        Some(Value::Null | Value::Array(_) | Value::Object(_)) | None => {
            return Err(format!(
                "has no text or number in field {path:?}; choose another --key-field"
            ));
        }
    };
    match key.chars().count() {
        0 => Err(format!(
            "field {path:?} is empty, and a partition key must not be"
        )),
        1..=KEY_CHARS_MAX => Ok(key),
        _ => Err(format!(
            "field {path:?} is longer than a partition key may be, {KEY_CHARS_MAX} characters"
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn read_all(content: &[u8], key: KeySource) -> Result<Vec<(String, String)>, FeedError> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(content).unwrap();
        let mut feed = Feed::open(file.path(), key)?;
        let mut lines = Vec::new();
        while let Some(line) = feed.next_line()? {
            lines.push((line.partition_key, String::from_utf8(line.data).unwrap()));
        }
        Ok(lines)
    }

    fn field(path: &str) -> KeySource {
        KeySource::Field(path.to_owned())
    }

    #[test]
    fn plain_and_gzip_files_give_the_same_lines() {
        let content = b"{\"k\":\"a\"}\n\n{\"k\":7}\r\n{\"k\":true}";
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(content).unwrap();
        let plain = read_all(content, field("k")).unwrap();
        assert_eq!(
            plain
                .iter()
                .map(|(key, _)| key.as_str())
                .collect::<Vec<_>>(),
            ["a", "7", "true"]
        );
        assert_eq!(
            read_all(&gzip.finish().unwrap(), field("k")).unwrap(),
            plain
        );
    }

    #[test]
    fn a_key_may_stand_in_an_inner_object() {
        assert_eq!(
            read_all(br#"{"p":{"net":"uw"}}"#, field("p.net")).unwrap()[0].0,
            "uw"
        );
    }

    #[test]
    fn a_bad_line_is_named_with_its_number_and_problem() {
        for (content, expected) in [
            (
                "{\"k\":1}\n{\"x\":1}",
                "line 2: has no text or number in field \"k\"",
            ),
            ("{\"k\":1}\n\nnot json", "line 3: not JSON"),
            ("{\"k\":\"\"}", "line 1: field \"k\" is empty"),
        ] {
            let error = read_all(content.as_bytes(), field("k"))
                .unwrap_err()
                .to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_given_key_is_every_lines_key_whatever_the_line_holds() {
        let lines = read_all(b"plain\n{}", KeySource::Given("all".to_owned())).unwrap();
        let keys: Vec<_> = lines.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys, ["all", "all"]);
    }

    #[test]
    fn any_bytes_can_be_fed_when_no_field_is_asked_for() {
        let lines = read_all(b"plain text\nmore", KeySource::LineNumber).unwrap();
        assert_eq!(
            lines,
            [
                ("1".into(), "plain text".into()),
                ("2".into(), "more".into())
            ]
        );
    }
}
