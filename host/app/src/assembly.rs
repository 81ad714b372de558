//! Configuration in, a running host out: the only file that names the AWS and the Wasm adapters together.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use shardmill_aws::{AwsClients, CoordinatorTable, KinesisFanOut, KinesisReader, LeaseTable};
use shardmill_core::lease::WorkerId;
use shardmill_core::plugin::PluginName;
use shardmill_core::ports::{Clock, Coordinator, DeadLetters, ProcessorFactory, Sink, StreamReader};
use shardmill_core::stream::StreamRef;
use shardmill_wasm::folder::{FolderEvent, FolderOptions, PluginFolder};
use shardmill_wasm::{Marks, Metering, Runtime};
use shardmill_worker::{ByteBudget, ByteShare, Freezer, Ports, RingBudget, SharedRollout, SharedStream, WorkerOptions};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::admin::Admin;
use crate::clock::BootClock;
use crate::config::{Config, Manifest, OnRemove, PluginConfig, StreamConfig};
use crate::engine::runtime_options;
use crate::host_status::HostStatus;
use crate::kept::Kept;
use crate::measurements::Measurements;
use crate::metrics::BUFFER_LIMIT;
use crate::sinks::{OwnSinks, Router, open_sinks};
pub use crate::supervisor::NothingLeft;
use crate::supervisor::{FallBack, Pins, Supervisor};

/// What all workers of a host share, and what makes one of them.
pub(crate) struct Parts {
    config: Config,
    clients: AwsClients,
    sinks: Sinks,
    dead_letters: Arc<dyn DeadLetters>,
    destinations: Vec<String>,
    clock: Arc<dyn Clock>,
    budget: ByteBudget,
    ring: RingBudget,
    /// Streams that are read, each by all plugins together.
    streams: HashMap<StreamRef, SharedStream>,
    /// Reads instead of Kinesis, on trial.
    reader: Option<Arc<dyn StreamReader>>,
}

/// A plugin's settings, and whether a manifest has a part in them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Settings {
    pub(crate) plugin: PluginConfig,
    pub(crate) has_manifest: bool,
}

impl Settings {
    /// Refuses a version that was built for another contract than the settings want.
    pub(crate) fn refuse_other_contract(&self, version: &dyn ProcessorFactory) -> Result<(), String> {
        self.plugin.refuse_other_contract(version.contract())
    }
}

/// Where output goes.
pub(crate) struct Outputs {
    pub(crate) sinks: Sinks,
    pub(crate) dead_letters: Arc<dyn DeadLetters>,
    /// What plugins may emit to.
    pub(crate) names: Vec<String>,
}

/// The sinks of plugins.
pub(crate) enum Sinks {
    /// Those that are configured.
    Configured(Arc<Router>),
    /// One for all, on trial.
    One(Arc<dyn Sink>),
}

impl Sinks {
    /// For one worker, which waits for no sink that only others use.
    fn for_worker(&self) -> Arc<dyn Sink> {
        match self {
            Self::Configured(router) => Arc::new(OwnSinks::new(Arc::clone(router))),
            Self::One(sink) => Arc::clone(sink),
        }
    }
}

/// What a trial puts in the place of what a host has.
pub(crate) struct Substitutes {
    pub(crate) outputs: Outputs,
    /// Instead of Kinesis, if there is one.
    pub(crate) reader: Option<Arc<dyn StreamReader>>,
    pub(crate) metering: Metering,
}

/// A host, built and not yet running.
pub struct Host {
    runtime: Runtime,
    supervisor: Supervisor,
    status: HostStatus,
    folder: PluginFolder,
    events: mpsc::Receiver<FolderEvent>,
    admin: Option<Admin>,
}

impl Host {
    /// Opens sinks, starts the engine, binds the admin address. Takes no lease and reads no record.
    pub async fn build(config: Config, clients: AwsClients, metrics: Option<Measurements>) -> anyhow::Result<Self> {
        let sinks = Arc::new(open_sinks(&config.sinks, &config.aws, Some(&clients)).await?);
        let outputs =
            Outputs { names: sinks.names(), sinks: Sinks::Configured(Arc::clone(&sinks)), dead_letters: sinks };
        Self::with(config, &clients, metrics, Substitutes { outputs, reader: None, metering: Metering::default() })
    }

    /// The same, with output going elsewhere than to the configured sinks, and what else a trial replaces.
    #[cfg(feature = "local")]
    pub(crate) fn on_trial(config: Config, clients: &AwsClients, substitutes: Substitutes) -> anyhow::Result<Self> {
        Self::with(config, clients, None, substitutes)
    }

