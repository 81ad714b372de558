//! What all workers of a host share, and what one of them is made of.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::bail;
use shardmill_aws::{
    AwsClients, CoordinatorTable, KinesisFanOut, KinesisReader, LeaseTable, StandaloneTables,
};
use shardmill_core::fleet::StandalonePolicy;
use shardmill_core::lease::WorkerId;
use shardmill_core::plugin::{PluginName, plugin_of_label};
use shardmill_core::ports::{
    Clock, Coordinator, DeadLetters, ProcessorFactory, Sink, StreamReader, Tracer,
};
use shardmill_core::stream::StreamRef;
use shardmill_worker::{
    ByteBudget, ByteShare, Freezer, HostBell, Meters, Ports, ProcessLoad, Recordings, RingBudget,
    Scaling, SharedRollout, SharedStream, Standalone, Tap, TickClock, WorkerOptions,
};
use tokio::sync::watch;

use shardmill_config::{
    Config, HistoryKept, Manifest, OnRemove, PluginConfig, ScalingConfig, StreamConfig,
};
use shardmill_sinks::{OwnSinks, Router};

use crate::clock::BootClock;
use crate::metrics::BUFFER_LIMIT;
use crate::process::cpu_time;

/// What all workers of a host share, and what makes one of them.
pub(crate) struct Parts {
    pub(crate) config: Config,
    pub(crate) clients: AwsClients,
    pub(crate) sinks: Sinks,
    pub(crate) dead_letters: Arc<dyn DeadLetters>,
    pub(crate) destinations: Vec<String>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) tick_clock: TickClock,
    pub(crate) budget: ByteBudget,
    pub(crate) ring: RingBudget,
    /// Streams that are read, each by all plugins together.
    pub(crate) streams: HashMap<StreamRef, SharedStream>,
    /// Reads instead of Kinesis, in a dry run.
    pub(crate) reader: Option<Arc<dyn StreamReader>>,
    /// Where batches that failed are kept.
    pub(crate) recordings: Recordings,
    /// Shows what goes through plugins to whoever watches.
    pub(crate) tap: Tap,
    /// Where workers note what happens, for the KCL's metrics.
    pub(crate) meters: Meters,
    /// Takes the traces of batches, if any are traced.
    pub(crate) tracer: Option<Arc<dyn Tracer>>,
    /// Rings when something is wanted of this process.
    pub(crate) bell: HostBell,
    /// How many hosts are wanted, if somebody asks.
    scaling: Option<Scaling>,
    /// The applications that this process serves or served as a standalone host; whether it has
    /// begun with each.
    begun: HashMap<String, Arc<AtomicBool>>,
}

/// What the workers of one plugin share.
#[derive(Clone)]
pub(crate) struct PluginParts {
    pub(crate) budget: ByteShare,
    /// The newest version that is offered.
    pub(crate) versions: watch::Receiver<Arc<dyn ProcessorFactory>>,
    pub(crate) rollout: SharedRollout,
}

/// A plugin's settings, and whether a manifest has a part in them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Settings {
    pub(crate) plugin: PluginConfig,
    pub(crate) has_manifest: bool,
}

impl Settings {
    /// Whether all that differs is how a version runs in the shadow, for which the plugin need not
    /// restart.
    pub(crate) fn differs_only_in_shadow(&self, other: &Self) -> bool {
        let mut like_other = self.clone();
        like_other.plugin.shadow = other.plugin.shadow;
        like_other == *other
    }

    /// Refuses a version that was built for another contract than the settings want.
    pub(crate) fn refuse_other_contract(
        &self,
        version: &dyn ProcessorFactory,
    ) -> Result<(), String> {
        self.plugin.refuse_other_contract(version.contract())
    }
}

/// The two ways out of a host: output of plugins, and records that were given up.
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
    /// One for all, in a dry run.
    One(Arc<dyn Sink>),
}

impl Sinks {
    /// The sinks for one worker. It does not wait for sinks that only others use.
    fn for_worker(&self) -> Arc<dyn Sink> {
        match self {
            Self::Configured(router) => Arc::new(OwnSinks::new(Arc::clone(router))),
            Self::One(sink) => Arc::clone(sink),
        }
    }
}

