//! From the text of the file, and of manifests, to settings.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use shardmill_core::plugin::PluginName;
use shardmill_core::stream::{StreamName, StreamRef};

use super::environment::{Environment, Overrides};
use super::error::ConfigError;
use super::file::ConfigFile;
use super::manifest::Manifest;
use super::plugin::{PluginFile, overlay};
use super::problem::with_help;
use super::settings::{Config, PluginConfig, StreamConfig};
use crate::files;

/// Largest configuration. One of a hundred plugins has some tens of kilobytes.
const CONFIG_BYTES_MAX: u64 = 4 << 20;

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
        let checked = Environment::of_process()
            .and_then(|environment| Self::parse_in(&text, folder, &environment));
        checked.map_err(|message| ConfigError::Invalid {
            path: path.to_owned(),
            message,
        })
    }

    /// Checks `text`, whatever the environment sets. The error names line and mend.
    pub fn parse(text: &str, folder: &Path) -> Result<Self, String> {
        Self::parse_in(text, folder, &Environment::default())
    }

    /// Checks `text` with the settings of `environment` over it. The error names the line, or the
    /// variable, and the mend.
    pub(crate) fn parse_in(
        text: &str,
        folder: &Path,
        environment: &Environment,
    ) -> Result<Self, String> {
        let written = Written::read(text, environment)?;
        let config = written
            .file
            .check(folder, written.plugin)
            .map_err(
                |problem| match written.overrides.variable_of(problem.key()) {
                    Some(variable) => format!("{variable}: {problem}"),
                    None => problem.with_line(text),
                },
            )?;
        Ok(Self {
            environment: environment.variables(),
            ..config
        })
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
            return Err(format!(
                "it names no stream: set `stream` in {name}.toml beside it, under \
                    [plugin.{name}], or for all plugins at the top of the configuration"
            ));
        }
        Ok(settings)
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
        let under = manifest.map_or_else(toml::Table::new, |manifest| manifest.table.clone());
        let section = self.plugin.get(name.as_str()).cloned().unwrap_or_default();
        let file: PluginFile = overlay(&section, under)
            .try_into()
            .map_err(|error: toml::de::Error| with_help(&error))?;
        // The operator's own word is held against the other sections when they are read.
        let base =
            (!section.contains_key("application")).then(|| file.application_of(name).to_owned());
        let allowed = match manifest {
            Some(manifest) => file.refuse_beyond_manifest(name, &section, &manifest.table, self),
            None => Ok(()),
        };
        let checked = allowed
            .and_then(|()| file.check(name, self))
            .and_then(|checked| {
                let of_streams = checked
                    .streams
                    .iter()
                    .map(|stream| stream.application.as_str());
                self.applications
                    .refuse_anothers(name, base.as_deref().into_iter().chain(of_streams))?;
                Ok(checked)
            });
        let checked = checked.map_err(|problem| match manifest {
            Some(manifest) => match problem.line(&manifest.text) {
                Some(line) => format!("{}: line {line}: {problem}", manifest.path.display()),
                None => format!(
                    "{problem} ([plugin.{name}] over {})",
                    manifest.path.display()
                ),
            },
            None => problem.under(&format!("plugin.{name}")).to_string(),
        })?;
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

/// A configuration that has the right keys and types.
struct Written {
    file: ConfigFile,
    /// The sections by plugin, whatever they hold.
    plugin: BTreeMap<String, toml::Table>,
    overrides: Overrides,
}

/// The same sections, as they stand in the file.
#[derive(serde::Deserialize)]
struct Sections {
    #[serde(default)]
    plugin: BTreeMap<String, toml::Table>,
}

impl Written {
    fn read(text: &str, environment: &Environment) -> Result<Self, String> {
        if environment.is_empty() {
            let file = toml::from_str(text).map_err(|error| with_help(&error))?;
            let Sections { plugin } = toml::from_str(text).map_err(|error| with_help(&error))?;
            return Ok(Self {
                file,
                plugin,
                overrides: Overrides::default(),
            });
        }
        let mut table: toml::Table = toml::from_str(text).map_err(|error| with_help(&error))?;
        let overrides = environment.lay_over(&mut table)?;
        let untyped = |error: &toml::de::Error| told_of_type(error, text, environment);
        let file = table.clone().try_into().map_err(|error| untyped(&error))?;
        let Sections { plugin } = table.try_into().map_err(|error| untyped(&error))?;
        Ok(Self {
            file,
            plugin,
            overrides,
        })
    }
}

/// Whose fault `error` is: that of the file, with its line, if it is there without the environment
/// too, or else that of the variable that alone brings it about.
fn told_of_type(error: &toml::de::Error, text: &str, environment: &Environment) -> String {
    if let Err(alone) = toml::from_str::<ConfigFile>(text)
        && alone.message() == error.message()
    {
        return with_help(&alone);
    }
    let is_to_blame = |alone: &Environment| {
        let mut table: toml::Table = toml::from_str(text).unwrap_or_default();
        alone.lay_over(&mut table).is_ok()
            && table
                .try_into::<ConfigFile>()
                .is_err_and(|alone| alone.message() == error.message())
    };
    let told = with_help(error);
    let blamed = environment
        .one_by_one()
        .find(|(_, alone)| is_to_blame(alone));
    let Some((variable, _)) = blamed else {
        return told;
    };
    if error.message().contains("expected a string") {
        format!(
            "{variable}: {told}; a number that is meant as text is written in both quotes, such as '\"17\"'"
        )
    } else {
        format!("{variable}: {told}")
    }
}
