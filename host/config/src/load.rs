//! From the text of the file to settings.

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
use crate::files;

/// Largest configuration. One of a hundred plugins has some tens of kilobytes.
const CONFIG_BYTES_MAX: u64 = 4 << 20;

/// Settings with mistakes.
#[derive(Debug)]
pub(crate) struct Refused {
    /// Each with its line, or its variable, and the mend, in the file's order.
    pub(crate) problems: Vec<String>,
    /// What can be read without them.
    pub(crate) rest: Option<Box<Rest>>,
}

impl Config {
    /// Reads and checks `path`, with what the environment sets in its place. Relative paths in it
    /// are relative to its folder.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text =
            files::read_text(path, CONFIG_BYTES_MAX).map_err(|source| match source.kind() {
                std::io::ErrorKind::NotFound => ConfigError::Missing {
                    path: path.to_owned(),
                },
                _ => ConfigError::Read {
                    path: path.to_owned(),
                    source,
                },
            })?;
        let folder = path.parent().unwrap_or(Path::new("."));
        Self::parse_in(&text, folder, &Environment::of_process()).map_err(|refused| {
            ConfigError::Invalid {
                path: path.to_owned(),
                problems: refused.problems,
                rest: refused.rest,
            }
        })
    }

    /// Checks `text`, whatever the environment sets. The error has all problems, each with its line
    /// and the mend.
    pub fn parse(text: &str, folder: &Path) -> Result<Self, String> {
        Self::parse_in(text, folder, &Environment::default())
            .map_err(|refused| listed(&refused.problems))
    }

    /// Checks `text` with the settings of `environment` over it. The error has all problems of both.
    pub(crate) fn parse_in(
        text: &str,
        folder: &Path,
        environment: &Environment,
    ) -> Result<Self, Refused> {
        let (mut table, syntax) = match table_of(text) {
            Ok(table) => (table, Vec::new()),
            Err(problems) => (toml::Table::new(), problems),
        };
        let overrides = environment.lay_over(&mut table);
        if !syntax.is_empty() {
            // What the variables say is right or wrong only together with the file.
            let problems = syntax.into_iter().chain(overrides.problems()).collect();
            let rest = None;
            return Err(Refused { problems, rest });
        }
        let mut gathered = Gathered::without(overrides.meant());
        let config = gathered
            .typed::<ConfigFile>(&mut table)
            .and_then(|file| gathered.checked(file, &mut table, |file| file.check(folder)));
        let config = config.map(|config| Self {
            environment: environment.variables(),
            ..config
        });
        match config {
            Some(config) if gathered.problems().is_empty() && !overrides.has_mistakes() => {
                Ok(config)
            }
            rest => Err(Refused {
                problems: Places::new(text, overrides).shown(gathered.problems()),
                rest: rest.map(|config| {
                    let left_out = gathered.left_out();
                    Box::new(Rest { config, left_out })
                }),
            }),
        }
    }

    /// The defaults, reading `stream`, for commands that need no file. They read no stream but
    /// captured or made-up ones, so that a manifest may name any.
    pub fn for_stream(stream: &StreamName) -> Result<Self, String> {
        let file = ConfigFile::reading(stream);
        let mut config = file
            .check(Path::new("."))
            .map_err(|problem| problem.to_string())?;
        config.name_ceilings.allow_any_stream();
        Ok(config)
    }
}

/// Where a setting was made: in the file, or by a variable over it.
struct Places<'a> {
    lines: KeyLines<'a>,
    overrides: Overrides,
}

// === impl Places ===

impl<'a> Places<'a> {
    fn new(text: &'a str, overrides: Overrides) -> Self {
        Self {
            lines: KeyLines::of(text),
            overrides,
        }
    }

    /// Each problem with its place, in the order of the file, and then those of variables.
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