impl Parts {
    /// `reader` reads instead of Kinesis, if there is one.
    pub(crate) fn new(
        config: Config,
        clients: &AwsClients,
        outputs: Outputs,
        reader: Option<Arc<dyn StreamReader>>,
    ) -> anyhow::Result<Self> {
        let buffer_bytes = config.host.buffer_bytes;
        let Some(budget) = ByteBudget::new(buffer_bytes) else {
            bail!("host.buffer is too small: one GetRecords reply may hold 10 MiB");
        };
        ::metrics::gauge!(BUFFER_LIMIT).set(buffer_bytes as f64);
        Ok(Self {
            ring: RingBudget::of(&budget, buffer_bytes),
            budget,
            streams: HashMap::new(),
            reader,
            recordings: Recordings::off(),
            tap: Tap::default(),
            meters: Meters::off(),
            tracer: None,
            bell: HostBell::default(),
            scaling: config.scaling.map(scaling),
            begun: HashMap::new(),
            destinations: outputs.names,
            sinks: outputs.sinks,
            dead_letters: outputs.dead_letters,
            clock: Arc::new(BootClock),
            tick_clock: TickClock::of(Arc::new(BootClock)),
            clients: clients.for_leases_of(config.leases.duration),
            config,
        })
    }

    /// All settings of a plugin. Reads its manifest again: a small file, read only when it changed.
    /// The error says what to fix, and where.
    pub(crate) fn settings(&self, name: &PluginName) -> Result<Settings, String> {
        let manifest = Manifest::read(&Manifest::path_in(&self.config.plugins, name));
        let manifest = manifest.map_err(|error| error.to_string())?;
        let plugin = self.config.of_plugin(name, manifest.as_ref())?;
        for stream in &plugin.streams {
            let aws = &self.config.aws;
            aws.check_region(&stream.stream, &self.clients.region)?;
        }
        Ok(Settings {
            plugin,
            has_manifest: manifest.is_some(),
        })
    }

    /// One more plugin's share of the host's buffer, for all of its streams, if so many `others`
    /// can have one after it. The error says what to raise.
    pub(crate) fn share(&self, others: usize) -> Result<ByteShare, String> {
        let share = self.budget.share_leaving(others);
        share.map_err(|error| error.to_string())
    }

    /// The ports of the worker for one stream of a plugin.
    pub(crate) fn ports(
        &mut self,
        settings: &PluginConfig,
        stream: &StreamConfig,
        plugin: PluginParts,
    ) -> Ports {
        let application = stream.application.as_str();
        let standalone = settings
            .standalone
            .map(|policy| self.standalone(application, policy, settings.permissions.state));
        // Each of them reads everything, however many there are.
        let is_standalone = standalone.is_some();
        let dynamodb = &self.clients.dynamodb;
        let tables = Arc::new(self.config.tables.clone());
        let fan_out = KinesisFanOut::new(self.clients.kinesis.clone(), &stream.stream)
            .speaking(self.clients.wire.clone());
        Ports {
            subscriptions: Some(Arc::new(fan_out)),
            store: Arc::new(
                LeaseTable::new(dynamodb.clone(), application)
                    .made_as(Arc::clone(&tables))
                    .of_stream(self.clients.kinesis.clone(), &stream.stream),
            ),
            coordinator: Arc::new(
                CoordinatorTable::new(dynamodb.clone(), application)
                    .made_as(tables)
                    .of_stream(self.clients.kinesis.clone(), &stream.stream),
            ),
            standalone,
            reader: self.reader(&stream.stream),
            sink: self.sinks.for_worker(),
            dead_letters: Arc::clone(&self.dead_letters),
            clock: Arc::clone(&self.clock),
            tick_clock: self.tick_clock.clone(),
            budget: plugin.budget,
            versions: plugin.versions,
            rollout: plugin.rollout,
            recordings: self.recordings_of(stream),
            tap: self.tap.clone(),
            meters: self.meters.clone(),
            tracer: self.tracer.clone(),
            bell: self.bell.clone(),
            scaling: self.scaling_of(is_standalone),
            freezer: Freezer::never(),
        }
    }

    /// What a standalone plugin uses is measured too: it takes it from the others.
    fn scaling_of(&self, is_standalone: bool) -> Option<Scaling> {
        let scaling = self.scaling.clone()?;
        Some(Scaling {
            is_standalone,
            ..scaling
        })
    }

    fn standalone(
        &mut self,
        application: &str,
        policy: StandalonePolicy,
        has_state: bool,
    ) -> Standalone {
        let hosts = StandaloneTables::new(self.clients.dynamodb.clone(), application);
        let hosts = hosts.with_state(has_state);
        let has_begun = self.begun.entry(application.to_owned()).or_default();
        Standalone::new(Arc::new(hosts), policy, Arc::clone(has_begun))
    }

    fn recordings_of(&self, stream: &StreamConfig) -> Recordings {
        let plugin = plugin_of_label(stream.label.as_str());
        if self.config.recordings.except.contains(plugin) {
            Recordings::off()
        } else {
            self.recordings.clone()
        }
    }

