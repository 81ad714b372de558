//! Configuration in, a running host out: the only file that names the AWS and the Wasm adapters
//! together.

use std::fs::DirBuilder;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use axum::Router;
use shardmill_aws::AwsClients;
use shardmill_config::{CacheSetting, Config};
use shardmill_core::ports::{Clock, StreamReader, Tracer};
use shardmill_sinks::open_sinks;
use shardmill_wasm::folder::{FolderEvent, FolderOptions, PluginFolder};
use shardmill_wasm::{LogLines, Marks, Metering, Runtime, RuntimeOptions};
use shardmill_worker::{HostBell, Recordings, Tap, TickClock};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::admin::Admin;
use crate::clock::{BootClock, SteppedClock};
use crate::emf::Emf;
use crate::engine::runtime_options;
use crate::host_status::HostStatus;
use crate::measurements::Measurements;
use crate::parts::{Outputs, Parts, Sinks};
use crate::pulls::{PullTasks, Pulls};
use crate::recordings::recordings;
use crate::supervisor::{NothingLeft, Reloads, Supervisor};
use crate::traces::Traces;

/// What a dry run puts in the place of what a host has.
pub struct Substitutes {
    /// The sinks that the plugins' output and dead letters go to.
    pub outputs: Outputs,
    /// Instead of Kinesis, if there is one.
    pub reader: Option<Arc<dyn StreamReader>>,
    /// Instead of the time by which plugins are called because time has passed, if there is one.
    pub tick_clock: Option<Arc<SteppedClock>>,
    /// How long a call may take, and how that is measured.
    pub metering: Metering,
    /// Where batches that failed are kept.
    pub recordings: Recordings,
    /// Where compiled code is kept, if that is not where the host keeps all that outlives it.
    pub code: Option<PathBuf>,
}

impl Substitutes {
    /// A host as it is configured: nothing goes elsewhere. Opens the sinks.
    async fn none(
        config: &Config,
        clients: &AwsClients,
        tracer: Option<Arc<dyn Tracer>>,
    ) -> anyhow::Result<Self> {
        let sinks = open_sinks(&config.sinks, &config.aws.options(), Some(clients)).await?;
        let sinks = Arc::new(sinks.traced_by(tracer));
        Ok(Self {
            outputs: Outputs {
                names: sinks.names(),
                sinks: Sinks::Configured(Arc::clone(&sinks)),
                dead_letters: sinks,
            },
            reader: None,
            tick_clock: None,
            metering: Metering::default(),
            recordings: recordings(config),
            code: None,
        })
    }
}

/// What a host is put together with.
struct Surroundings<'a> {
    clients: &'a AwsClients,
    shown: Shown,
    status: HostStatus,
    pulls: Pulls,
}

/// A host, built and not yet running.
pub struct Host {
    runtime: Runtime,
    supervisor: Supervisor,
    status: HostStatus,
    tap: Tap,
    bell: HostBell,
    folder: PluginFolder,
    pulls: Option<PullTasks>,
    events: mpsc::Receiver<FolderEvent>,
    admin: Option<Admin>,
    emf: Option<Emf>,
    traces: Option<Traces>,
}

/// What a host shows of itself to machines.
#[derive(Default)]
struct Shown {
    metrics: Option<Measurements>,
    emf: Option<Emf>,
    traces: Option<Traces>,
}

impl Host {
    /// Opens sinks, starts the engine, binds the admin address. Takes no lease and reads no record.
    pub async fn build(
        config: Config,
        clients: AwsClients,
        metrics: Option<Measurements>,
    ) -> anyhow::Result<Self> {
        let traces = Traces::of(&config)?;
        let tracer = traces.as_ref().map(Traces::tracer);
        let substitutes = Substitutes::none(&config, &clients, tracer).await?;
        let emf = Emf::start(config.emf.as_ref());
        make_folder(&config)?;
        let status = HostStatus::new(config.worker_id.as_str());
        status.configured_are(config.plugins_with_sections());
        let (pulls, tasks) = Pulls::new(&config, &clients, status.sources())?;
        let surroundings = Surroundings {
            clients: &clients,
            shown: Shown {
                metrics,
                emf,
                traces,
            },
            status,
            pulls,
        };
        let host = Self::with(config, surroundings, substitutes)?;
        Ok(Self {
            pulls: Some(tasks),
            ..host
        })
    }

    /// The same, with output going elsewhere than to the configured sinks, and what else a dry run
    /// replaces.
    pub fn for_dry_run(
        config: Config,
        clients: &AwsClients,
        substitutes: Substitutes,
    ) -> anyhow::Result<Self> {
        let surroundings = Surroundings {
            clients,
            shown: Shown::default(),
            status: HostStatus::new(config.worker_id.as_str()),
            pulls: Pulls::none(&config),
        };
        Self::with(config, surroundings, substitutes)
    }

