//! From the text of the file, and of manifests, to settings.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use shardmill_core::plugin::PluginName;
use shardmill_core::stream::{StreamName, StreamRef};

use super::cache::{CachePlace, of_system};
use super::environment::{Environment, Overrides};
use super::error::ConfigError;
use super::file::ConfigFile;
use super::gather::{Gathered, LeftOut, typed};
use super::key_lines::KeyLines;
use super::manifest::Manifest;
use super::plugin::{PluginFile, overlay};
use super::problem::{Problem, Under, listed, table_of};
use super::rest::Rest;
use super::settings::{Config, PluginConfig, StreamConfig};
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

    /// Where a host whose configuration was read from `file` keeps what outlives it: where
    /// `host.cache` says, or else in the folder that the service manager or the user's home has for
    /// such things. Nothing is made there.
    ///
    /// # Errors
    /// Why there is no such folder.
    pub fn cache_of_host(&self, file: &Path) -> Result<PathBuf, String> {
        match &self.host.cache {
            CachePlace::Unset => of_system(file, &self.plugins, |name| std::env::var_os(name)),
            said => said.folder().map(Path::to_owned).map_err(str::to_owned),
        }
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
        let config = gathered.read(&mut table, |table| Self::of_table(table, folder));
        let config = config.map(|config| Self {
            environment: environment.variables(),
            ..config
        });
        let problems = Places {
            lines: KeyLines::of(text),
            overrides,
        }
        .told(gathered.problems());
        match config {
            Some(config) if problems.is_empty() => Ok(config),
            rest => Err(Refused {
                problems,
                rest: rest.map(|config| {
                    let left_out = gathered.left_out();
                    Box::new(Rest { config, left_out })
                }),
            }),
        }
    }

    fn of_table(table: &toml::Table, folder: &Path) -> Result<Self, Problem> {
        let file: ConfigFile = typed(table)?;
        let sections = table.get("plugin").and_then(toml::Value::as_table);
        let of_plugin = |(name, section): (&String, &toml::Value)| {
            Some((name.clone(), section.as_table()?.clone()))
        };
        let sections = sections.into_iter().flatten().filter_map(of_plugin);
        file.check(folder, sections.collect())
    }

    /// The defaults, reading `stream`, for commands that need no file. They read no stream but
    /// captured or made-up ones, so that a manifest may name any.
    pub fn for_stream(stream: &StreamName) -> Result<Self, String> {
        let mut config = Self::parse(&format!("stream = {:?}", stream.as_str()), Path::new("."))?;
        config.name_ceilings.allow_any_stream();
        Ok(config)
    }

    /// All settings of a plugin: its section, over the manifest beside it, over the general
    /// settings, key by key.
    pub fn of_plugin(
        &self,
        name: &PluginName,
        manifest: Option<&Manifest>,
    ) -> Result<PluginConfig, String> {
        let settings = self.overlaid(name, manifest)?;
        if settings.streams.is_empty() {
            return Err(no_stream(name));
        }
        Ok(settings)
    }

    /// The same for a configuration that `left_out` is missing in: no problem that may follow from
    /// that, and settings as far as there are any.
    pub(super) fn of_plugin_without(
        &self,
        left_out: &LeftOut,
        name: &PluginName,
        manifest: Option<&Manifest>,
    ) -> Result<Option<PluginConfig>, String> {
        let (settings, mut problems) = self.gathered(name, manifest);
        problems.retain(|problem| !left_out.explains(problem));
        if !problems.is_empty() {
            return Err(told_of_plugin(name, manifest, &problems));
        }
        let is_stream_left_out = left_out.has("stream") || left_out.has("streams");
        match settings {
            Some(settings) if settings.streams.is_empty() && !is_stream_left_out => {
                Err(no_stream(name))
            }
            settings => Ok(settings),
        }
    }

    /// The settings of each plugin that is configured here or has a manifest in the folder of
    /// plugins. One that names no stream has none.
    pub fn settings_of_plugins(&self) -> Result<BTreeMap<String, PluginConfig>, String> {
        let files = std::fs::read_dir(&self.plugins)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path());
        let manifests = files.filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "toml")
        });
        let stems = manifests.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()));
        let names: BTreeSet<String> = stems.chain(self.plugin.keys().cloned()).collect();
        let mut settings = BTreeMap::new();
        for name in names.iter().filter_map(|name| PluginName::new(name).ok()) {
            let manifest = Manifest::read(&Manifest::path_in(&self.plugins, &name))
                .map_err(|error| error.to_string())?;
            settings.insert(
                name.as_str().to_owned(),
                self.overlaid(&name, manifest.as_ref())?,
            );
        }
        Ok(settings)
    }

    fn overlaid(
        &self,
        name: &PluginName,
        manifest: Option<&Manifest>,
    ) -> Result<PluginConfig, String> {
        match self.gathered(name, manifest) {
            (Some(settings), problems) if problems.is_empty() => Ok(settings),
            (_, problems) => Err(told_of_plugin(name, manifest, &problems)),
        }
    }

    /// Settings as far as there are any, and all problems.
    fn gathered(
        &self,
        name: &PluginName,
        manifest: Option<&Manifest>,
    ) -> (Option<PluginConfig>, Vec<Problem>) {
        let Some(manifest) = manifest else {
            let settings = self.laid_over(name, &toml::Table::new(), None);
            return match settings.under(&format!("plugin.{name}")) {
                Ok(settings) => (Some(settings), Vec::new()),
                Err(problem) => (None, vec![problem]),
            };
        };
        let (mut table, mut gathered) = (manifest.table.clone(), manifest.gathered.clone());
        let settings = gathered.read(&mut table, |table| self.laid_over(name, table, Some(table)));
        (settings, gathered.problems().to_vec())
    }

    /// The plugin's section over the table `under`. What that asks for is held against the ceilings
    /// if it is a manifest's.
    fn laid_over(
        &self,
        name: &PluginName,
        under: &toml::Table,
        manifest: Option<&toml::Table>,
    ) -> Result<PluginConfig, Problem> {
        let section = self.plugin.get(name.as_str()).cloned().unwrap_or_default();
        let file: PluginFile = typed(&overlay(&section, under.clone()))?;
        // The operator's own word is held against the other sections when they are read.
        let base =
            (!section.contains_key("application")).then(|| file.application_of(name).to_owned());
        if let Some(manifest) = manifest {
            file.refuse_beyond_manifest(name, &section, manifest, self)?;
        }
        let checked = file.check(name, self)?;
        let of_streams = checked
            .streams
            .iter()
            .map(|stream| stream.application.as_str());
        self.applications
            .refuse_anothers(name, base.as_deref().into_iter().chain(of_streams))?;
        // The operator's own word is not held to his ceiling.
        let is_said = section.contains_key("sinks");
        let of_all = self.name_ceilings.sinks.clone().filter(|_| !is_said);
        Ok(PluginConfig {
            sinks: checked.sinks.or(of_all),
            ..checked
        })
    }

    /// The streams that plugins name for themselves.
    pub fn streams_of_plugins(&self) -> BTreeSet<StreamRef> {
        self.stream_configs()
            .into_iter()
            .map(|one| one.stream)
            .collect()
    }

    /// The stream whose leases are kept under `application`, if a section or a manifest says so.
    pub fn stream_of_application(&self, application: &str) -> Option<StreamConfig> {
        self.stream_configs()
            .into_iter()
            .find(|one| one.application == application)
    }

    /// Of all plugins that have a section here, or a manifest that lies there now. What cannot be
    /// read is left to the start of its plugin to tell.
    fn stream_configs(&self) -> Vec<StreamConfig> {
        let entries = std::fs::read_dir(&self.plugins)
            .into_iter()
            .flatten()
            .flatten();
        let beside = entries.filter_map(|entry| {
            let name = entry.file_name();
            Some(name.to_str()?.strip_suffix(".toml")?.to_owned())
        });
        let names: BTreeSet<String> = self.plugin.keys().cloned().chain(beside).collect();
        let streams = names.iter().filter_map(|name| {
            let name = PluginName::new(name).ok()?;
            let manifest = Manifest::read(&Manifest::path_in(&self.plugins, &name)).ok()?;
            Some(self.of_plugin(&name, manifest.as_ref()).ok()?.streams)
        });
        streams.flatten().collect()
    }
}

fn no_stream(name: &PluginName) -> String {
    format!(
        "it names no stream: set `stream` in {name}.toml beside it, under [plugin.{name}], or for \
            all plugins at the top of the configuration"
    )
}

/// What is wrong with the settings of a plugin, and where.
fn told_of_plugin(name: &PluginName, manifest: Option<&Manifest>, problems: &[Problem]) -> String {
    match manifest {
        Some(manifest) => manifest.told(name, problems),
        None => listed(&problems.iter().map(ToString::to_string).collect::<Vec<_>>()),
    }
}

/// Where a setting was made: in the file, or by a variable over it.
struct Places<'a> {
    lines: KeyLines<'a>,
    overrides: Overrides,
}

// === impl Places ===

impl Places<'_> {
    /// Each problem with its place, in the order of the file, and then those of variables.
    fn told(&self, problems: &[Problem]) -> Vec<String> {
        let mut by_line: Vec<_> = problems
            .iter()
            .map(|problem| self.placed(problem))
            .collect();
        by_line.sort_by_key(|(line, _)| line.unwrap_or(usize::MAX));
        let told = by_line.into_iter().map(|(_, told)| told);
        told.chain(self.overrides.problems()).collect()
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
