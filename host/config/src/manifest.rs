//! The file `NAME.toml` beside `NAME.wasm`: what a plugin's author says of its settings. Whoever
//! may write it may as well replace the component; the host's own `[plugin.NAME]` wins over it, key
//! by key.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, fstat, openat};
use shardmill_core::plugin::PluginName;

use super::error::ConfigError;
use super::gather::{Gathered, typed};
use super::key_lines::KeyLines;
use super::plugin::PluginFile;
use super::problem::{Problem, listed, table_of};

/// Largest manifest. A page of settings has some hundred bytes.
const BYTES_MAX: u64 = 64 << 10;

/// A manifest. What is wrong with its keys, types and values is told with the host's settings over
/// it, all at once.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Manifest {
    path: PathBuf,
    text: String,
    /// What has the right keys and types.
    pub(super) table: toml::Table,
    /// What has not.
    pub(super) gathered: Gathered,
}

impl Manifest {
    /// Where the manifest of `plugin` lies.
    pub fn path_in(folder: &Path, plugin: &PluginName) -> PathBuf {
        folder.join(format!("{plugin}.toml"))
    }

    /// Reads it; `None` if there is none. Never blocks for long: not on a named pipe, not on a huge
    /// file.
    pub fn read(path: &Path) -> Result<Option<Self>, ConfigError> {
        let not_usable = |problems: Vec<String>| ConfigError::Invalid {
            path: path.to_owned(),
            problems,
            rest: None,
        };
        let invalid = |problem: String| not_usable(vec![problem]);
        let cannot_read = |source| ConfigError::Read {
            path: path.to_owned(),
            source,
        };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let handle = match openat(rustix::fs::CWD, path, flags, Mode::empty()) {
            Ok(handle) => handle,
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            Err(rustix::io::Errno::LOOP) => {
                return Err(invalid(
                    "it is a symbolic link; put a regular file in its place".to_owned(),
                ));
            }
            Err(error) => return Err(cannot_read(error.into())),
        };
        let stat = fstat(&handle).map_err(|error| cannot_read(error.into()))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(invalid(
                "it is not a regular file; put one in its place".to_owned(),
            ));
        }
        let mut bytes = Vec::new();
        File::from(handle)
            .take(BYTES_MAX + 1)
            .read_to_end(&mut bytes)
            .map_err(cannot_read)?;
        if bytes.len() as u64 > BYTES_MAX {
            return Err(invalid(format!(
                "it has more than {BYTES_MAX} bytes, which no manifest needs"
            )));
        }
        let text =
            String::from_utf8(bytes).map_err(|_| invalid("it is not UTF-8 text".to_owned()))?;
        Self::parse(path, text).map(Some).map_err(not_usable)
    }

    /// What it asks to be granted, an item a line; for people.
    pub fn asks(&self) -> Vec<String> {
        // It was read as this before, and what was wrong is gone.
        let file: PluginFile = self.table.clone().try_into().unwrap_or_default();
        file.grants.lines()
    }

    /// The same, asking for nothing but state, which a host gives unless it says otherwise.
    pub fn asking_for_state_only(&self) -> Self {
        let mut table = self.table.clone();
        if let Some(grants) = table.get_mut("grants").and_then(toml::Value::as_table_mut) {
            grants.retain(|key, _| key == "state");
        }
        Self {
            path: self.path.clone(),
            text: self.text.clone(),
            table,
            gathered: self.gathered.clone(),
        }
    }

    /// What is wrong with it, in its own order; what lies with the host's section of the `plugin`
    /// comes last.
    pub(super) fn told(&self, plugin: &PluginName, problems: &[Problem]) -> String {
        let lines = KeyLines::of(&self.text);
        let mut by_line: Vec<_> = problems
            .iter()
            .map(|problem| (lines.line_of(problem.key()), problem))
            .collect();
        by_line.sort_by_key(|(line, _)| line.unwrap_or(usize::MAX));
        let path = self.path.display();
        if let [(None, problem)] = by_line[..] {
            return format!("{problem} ([plugin.{plugin}] over {path})");
        }
        let told = by_line.iter().map(|(line, problem)| match line {
            Some(line) => format!("line {line}: {problem}"),
            None => format!("{problem} ([plugin.{plugin}] over it)"),
        });
        let told: Vec<String> = told.collect();
        format!("{path}: {}", listed(&told))
    }

    /// The error, if it is not TOML, names the line.
    fn parse(path: &Path, text: String) -> Result<Self, Vec<String>> {
        let mut table = table_of(&text)?;
        let mut gathered = Gathered::default();
        gathered.read(&mut table, typed::<PluginFile>);
        Ok(Self {
            path: path.to_owned(),
            text,
            table,
            gathered,
        })
    }
}
