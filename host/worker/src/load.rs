//! What this host measures of an application's load, for its row.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use shardmill_core::pipeline::Parallelism;
use shardmill_core::scaling::{
    HostLoad, Meter, ProcessSample, Sample, ScalingPolicy, ShardSample, thousandths,
};
use shardmill_core::stream::ShardId;
use shardmill_core::time::Moment;

use crate::status::StatusBoard;

/// How an application is scaled, and what the process knows of its own load.
#[derive(Debug, Clone)]
pub struct Scaling {
    /// What the operator wants.
    pub policy: ScalingPolicy,
    /// What all plugins of the process use together.
    pub process: ProcessLoad,
    /// Whether each host reads all shards: then no host is wanted for it, and what it uses is
    /// measured only as what it takes from the others.
    pub is_standalone: bool,
}

/// What a process uses, for all its plugins. Cheap to clone; all workers share one.
#[derive(Clone)]
pub struct ProcessLoad {
    shared: Arc<Shared>,
}

struct Shared {
    cores_milli: u64,
    cpu: Box<dyn Fn() -> Duration + Send + Sync>,
    /// Time in plugins, as the workers have measured it so far.
    in_plugins_micros: AtomicU64,
    /// The part of it that standalone workers measured.
    in_standalone_micros: AtomicU64,
    /// Workers that measure now and are scaled.
    applications: AtomicU64,
}

/// Measures the load of one worker.
pub(crate) struct LoadMeter {
    scaling: Scaling,
    status: StatusBoard,
    parallelism: usize,
    meter: Meter,
    /// The time in the plugin of each held shard that the process has been charged with, and the
    /// holding that it was in.
    charged: BTreeMap<ShardId, (u64, Duration)>,
}

impl ProcessLoad {
    /// A process that may use so many cores; `cpu` is the processor time that it has used so far.
    pub fn new(cores: f64, cpu: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self {
            shared: Arc::new(Shared {
                cores_milli: thousandths(cores),
                cpu: Box::new(cpu),
                in_plugins_micros: AtomicU64::new(0),
                in_standalone_micros: AtomicU64::new(0),
                applications: AtomicU64::new(0),
            }),
        }
    }

    fn charge(&self, in_plugin: Duration, is_standalone: bool) {
        let micros = u64::try_from(in_plugin.as_micros()).unwrap_or(u64::MAX);
        let shared = &self.shared;
        shared
            .in_plugins_micros
            .fetch_add(micros, Ordering::Relaxed);
        if is_standalone {
            shared
                .in_standalone_micros
                .fetch_add(micros, Ordering::Relaxed);
        }
    }

    fn sample(&self) -> ProcessSample {
        let shared = &self.shared;
        let time = |micros: &AtomicU64| Duration::from_micros(micros.load(Ordering::Relaxed));
        ProcessSample {
            cpu: (shared.cpu)(),
            in_plugins: time(&shared.in_plugins_micros),
            in_standalone: time(&shared.in_standalone_micros),
            applications: shared.applications.load(Ordering::Relaxed),
            cores_milli: shared.cores_milli,
        }
    }
}

impl fmt::Debug for ProcessLoad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessLoad")
            .field("cores_milli", &self.shared.cores_milli)
            .finish_non_exhaustive()
    }
}

impl LoadMeter {
    /// A meter for the worker with this status.
    pub(crate) fn new(scaling: Scaling, status: StatusBoard, parallelism: Parallelism) -> Self {
        if !scaling.is_standalone {
            let applications = &scaling.process.shared.applications;
            applications.fetch_add(1, Ordering::Relaxed);
        }
        Self {
            scaling,
            status,
            parallelism: parallelism.get(),
            meter: Meter::default(),
            charged: BTreeMap::new(),
        }
    }

    /// Measures. To be called with each heartbeat; `None` before there is enough to go by, and for
    /// a standalone worker.
    pub(crate) fn measure(&mut self, now: Moment) -> Option<HostLoad> {
        let shards = self.status.measure_shards(self.parallelism);
        self.charge(&shards);
        if self.scaling.is_standalone {
            return None;
        }
        self.meter.take(Sample {
            at: now,
            process: self.scaling.process.sample(),
            shards,
        });
        self.meter.load(&self.scaling.policy)
    }

    /// Adds the time in the plugin since the last time to the process's.
    fn charge(&mut self, shards: &BTreeMap<ShardId, ShardSample>) {
        let mut charged = BTreeMap::new();
        for (id, shard) in shards {
            let in_plugin = shard.spent.in_plugin;
            let before = match self.charged.get(id) {
                Some((epoch, before)) if *epoch == shard.epoch => *before,
                _ => Duration::ZERO,
            };
            let since = in_plugin.saturating_sub(before);
            let scaling = &self.scaling;
            scaling.process.charge(since, scaling.is_standalone);
            charged.insert(id.clone(), (shard.epoch, in_plugin));
        }
        self.charged = charged;
    }
}

impl Drop for LoadMeter {
    fn drop(&mut self) {
        if !self.scaling.is_standalone {
            let applications = &self.scaling.process.shared.applications;
            applications.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
