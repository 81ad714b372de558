//! All settings of one plugin: its section, over the manifest beside it, over the general settings,
//! key by key.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use shardmill_core::fleet::StandalonePolicy;
use shardmill_core::pipeline::{FailurePolicy, Order};
use shardmill_core::plugin::{
    GuestLimits, HOST_PREFIX, Permissions, PluginName, SECRET_PREFIX, WantedContract,
    of_standalone_host,
};
use shardmill_sinks::SinkOptions;
use shardmill_worker::BatchLimits;

use super::asked::Asked;
use super::config::Config;
use super::delivery::BatchFile;
use super::failure::FailureFile;
use super::filter::FilterFile;
use super::gather::LeftOut;
use super::grants::{GrantsFile, Keepers};
use super::limits::LimitsFile;
use super::manifest::Manifest;
use super::parallelism;
use super::plugin::PluginFile;
use super::problem::{At, Problem, Under, listed};
use super::settings::{PluginConfig, StreamConfig};
use super::sinks::refuse_unknown_sink;
use super::standalone::StandaloneFile;
use super::streams::{StreamDefaults, check_own_application};

impl Config {
    /// All settings of a plugin that reads a stream.
    ///
    /// # Errors
    /// They cannot work, or they name no stream. The text says where, and what would be right.
    pub fn of_plugin(
        &self,
        name: &PluginName,
        manifest: Option<&Manifest>,
    ) -> Result<PluginConfig, String> {
        self.refuse_unlisted(name)?;
        let settings = self.overlaid(name, manifest)?;
        if settings.streams.is_empty() {
            return Err(no_stream(name));
        }
        Ok(settings)
    }

    /// Who may put files into the folder chooses their names, and a name is the application whose
    /// leases are taken: the operator may want to name all plugins himself.
    fn refuse_unlisted(&self, name: &PluginName) -> Result<(), String> {
        let has_section = self.sections.by_plugin.contains_key(name.as_str());
        let is_listed = has_section || self.source_of(name).is_some();
        if is_listed || !self.host.only_listed {
            return Ok(());
        }
        Err(format!(
            "host.only-listed lets no plugin run that the host's configuration does not name: add a \
                section [plugin.{name}] there, or remove the file"
        ))
    }

    /// All settings of a plugin. If it names no stream, they have none.
    pub(super) fn overlaid(
        &self,
        name: &PluginName,
        manifest: Option<&Manifest>,
    ) -> Result<PluginConfig, String> {
        match self.gathered(name, manifest) {
            (Some(settings), problems) if problems.is_empty() => Ok(settings),
            (_, problems) => Err(shown(name, manifest, &problems)),
        }
    }

    /// The same as [`Self::of_plugin`] for a configuration that lacks the keys in `left_out`: the
    /// settings, if there are any, without the problems that may follow from the missing keys.
    pub(super) fn of_plugin_without(
        &self,
        left_out: &LeftOut,
        name: &PluginName,
        manifest: Option<&Manifest>,
    ) -> Result<Option<PluginConfig>, String> {
        self.refuse_unlisted(name)?;
        let (settings, mut problems) = self.gathered(name, manifest);
        problems.retain(|problem| !left_out.explains(problem));
        if !problems.is_empty() {
            return Err(shown(name, manifest, &problems));
        }
        let is_stream_left_out = left_out.has("stream") || left_out.has("streams");
        match settings {
            Some(settings) if settings.streams.is_empty() && !is_stream_left_out => {
                Err(no_stream(name))
            }
            settings => Ok(settings),
        }
    }

    /// The settings, if there are any, and all problems.
    fn gathered(
        &self,
        name: &PluginName,
        manifest: Option<&Manifest>,
    ) -> (Option<PluginConfig>, Vec<Problem>) {
        if let Some(manifest) = manifest {
            return manifest.checked(|manifest| self.with_manifest(name, manifest));
        }
        let section = self.section(name);
        let settings = self.laid_over(name, section.clone(), &section);
        match settings.under(&format!("plugin.{name}")) {
            Ok(settings) => (Some(settings), Vec::new()),
            Err(problem) => (None, vec![problem]),
        }
    }

