//! Runs a recorded batch again: the same bytes, on an engine of its own that is the same each time.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use shardmill_config::Config;
use shardmill_core::plugin::{
    Permissions, PluginDigest, PluginName, ProcessorError, SecretSource, plugin_of_label,
};
use shardmill_core::ports::{InstanceContext, Outcome, ProcessorFactory, RecordProcessor};
use shardmill_core::recording::Recording;
use shardmill_core::stream::{Batch, Emitted};
use shardmill_serve::engine::runtime_options;
use shardmill_serve::recordings::Components;
use shardmill_serve::{cache_of_command, component};
use shardmill_wasm::{LogLines, Metering, Runtime, RuntimeOptions};

use super::storage::Storage;
use crate::cli::DebugArgs;

/// What a secret holds whose value is not known here.
const NO_SECRET: &str = "secret-that-was-not-recorded";

/// A batch that is to be run again, and what holds for each run of it.
pub(super) struct Rerun<'a> {
    config: &'a Config,
    recording: &'a Recording,
    permissions: Arc<Permissions>,
    fuel: u64,
    /// Holds what stands for secrets.
    _secrets: tempfile::TempDir,
}

/// A component, and which version it must be.
pub(super) struct Version {
    path: PathBuf,
    /// `None` if any will do.
    digest: Option<PluginDigest>,
}

/// What came of a run.
pub(super) struct Ran {
    /// The version that ran.
    pub(super) digest: PluginDigest,
    /// What came of the batch, or of an earlier call without which it could not be delivered.
    pub(super) result: Result<Outcome, ProcessorError>,
    /// Which call that was.
    pub(super) call: Call,
    /// What it emitted.
    pub(super) emitted: Vec<Emitted>,
    /// What it logged.
    pub(super) lines: Vec<String>,
    /// What the call took, about a unit an instruction.
    pub(super) fuel: u64,
}

/// A call of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    /// `init`, or taking up the state.
    Start,
    /// A batch before the one that failed, counted from 1.
    RunUp(usize),
    /// The batch that failed.
    Batch,
}

/// A batch was delivered.
struct Delivered {
    result: Result<Outcome, ProcessorError>,
    emitted: Vec<Emitted>,
}

impl Version {
    /// Whatever is in that file.
    pub(super) fn named(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            digest: None,
        }
    }

    /// The version that failed: the given file, or its component among what the host keeps.
    pub(super) fn that_failed(
        args: &DebugArgs,
        storage: &Storage,
        recording: &Recording,
    ) -> anyhow::Result<Self> {
        if let Some(path) = &args.plugin {
            return Ok(Self::named(path));
        }
        let digest = &recording.digest;
        let Some(path) = kept(storage, recording)? else {
            bail!(
                "the component of version {} is not here: name its file by --plugin, or another \
                    version's to run that",
                digest.short()
            );
        };
        Ok(Self {
            path,
            digest: Some(digest.clone()),
        })
    }
}

/// The component of the version that failed, wherever the host has it.
fn kept(storage: &Storage, recording: &Recording) -> anyhow::Result<Option<PathBuf>> {
    let digest = &recording.digest;
    let folder = storage.folder_if_known();
    if let Some(path) = folder.and_then(|folder| Components::new(folder).find(digest)) {
        return Ok(Some(path));
    }
    let name = name_of(recording)?;
    if let Some(kept) = &storage.kept
        && let Some(version) = kept
            .versions(&name)
            .into_iter()
            .find(|version| version.digest == *digest)
    {
        return Ok(Some(version.path));
    }
    let path = storage.plugins.join(format!("{name}.wasm"));
    let found = component::Found::read(&path, storage.bytes_max).ok();
    let is_it = found.is_some_and(|found| found.digest == *digest);
    Ok(is_it.then_some(path))
}

fn name_of(recording: &Recording) -> anyhow::Result<PluginName> {
    let label = recording.context.plugin.as_str();
    Ok(PluginName::new(plugin_of_label(label))?)
}

impl<'a> Rerun<'a> {
    pub(super) fn new(
        args: &DebugArgs,
        config: &'a Config,
        recording: &'a Recording,
    ) -> anyhow::Result<Self> {
        let secrets = tempfile::tempdir().context("cannot make a folder for the run")?;
        let permissions = if args.grants {
            granted(config, recording)?
        } else {
            nothing_but_state(recording, secrets.path())?
        };
        Ok(Self {
            config,
            recording,
            permissions: Arc::new(permissions),
            fuel: args.fuel,
            _secrets: secrets,
        })
    }

