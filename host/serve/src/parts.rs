//! What all workers of a host share, and what one of them is made of.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use shardmill_aws::{AwsClients, CoordinatorTable, KinesisFanOut, KinesisReader, LeaseTable};
use shardmill_core::lease::WorkerId;
use shardmill_core::plugin::PluginName;
use shardmill_core::ports::{
    Clock, Coordinator, DeadLetters, ProcessorFactory, Sink, StreamReader,
};
use shardmill_core::stream::StreamRef;
use shardmill_worker::{
    ByteBudget, ByteShare, Freezer, Ports, RingBudget, SharedRollout, SharedStream, WorkerOptions,
};
use tokio::sync::watch;

use shardmill_config::{Config, Manifest, OnRemove, PluginConfig, StreamConfig};
use shardmill_sinks::{OwnSinks, Router};

/// What all workers of a host share, and what makes one of them.
pub(crate) struct Parts {
    pub(crate) config: Config,
    pub(crate) clients: AwsClients,
    pub(crate) sinks: Sinks,
    pub(crate) dead_letters: Arc<dyn DeadLetters>,
    pub(crate) destinations: Vec<String>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) budget: ByteBudget,
    pub(crate) ring: RingBudget,
    /// Streams that are read, each by all plugins together.
    pub(crate) streams: HashMap<StreamRef, SharedStream>,
    /// Reads instead of Kinesis, on trial.
    pub(crate) reader: Option<Arc<dyn StreamReader>>,
}

/// A plugin's settings, and whether a manifest has a part in them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Settings {
    pub(crate) plugin: PluginConfig,
    pub(crate) has_manifest: bool,
}

impl Settings {
    /// Refuses a version that was built for another contract than the settings want.
    pub(crate) fn refuse_other_contract(
        &self,
        version: &dyn ProcessorFactory,
    ) -> Result<(), String> {
        self.plugin.refuse_other_contract(version.contract())
    }
}

/// Where output goes.
pub struct Outputs {
    /// The sinks of plugins.
    pub sinks: Sinks,
    /// Where records go that were given up.
    pub dead_letters: Arc<dyn DeadLetters>,
    /// What plugins may emit to.
    pub names: Vec<String>,
}

/// The sinks of plugins.
pub enum Sinks {
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

impl Parts {
    /// All settings of a plugin, its manifest read anew: a small file, read at most when it
    /// changed. The error says what to mend, and where.
    pub(crate) fn settings(&self, name: &PluginName) -> Result<Settings, String> {
        let manifest = Manifest::read(&Manifest::path_in(&self.config.plugins, name));
        let manifest = manifest.map_err(|error| error.to_string())?;
        let plugin = self.config.of_plugin(name, manifest.as_ref())?;
        for stream in &plugin.streams {
            self.check_region(&stream.stream)?;
        }
        Ok(Settings {
            plugin,
            has_manifest: manifest.is_some(),
        })
    }

    /// A client speaks to one region. The embedded stack is in none.
    fn check_region(&self, stream: &StreamRef) -> Result<(), String> {
        let ours = &self.clients.region;
        match stream.region() {
            Some(theirs) if theirs != ours && !self.config.aws.is_local => Err(format!(
                "stream {stream} is in region {theirs}, this host in {ours}: run a host there for it"
            )),
            _ => Ok(()),
        }
    }

    /// One more plugin's share of the host's buffer, for all of its streams. The error says what to
    /// raise.
    pub(crate) fn share(&self, plugin: &PluginName) -> Result<ByteShare, String> {
        let share = self.budget.share().map_err(|error| error.to_string())?;
        if !share.can_always_read_ahead() {
            tracing::warn!(
                %plugin,
                guaranteed_mib = share.guaranteed_bytes() >> 20,
                "with this plugin, host.buffer has no room for two replies of GetRecords for each \
                 plugin: shards may read nothing while they work, and with failure.order = \"key\" \
                 records of other keys may wait for one that is tried again; give host.buffer \
                 20 MiB for each plugin, or run fewer on a host"
            );
        }
        Ok(share)
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
            subscriptions: Some(Arc::new(
                KinesisFanOut::new(self.clients.kinesis.clone(), &stream.stream)
                    .speaking(self.clients.wire.clone()),
            )),
            store: Arc::new(LeaseTable::new(self.clients.dynamodb.clone(), application)),
            coordinator: Arc::new(CoordinatorTable::new(
                self.clients.dynamodb.clone(),
                application,
            )),
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
            destinations: settings.destinations(&self.destinations),
            config: settings.config.clone().into_iter().collect(),
            limits: Some(settings.limits),
            keeps_state: settings.permissions.state,
            permissions: Arc::new(settings.permissions.clone()),
            rollout: settings.rollout,
        };
        (ports, options)
    }

    /// What decides which versions of a plugin its shards run, on all its streams.
    pub(crate) fn rollout(&self, name: &PluginName, settings: &PluginConfig) -> SharedRollout {
        SharedRollout::new(
            name.clone(),
            self.config.worker_id.clone(),
            settings.rollout,
        )
    }

    /// One plugin's share in reading the stream.
    fn reader(&mut self, stream: &StreamRef) -> Arc<dyn StreamReader> {
        if let Some(reader) = &self.reader {
            return Arc::clone(reader);
        }
        self.streams.retain(|_, shared| !shared.is_unused());
        let shared = self.streams.entry(stream.clone()).or_insert_with(|| {
            let reader = KinesisReader::new(self.clients.kinesis.clone(), stream)
                .speaking(self.clients.wire.clone());
            SharedStream::new(
                stream,
                Arc::new(reader),
                Arc::clone(&self.clock),
                self.config.reads,
                self.ring.clone(),
            )
        });
        Arc::new(shared.reader())
    }

    /// Where the fleets of a plugin's streams are told of its versions.
    pub(crate) fn coordinators(&self, settings: &PluginConfig) -> Vec<Arc<dyn Coordinator>> {
        let table = |stream: &StreamConfig| -> Arc<dyn Coordinator> {
            Arc::new(CoordinatorTable::new(
                self.clients.dynamodb.clone(),
                &stream.application,
            ))
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