    fn with(
        mut config: Config,
        surroundings: Surroundings<'_>,
        substitutes: Substitutes,
    ) -> anyhow::Result<Self> {
        let Surroundings {
            clients,
            shown:
                Shown {
                    metrics,
                    emf,
                    traces,
                },
            status,
            pulls,
        } = surroundings;
        if !config.plugins.is_dir() {
            bail!("{}", config.no_plugins_folder());
        }
        let marks = marks_of(&config.host.cache);
        let status = status
            .remembering(marks.clone())
            .speaking(clients.wire.clone());
        let admin = bind_admin(&mut config, &status, metrics)?;
        let mut parts = Parts::new(config, clients, substitutes.outputs, substitutes.reader)?;
        if let Some(clock) = substitutes.tick_clock {
            let steps = clock.steps();
            parts.tick_clock = TickClock::stepped(clock, steps);
        }
        parts.recordings = substitutes.recordings;
        parts.meters = emf.as_ref().map(Emf::meters).unwrap_or_default();
        parts.tracer = traces.as_ref().map(Traces::tracer);
        let (bell, rings) = HostBell::new(BootClock.wall_ms());
        parts.bell = bell.clone();
        let reloads = Reloads { file: None, rings };
        let mut options = engine_options(&parts.config, substitutes.metering, &marks)?;
        options.cache_dir = substitutes.code.or(options.cache_dir);
        let runtime = start_engine(options, &parts.tap)?;
        let (folder, events) = PluginFolder::new(runtime.clone(), folder_options(&parts.config));
        Ok(Self {
            tap: parts.tap.clone(),
            bell,
            supervisor: Supervisor::new(parts, status.clone(), &runtime, marks, reloads)
                .pulling(pulls),
            status,
            folder,
            pulls: None,
            events,
            admin,
            emf,
            traces,
            runtime,
        })
    }

    /// The engine that plugins run on.
    pub fn runtime(&self) -> Runtime {
        self.runtime.clone()
    }

    /// What the host is doing, live.
    pub fn status(&self) -> HostStatus {
        self.status.clone()
    }

    /// Shows what goes through plugins here, to whoever watches.
    pub fn tap(&self) -> Tap {
        self.tap.clone()
    }

    /// Names the file that the configuration comes from, to be read again when somebody asks.
    pub fn reload_from(&mut self, file: PathBuf) {
        self.supervisor.reload_from(file);
    }

    /// Has this host do what is wanted of it, such as to read its configuration again.
    pub fn bell(&self) -> HostBell {
        self.bell.clone()
    }

    /// Where the admin pages are, if they are served.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().and_then(|admin| admin.address().ok())
    }

    /// Serves these pages beside the admin pages, if those are served. They ask for tokens
    /// themselves; requests that are not addressed to this host, or that come from other web sites,
    /// do not reach them.
    pub fn serve_too(&mut self, pages: Router) {
        if let Some(admin) = &mut self.admin {
            admin.serve_too(pages);
        }
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
        let sending = self.traces.map(Traces::send);
        let mut folder_task = JoinSet::new();
        folder_task.spawn(self.folder.run(stop.clone()));
        if let Some(pulls) = self.pulls {
            folder_task.spawn(pulls.run(stop.clone()));
        }
        let served = Box::pin(self.supervisor.run(self.events, &stop)).await;
        admin_stop.cancel();
        // Requests take microseconds. A client that never reads is cut off.
        let _ = tokio::time::timeout(Duration::from_millis(200), admin_task.join_all()).await;
        // Waits for the last lines, which must not hold up an async thread.
        let _ = tokio::task::spawn_blocking(move || drop(self.emf)).await;
        if let Some(sending) = sending {
            sending.finish().await;
        }
        served
    }
}

/// What is pulled needs a folder, which nobody else has to make.
fn make_folder(config: &Config) -> anyhow::Result<()> {
    if config.sources.is_empty() || config.plugins.exists() {
        return Ok(());
    }
    let mut folder = DirBuilder::new();
    let made = folder.recursive(true).mode(0o700).create(&config.plugins);
    made.with_context(|| {
        format!(
            "cannot make the folder {} for what is pulled: make it, or name another in `plugins`",
            config.plugins.display()
        )
    })
}

/// Stores the bound port in `config`, so that plugins cannot reach it.
fn bind_admin(
    config: &mut Config,
    status: &HostStatus,
    metrics: Option<Measurements>,
) -> anyhow::Result<Option<Admin>> {
    let Some(address) = config.host.admin else {
        return Ok(None);
    };
    let admin = Admin::bind(address, &config.host, status.clone(), metrics)
        .with_context(|| format!("cannot serve the admin pages on {address}"))?;
    if let Ok(bound) = admin.address() {
        config.host.admin = Some(bound);
    }
    Ok(Some(admin))
}

fn engine_options(
    config: &Config,
    metering: Metering,
    marks: &Marks,
) -> anyhow::Result<RuntimeOptions> {
    let options = runtime_options(config, metering).context("cannot find the compiler")?;
    Ok(RuntimeOptions {
        marks: marks.clone(),
        code_memory_bytes: config.host.code_memory_bytes,
        ..options
    })
}

/// Whoever watches sees what the plugins log, too.
fn start_engine(options: RuntimeOptions, tap: &Tap) -> anyhow::Result<Runtime> {
    let options = RuntimeOptions {
        log_lines: LogLines::seen_by(Arc::new(tap.clone())),
        ..options
    };
    Runtime::new(options).context("cannot start the Wasm engine")
}

fn folder_options(config: &Config) -> FolderOptions {
    FolderOptions {
        file_bytes_max: config.host.plugin_bytes_max,
        plugins_max: config.host.plugins_max,
        first: config.plugins_with_sections(),
        only_first: config.host.only_listed,
        rescan: config.host.rescan_every,
        integrity: config.integrity(),
        ..FolderOptions::new(&config.plugins)
    }
}

/// What the host remembers of its deaths. If the operator named a folder that cannot be used, that
/// is a warning: it needs a fix.
fn marks_of(cache: &CacheSetting) -> Marks {
    const LOST: &str = "if a plugin kills this host, its next run will not know about it";
    let marks = cache.folder().map_or_else(Marks::nothing, Marks::beside);
    match (marks.why_not(), cache) {
        (None, _) => {}
        (Some(why), CacheSetting::At(_)) => {
            tracing::warn!(why, code = "deaths-forgotten", "{LOST}");
        }
        (Some(why), CacheSetting::Unset | CacheSetting::Nowhere(_)) => {
            tracing::info!(why, "{LOST}");
        }
    }
    marks
}