    /// The settings of the worker for one stream of a plugin.
    pub(crate) fn options(&self, settings: &PluginConfig, stream: &StreamConfig) -> WorkerOptions {
        WorkerOptions {
            plugin: stream.label.clone(),
            application: stream.application.clone(),
            stream: stream.stream.name().clone(),
            worker: self.config.worker_id.clone(),
            initial_position: stream.initial_position,
            leases: self.config.leases,
            reads: self.config.reads,
            retrieval: stream.retrieval.clone(),
            filter: settings.filter.clone(),
            parallelism: settings.parallelism,
            batches: settings.batches,
            checkpoints: settings.checkpoints,
            tick: settings.tick,
            backoff: settings.retry,
            failure: settings.failure.clone(),
            destinations: settings.destinations(&self.destinations),
            config: settings.config.clone().into_iter().collect(),
            limits: Some(settings.limits),
            keeps_state: settings.permissions.state,
            permissions: Arc::new(settings.permissions.clone()),
            rollout: settings.rollout,
            records_own_deeds: self.config.host.history == HistoryKept::All,
        }
    }

    /// The rollout that decides which version each shard of a plugin runs, on all its streams.
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

    /// The tables through which the fleets of a plugin's streams learn about its versions, by
    /// application.
    pub(crate) fn coordinators(
        &self,
        settings: &PluginConfig,
    ) -> Vec<(String, Arc<dyn Coordinator>)> {
        let mut tables: Vec<(String, Arc<dyn Coordinator>)> = Vec::new();
        let options = Arc::new(self.config.tables.clone());
        for stream in &settings.streams {
            let client = self.clients.dynamodb.clone();
            let table = CoordinatorTable::new(client, &stream.application);
            let table = table.made_as(Arc::clone(&options));
            let kinesis = self.clients.kinesis.clone();
            let table = Arc::new(table.of_stream(kinesis, &stream.stream));
            tables.push((stream.application.clone(), table));
        }
        tables
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

/// How the applications of this process are scaled. Its cores are what the operator says, or what
/// the system lets it use: affinity and the quota of its control group count, and that other
/// processes use the same cores does not.
fn scaling(config: ScalingConfig) -> Scaling {
    let cores = config.cores.unwrap_or_else(|| {
        let cores = std::thread::available_parallelism();
        cores.map_or(1.0, |cores| cores.get() as f64)
    });
    Scaling {
        policy: config.policy,
        process: ProcessLoad::new(cores, cpu_time),
        is_standalone: false,
    }
}

/// Warns of a share with which a plugin runs, but not as well as it might.
pub(crate) fn warn_of_small_share(plugin: &PluginName, share: &ByteShare) {
    if share.can_always_read_ahead() {
        return;
    }
    tracing::warn!(
        %plugin,
        guaranteed_mib = share.guaranteed_bytes() >> 20,
        code = "buffer-small",
        "with this plugin, host.buffer has no room for two replies of GetRecords for each plugin: \
            shards may read nothing while they work, and with failure.order = \"key\" records of \
            other keys may wait for one that is retried; give host.buffer 20 MiB for each plugin, \
            or run fewer on a host"
    );
}

/// How many plugins have a right to a place before this one and have none yet, though their files
/// are here: the operator's own, which have a section in the configuration. Files are loaded in any
/// order, and a start must not depend on which is first.
pub(crate) fn to_come(
    config: &Config,
    name: &PluginName,
    is_running: impl Fn(&PluginName) -> bool,
) -> usize {
    let own = config.plugins_with_sections();
    if own.contains(name) {
        return 0;
    }
    let has_file = |other: &PluginName| config.plugins.join(format!("{other}.wasm")).exists();
    own.iter()
        .filter(|other| !is_running(other) && has_file(other))
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn name(name: &str) -> PluginName {
        PluginName::new(name).unwrap()
    }

    #[test]
    fn a_plugin_of_the_operators_has_room_however_many_files_were_loaded_before_it() {
        let folder = tempfile::tempdir().unwrap();
        let text = "stream = \"s\"\nplugins = \".\"\n[plugin.orders]\n[plugin.refunds]\n";
        let config = Config::parse(text, folder.path()).unwrap();
        std::fs::write(folder.path().join("orders.wasm"), "").unwrap();
        let budget = ByteBudget::new(256 * MIB).unwrap();
        let mut running = Vec::new();
        let mut start = |plugin: PluginName| {
            let others = to_come(&config, &plugin, |other| {
                running.iter().any(|(name, _)| name == other)
            });
            let share = budget
                .share_leaving(others)
                .map_err(|error| error.to_string());
            share.map(|share| running.push((plugin, share)))
        };
        for number in 0..24 {
            assert_eq!(start(name(&format!("aaa-{number}"))), Ok(()), "{number}");
        }
        let refused = start(name("aaa-24")).unwrap_err();
        assert!(refused.contains("room is kept for 1 that"), "{refused}");
        assert_eq!(start(name("orders")), Ok(()), "its own");
        assert!(
            start(name("refunds")).is_err(),
            "who comes without a file has none kept"
        );
    }
}
