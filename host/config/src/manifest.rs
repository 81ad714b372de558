//! The file `NAME.toml` beside `NAME.wasm`: what a plugin's author says of its settings. Whoever
//! may write it may as well replace the component; the host's own `[plugin.NAME]` wins over it, key
//! by key.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, fstat, openat};
use shardmill_core::plugin::PluginName;

use super::error::ConfigError;
use super::gather::Gathered;
use super::grants::GrantsFile;
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
    /// The keys that are known and have values of the right type.
    table: toml::Table,
    /// The same as settings; `None` if there is too much beside them.
    settings: Option<PluginFile>,
    /// The problems with the other keys.
    gathered: Gathered,
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
        let grants = self.settings.as_ref().map(|settings| &settings.grants);
        grants.map(GrantsFile::lines).unwrap_or_default()
    }

    /// The same, asking for nothing but state, which a host gives unless it says otherwise.
    pub fn asking_for_state_only(&self) -> Self {
        let mut manifest = self.clone();
        if let Some(settings) = &mut manifest.settings {
            settings.grants = settings.grants.state_only();
        }
        if let Some(toml::Value::Table(grants)) = manifest.table.get_mut("grants") {
            grants.retain(|key, _| key == "state");
        }
        manifest
    }

    /// What `check` makes of the settings, as far as anything comes of them, and all problems, with
    /// those of keys and types.
    pub(super) fn checked<T>(
        &self,
        check: impl Fn(PluginFile) -> Result<T, Problem>,
    ) -> (Option<T>, Vec<Problem>) {
        let mut gathered = self.gathered.clone();
        let checked = self
            .settings
            .clone()
            .and_then(|settings| gathered.checked(settings, &mut self.table.clone(), check));
        (checked, gathered.into_problems())
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
        let settings = gathered.typed(&mut table);
        Ok(Self {
            path: path.to_owned(),
            text,
            table,
            settings,
            gathered,
        })
    }
}