    fn with_manifest(
        &self,
        name: &PluginName,
        manifest: PluginFile,
    ) -> Result<PluginConfig, Problem> {
        let section = self.section(name);
        let asked = Asked {
            plugin: name,
            manifest: &manifest,
            section: &section,
        };
        asked.refuse_beyond(self)?;
        self.laid_over(name, section.clone().laid_over(manifest), &section)
    }

    fn section(&self, name: &PluginName) -> PluginFile {
        let section = self.sections.by_plugin.get(name.as_str());
        section.cloned().unwrap_or_default()
    }

    /// The settings that `file` makes. What the operator says in the `section` of the plugin is not
    /// held to the ceilings, and was compared with the other sections when they were read.
    fn laid_over(
        &self,
        name: &PluginName,
        file: PluginFile,
        section: &PluginFile,
    ) -> Result<PluginConfig, Problem> {
        let base = file.application_of(name).to_owned();
        let mut settings = self.check_plugin(name, file)?;
        let of_streams = settings.streams.iter().map(|one| one.application.as_str());
        let named = section.application.is_none().then_some(base.as_str());
        self.sections
            .applications
            .refuse_anothers(name, named.into_iter().chain(of_streams))?;
        if settings.sinks.is_none() && section.sinks.is_none() {
            settings.sinks.clone_from(&self.ceilings.names.sinks);
        }
        Ok(settings)
    }

    /// The settings that `file` makes, over the general ones. They have no streams if nothing names
    /// one.
    pub(super) fn check_plugin(
        &self,
        name: &PluginName,
        file: PluginFile,
    ) -> Result<PluginConfig, Problem> {
        let mut streams = self.check_streams(name, &file)?;
        if file.multi_stream_table == Some(true) {
            self.check_multi_stream(file.standalone.is_some())?;
        }
        let standalone = self.check_standalone(file.standalone, &mut streams)?;
        let failure = self.check_failure(file.failure)?;
        check_names(&file.config).under("config")?;
        let sinks = file.sinks.map(|names| check_sinks(names, &self.sinks));
        let world = file.world.as_deref().map(check_world);
        let permissions = self.check_grants(&file.grants, failure.order)?;
        let filter = file.filter.map(FilterFile::check).transpose()?;
        let parallelism = parallelism::check(file.parallelism, &failure)?;
        Ok(PluginConfig {
            filter: filter.map(Arc::new),
            sinks: sinks.transpose()?,
            world: world.transpose()?,
            permissions: permissions.clone(),
            streams,
            parallelism,
            batches: self.check_batches(file.batch)?,
            checkpoints: file.checkpoint.check(self.checkpoints),
            tick: file.tick.check(parallelism)?,
            retry: file.retry.check(self.retry)?,
            failure,
            limits: self.check_limits(&file.limits).under("limits")?,
            rollout: file.rollout.check(self.rollout)?,
            shadow: file.shadow.check()?,
            standalone: standalone.map(|policy| StandalonePolicy {
                keeps_state: permissions.state,
                ..policy
            }),
            config: file.config,
        })
    }

    /// What a table of several streams goes together with.
    fn check_multi_stream(&self, is_standalone: bool) -> Result<(), Problem> {
        let message = if self.leases.shared_with_kcl {
            "hosts use such a table once the KCL has stopped, not beside it: remove \
                leases.shared-with-kcl"
        } else if is_standalone {
            "standalone hosts have tables of another kind: remove one of the two"
        } else {
            return Ok(());
        };
        Err(Problem::new("multi-stream-table", message))
    }

