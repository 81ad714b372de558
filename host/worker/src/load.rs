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
            }),
        }
    }

    fn charge(&self, in_plugin: Duration) {
        let micros = u64::try_from(in_plugin.as_micros()).unwrap_or(u64::MAX);
        self.shared
            .in_plugins_micros
            .fetch_add(micros, Ordering::Relaxed);
    }

    fn sample(&self) -> ProcessSample {
        let micros = self.shared.in_plugins_micros.load(Ordering::Relaxed);
        ProcessSample {
            cpu: (self.shared.cpu)(),
            in_plugins: Duration::from_micros(micros),
            cores_milli: self.shared.cores_milli,
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
        Self {
            scaling,
            status,
            parallelism: parallelism.get(),
            meter: Meter::default(),
            charged: BTreeMap::new(),
        }
    }

    /// Measures. To be called with each heartbeat; `None` before there is enough to go by.
    pub(crate) fn measure(&mut self, now: Moment) -> Option<HostLoad> {
        let shards = self.status.measure_shards(self.parallelism);
        self.charge(&shards);
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
            self.scaling
                .process
                .charge(in_plugin.saturating_sub(before));
            charged.insert(id.clone(), (shard.epoch, in_plugin));
        }
        self.charged = charged;
    }
}