    pub(super) async fn run(&self, version: &Version) -> anyhow::Result<Ran> {
        let log_lines = LogLines::kept();
        let runtime = self.runtime(log_lines.clone())?;
        let name = name_of(self.recording)?;
        let plugin = component::load(&runtime, self.config, &name, &version.path).await?;
        if let Some(wanted) = &version.digest
            && plugin.digest() != wanted
        {
            bail!(
                "{} is damaged: its bytes are another version's",
                version.path.display()
            );
        }
        let digest = plugin.digest().clone();
        let (call, delivered, fuel) = self.deliver(&plugin, &runtime, &log_lines).await;
        Ok(Ran {
            digest,
            result: delivered.result,
            call,
            emitted: delivered.emitted,
            lines: log_lines.take(),
            fuel,
        })
    }

    /// Brings an instance to where it was, and delivers the batch. Gives back the last call, what
    /// came of it, and its fuel.
    async fn deliver(
        &self,
        plugin: &dyn ProcessorFactory,
        runtime: &Runtime,
        log_lines: &LogLines,
    ) -> (Call, Delivered, u64) {
        let context = Arc::new(self.context());
        let state = self.recording.state.clone();
        let mut instance = match plugin.instantiate(context, state).await {
            Ok(instance) => instance,
            Err(error) => return (Call::Start, Delivered::failed(error), 0),
        };
        for (at, batch) in self.recording.run_up.iter().enumerate() {
            let delivered = delivered(instance.as_mut(), batch.clone()).await;
            if delivered.result.is_err() {
                return (Call::RunUp(at + 1), delivered, runtime.fuel_used());
            }
        }
        // What it said earlier was in the host's log then.
        log_lines.take();
        let before = runtime.fuel_used();
        let delivered = delivered(instance.as_mut(), self.recording.batch.clone()).await;
        (Call::Batch, delivered, runtime.fuel_used() - before)
    }

    fn context(&self) -> InstanceContext {
        InstanceContext {
            permissions: Arc::clone(&self.permissions),
            ..self.recording.context.as_ref().clone()
        }
    }

    fn runtime(&self, log_lines: LogLines) -> anyhow::Result<Runtime> {
        let took_ms = u64::try_from(self.recording.took.as_millis()).unwrap_or(u64::MAX);
        let metering = Metering::Fuel {
            per_call: self.fuel,
            wall_ms: self.recording.at_ms.saturating_sub(took_ms),
        };
        let options = runtime_options(self.config, metering).context("cannot find the compiler")?;
        Runtime::new(RuntimeOptions {
            cache_dir: cache_of_command(&self.config.host.cache),
            log_lines,
            ..options
        })
        .context("cannot start the Wasm engine")
    }
}

impl Delivered {
    fn failed(error: ProcessorError) -> Self {
        Self {
            result: Err(error),
            emitted: Vec::new(),
        }
    }
}

async fn delivered(instance: &mut dyn RecordProcessor, batch: Batch) -> Delivered {
    match instance.process(batch).await {
        Ok(processed) => Delivered {
            result: Ok(processed.outcome),
            emitted: processed.emitted,
        },
        Err(error) => Delivered::failed(error),
    }
}

/// What the configuration grants the plugin now.
fn granted(config: &Config, recording: &Recording) -> anyhow::Result<Permissions> {
    let name = name_of(recording)?;
    let plugins = config.settings_of_plugins().map_err(anyhow::Error::msg)?;
    match plugins.get(name.as_str()) {
        Some(own) => Ok(own.permissions.clone()),
        None => bail!("the configuration knows no plugin {name}, so it grants it nothing"),
    }
}

/// Neither network nor environment; and for each secret a value that is not the real one, so that
/// a plugin that asks for it starts.
fn nothing_but_state(recording: &Recording, folder: &Path) -> anyhow::Result<Permissions> {
    let mut secrets = BTreeMap::new();
    for (number, name) in recording.secrets.iter().enumerate() {
        let file = folder.join(number.to_string());
        std::fs::write(&file, NO_SECRET).context("cannot write what stands for a secret")?;
        secrets.insert(name.clone(), SecretSource::File(file));
    }
    Ok(Permissions {
        secrets,
        state: recording.context.permissions.state,
        ..Permissions::default()
    })
}
