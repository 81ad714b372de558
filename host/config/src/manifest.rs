//! The file `NAME.toml` beside `NAME.wasm`: the settings that a plugin's author chose. Anybody who
//! may write it may also replace the component. The host's own `[plugin.NAME]` overrides it, key by
//! key.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use shardmill_core::plugin::PluginName;

use super::error::ConfigError;
use super::gather::Gathered;
use super::grants::GrantsFile;
use super::key_lines::KeyLines;
use super::plugin::PluginFile;
use super::problem::{Problem, listed, table_of};

/// Largest manifest. A page of settings has some hundred bytes.
pub(super) const BYTES_MAX: u64 = 64 << 10;

/// A manifest. Problems with its keys, types and values are reported together with the host's
/// settings over it, all at once.
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
    /// The path of the manifest of `plugin`.
    pub fn path_in(folder: &Path, plugin: &PluginName) -> PathBuf {
        folder.join(format!("{plugin}.toml"))
    }

    /// Reads it; `None` if there is none. Never blocks for long: not on a named pipe, not on a huge
    /// file.
    pub fn read(path: &Path) -> Result<Option<Self>, ConfigError> {
        let Some(file) = open(path)? else {
            return Ok(None);
        };
        match Self::parse(path, text_of(file, path)?) {
            Ok(manifest) => Ok(Some(manifest)),
            Err(problems) => Err(invalid(path, problems)),
        }
    }

    /// What it asks to be granted, an item a line; for people.
    pub fn asks(&self) -> Vec<String> {
        let grants = self.settings.as_ref().map(|settings| &settings.grants);
        grants.map(GrantsFile::lines).unwrap_or_default()
    }

    /// The same, asking only for what every host answers in the same way by default: for state,
    /// which it allows, and for the variables of its own credentials, which none allows.
    pub fn asking_for_what_hosts_agree_on(&self) -> Self {
        let mut manifest = self.clone();
        if let Some(settings) = &mut manifest.settings {
            settings.grants = settings.grants.answered_alike();
        }
        if let Some(toml::Value::Table(grants)) = manifest.table.get_mut("grants") {
            grants.retain(|key, _| key == "state" || key == "env");
        }
        manifest
    }

    /// The result of `check`, if there is one, and all problems, including those with keys and
    /// types.
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

    /// What is wrong with it, in its own order. Problems with the host's section of the `plugin`
    /// come last.
    pub(super) fn describe(&self, plugin: &PluginName, problems: &[Problem]) -> String {
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
        let shown = by_line.iter().map(|(line, problem)| match line {
            Some(line) => format!("line {line}: {problem}"),
            None => format!("{problem} ([plugin.{plugin}] over it)"),
        });
        let shown: Vec<String> = shown.collect();
        format!("{path}: {}", listed(&shown))
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

/// Opens the manifest; `None` if there is none. Follows no link, and never waits for a writer to a
/// pipe.
fn open(path: &Path) -> Result<Option<File>, ConfigError> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match openat(CWD, path, flags, Mode::empty()) {
        Ok(handle) => Ok(Some(File::from(handle))),
        Err(Errno::NOENT) => Ok(None),
        Err(Errno::LOOP) => Err(unfit(
            path,
            "it is a symbolic link; put a regular file in its place",
        )),
        Err(error) => Err(cannot_read(path, error.into())),
    }
}

fn text_of(file: File, path: &Path) -> Result<String, ConfigError> {
    let metadata = file.metadata().map_err(|error| cannot_read(path, error))?;
    if !metadata.is_file() {
        let problem = "it is not a regular file; put one in its place";
        return Err(unfit(path, problem));
    }
    let mut bytes = Vec::new();
    file.take(BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| cannot_read(path, error))?;
    if bytes.len() as u64 > BYTES_MAX {
        let problem = format!("it has more than {BYTES_MAX} bytes, which no manifest needs");
        return Err(unfit(path, &problem));
    }
    String::from_utf8(bytes).map_err(|_| unfit(path, "it is not UTF-8 text"))
}

fn cannot_read(path: &Path, source: io::Error) -> ConfigError {
    ConfigError::Read {
        path: path.to_owned(),
        source,
    }
}

/// The file as a whole cannot be a manifest.
fn unfit(path: &Path, problem: &str) -> ConfigError {
    invalid(path, vec![problem.to_owned()])
}

fn invalid(path: &Path, problems: Vec<String>) -> ConfigError {
    ConfigError::Invalid {
        path: path.to_owned(),
        problems,
        rest: None,
    }
}