    fn with(
        mut config: Config,
        clients: &AwsClients,
        metrics: Option<Measurements>,
        substitutes: Substitutes,
    ) -> anyhow::Result<Self> {
        let Substitutes { outputs, reader, metering } = substitutes;
        if !config.plugins.is_dir() {
            bail!("{}", config.no_plugins_folder());
        }
        let marks = Marks::beside(config.host.cache.as_deref());
        if let Some(why) = marks.why_not() {
            tracing::info!(why, "should this host die of a plugin, its next run will know nothing of that");
        }
        let status = HostStatus::new(config.worker_id.as_str()).remembering(marks.clone());
        let admin = config.host.admin.map(|address| {
            let bound = Admin::bind(address, &config.host, status.clone(), metrics);
            bound.with_context(|| format!("cannot serve the admin pages on {address}"))
        });
        let admin = admin.transpose()?;
        // Plugins are kept from the port that it really has.
        if let Some(bound) = admin.as_ref().and_then(|admin| admin.address().ok()) {
            config.host.admin = Some(bound);
        }
        let Some(budget) = ByteBudget::new(config.host.buffer_bytes) else {
            bail!("host.buffer is too small: one GetRecords reply may hold 10 MiB");
        };
        ::metrics::gauge!(BUFFER_LIMIT).set(config.host.buffer_bytes as f64);
        let mut runtime_options = runtime_options(&config, metering).context("cannot find the compiler")?;
        runtime_options.marks = marks.clone();
        let runtime = Runtime::new(runtime_options).context("cannot start the Wasm engine")?;
        let folder_options = FolderOptions {
            file_bytes_max: config.host.plugin_bytes_max,
            plugins_max: config.host.plugins_max,
            rescan: config.host.rescan_every,
            integrity: config.integrity(),
            ..FolderOptions::new(&config.plugins)
        };
        let (folder, events) = PluginFolder::new(runtime.clone(), folder_options);
        let kept = config.host.cache.as_deref().map(|cache| Kept::beside(cache, config.host.plugin_bytes_max));
        let pins = kept.clone().map(|kept| Pins::new(kept, runtime.clone(), config.clone()));
        let fall_back = kept.map(|kept| FallBack::new(kept, runtime.clone(), config.clone()));
        let parts = Parts {
            ring: RingBudget::of(&budget, config.host.buffer_bytes),
            streams: HashMap::new(),
            reader,
            destinations: outputs.names,
            sinks: outputs.sinks,
            dead_letters: outputs.dead_letters,
            clock: Arc::new(BootClock),
            budget,
            clients: clients.for_leases_of(config.leases.duration),
            config,
        };
        Ok(Self {
            supervisor: Supervisor::new(parts, status.clone(), fall_back, pins, marks),
            status,
            folder,
            events,
            admin,
            runtime,
        })
    }

    /// The engine that plugins run on.
    #[cfg(feature = "local")]
    pub(crate) fn runtime(&self) -> Runtime {
        self.runtime.clone()
    }

    /// What the host is doing, live.
    pub fn status(&self) -> HostStatus {
        self.status.clone()
    }

    /// Where the admin pages are, if they are served.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().and_then(|admin| admin.address().ok())
    }

    /// Serves until `stop`, then drains.
    ///
    /// # Errors
    /// Nothing is left that this process may serve.
    pub async fn run(self, stop: CancellationToken) -> Result<(), NothingLeft> {
        let mut admin_task = JoinSet::new();
        let admin_stop = CancellationToken::new();
        if let Some(admin) = self.admin {
            admin_task.spawn(admin.serve(admin_stop.clone()));
        }
        let mut folder_task = JoinSet::new();
        folder_task.spawn(self.folder.run(stop.clone()));
        let served = Box::pin(self.supervisor.run(self.events, &stop)).await;
        admin_stop.cancel();
        // Its requests take microseconds; a client that never reads is cut off.
        let _ = tokio::time::timeout(Duration::from_millis(200), admin_task.join_all()).await;
        served
    }
}

/// The sinks of `all` that the plugin may emit to.
pub(crate) fn destinations(all: &[String], settings: &PluginConfig) -> Vec<String> {
    let is_its = |name: &&String| settings.sinks.as_ref().is_none_or(|own| own.contains(*name));
    all.iter().filter(is_its).cloned().collect()
}