    fn check_streams(
        &self,
        name: &PluginName,
        file: &PluginFile,
    ) -> Result<Vec<StreamConfig>, Problem> {
        let application = file.application_of(name);
        check_own_application("application", application)?;
        let general = self.stream_defaults();
        file.own_streams().check(name, application, &general)
    }

    fn stream_defaults(&self) -> StreamDefaults<'_> {
        StreamDefaults {
            stream: self.stream.as_ref(),
            initial_position: self.initial_position,
            retrieval: self.retrieval,
        }
    }

    /// A standalone host has applications of its own: `streams` get their names.
    fn check_standalone(
        &self,
        file: Option<StandaloneFile>,
        streams: &mut [StreamConfig],
    ) -> Result<Option<StandalonePolicy>, Problem> {
        let Some(file) = file else {
            return Ok(None);
        };
        let policy = file.check(&self.leases, self.has_worker_id, streams)?;
        for stream in streams {
            let host = self.worker_id.as_str();
            stream.application = of_standalone_host(&stream.application, host);
        }
        Ok(Some(policy))
    }

    /// A policy is one thought: a plugin's own replaces the general one, and is not laid over it.
    fn check_failure(&self, own: Option<FailureFile>) -> Result<FailurePolicy, Problem> {
        match own {
            Some(own) => own.check(&self.sinks),
            None => Ok(self.failure.clone()),
        }
    }

    fn check_grants(&self, file: &GrantsFile, order: Order) -> Result<Permissions, Problem> {
        let keepers = Keepers {
            secrets: &self.secrets,
            sinks: &self.sinks,
            traces: &self.traces.headers,
        };
        file.check(order, &keepers).under("grants")
    }

    fn check_batches(&self, file: BatchFile) -> Result<BatchLimits, Problem> {
        let batches = file.check(self.batches)?;
        if batches.bytes > self.host.buffer_bytes / 2 {
            let message = "must be at most half of host.buffer, or a batch would never fill";
            return Err(Problem::new("batch.bytes", message));
        }
        Ok(batches)
    }

    fn check_limits(&self, file: &LimitsFile) -> Result<GuestLimits, Problem> {
        let limits = file.over(self.limits)?;
        if limits.memory_bytes > self.host.instances_memory_bytes {
            let message =
                "must be at most host.instances-memory, which all instances of the host share";
            return Err(Problem::new("memory", message));
        }
        Ok(limits)
    }
}

fn no_stream(name: &PluginName) -> String {
    format!(
        "it names no stream: set `stream` in {name}.toml beside it, under [plugin.{name}], or for \
            all plugins at the top of the configuration"
    )
}

/// What is wrong with the settings of a plugin, and where.
fn shown(name: &PluginName, manifest: Option<&Manifest>, problems: &[Problem]) -> String {
    match manifest {
        Some(manifest) => manifest.describe(name, problems),
        None => listed(&problems.iter().map(ToString::to_string).collect::<Vec<_>>()),
    }
}

/// Refuses names of a plugin's own settings under which it reads something else.
fn check_names(config: &BTreeMap<String, String>) -> Result<(), Problem> {
    for name in config.keys() {
        let message = if name.starts_with(SECRET_PREFIX) {
            "is where a plugin reads a secret: choose another name, or grant a secret"
        } else if name.starts_with(HOST_PREFIX) {
            "is where a plugin reads what the host sets: choose another name"
        } else {
            continue;
        };
        return Err(Problem::new(name, message));
    }
    Ok(())
}

fn check_world(text: &str) -> Result<WantedContract, Problem> {
    WantedContract::parse(text)
        .map_err(|error| format!("{error}; build against that, or run another host"))
        .at("world")
}

fn check_sinks(
    names: Vec<String>,
    all: &BTreeMap<String, SinkOptions>,
) -> Result<BTreeSet<String>, Problem> {
    for name in &names {
        refuse_unknown_sink(name, all).at("sinks")?;
    }
    Ok(names.into_iter().collect())
}
