//! Configuration in, a running host out: the only file that names the AWS and the Wasm adapters together.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use metrics_exporter_prometheus::PrometheusHandle;
use shardmill_aws::{AwsClients, CoordinatorTable, KinesisFanOut, KinesisReader, LeaseTable};
use shardmill_core::plugin::PluginName;
use shardmill_core::ports::{Clock, ProcessorFactory, Sink, StreamReader, Subscriptions};
use shardmill_wasm::folder::{FolderEvent, FolderOptions, PluginFolder};
use shardmill_wasm::{Runtime, RuntimeOptions};
use shardmill_worker::{ByteBudget, Freezer, Ports, WorkerOptions};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::admin::Admin;
use crate::clock::BootClock;
use crate::config::{Config, OnRemove, SinkConfig};
use crate::host_status::HostStatus;
use crate::sinks::{FileSink, FileSinkOptions, LineFormat, Router, StdoutSink};
use crate::supervisor::Supervisor;

/// The sink that exists without being configured.
const STDOUT: &str = "stdout";

/// What all workers of a host share, and what makes one of them.
pub(crate) struct Parts {
    config: Config,
    clients: AwsClients,
    reader: Arc<dyn StreamReader>,
    fan_out: Arc<dyn Subscriptions>,
    sink: Arc<dyn Sink>,
    destinations: Vec<String>,
    clock: Arc<dyn Clock>,
    budget: ByteBudget,
}

/// A host, built and not yet running.
pub struct Host {
    supervisor: Supervisor,
    status: HostStatus,
    folder: PluginFolder,
    events: mpsc::Receiver<FolderEvent>,
    admin: Option<Admin>,
}

impl Host {
    /// Opens sinks, starts the engine, binds the admin address. Takes no lease and reads no record.
    pub async fn build(config: Config, clients: AwsClients, metrics: Option<PrometheusHandle>) -> anyhow::Result<Self> {
        if !config.plugins.is_dir() {
            bail!(
                "there is no plugins folder {}: make it, or set `plugins` in the configuration",
                config.plugins.display()
            );
        }
        let sinks = open_sinks(&config)?;
        let status = HostStatus::new(config.worker_id.as_str());
        let admin =
            match config.host.admin {
                Some(address) => Some(Admin::bind(address, status.clone(), metrics).await.with_context(|| {
                    format!("cannot serve the admin pages on {address}; choose another host.admin")
                })?),
                None => None,
            };
        let Some(budget) = ByteBudget::new(config.host.buffer_bytes) else {
            bail!("host.buffer is too small: one GetRecords reply may hold 10 MiB");
        };
        let runtime_options =
            RuntimeOptions { cache_dir: config.host.cache.clone(), limits: config.limits, ..RuntimeOptions::default() };
        let runtime = Runtime::new(runtime_options).context("cannot start the Wasm engine")?;
        let folder_options = FolderOptions {
            file_bytes_max: config.host.plugin_bytes_max,
            rescan: config.host.rescan_every,
            ..FolderOptions::new(&config.plugins)
        };
        let (folder, events) = PluginFolder::new(runtime, folder_options);
        let parts = Parts {
            reader: Arc::new(KinesisReader::new(clients.kinesis.clone(), config.stream.clone())),
            fan_out: Arc::new(KinesisFanOut::new(clients.kinesis.clone(), config.stream.clone())),
            destinations: sinks.names(),
            sink: Arc::new(sinks),
            clock: Arc::new(BootClock),
            budget,
            clients,
            config,
        };
        Ok(Self { supervisor: Supervisor::new(parts, status.clone()), status, folder, events, admin })
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
    pub async fn run(self, stop: CancellationToken) {
        let mut admin_task = JoinSet::new();
        let admin_stop = CancellationToken::new();
        if let Some(admin) = self.admin {
            admin_task.spawn(admin.serve(admin_stop.clone()));
        }
        let mut folder_task = JoinSet::new();
        folder_task.spawn(self.folder.run(stop.clone()));
        self.supervisor.run(self.events, &stop).await;
        admin_stop.cancel();
        // Its requests take microseconds; a client that never reads is cut off.
        let _ = tokio::time::timeout(Duration::from_millis(200), admin_task.join_all()).await;
    }
}

fn open_sinks(config: &Config) -> anyhow::Result<Router> {
    let mut router = Router::default();
    if !config.sinks.contains_key(STDOUT) {
        router.add(STDOUT, Arc::new(StdoutSink::new(LineFormat::Data)));
    }
    for (name, sink) in &config.sinks {
        match sink {
            SinkConfig::Stdout { format } => router.add(name, Arc::new(StdoutSink::new(*format))),
            SinkConfig::File { path, rotate_bytes, format } => {
                let (path, rotate_bytes, format) = (path.clone(), *rotate_bytes, *format);
                let sink = FileSink::open(FileSinkOptions { name: name.clone(), path, rotate_bytes, format })?;
                router.add(name, Arc::new(sink));
            }
        }
    }
    Ok(router)
}

impl Parts {
    /// Ports and settings of the worker for one plugin.
    pub(crate) fn worker(
        &self,
        name: &PluginName,
        versions: watch::Receiver<Arc<dyn ProcessorFactory>>,
    ) -> (Ports, WorkerOptions) {
        let config = &self.config;
        // The configuration was checked with it; a plugin that it does not name has the general settings.
        let retrieval = config.retrieval(name.as_str()).unwrap_or_default();
        let own = config.plugin.get(name.as_str()).cloned().unwrap_or_default();
        let application = own.application.unwrap_or_else(|| name.as_str().to_owned());
        let ports = Ports {
            reader: Arc::clone(&self.reader),
            subscriptions: Some(Arc::clone(&self.fan_out)),
            store: Arc::new(LeaseTable::new(self.clients.dynamodb.clone(), application.as_str())),
            coordinator: Arc::new(CoordinatorTable::new(self.clients.dynamodb.clone(), &application)),
            sink: Arc::clone(&self.sink),
            clock: Arc::clone(&self.clock),
            budget: self.budget.clone(),
            versions,
            freezer: Freezer::never(),
        };
        let options = WorkerOptions {
            plugin: name.clone(),
            application,
            stream: config.stream.clone(),
            worker: config.worker_id.clone(),
            initial_position: config.initial_position,
            leases: config.leases,
            reads: config.reads,
            retrieval,
            batches: config.batches,
            checkpoints: config.checkpoints,
            backoff: config.retry,
            destinations: self.destinations.clone(),
            config: own.config.into_iter().collect(),
        };
        (ports, options)
    }

    pub(crate) fn drain_limit(&self) -> Duration {
        self.config.host.drain_limit
    }

    pub(crate) fn on_remove(&self) -> OnRemove {
        self.config.host.on_remove
    }
}