impl Parts {
    /// All settings of a plugin, its manifest read anew: a small file, read at most when it changed. The error says what to
    /// mend, and where.
    pub(crate) fn settings(&self, name: &PluginName) -> Result<Settings, String> {
        let manifest = Manifest::read(&Manifest::path_in(&self.config.plugins, name));
        let manifest = manifest.map_err(|error| error.to_string())?;
        let plugin = self.config.of_plugin(name, manifest.as_ref())?;
        for stream in &plugin.streams {
            self.check_region(&stream.stream)?;
        }
        Ok(Settings { plugin, has_manifest: manifest.is_some() })
    }

    /// A client speaks to one region. The embedded stack is in none.
    fn check_region(&self, stream: &StreamRef) -> Result<(), String> {
        let ours = &self.clients.region;
        match stream.region() {
            Some(theirs) if theirs != ours && !self.config.aws.is_local => {
                Err(format!("stream {stream} is in region {theirs}, this host in {ours}: run a host there for it"))
            }
            _ => Ok(()),
        }
    }

    /// One more plugin's share of the host's buffer, for all of its streams. The error says what to raise.
    pub(crate) fn share(&self) -> Result<ByteShare, String> {
        self.budget.share().map_err(|error| error.to_string())
    }

    /// Ports and settings of the worker for one stream of a plugin.
    pub(crate) fn worker(
        &mut self,
        settings: &PluginConfig,
        stream: &StreamConfig,
        budget: ByteShare,
        (versions, rollout): (watch::Receiver<Arc<dyn ProcessorFactory>>, SharedRollout),
    ) -> (Ports, WorkerOptions) {
        let application = stream.application.as_str();
        let ports = Ports {
            reader: self.reader(&stream.stream),
            subscriptions: Some(Arc::new(KinesisFanOut::new(self.clients.kinesis.clone(), &stream.stream))),
            store: Arc::new(LeaseTable::new(self.clients.dynamodb.clone(), application)),
            coordinator: Arc::new(CoordinatorTable::new(self.clients.dynamodb.clone(), application)),
            sink: self.sinks.for_worker(),
            dead_letters: Arc::clone(&self.dead_letters),
            clock: Arc::clone(&self.clock),
            budget,
            versions,
            rollout,
            freezer: Freezer::never(),
        };
        let config = &self.config;
        let options = WorkerOptions {
            plugin: stream.label.clone(),
            application: application.to_owned(),
            stream: stream.stream.name().clone(),
            worker: config.worker_id.clone(),
            initial_position: stream.initial_position,
            leases: config.leases,
            reads: config.reads,
            retrieval: stream.retrieval.clone(),
            batches: settings.batches,
            checkpoints: settings.checkpoints,
            backoff: settings.retry,
            failure: settings.failure.clone(),
            destinations: destinations(&self.destinations, settings),
            config: settings.config.clone().into_iter().collect(),
            limits: Some(settings.limits),
            keeps_state: settings.grants.state,
            grants: Arc::new(settings.grants.clone()),
            rollout: settings.rollout,
        };
        (ports, options)
    }

    /// What decides which versions of a plugin its shards run, on all its streams.
    pub(crate) fn rollout(&self, name: &PluginName, settings: &PluginConfig) -> SharedRollout {
        SharedRollout::new(name.clone(), self.config.worker_id.clone(), settings.rollout)
    }

    /// One plugin's share in reading the stream.
    fn reader(&mut self, stream: &StreamRef) -> Arc<dyn StreamReader> {
        if let Some(reader) = &self.reader {
            return Arc::clone(reader);
        }
        self.streams.retain(|_, shared| !shared.is_unused());
        let shared = self.streams.entry(stream.clone()).or_insert_with(|| {
            let reader = KinesisReader::new(self.clients.kinesis.clone(), stream);
            SharedStream::new(stream, Arc::new(reader), self.config.reads, self.ring.clone())
        });
        Arc::new(shared.reader())
    }

    /// Where the fleets of a plugin's streams are told of its versions.
    pub(crate) fn coordinators(&self, settings: &PluginConfig) -> Vec<Arc<dyn Coordinator>> {
        let table = |stream: &StreamConfig| -> Arc<dyn Coordinator> {
            Arc::new(CoordinatorTable::new(self.clients.dynamodb.clone(), &stream.application))
        };
        settings.streams.iter().map(table).collect()
    }

    pub(crate) fn worker_id(&self) -> &WorkerId {
        &self.config.worker_id
    }

    pub(crate) fn drain_limit(&self) -> Duration {
        self.config.host.drain_limit
    }

    pub(crate) fn on_remove(&self) -> OnRemove {
        self.config.host.on_remove
    }
}
