//! From the text of the file to settings.

use std::io::ErrorKind;
use std::path::Path;

use shardmill_core::stream::StreamName;

use super::config::Config;
use super::environment::{Environment, Overrides};
use super::error::ConfigError;
use super::file::ConfigFile;
use super::gather::Gathered;
use super::key_lines::KeyLines;
use super::problem::{Problem, listed, table_of};
use super::rest::Rest;
use super::written::Written;
use crate::files;

/// Largest configuration. One of a hundred plugins has some tens of kilobytes.
const CONFIG_BYTES_MAX: u64 = 4 << 20;

/// Settings with mistakes.
#[derive(Debug)]
pub(crate) struct Refused {
    /// Each with its line or variable, and the fix, in the file's order.
    pub(crate) problems: Vec<String>,
    /// What can be read without them.
    pub(crate) rest: Option<Box<Rest>>,
}

impl Config {
    /// Reads and checks `path`, with what the environment sets in its place. Relative paths in it
    /// are relative to its folder.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = read(path)?;
        let folder = path.parent().unwrap_or(Path::new("."));
        Self::parse_in(&text, folder, &Environment::of_process()).map_err(|refused| {
            ConfigError::Invalid {
                path: path.to_owned(),
                problems: refused.problems,
                rest: refused.rest,
            }
        })
    }

    /// Checks `text` and ignores the environment. The error has all problems, each with its line
    /// and the fix.
    pub fn parse(text: &str, folder: &Path) -> Result<Self, String> {
        Self::parse_in(text, folder, &Environment::default())
            .map_err(|refused| listed(&refused.problems))
    }

    /// Checks `text` with the settings of `environment` over it. The error has all problems of
    /// both.
    pub(crate) fn parse_in(
        text: &str,
        folder: &Path,
        environment: &Environment,
    ) -> Result<Self, Refused> {
        let mut table = match table_of(text) {
            Ok(table) => table,
            Err(problems) => return Err(Refused::no_toml(problems, environment)),
        };
        let overrides = environment.lay_over(&mut table);
        let written = Written::of(&table);
        let mut gathered = Gathered::without(overrides.meant());
        let mut config = gathered
            .typed::<ConfigFile>(&mut table)
            .and_then(|file| gathered.checked(file, &mut table, |file| file.check(folder)));
        if let Some(config) = &mut config {
            config.environment = environment.variables();
            config.written = written;
        }
        match config {
            Some(config) if gathered.problems().is_empty() && !overrides.has_mistakes() => {
                Ok(config)
            }
            config => {
                let problems = KeySources::new(text, overrides).shown(gathered.problems());
                let left_out = gathered.left_out();
                let rest = config.map(|config| Box::new(Rest { config, left_out }));
                Err(Refused { problems, rest })
            }
        }
    }

    /// The defaults, reading `stream`, for commands that need no file. They read no stream but
    /// captured or made-up ones, so that a manifest may name any.
    pub fn for_stream(stream: &StreamName) -> Result<Self, String> {
        let file = ConfigFile::reading(stream);
        let mut config = file
            .check(Path::new("."))
            .map_err(|problem| problem.to_string())?;
        config.ceilings.names.allow_any_stream();
        // Nothing is written to DynamoDB that costs anything.
        config.ceilings.are_frequent_checkpoints_allowed = true;
        Ok(config)
    }
}

fn read(path: &Path) -> Result<String, ConfigError> {
    files::read_text(path, CONFIG_BYTES_MAX).map_err(|source| {
        let path = path.to_owned();
        match source.kind() {
            ErrorKind::NotFound => ConfigError::Missing { path },
            _ => ConfigError::Read { path, source },
        }
    })
}

// === impl Refused ===

impl Refused {
    /// The text is not TOML. Whether the variables are right depends on the file, except for those
    /// that set nothing in any file.
    fn no_toml(problems: Vec<String>, environment: &Environment) -> Self {
        let overrides = environment.lay_over(&mut toml::Table::new());
        Self {
            problems: problems.into_iter().chain(overrides.problems()).collect(),
            rest: None,
        }
    }
}

/// Where a setting was made: in the file, or by a variable over it.
struct KeySources<'a> {
    lines: KeyLines<'a>,
    overrides: Overrides,
}

// === impl KeySources ===

impl<'a> KeySources<'a> {
    fn new(text: &'a str, overrides: Overrides) -> Self {
        Self {
            lines: KeyLines::of(text),
            overrides,
        }
    }

    /// Each problem with its line or variable, in the order of the file, and then those of
    /// variables.
    fn shown(&self, problems: &[Problem]) -> Vec<String> {
        let placed = problems.iter().map(|problem| self.placed(problem));
        let mut by_line: Vec<_> = placed.collect();
        by_line.sort_by_key(|(line, _)| line.unwrap_or(usize::MAX));
        let shown = by_line.into_iter().map(|(_, shown)| shown);
        shown.chain(self.overrides.problems()).collect()
    }

    fn placed(&self, problem: &Problem) -> (Option<usize>, String) {
        let key = problem.key();
        if let Some(variable) = self.overrides.variable_of(key) {
            return (
                None,
                format!("{variable}: {problem}{}", text_of_number(problem)),
            );
        }
        match self.lines.line_of(key) {
            Some(line) => (Some(line), format!("line {line}: {problem}")),
            None => match self.overrides.variable_within(key) {
                Some(variable) => (None, format!("{variable}: {problem}")),
                None => (None, problem.to_string()),
            },
        }
    }
}

/// A variable's value is a number if it looks like one.
fn text_of_number(problem: &Problem) -> &'static str {
    if problem.to_string().contains("expected a string") {
        "; a number that is meant as text is written in both quotes, such as '\"17\"'"
    } else {
        ""
    }
}
